// What whoever holds a netdev's namespace can set on it, and what stays with the netdev when it moves: all of it is
// undone on the way home (do_setlink(), rtnl_linkprop() of net/core/rtnetlink.c, Linux 6.12).
#pragma once

#include <linux/if_link.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/netlink.hpp"
#include "fabric/result.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

// In the order in which they are set: gso_max_size sets gso_ipv4_max_size as well, and so does the one of gro.
struct LinkNumber {
  const char* name;
  int attribute;
  bool is_byte = false;
  bool is_size = false;
};
inline constexpr std::array<LinkNumber, 8> kLinkNumbers{{{"group", IFLA_GROUP},
                                                         {"link_mode", IFLA_LINKMODE, true},
                                                         {"proto_down", IFLA_PROTO_DOWN, true},
                                                         {"gso_max_segs", IFLA_GSO_MAX_SEGS, false, true},
                                                         {"gso_max_size", IFLA_GSO_MAX_SIZE, false, true},
                                                         {"gro_max_size", 58, false, true},         // Linux 5.19
                                                         {"gso_ipv4_max_size", 63, false, true},    // Linux 6.3
                                                         {"gro_ipv4_max_size", 64, false, true}}};  // Linux 6.3

// A netdev has at most one program of each mode.
struct XdpMode {
  const char* name;
  int attribute;  // of its program's ID
  std::uint32_t flag;
};
inline constexpr std::array<XdpMode, 3> kXdpModes{{{"xdpdrv", IFLA_XDP_DRV_PROG_ID, XDP_FLAGS_DRV_MODE},
                                                   {"xdpgeneric", IFLA_XDP_SKB_PROG_ID, XDP_FLAGS_SKB_MODE},
                                                   {"xdpoffload", IFLA_XDP_HW_PROG_ID, XDP_FLAGS_HW_MODE}}};

// Texts are hostile once a container had the netdev.
struct LinkSettings {
  unsigned flags = 0;  // IFF_PROMISC, IFF_ALLMULTI, IFF_NOARP and the like, not IFF_UP
  std::string alias;
  std::vector<std::uint8_t> broadcast;                                         // the link's; empty: not known
  std::vector<std::string> other_names;                                        // alternative names (Linux 5.5)
  std::array<std::optional<std::uint32_t>, kLinkNumbers.size()> numbers = {};  // nullopt: unknown to the kernel
  std::array<std::uint32_t, kXdpModes.size()> xdp = {};                        // IDs of programs, 0: none
  friend bool operator==(const LinkSettings&, const LinkSettings&) = default;
};

// Of an RTM_NEWLINK.
LinkSettings link_settings(unsigned ifi_flags, const fabric::netlink::Attributes& attributes);

// One message each, so that what a driver or kernel refuses keeps nothing else from being put right.
struct LinkRepair {
  std::string what;    // "set alias", for messages
  std::string remedy;  // arguments of `ip` that do it by hand
  NetlinkMessage message;
};
// Pure. What stands in the way of a move, of a rename or of an MTU: names and XDP programs that were not there before.
// name: for the remedies.
std::vector<LinkRepair> link_removals(int ifindex, const std::string& name, const LinkSettings& before,
                                      const LinkSettings& now);
// Pure. All else, once the netdev has its name again.
std::vector<LinkRepair> link_repairs(int ifindex, const std::string& name, const LinkSettings& before,
                                     const LinkSettings& now);
// Pure. The node's own programs that are not attached any more, for people: nothing here can attach them again.
std::vector<std::string> lost_programs(const std::string& name, const LinkSettings& before, const LinkSettings& now);
// Sends all of them. Returns what was refused, for people; of several that do the same only the first.
std::vector<std::string> repair_link(Netlink& route, const std::string& name, std::vector<LinkRepair> repairs);

}  // namespace hook
