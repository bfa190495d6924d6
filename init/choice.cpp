#include "init/choice.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "base/text.hpp"
#include "fabric/pci_sysfs.hpp"

namespace init {
namespace {

using fabric::Inventory;

// An HCA for hosts usually has one or two PCI functions, one for each port. Four functions in one slot, none of them a
// VF, are the NVLink management HCAs of an NVSwitch baseboard (DGX B200, HGX B300).
constexpr std::size_t kManagementFunctions = 4;

// Returns true for a VF. In a virtual machine a VF has no physfn link, so the VF ids of mlx5 decide
// (mlx5_core_pci_table, Linux 6.12).
bool is_vf(const fabric::Hca& hca) {
  constexpr std::array<std::string_view, 8> kIds = {"0x1012", "0x1014", "0x1016", "0x1018",
                                                    "0x101a", "0x101c", "0x101e", "0xa2d3"};
  return hca.physfn || std::ranges::find(kIds, hca.device_id.value_or("")) != kIds.end();
}

class Chooser {
 public:
  Chooser(const Inventory& inventory, const std::vector<Candidate>& candidates)
      : inventory_(inventory), candidates_(candidates) {
    choice_.drop_reasons.resize(candidates.size());
  }

  // Applies the rules in the order of the table in docs/rdma-init.md; each rule sees the ports that the earlier rules
  // left. EFA is first: NCCL does not drive it through NCCL_IB_*, whatever other HCAs exist. Management functions are
  // counted before a list narrows the ports. They are dropped before choose_link_layer() compares the total rates of
  // InfiniBand and Ethernet. The default route only hints at a front-end NIC, so its rule drops no port if all ports
  // match. The rule of the default route precedes the count of address families. Otherwise one front-end NIC with IPv4
  // would outweigh rails with link-local addresses.
  Choice run(const std::optional<fabric::SelectorList>& hcas, const std::optional<nccl::HcaList>& kept_hcas,
             std::optional<unsigned> kept_index) {
    if (has_efa()) return std::move(choice_);
    take_usable();
    find_management();
    if (kept_hcas) {
      keep([&](const Candidate& c) { return kept_hcas->matches(c.hca->name, c.port->number); },
           "excluded by NCCL_IB_HCA, which is already set");
    } else if (hcas) {
      keep([&](const Candidate& c) { return selects(*hcas, *c.hca, *c.port, c.netdevs); },
           fmt::format("excluded by --hca {}", base::printable(hcas->text)));
    }
    // A list of ports to use overrides the heuristics. A list of ports to exclude does not.
    const bool listed = kept_hcas || (hcas && !hcas->exclude);
    if (!listed) set_management_aside();
    choose_link_layer();
    if (!listed) {
      choose_rate();
      avoid([](const Candidate& c) { return c.hca->is_software(); }, "software RDMA device, and hardware is available");
      leave_default_route();
    }
    choose_family(kept_index);
    warn_about_management();
    return std::move(choice_);
  }

 private:
  const Candidate& at(std::size_t index) const { return candidates_[index]; }

  bool has_efa() {
    choice_.efa =
        std::ranges::any_of(candidates_, [](const Candidate& c) { return c.hca->is_efa() && c.hca->is_accessible(); });
    if (!choice_.efa) return false;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      choice_.drop_reasons[i] = candidates_[i].hca->is_efa()
                                    ? "EFA device: NCCL drives it through aws-ofi-nccl, not through NCCL_IB_*"
                                    : "an EFA device is the fabric of this machine";
    }
    return true;
  }

  void take_usable() {
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      // Comma and colon are separators in the lists of every library, and UCX and NVSHMEM read `^` before a list as
      // "all but".
      const std::string& name = candidates_[i].hca->name;
      if (candidates_[i].usable() && (name.find_first_of(",:") != std::string::npos || name.starts_with('^'))) {
        choice_.drop_reasons[i] =
            "its name has a comma, a colon or a leading `^`, which no list of devices can hold; rename it (rdma dev "
            "set)";
      } else if (candidates_[i].usable()) {
        choice_.ports.push_back(i);
      } else {
        choice_.drop_reasons[i] = candidates_[i].reason;
      }
    }
  }

  // Keeps the ports that pass the test. The dropped ports get the reason.
  void keep(const std::function<bool(const Candidate&)>& test, const std::string& reason) {
    std::erase_if(choice_.ports, [&](std::size_t i) {
      if (test(at(i))) return false;
      choice_.drop_reasons[i] = reason;
      return true;
    });
  }

  // Drops the ports that match the test, unless all ports match.
  void avoid(const std::function<bool(const Candidate&)>& test, const std::string& reason) {
    if (std::ranges::all_of(choice_.ports, [&](std::size_t i) { return test(at(i)); })) return;
    keep([&](const Candidate& c) { return !test(c); }, reason);
  }

  // Finds the PCI slots of NVSwitch management functions. All usable ports count, because lists have not excluded any
  // yet.
  void find_management() {
    std::map<std::string_view, std::set<std::string_view>> functions;
    std::set<std::string_view> with_vf;
    std::set<std::string_view> unread;
    for (const std::size_t i : choice_.ports) {
      const fabric::Hca& hca = *at(i).hca;
      if (!hca.pci) continue;
      const std::string_view slot = fabric::pci::slot_of(*hca.pci);
      functions[slot].insert(*hca.pci);
      if (is_vf(hca)) with_vf.insert(slot);
      if (!hca.device_id) unread.insert(slot);
    }
    for (const auto& [slot, members] : functions) {
      if (members.size() < kManagementFunctions) continue;
      if (!with_vf.contains(slot)) management_slots_.insert(slot);
      choice_.needs_models |= unread.contains(slot);
    }
  }

  bool is_management(const Candidate& candidate) const {
    return candidate.hca->pci && management_slots_.contains(fabric::pci::slot_of(*candidate.hca->pci));
  }

  void set_management_aside() {
    // If all ports are in such slots, avoid() keeps them: they are ports of quad-port NICs.
    const std::vector<std::size_t> before = choice_.ports;
    avoid([&](const Candidate& c) { return is_management(c); },
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
    choice_.warnings.push_back(fmt::format(
        "{} set aside as NVSwitch management functions (four or more HCAs of one PCI slot), though they have the "
        "link layer of the chosen ports and are no slower than these; --hca selects them",
        base::join(names, ", ")));
  }

  void choose_link_layer() {
    std::vector<const fabric::Port*> ports;
    for (const std::size_t i : choice_.ports)
      ports.push_back(at(i).port);
    const fabric::LinkLayers layers = fabric::link_layers_of(ports);
    if (!layers.mixed) return;
    keep([&](const Candidate& c) { return layers.takes(*c.port); },
         fmt::format("NCCL cannot mix link layers, and {} has the higher total rate ({} to {} Gb/s)",
                     layers.infiniband >= layers.ethernet ? "InfiniBand" : "Ethernet",
                     std::max(layers.infiniband, layers.ethernet), std::min(layers.infiniband, layers.ethernet)));
  }

  void choose_rate() {
    double highest = 0;
    for (const std::size_t i : choice_.ports)
      highest = std::max(highest, at(i).rate());
    std::erase_if(choice_.ports, [&](std::size_t i) {
      if (at(i).rate() >= highest) return false;
      choice_.drop_reasons[i] =
          fmt::format("{} Gb/s is below the highest rate, {} Gb/s; --hca selects it", at(i).rate(), highest);
      return true;
    });
  }

  // Chooses the family that covers most ports. IPv4 wins a tie, because NCCL uses IPv4 by default, without a variable.
  void choose_family(const std::optional<unsigned>& kept_index) {
    std::size_t ipv4 = 0;
    std::size_t ipv6 = 0;
    std::size_t roce = 0;
    for (const std::size_t i : choice_.ports) {
      if (at(i).port->is_infiniband()) continue;
      ++roce;
      ipv4 += at(i).best(GidRank::kIpv4) ? 1 : 0;
      ipv6 += at(i).best(GidRank::kIpv6) ? 1 : 0;
      for (const UsableGid& gid : at(i).gids) {
        if (gid.index != kept_index) continue;
        // If the user has fixed an index, it decides the family: its GID weighs more than all ports together.
        (gid.rank == GidRank::kIpv4 ? ipv4 : ipv6) += gid.rank == GidRank::kLinkLocal ? 0 : choice_.ports.size() + 1;
      }
    }
    if (roce == 0) return;
    const GidRank rank = ipv4 == 0 && ipv6 == 0 ? GidRank::kLinkLocal : ipv4 >= ipv6 ? GidRank::kIpv4 : GidRank::kIpv6;
    choice_.rank = rank;
    // NCCL uses an index that is set on every port, whatever family its GID there has.
    const auto is_kept = [&](const UsableGid& gid) {
      return gid.index == kept_index && gid.rank != GidRank::kLinkLocal;
    };
    keep(
        [&](const Candidate& c) {
          return c.port->is_infiniband() || c.best(rank) || std::ranges::any_of(c.gids, is_kept);
        },
        rank == GidRank::kIpv4 ? "no IPv4 GID of RoCE v2, and IPv4 covers most ports"
                               : "no IPv6 GID of RoCE v2, and IPv6 covers most ports");
  }

  void leave_default_route() {
    const fabric::Netdev* netdev = fabric::default_route_netdev(inventory_);
    if (!netdev) return;
    avoid([&](const Candidate& c) { return std::ranges::find(c.netdevs, netdev->name) != c.netdevs.end(); },
          fmt::format("{} carries the default route, so it is the front-end NIC; --hca selects it",
                      base::printable(netdev->name)));
  }

  const Inventory& inventory_;
  const std::vector<Candidate>& candidates_;
  Choice choice_;
  std::set<std::string_view> management_slots_;
  std::vector<std::size_t> management_;
};

}  // namespace

Choice choose_ports(const Inventory& inventory, const std::vector<Candidate>& candidates,
                    const std::optional<fabric::SelectorList>& hcas, const std::optional<nccl::HcaList>& kept_hcas,
                    std::optional<unsigned> kept_index) {
  return Chooser(inventory, candidates).run(hcas, kept_hcas, kept_index);
}

}  // namespace init
