#include "init/bootstrap.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "base/text.hpp"
#include "init/candidates.hpp"
#include "init/kept.hpp"
#include "init/nccl_rules.hpp"

namespace init {
namespace {

using fabric::Inventory;
using fabric::Netdev;

bool inverts_subnet(const nccl::Version& version) {
  return version >= nccl::kInvertsSubnet && version < nccl::kRightSubnet;
}

// Returns the addresses whose names this version of NCCL compares, in the same order. NCCL ignores ::1.
std::vector<NetdevAddress> named_addresses(const Inventory& inventory, const Settings& settings,
                                           const nccl::Version& version) {
  std::vector<NetdevAddress> addresses = netdev_addresses(inventory);
  const Setting* family = find_setting(settings, "NCCL_SOCKET_FAMILY");
  const std::string_view wanted = family ? std::string_view(family->value) : std::string_view();
  std::erase_if(addresses, [&](const NetdevAddress& one) {
    const bool ipv4 = one.own->address.is_ipv4();
    return wanted == (ipv4 ? "AF_INET6" : "AF_INET") || (!ipv4 && one.own->address.is_loopback()) ||
           (version >= nccl::kTakesRunning && !one.netdev->is_up());
  });
  return addresses;
}

// Returns the address in NCCL_COMM_ID: "10.0.0.1:5000" or "[fd00::1]:5000". A host name is not resolved: that would
// need the network.
std::optional<fabric::Address> root_address(const Settings& settings) {
  const Setting* root = find_setting(settings, "NCCL_COMM_ID");
  if (!root) return std::nullopt;
  std::string_view text = root->value;
  if (text.starts_with('[')) return fabric::parse_address(text.substr(1, text.find_first_of("]%") - 1));
  return fabric::parse_address(text.substr(0, text.rfind(':')));
}

// Returns true if the other address is in the subnet of the address, as this version of NCCL compares.
bool reaches(const fabric::InterfaceAddress& own, const fabric::Address& other, const nccl::Version& version) {
  if (!own.prefix || own.address.family() != other.family()) return false;
  const bool same = masked(own.address, *own.prefix) == masked(other, *own.prefix);
  return same != (inverts_subnet(version) && other.is_ipv4());
}

// Returns the address of NCCL's bootstrap, by NCCL's rule (src/misc/socket.cc, 2.22.3 to 2.30.7). Its netdev is nullptr
// if none fits.
NetdevAddress find_bootstrap(const Inventory& inventory, const Settings& settings, const nccl::Version& version) {
  const auto first_if = [](const std::vector<NetdevAddress>& addresses, const auto& test) {
    const auto found = std::ranges::find_if(addresses, test);
    return found == addresses.end() ? NetdevAddress() : *found;
  };
  const auto named = named_addresses(inventory, settings, version);
  const auto first = [&](std::string_view rule) {
    const auto list = nccl::parse_interface_list(rule);
    return first_if(named, [&](const NetdevAddress& one) { return list.matches(one.name(), 0); });
  };
  // NCCL ignores values of one character.
  const Setting* fixed = find_setting(settings, "NCCL_SOCKET_IFNAME");
  if (fixed && fixed->value.size() > 1) return first(fixed->value);
  if (const NetdevAddress ib = first("ib"); ib.netdev) return ib;
  if (const auto root = root_address(settings)) {
    const auto all = netdev_addresses(inventory);
    const auto found = first_if(all, [&](const NetdevAddress& one) { return reaches(*one.own, *root, version); });
    if (found.netdev) return found;
  }
  // NCCL tries bridges and lo last, because they do not reach other nodes.
  const char* const most = version >= nccl::kTakesRunning ? "^docker,lo,virbr" : "^docker,lo";
  for (const std::string_view rule : {most, "docker", "lo", "virbr"}) {
    if (const NetdevAddress found = first(rule); found.netdev) return found;
  }
  return {};
}

// Returns true if the netdev belongs to a port that the decision uses.
bool is_rail(const Inventory& inventory, const Decision& decision, const Netdev& netdev) {
  const auto candidates = find_candidates(inventory, {});
  return std::ranges::any_of(candidates, [&](const Candidate& candidate) {
    return std::ranges::find(candidate.netdevs, netdev.name) != candidate.netdevs.end() && decision.uses(candidate);
  });
}

// Checks whether NCCL compares the subnet of NCCL_COMM_ID the wrong way round. version: nullopt if it is not known.
std::optional<Check> check_inverted_subnet(const Inventory& inventory, const Settings& settings,
                                           const std::optional<nccl::Version>& version) {
  if (version && !inverts_subnet(*version)) return std::nullopt;
  const NetdevAddress right = find_bootstrap(inventory, settings, nccl::kRightSubnet);
  const NetdevAddress wrong = find_bootstrap(inventory, settings, nccl::kInvertsSubnet);
  if (!right.netdev || wrong.netdev == right.netdev) return std::nullopt;
  return Check{"bootstrap", Verdict::kNote,
               fmt::format("NCCL 2.29.2 to 2.29.7 use {} for their bootstrap, not {}: with NCCL_COMM_ID they take the "
                           "first address outside the subnet of rank 0",
                           printable(wrong.name()), printable(right.name())),
               fmt::format("set NCCL_SOCKET_IFNAME to ={}", printable(right.name()))};
}

// Explains why no address fits NCCL_SOCKET_IFNAME.
Check explain_no_match(const std::vector<NetdevAddress>& seen, const Setting& names) {
  if (names.had_cr && names.value.ends_with('\r')) {
    return {"bootstrap", Verdict::kBad, fmt::format("NCCL_SOCKET_IFNAME matches no netdev that is up: {}", kCrLf),
            fmt::format("sed -i 's/\\r$//' {}", printable(names.source))};
  }
  const auto list = nccl::parse_interface_list(names.value);
  const auto labelled =
      std::ranges::find_if(seen, [&](const NetdevAddress& one) { return list.matches(one.netdev->name, 0); });
  if (labelled == seen.end()) {
    return {"bootstrap", Verdict::kBad,
            "NCCL_SOCKET_IFNAME matches no netdev that is up: NCCL ends with \"No socket interface found\"",
            "correct or unset NCCL_SOCKET_IFNAME"};
  }
  return {
      "bootstrap", Verdict::kBad,
      fmt::format("NCCL_SOCKET_IFNAME matches no address: {} of {} has the label {}, with which NCCL compares",
                  to_string(labelled->own->address), printable(labelled->netdev->name), printable(labelled->name())),
      fmt::format("set NCCL_SOCKET_IFNAME to ={}", printable(labelled->name()))};
}

// Returns true if no other node reaches the address: the loopback netdev has it, or a bridge for the containers or
// virtual machines of this node.
bool reaches_no_other_node(const NetdevAddress& used) {
  const std::string& name = used.netdev->name;
  return used.own->address.is_loopback() || name.starts_with("docker") || name.starts_with("virbr");
}

}  // namespace

std::vector<NetdevAddress> netdev_addresses(const Inventory& inventory) {
  std::vector<NetdevAddress> addresses;
  for (const fabric::Family family : {fabric::Family::kIpv4, fabric::Family::kIpv6}) {
    for (const Netdev& netdev : inventory.netdevs) {
      if (!netdev.is_here()) continue;
      for (const fabric::InterfaceAddress& own : netdev.addresses) {
        if (own.address.family() == family) addresses.push_back({&netdev, &own});
      }
    }
  }
  return addresses;
}

std::optional<std::string> bootstrap_netdev(const Inventory& inventory, const Settings& settings,
                                            const nccl::Version& version) {
  const Netdev* netdev = find_bootstrap(inventory, settings, version).netdev;
  return netdev ? std::optional(netdev->name) : std::nullopt;
}

Check check_bootstrap(const Inventory& inventory, const Settings& settings, const Decision& decision) {
  const auto seen = named_addresses(inventory, settings, nccl::kNewest);
  const NetdevAddress used = find_bootstrap(inventory, settings, nccl::kNewest);
  const Setting* fixed = find_setting(settings, "NCCL_SOCKET_IFNAME");
  if (!used.netdev && fixed) return explain_no_match(seen, *fixed);
  if (!used.netdev) {
    return {"bootstrap", Verdict::kBad, "no netdev with an address is up: NCCL ends with \"No socket interface found\"",
            "connect the container to a network"};
  }
  if (auto check = check_inverted_subnet(inventory, settings, decision.nccl_version)) return *std::move(check);
  const Netdev* route = fabric::default_route_netdev(inventory);
  const auto of_route = std::ranges::find(seen, route, &NetdevAddress::netdev);
  if (!fixed && of_route != seen.end()) {
    const Netdev* down = find_bootstrap(inventory, settings, decision.nccl_version.value_or(nccl::kTakesDown)).netdev;
    const bool takes_down = down && !down->is_up();
    const Netdev* taken = takes_down ? down : used.netdev;
    const bool local = used.own->address.is_ipv4_link_local();
    if (taken != route && (takes_down || local || is_rail(inventory, decision, *taken))) {
      return {"bootstrap", Verdict::kNote,
              fmt::format("NCCL {} {}, {}, for its bootstrap, and the default route uses {}",
                          takes_down ? "may use" : "will use", printable(taken->name),
                          takes_down ? "which is down"
                          : local    ? "with a link-local address"
                                     : "a rail",
                          printable(route->name)),
              fmt::format("set NCCL_SOCKET_IFNAME to ={} (--export bootstrap does)", printable(of_route->name()))};
    }
  }
  const bool is_local = reaches_no_other_node(used);
  return {"bootstrap", is_local ? Verdict::kNote : Verdict::kGood,
          fmt::format("NCCL will use {}{} for its bootstrap ({}){}", printable(used.netdev->name),
                      used.own->label.empty() ? "" : fmt::format(" (label {})", printable(used.own->label)),
                      fixed ? "NCCL_SOCKET_IFNAME" : "its own rule; NCCL_SOCKET_IFNAME is not set",
                      is_local ? ", which reaches no other node: a job of several nodes does not start" : ""),
          is_local ? "connect the container to a network of the nodes, and unset NCCL_SOCKET_IFNAME" : ""};
}

}  // namespace init
