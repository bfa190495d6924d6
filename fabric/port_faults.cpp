#include "fabric/port_faults.hpp"

#include <fmt/core.h>

#include <algorithm>

namespace fabric {
namespace {

// Returns the remedy for the state of a port. The states "INIT", "ARMED", "Polling" and "LinkUp" are words of the files
// `state` and `phys_state` in sysfs (Linux 6.12 drivers/infiniband/core/sysfs.c).
std::string remedy_of_state(const Port& port, std::string_view netdev) {
  const std::string state = value_or(port.state, std::string());
  if (port.is_infiniband() && (state.ends_with("INIT") || state.ends_with("ARMED"))) {
    return port.has_subnet_manager() ? "check that the subnet manager runs and knows the port's GUID (`sminfo`)"
                                     : "start a subnet manager: opensm, or the switch's";
  }
  if (value_or(port.phys_state, std::string()).ends_with("Polling"))
    return "check cable, transceiver and the switch's port";
  if (port.is_infiniband()) {
    return value_or(port.phys_state, std::string()).ends_with("LinkUp")
               ? "check the subnet manager and the switch's port (`sminfo`, `ibstat`)"
               : "check cable and the switch's port (`ibstat`)";
  }
  return fmt::format("run `ip link set {0} up`; then check cable and the switch's port (`ethtool {0}`)", netdev);
}

}  // namespace

const Port* port_of_pf(const std::vector<Hca>& hcas, const Hca& vf, const Port& port) {
  const auto pf = vf.physfn ? std::ranges::find(hcas, vf.physfn, &Hca::pci) : hcas.end();
  if (pf == hcas.end()) return nullptr;
  const auto found = std::ranges::find(pf->ports, port.number, &Port::number);
  return found == pf->ports.end() ? nullptr : &*found;
}

InactiveCause inactive_cause(const Hca& hca, const Port& port, const Port* of_pf) {
  if (of_pf && !of_pf->is_active()) return InactiveCause::kPf;
  if (!port.is_infiniband()) return InactiveCause::kPort;
  if (hca.has_zero_guid()) return InactiveCause::kNoGuid;
  const bool is_unserved = hca.physfn && port.has_subnet_manager() &&
                           value_or(port.state, std::string()).ends_with("DOWN") &&
                           value_or(port.phys_state, std::string()).ends_with("LinkUp");
  return is_unserved ? InactiveCause::kUnserved : InactiveCause::kPort;
}

std::string inactive_remedy(InactiveCause cause, const Port& port, std::string_view netdev, std::string_view pf) {
  switch (cause) {
    case InactiveCause::kNoGuid:
      return fmt::format(
          "on the node `ip link set {} vf N node_guid GUID`, the same with `port_guid GUID` and `state auto`, then "
          "unbind and bind the VF: its driver reads the GUID when it is bound",
          pf);
    case InactiveCause::kUnserved:
      return fmt::format(
          "let the subnet manager serve virtual ports (`virt_enabled 2` in opensm.conf), and on the node "
          "`ip link set {} vf N state auto`",
          pf);
    case InactiveCause::kPort:
    case InactiveCause::kPf:
      break;
  }
  return remedy_of_state(port, netdev);
}

std::string_view parse_global_class(std::string_view text) {
  constexpr std::string_view kPrefix = "Global tclass=";
  return text.starts_with(kPrefix) ? text.substr(kPrefix.size()) : std::string_view();
}

}  // namespace fabric
