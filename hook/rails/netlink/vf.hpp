// SR-IOV virtual functions, which are configured through the netdev of their physical function, by number.
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

// sys: "/sys", or a file tree's. vf_address, pf_address: PCI addresses ("0000:1a:00.2"). nullopt: it is no VF of that
// function, or the function has no netdev on the node.
std::optional<VfSlot> find_vf_slot(const std::string& sys, const std::string& vf_address,
                                   const std::string& pf_address);

// The attributes of VF number vf of this physical function as they are; members that the driver does not report are
// nullopt. Errors: it has no such VF (ENODEV).
Result<VfAttributes> read_vf(Netlink& route, int pf_ifindex, unsigned vf);
// Of all its VFs, by number.
Result<std::map<unsigned, VfAttributes>> read_vfs(Netlink& route, int pf_ifindex);
// One message for each, so that an error names what the driver refuses; those before it are changed then. What the
// kernel only takes together (VLAN, QoS and protocol; both rates) is completed by what read_vf() says.
Result<void> change_vf(Netlink& route, int pf_ifindex, unsigned vf, const VfAttributes& attributes);

// Pure parts of the above.
// What an RTM_NEWLINK says of its VFs, by number.
std::map<unsigned, VfAttributes> vf_attributes(const nlmsghdr* link);
// What of a VF is to be set for it to be as before.
VfAttributes changed_vf(const VfAttributes& before, const VfAttributes& now);
struct VfRequest {
  const char* what;  // "MAC", "VLAN"
  NetlinkMessage message;
};
// attributes: VLAN, QoS and protocol are all set or none is, and so are the two rates.
std::vector<VfRequest> vf_requests(int pf_ifindex, unsigned vf, const VfAttributes& attributes);

}  // namespace hook
