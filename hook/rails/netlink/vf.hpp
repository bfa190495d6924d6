// Reads and changes SR-IOV virtual functions by the netdev of their physical function and their number.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

struct VfSlot {
  std::string pf;   // the physical function's netdev
  unsigned vf = 0;  // N of virtfnN
};

// Finds the netdev of the physical function and the number of a VF. sys: "/sys", or a file tree's. vf_address,
// pf_address: PCI addresses ("0000:1a:00.2"). nullopt: no VF of that function, or the function has no netdev on the
// node.
std::optional<VfSlot> find_vf_slot(const std::string& sys, const std::string& vf_address,
                                   const std::string& pf_address);

// Reads the attributes of a VF. Members that the driver does not report are nullopt. Errors: there is no such VF
// (ENODEV).
Result<VfAttributes> read_vf(Netlink& route, int pf_ifindex, unsigned vf);
// Reads the attributes of all VFs of this physical function, by number.
Result<std::map<unsigned, VfAttributes>> read_vfs(Netlink& route, int pf_ifindex);
// Changes attributes of a VF, with one message for each, so that an error names the one that the driver refuses.
// Attributes before it stay changed. The kernel takes VLAN, QoS and protocol only together, and both rates: missing
// ones keep their value.
Result<void> change_vf(Netlink& route, int pf_ifindex, unsigned vf, const VfAttributes& attributes);

// Returns the attributes of the VFs in an RTM_NEWLINK message, by number. Pure.
std::map<unsigned, VfAttributes> vf_attributes(const nlmsghdr* link);
// Returns the attributes of `before` that differ from `now`. Pure.
VfAttributes changed_vf(const VfAttributes& before, const VfAttributes& now);
struct VfRequest {
  const char* what;  // "MAC", "VLAN"
  NetlinkMessage message;
};
// Makes the messages of change_vf(). attributes: VLAN, QoS and protocol are all set or all missing; the two rates as
// well. Pure.
std::vector<VfRequest> vf_requests(int pf_ifindex, unsigned vf, const VfAttributes& attributes);

}  // namespace hook
