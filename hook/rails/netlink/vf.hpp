// Reads and changes the attributes of SR-IOV virtual functions. A VF is identified by the netdev of its physical
// function and by its number.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

struct VfSlot {
  std::string pf;   // the physical function's netdev
  unsigned vf = 0;  // N of virtfnN, the link to the VF in sysfs
};

// Returns the netdev of the physical function and the number of a VF. Returns nullopt if the physical function has no
// such VF, or has no netdev on the node.
// sys: "/sys", or the sys directory of a file tree.
// vf_address, pf_address: PCI addresses such as "0000:1a:00.2".
std::optional<VfSlot> find_vf_slot(const std::string& sys, const std::string& vf_address,
                                   const std::string& pf_address);

// Reads the attributes of a VF. Members that the driver does not report are nullopt. Errors: ENODEV, there is no such
// VF.
Result<VfAttributes> read_vf(Netlink& route, int pf_ifindex, unsigned vf);
// Reads the attributes of all VFs of this physical function, by number.
Result<std::map<unsigned, VfAttributes>> read_vfs(Netlink& route, int pf_ifindex);
// Changes attributes of a VF. Each attribute has its own message, so that an error names the attribute that the driver
// refuses; earlier attributes stay changed. The kernel takes VLAN, QoS and protocol only together, and the two rates
// only together. Members of such a group that `attributes` does not have keep their present values.
Result<void> change_vf(Netlink& route, int pf_ifindex, unsigned vf, const VfAttributes& attributes);

// Returns the attributes of the VFs in an RTM_NEWLINK message, by number. Pure.
std::map<unsigned, VfAttributes> vf_attributes(const base::netlink::Message& link);
// Returns the attributes of `before` that differ from `now`. Pure.
VfAttributes changed_vf(const VfAttributes& before, const VfAttributes& now);
struct VfRequest {
  const char* what;  // "MAC", "VLAN"
  RequestBuilder message;
};
// Makes the messages of change_vf(). Pure.
// attributes: has all of VLAN, QoS and protocol or none of them, and both rates or none.
std::vector<VfRequest> vf_requests(int pf_ifindex, unsigned vf, const VfAttributes& attributes);

}  // namespace hook
