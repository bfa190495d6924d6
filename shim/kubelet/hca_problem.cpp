#include "shim/kubelet/hca_problem.hpp"

#include <fmt/core.h>

#include "base/text.hpp"
#include "hook/plan/parts.hpp"

namespace shim {

using hook::NodeHca;

namespace {

// Returns "port 1 is DOWN" for the kernel's "1: DOWN".
std::string ports_text(const fabric::Hca& hca) {
  std::vector<std::string> ports;
  for (const fabric::Port& port : hca.ports) {
    const std::string state = base::value_or(port.state, std::string("not readable"));
    ports.push_back(fmt::format("port {} is {}", port.number,
                                base::printable(base::trim(std::string_view(state).substr(state.rfind(':') + 1)))));
  }
  return base::join(ports, ", ");
}

}  // namespace

Result<std::vector<hook::PlannedNode>> nodes_of_hca(const NodeHca& node, const hook::Candidates& among) {
  if (!node.hca->uverbs) return Error{"has no device node"};
  return hook::planned_nodes(among.config.nodes, among.inventory, {&node});
}

HcaProblem problem_of(const NodeHca& node, const hook::Terms& terms,
                      const Result<std::vector<hook::PlannedNode>>& nodes, const hook::PlanInput& input) {
  const hook::Room room = hook::room_for(node, terms, input);
  // An owner outside of Kubernetes holds the HCA and may keep it for long. may_pass stays false, so that the caller
  // announces the problem at once: Kubernetes must not assign this HCA.
  if (room.held && room.units == 0) return {room.why, false, kHeldProblem};
  if (!nodes) return {nodes.error().message, true, kNodeProblem};
  if (node.is_active()) return {};
  return {"has no active port: " + ports_text(*node.hca), true, kLinkProblem};
}

std::optional<hook::GidSpace> gids_of_children(const NodeHca& node, const hook::Terms& terms) {
  const bool makes_children = terms.mode == hook::Mode::kShared || terms.mode == hook::Mode::kSharedMulti;
  return makes_children && terms.network ? hook::gid_space(*node.hca) : std::nullopt;
}

}  // namespace shim
