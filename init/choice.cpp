#include "init/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/text.hpp"
#include "fabric/management_slots.hpp"
#include "fabric/rates.hpp"

namespace init {
namespace {

using fabric::Inventory;

class Chooser {
 public:
  // listed: a list of ports to use overrides the heuristics.
  Chooser(const Inventory& inventory, const std::vector<Candidate>& candidates, bool listed,
          std::optional<unsigned> kept_index, unsigned pkey_index)
      : candidates_(candidates),
        listed_(listed),
        kept_index_(kept_index),
        pkey_index_(pkey_index),
        route_(fabric::default_route_netdev(inventory)) {
    choice_.drops.resize(candidates.size());
  }

  // Applies the rules in the order of the table in docs/rdma-init.md; each rule sees the ports that the earlier rules
  // left. EFA is first: NCCL does not drive it through NCCL_IB_*, whatever other HCAs exist. Management functions are
  // counted before a list narrows the ports. They are dropped before choose_link_layer() compares the total rates of
  // InfiniBand and Ethernet.
  Choice run(const std::optional<fabric::SelectorList>& hcas, const std::optional<nccl::HcaList>& kept_hcas) {
    if (has_efa()) return std::move(choice_);
    take_usable();
    find_management();
    if (kept_hcas) {
      keep([&](const Candidate& c) { return kept_hcas->matches(c.hca->name, c.port->number); }, "list",
           "excluded by NCCL_IB_HCA, which is already set");
    } else if (hcas) {
      keep([&](const Candidate& c) { return selects(*hcas, *c.hca, *c.port, c.netdevs); }, "list",
           fmt::format("excluded by --hca {}", base::printable(hcas->text)));
    }
    if (!listed_) set_management_aside();
    choose_link_layer();
    choose_in_layer();
    warn_about_management();
    return std::move(choice_);
  }

 private:
  using Test = std::function<bool(const Candidate&)>;

  const Candidate& at(std::size_t index) const { return candidates_[index]; }

  void drop(std::size_t index, std::string_view cause, std::string reason) {
    if (!tries_) choice_.drops[index] = {cause, Verdict::kNote, std::move(reason)};
  }

  bool has_efa() {
    choice_.efa =
        std::ranges::any_of(candidates_, [](const Candidate& c) { return c.hca->is_efa() && c.hca->is_accessible(); });
    if (!choice_.efa) return false;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      drop(i, "efa",
           at(i).hca->is_efa() ? "EFA device: NCCL drives it through aws-ofi-nccl, not through NCCL_IB_*"
                               : "an EFA device is the fabric of this machine");
    }
    return true;
  }

  void take_usable() {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const Candidate& candidate = at(i);
      // Comma and colon are separators in the lists of every library, and UCX and NVSHMEM read `^` before a list as
      // "all but".
      const std::string& name = candidate.hca->name;
      if (candidate.usable() && (name.find_first_of(",:") != std::string::npos || name.starts_with('^'))) {
        drop(i, "name",
             "its name has a comma, a colon or a leading `^`, which no list of devices can hold; rename it (rdma dev "
             "set)");
      } else if (candidate.usable()) {
        choice_.ports.push_back(i);
      } else {
        choice_.drops[i] = {cause_of(candidate.obstacle), Verdict::kNote, candidate.reason, candidate.remedy};
      }
    }
  }

  // Keeps the ports that pass the test. The dropped ports get the reason.
  void keep(const Test& test, std::string_view cause, const std::string& reason) {
    std::erase_if(choice_.ports, [&](std::size_t i) {
      if (test(at(i))) return false;
      drop(i, cause, reason);
      return true;
    });
  }

  // Drops the ports that match the test, unless all ports match.
  void avoid(const Test& test, std::string_view cause, const std::string& reason) {
    if (std::ranges::all_of(choice_.ports, [&](std::size_t i) { return test(at(i)); })) return;
    keep([&](const Candidate& c) { return !test(c); }, cause, reason);
  }

  // Finds the PCI slots of NVSwitch management functions. All usable ports count, because lists have not excluded any
  // yet.
  void find_management() {
    std::vector<const fabric::Hca*> usable;
    usable.reserve(choice_.ports.size());
    for (const std::size_t i : choice_.ports)
      usable.push_back(at(i).hca);
    management_slots_ = fabric::management_slots(usable);
    choice_.needs_models |= management_slots_.needs_models;
  }

  bool is_management(const Candidate& candidate) const { return management_slots_.has(*candidate.hca); }

  void set_management_aside() {
    // If all ports are in such slots, avoid() keeps them: they are ports of quad-port NICs.
    const std::vector<std::size_t> before = choice_.ports;
    avoid([&](const Candidate& c) { return is_management(c); }, "management",
          "NVSwitch management function (four or more HCAs of one PCI slot); --hca selects it");
    std::ranges::set_difference(before, choice_.ports, std::back_inserter(management_));
  }

  // Warns about dropped management functions that are as fast as the chosen ports: such a function may be a rail.
  void warn_about_management() {
    if (choice_.ports.empty()) return;
    const Candidate& taken = at(choice_.ports.front());
    std::vector<std::string> names;
    for (const std::size_t i : management_) {
      if (at(i).port->is_infiniband() == taken.port->is_infiniband() && at(i).rate() >= taken.rate()) {
        names.push_back(base::printable(at(i).name()));
      }
    }
    if (names.empty()) return;
    choice_.warnings.push_back(
        {"management", Verdict::kNote,
         fmt::format(
             "{} left out, because four or more HCAs of one PCI slot are usually NVSwitch management functions, though "
             "they have the link layer of the chosen ports and are no slower than these; --hca selects them",
             base::join(names, ", "))});
  }

  // Chooses the link layer. Only the ports count that the next rules would keep, at most as many as NCCL uses: a port
  // that is dropped afterwards carries nothing.
  void choose_link_layer() {
    const std::vector<std::size_t> all = choice_.ports;
    const auto infiniband = static_cast<std::size_t>(
        std::ranges::count_if(all, [&](std::size_t i) { return at(i).port->is_infiniband(); }));
    if (infiniband == 0 || infiniband == all.size()) return;
    fabric::LinkLayers layers{.mixed = true};
    tries_ = true;
    for (double* const total : {&layers.infiniband, &layers.ethernet}) {
      keep([&](const Candidate& c) { return c.port->is_infiniband() == (total == &layers.infiniband); }, {}, {});
      choose_in_layer();
      for (std::size_t i = 0; i < std::min(choice_.ports.size(), nccl::kMaxPorts); ++i)
        *total += at(choice_.ports[i]).rate();
      choice_.ports = all;
    }
    tries_ = false;
    keep([&](const Candidate& c) { return layers.takes(*c.port); }, "other-link-layer",
         fmt::format("NCCL cannot mix link layers, and {} has the higher total rate ({} to {} Gb/s)",
                     layers.infiniband >= layers.ethernet ? "InfiniBand" : "Ethernet",
                     std::max(layers.infiniband, layers.ethernet), std::min(layers.infiniband, layers.ethernet)));
  }

  // Applies the rules among the ports of one link layer. The default route only hints at a front-end NIC, so its rule
  // drops no port if all ports match. It precedes the count of address families. Otherwise one front-end NIC with IPv4
  // would outweigh rails with link-local addresses.
  void choose_in_layer() {
    if (!listed_) {
      avoid([](const Candidate& c) { return c.hca->is_software(); }, "software",
            "software RDMA device, and hardware is available");
      leave_fast_default_route();
      choose_rate();
      leave_default_route();
    }
    choose_family();
    choose_network();
  }

  // Returns the rates of the ports that pass a test.
  fabric::Rates rates_of(const Test& test) const {
    fabric::Rates rates;
    for (const std::size_t i : choice_.ports)
      if (test(at(i))) rates.add(at(i).rate());
    return rates;
  }

  void choose_rate() {
    const double highest = rates_of([](const Candidate&) { return true; }).highest;
    std::erase_if(choice_.ports, [&](std::size_t i) {
      if (at(i).rate() >= highest) return false;
      drop(i, "rate",
           fmt::format("{} Gb/s is below the highest rate, {} Gb/s; --hca selects it", at(i).rate(), highest));
      return true;
    });
  }

  // Chooses the family that covers most ports. IPv4 wins a tie, because NCCL uses IPv4 by default, without a variable.
  void choose_family() {
    std::size_t ipv4 = 0;
    std::size_t ipv6 = 0;
    std::size_t roce = 0;
    for (const std::size_t i : choice_.ports) {
      if (at(i).port->is_infiniband()) continue;
      ++roce;
      ipv4 += at(i).best(GidRank::kIpv4) ? 1 : 0;
      ipv6 += at(i).best(GidRank::kIpv6) ? 1 : 0;
      for (const UsableGid& gid : at(i).gids) {
        if (gid.index != kept_index_) continue;
        // If the user has fixed an index, it decides the family: its GID weighs more than all ports together.
        (gid.rank == GidRank::kIpv4 ? ipv4 : ipv6) += gid.rank == GidRank::kLinkLocal ? 0 : choice_.ports.size() + 1;
      }
    }
    choice_.rank.reset();
    if (roce == 0) return;
    const GidRank rank = ipv4 == 0 && ipv6 == 0 ? GidRank::kLinkLocal : ipv4 >= ipv6 ? GidRank::kIpv4 : GidRank::kIpv6;
    choice_.rank = rank;
    // NCCL uses an index that is set on every port, whatever family its GID there has.
    const auto is_kept = [&](const UsableGid& gid) {
      return gid.index == kept_index_ && gid.rank != GidRank::kLinkLocal;
    };
    std::erase_if(choice_.ports, [&](std::size_t i) {
      const Candidate& c = at(i);
      if (c.port->is_infiniband() || c.best(rank) || std::ranges::any_of(c.gids, is_kept)) return false;
      const char* const name = rank == GidRank::kIpv4 ? "IPv4" : "IPv6";
      if (c.best(GidRank::kIpv4) || c.best(GidRank::kIpv6)) {
        drop(i, "family", fmt::format("no {0} GID of RoCE v2, and {0} covers most ports", name));
      } else {
        drop(i, "link-local", "only a link-local GID of RoCE v2, and other ports have global ones");
        choice_.drops[i].remedy =
            fmt::format("assign an {} address to {}", name, base::printable(c.best(GidRank::kLinkLocal)->netdev));
      }
      return true;
    });
  }

  bool is_of_default_route(const Candidate& c) const {
    return route_ && std::ranges::find(c.netdevs, route_->name) != c.netdevs.end();
  }

  void leave_default_route() {
    if (!route_) return;
    avoid([&](const Candidate& c) { return is_of_default_route(c); }, "default-route",
          fmt::format("{} carries the default route, so it is the front-end NIC; --hca selects it",
                      base::printable(route_->name)));
  }

  // Drops a front-end NIC that is faster than the rails, if the rails have at least its rate together. Otherwise the
  // rule of the highest rate would drop the rails, and leave only a port that the next rule drops beside other ports.
  void leave_fast_default_route() {
    const fabric::Rates route = rates_of([&](const Candidate& c) { return is_of_default_route(c); });
    const fabric::Rates rails = rates_of([&](const Candidate& c) { return !is_of_default_route(c); });
    if (hides_rails(route, rails)) leave_default_route();
  }

  // Returns the name of the port's InfiniBand network: subnet and, with_partition, partition. Empty: not known, or no
  // InfiniBand.
  std::string network_of(const Candidate& c, bool with_partition) const {
    const auto subnet = c.port->subnet_prefix();
    const auto pkey = with_partition ? c.port->pkey_at(pkey_index_) : std::nullopt;
    if (!subnet) return {};
    return fmt::format("subnet {}/64{}", to_string(*subnet),
                       pkey ? fmt::format(", P_Key {:#x}", *pkey | fabric::kFullMember) : "");
  }

  // Returns the network with the highest total rate, empty if two are equal. networks: that of each chosen port.
  // Appends a text with the number of ports for each network to counts.
  std::string largest_of(const std::vector<std::string>& networks, std::vector<std::string>& counts) const {
    std::string largest;
    double most = 0;
    for (std::size_t i = 0; i < networks.size(); ++i) {
      const std::string& network = networks[i];
      if (network.empty() || std::ranges::find(networks, network) - networks.begin() != std::ptrdiff_t(i)) continue;
      double total = 0;
      for (std::size_t k = i; k < networks.size(); ++k)
        total += networks[k] == network ? at(choice_.ports[k]).rate() : 0;
      counts.push_back(fmt::format("{} in {}", std::ranges::count(networks, network), network));
      largest = total > most ? network : total == most ? "" : largest;
      most = std::max(most, total);
    }
    return largest;
  }

  // Keeps the InfiniBand network with the highest total rate, because ports of two networks have no path between them.
  // Keeps all ports if two networks are equal, as the rails of parallel fabrics are, or if the user listed them.
  void choose_network() {
    // A port with unknown P_Keys may be in each partition. An index without a P_Key is wrong, and check_pkey() reports
    // it.
    const auto has_pkey = [&](std::size_t i) {
      return (at(i).port->pkey_at(pkey_index_).value_or(0) & ~fabric::kFullMember) != 0;
    };
    const bool partitions = std::ranges::all_of(choice_.ports, has_pkey);
    std::vector<std::string> networks;
    for (const std::size_t i : choice_.ports)
      networks.push_back(network_of(at(i), partitions));
    std::vector<std::string> counts;
    const std::string largest = largest_of(networks, counts);
    if (counts.size() < 2) return;
    const bool drops = !largest.empty() && !listed_;
    constexpr std::size_t kShown = 3;
    if (!tries_) {
      choice_.warnings.push_back(
          {"networks", Verdict::kNote,
           fmt::format("ports of {} InfiniBand networks, between which there is no path: {}", counts.size(),
                       base::join_first(counts, kShown, "; ", "; ")),
           drops ? "--hca selects the ports of another network"
                 : "set NCCL_CROSS_NIC=0, so that NCCL connects equal rails only, or select one network with --hca"});
    }
    if (!drops) return;
    keep(
        [&](const Candidate& c) {
          const std::string network = network_of(c, partitions);
          return network.empty() || network == largest;
        },
        "network", "its InfiniBand network is not that of most ports, and there is no path between them");
  }

  const std::vector<Candidate>& candidates_;
  const bool listed_;
  const std::optional<unsigned> kept_index_;
  const unsigned pkey_index_;
  const fabric::Netdev* const route_;  // the netdev of the default route; nullptr: not known
  Choice choice_;
  bool tries_ = false;  // the rules are applied for a comparison only, and their reasons are dropped
  fabric::ManagementSlots management_slots_;
  std::vector<std::size_t> management_;
};

}  // namespace

Choice choose_ports(const Inventory& inventory, const std::vector<Candidate>& candidates,
                    const std::optional<fabric::SelectorList>& hcas, const std::optional<nccl::HcaList>& kept_hcas,
                    std::optional<unsigned> kept_index, unsigned pkey_index) {
  // A list of ports to use overrides the heuristics. A list of ports to exclude does not.
  const bool listed = kept_hcas || (hcas && !hcas->exclude);
  return Chooser(inventory, candidates, listed, kept_index, pkey_index).run(hcas, kept_hcas);
}

}  // namespace init
