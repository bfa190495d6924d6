#include <algorithm>
#include <set>

#include "fabric/port_use.hpp"
#include "fabric/text.hpp"
#include "hook/plan/plan_parts.hpp"

namespace hook {
namespace {

using fabric::Port;
using fabric::PortObstacle;

// In the order in which they are said: the last one that some port meets has come furthest.
enum class Lack { kActivePort, kLinkLayer, kAddresses, kGid, kRail, kRailAddress, kRdmaDevice, kNothing };

class Use {
 public:
  Use(const PlanInput& input, const Chosen& chosen) : input_(input), on_node_(input.among.inventory) {
    for (const ChosenHca& unit : chosen.units) {
      hcas_.insert(unit.node->hca);
      if (input.host_network || !unit.terms.network || unit.terms.mode == Mode::kHca) continue;
      with_rail_.insert(unit.node->hca);
      if (has_address(input, unit)) with_address_.insert(unit.node->hca);
    }
  }

  // What keeps the port from being used in the container, which has its device node. In the node's network namespace it
  // is what keeps everybody there. In the container's own the GIDs are those of a rail, and an exclusive RDMA subsystem
  // shows a namespace its own devices only, which a rail brings.
  Lack lack_of(const fabric::Hca& hca, const Port& port) const {
    switch (input_.host_network ? on_node_.use_of(port).obstacle : port.obstacle()) {
      case PortObstacle::kNotActive:
        return Lack::kActivePort;
      case PortObstacle::kLinkLayer:
        return Lack::kLinkLayer;
      case PortObstacle::kNoOwnGid:
        return input_.among.inventory.net_error ? Lack::kAddresses : Lack::kGid;
      case PortObstacle::kNone:
        break;
    }
    if (input_.host_network) return Lack::kNothing;
    if (port.is_ethernet() && hca.is_iwarp()) return Lack::kGid;
    if (with_rail_.contains(&hca))
      return port.is_infiniband() || with_address_.contains(&hca) ? Lack::kNothing : Lack::kRailAddress;
    if (input_.among.inventory.netns_mode == fabric::NetnsMode::kExclusive) return Lack::kRdmaDevice;
    return port.is_infiniband() ? Lack::kNothing : Lack::kRail;
  }

  // The HCAs that rdma-init will use; furthest: what is least to be done for one.
  std::size_t count(Lack& furthest) const {
    std::vector<const Port*> usable;
    for (const fabric::Hca* hca : hcas_) {
      for (const Port& port : hca->ports) {
        const Lack lack = lack_of(*hca, port);
        furthest = std::max(furthest, lack);
        if (lack == Lack::kNothing) usable.push_back(&port);
      }
    }
    const fabric::LinkLayers layers = fabric::link_layers_of(usable);
    const auto is_used = [&](const Port& port) {
      return layers.takes(port) && std::find(usable.begin(), usable.end(), &port) != usable.end();
    };
    return static_cast<std::size_t>(std::count_if(hcas_.begin(), hcas_.end(), [&](const fabric::Hca* hca) {
      return std::any_of(hca->ports.begin(), hca->ports.end(), is_used);
    }));
  }

 private:
  const PlanInput& input_;
  fabric::OwnAddresses on_node_;
  std::set<const fabric::Hca*> hcas_;
  std::set<const fabric::Hca*> with_rail_;
  std::set<const fabric::Hca*> with_address_;
};

const char* words_for(Lack lack) {
  switch (lack) {
    case Lack::kLinkLayer:
      return "no ACTIVE port is InfiniBand or Ethernet, so NCCL does not drive them itself (EFA: aws-ofi-nccl does)";
    case Lack::kAddresses:
      return "the addresses in the node's network namespace, which the container shares, are unknown";
    case Lack::kGid:
      return "no RoCE port has a GID of RoCE v2 and an address in the network namespace of the container";
    case Lack::kRail:
      return "the container has a network namespace of its own, in which a RoCE port has no GID without a rail; "
             "\"networks\" in config.json gives rails; where another network (macvlan, SR-IOV) brings netdevs, set "
             "RDMA_INIT_REQUIRE in the pod";
    case Lack::kRailAddress:
      return "no rail of a RoCE port has an address: none of its network in config.json, nor of a netdev that moves";
    case Lack::kRdmaDevice:
      return "the RDMA subsystem is exclusive, and a network namespace of the container's own has an RDMA device only "
             "with a rail of mode exclusive";
    case Lack::kActivePort:
    case Lack::kNothing:
      break;
  }
  return "no port is ACTIVE";
}

}  // namespace

void require_usable(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  if (input.require) {
    if (fabric::parse_number<unsigned>(*input.require)) plan.env["RDMA_INIT_REQUIRE"] = *input.require;
    return;
  }
  Lack furthest = Lack::kActivePort;
  const std::size_t usable = Use(input, chosen).count(furthest);
  if (usable > 0) {
    plan.env["RDMA_INIT_REQUIRE"] = std::to_string(usable);
  } else {
    plan.warnings.push_back(fmt::format("RDMA_INIT_REQUIRE is not set: {}", words_for(furthest)));
  }
}

}  // namespace hook
