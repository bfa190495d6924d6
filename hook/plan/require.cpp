#include <algorithm>
#include <iterator>
#include <set>

#include "base/text.hpp"
#include "fabric/library_variables.hpp"
#include "fabric/port_use.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

using fabric::Netdev;
using fabric::Port;
using fabric::PortObstacle;

// The obstacle that makes a port unusable; kNothing: the port is usable. A port with a higher value needs less work to
// become usable. Messages name the highest value of all ports.
enum class Lack { kActivePort, kLinkLayer, kAddresses, kGid, kRail, kRailAddress, kRdmaDevice, kNothing };

constexpr const char* kRequire = "RDMA_INIT_REQUIRE";

struct Count {
  std::size_t hcas = 0;           // HCAs that rdma-init will use
  Lack lack = Lack::kActivePort;  // highest Lack of the unusable HCAs: the obstacle that needs the least work
  // Upper bound of the HCAs that rdma-init can find, over all link layers. Counts an HCA without a rail, because
  // another network may add a netdev to the container. Counts an HCA that has a rail without an address, because the
  // kernel adds a link-local address to the rail.
  std::size_t at_most = 0;
  Lack hindrance = Lack::kActivePort;  // highest Lack of the HCAs that at_most does not count
};

class Use {
 public:
  Use(const PlanInput& input, const Chosen& chosen) : input_(input), on_node_(input.among.inventory) {
    for (const ChosenHca& unit : chosen.units) {
      hcas_.insert(unit.node->hca);
      if (!input.host_network && unit.node->netdev && input.moved_netdevs.contains(*unit.node->netdev)) {
        with_rail_.insert(unit.node->hca);
        if (has_own_address(input.among.inventory, *unit.node)) with_address_.insert(unit.node->hca);
      }
      if (input.host_network || !unit.terms.network || unit.terms.mode == Mode::kHca) continue;
      with_rail_.insert(unit.node->hca);
      if (has_address(input, unit)) with_address_.insert(unit.node->hca);
    }
  }

  // Returns what the port lacks for a container that has the HCA's device node. In the node's network namespace, a port
  // has the same obstacle for all processes. In the container's own namespace, a RoCE port has GIDs only from a rail,
  // and in an exclusive RDMA subsystem only a rail brings an RDMA device.
  Lack lack_of(const fabric::Hca& hca, const Port& port) const {
    switch (input_.host_network ? on_node_.use_of(port).obstacle : obstacle_of_rail(hca, port)) {
      case PortObstacle::kNotActive:
        return Lack::kActivePort;
      case PortObstacle::kLinkLayer:
        return Lack::kLinkLayer;
      case PortObstacle::kNoOwnGid:
        return input_.host_network && input_.among.inventory.net_error ? Lack::kAddresses : Lack::kGid;
      case PortObstacle::kNone:
        break;
    }
    if (input_.host_network) return Lack::kNothing;
    if (with_rail_.contains(&hca))
      return port.is_infiniband() || with_address_.contains(&hca) ? Lack::kNothing : Lack::kRailAddress;
    if (input_.among.inventory.netns_mode == fabric::NetnsMode::kExclusive) return Lack::kRdmaDevice;
    return port.is_infiniband() ? Lack::kNothing : Lack::kRail;
  }

  Count count() const {
    Count count;
    std::vector<const Port*> usable;
    for (const fabric::Hca* hca : hcas_) {
      Lack least = Lack::kActivePort;
      for (const Port& port : hca->ports) {
        const Lack lack = lack_of(*hca, port);
        least = std::max(least, lack);
        if (lack == Lack::kNothing) usable.push_back(&port);
      }
      if (least != Lack::kNothing) count.lack = std::max(count.lack, least);
      if (least == Lack::kNothing || least == Lack::kRail || least == Lack::kRailAddress) {
        ++count.at_most;
      } else {
        count.hindrance = std::max(count.hindrance, least);
      }
    }
    // rdma-init uses ports of only one link layer. Both programs call link_layers_of(), so that they count the same
    // HCAs.
    const fabric::LinkLayers layers = fabric::link_layers_of(usable);
    const auto is_used = [&](const Port& port) {
      return layers.takes(port) && std::ranges::find(usable, &port) != usable.end();
    };
    const auto is_hca_used = [&](const fabric::Hca* hca) { return std::ranges::any_of(hca->ports, is_used); };
    count.hcas = static_cast<std::size_t>(std::ranges::count_if(hcas_, is_hca_used));
    return count;
  }

 private:
  const PlanInput& input_;
  fabric::OwnAddresses on_node_;
  std::set<const fabric::Hca*> hcas_;
  std::set<const fabric::Hca*> with_rail_;
  std::set<const fabric::Hca*> with_address_;
};

struct Words {
  const char* token;  // a word for the log line
  const char* text;
};

// The words of each Lack except kNothing, in the order of the enum.
constexpr Words kWords[] = {
    {"no-active-port", "no port is ACTIVE"},
    {"no-link-layer", "no ACTIVE port is InfiniBand or Ethernet, which NCCL requires (EFA works with aws-ofi-nccl)"},
    {"unknown-addresses", "the addresses in the node's network namespace, which the container shares, are unknown"},
    {"no-gid", "no RoCE port has a GID of RoCE v2 and an address in the network namespace of the container"},
    {"no-rail",
     "a RoCE port has no GID in the container's own network namespace without a rail; add \"networks\" to "
     "config.json, or set RDMA_INIT_REQUIRE in the pod if another network (macvlan, SR-IOV) adds "
     "netdevs"},
    {"no-rail-address",
     "no rail of a RoCE port has an address, neither from its network in config.json nor from a moved netdev"},
    {"no-rdma-device",
     "the RDMA subsystem is exclusive: the container's own network namespace has an RDMA device only with a "
     "rail of mode exclusive"}};
static_assert(std::size(kWords) == static_cast<std::size_t>(Lack::kNothing));

const Words& words_for(Lack lack) {
  return kWords[static_cast<std::size_t>(lack)];
}

// Keeps the container's RDMA_INIT_REQUIRE. Warns if rdma-init will not start the trainer because of this value.
void require_own(const std::string& own, const Count& count, std::size_t granted, Plan& plan) {
  plan.env[kRequire] = own;
  const auto number = base::parse_number<unsigned>(own);
  if (own.empty()) {
    plan.no_require = "empty";
  } else if (!number) {
    plan.no_require = "no-number";
    plan.warnings.push_back(
        fmt::format("the container's {} `{}` is not a number, so rdma-init will not start the trainer: correct it "
                    "in the pod or remove it",
                    kRequire, base::printable(own)));
  } else if (*number > count.at_most) {
    const std::string others =
        count.at_most == granted ? "" : fmt::format(" (for the other HCAs: {})", words_for(count.hindrance).text);
    plan.warnings.push_back(
        fmt::format("the container's {} {} is above the {} HCA{} that it can use, so rdma-init will not start the "
                    "trainer: lower "
                    "it in the pod or request more HCAs{}",
                    kRequire, own, count.at_most, count.at_most == 1 ? "" : "s", others));
  }
}

// Returns the netdevs that have GIDs on the port: its netdev and that netdev's bond.
std::vector<const Netdev*> netdevs_of(const fabric::Inventory& inventory, const Port& port) {
  std::vector<const Netdev*> netdevs;
  const Netdev* netdev = port.netdev ? find_netdev(inventory, *port.netdev) : nullptr;
  if (netdev) netdevs.push_back(netdev);
  if (netdev && netdev->master) netdev = find_netdev(inventory, *netdev->master);
  if (netdev && netdev != netdevs.front()) netdevs.push_back(netdev);
  return netdevs;
}

}  // namespace

void require_usable(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  const Count count = Use(input, chosen).count();
  if (input.require) return require_own(*input.require, count, plan.hcas.size(), plan);
  if (count.hcas > 0) {
    plan.env[kRequire] = std::to_string(count.hcas);
    return;
  }
  const Words words = words_for(count.lack);
  plan.no_require = words.token;
  plan.warnings.push_back(fmt::format("{} is not set: {}", kRequire, words.text));
}

SiteValues site_values(const std::vector<ChosenHca>& units, Plan& plan) {
  SiteValues values;
  std::set<std::string> differing;
  for (const ChosenHca& unit : units) {
    SiteValues own = unit.terms.network ? unit.terms.network->env : SiteValues();
    own.insert(unit.node->pool->env.begin(), unit.node->pool->env.end());
    // A variable that another HCA of the container lacks applies to all: a variable is of a process, not of an HCA.
    for (const auto& [name, value] : own)
      if (values.try_emplace(name, value).first->second != value) differing.insert(name);
  }
  for (const std::string& name : differing) {
    values.erase(name);
    plan.warnings.push_back(
        fmt::format("{} is not set: the pools or networks of the container's HCAs have different values for it in "
                    "\"env\"",
                    name));
  }
  return values;
}

void set_site_values(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  SiteValues values = site_values(chosen.units, plan);
  if (has_topology(input))
    values.emplace("NCCL_TOPO_FILE", fmt::format("{}/{}", fabric::kTopologyDirectory, fabric::kTopologyName));
  if (input.topology && !*input.topology) plan.warnings.push_back(base::with_remedy(input.topology->error()));
  if (!values.empty()) plan.env[fabric::kSiteName] = fabric::site_text(values);
}

void set_rails(const std::vector<const NodeHca*>& granted, Plan& plan) {
  std::vector<std::string> rails;
  for (const NodeHca* node : granted) {
    if (!node->entry_unknown.empty()) {
      plan.warnings.push_back(fmt::format("{} is not set: the rail of `{}` is not known: {}", fabric::kRailsName,
                                          base::printable(node->name()), node->entry_unknown));
      return;
    }
    if (!node->entry) continue;
    const auto plane = node->entry->plane;
    rails.push_back(fmt::format("{}={}{}", node->name(), node->entry->rail, plane ? fmt::format(".{}", *plane) : ""));
  }
  if (!rails.empty()) plan.env[fabric::kRailsName] = base::join(rails, ",");
}

void announce_node_addresses(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan) {
  const fabric::Inventory& inventory = input.among.inventory;
  const bool is_exclusive = inventory.netns_mode == fabric::NetnsMode::kExclusive;
  if (input.host_network || !plan.netdevs.empty() || is_exclusive) return;
  std::vector<std::string> reported;
  for (const NodeHca* node : granted) {
    for (const Port& port : node->hca->ports) {
      if (!port.is_active() || !port.is_ethernet()) continue;
      if (port.netdev && input.moved_netdevs.contains(*port.netdev))
        continue;  // the runtime moves the netdev with its addresses
      std::set<fabric::Address> addresses;
      for (const Netdev* netdev : netdevs_of(inventory, port)) {
        for (const fabric::InterfaceAddress& own : netdev->addresses)
          if (!own.address.is_link_local()) addresses.insert(own.address);
      }
      for (const fabric::Address& address : addresses)
        reported.push_back(fmt::format("{}:{}={}", node->name(), port.number, to_string(address)));
    }
  }
  if (!reported.empty()) plan.env["RDMA_INIT_NODE_ADDRESSES"] = base::join(reported, ",");
}

}  // namespace hook
