// What whoever holds a netdev's namespace can set on it, and what stays with the netdev when it moves: all of it is
// undone on the way home (do_setlink(), rtnl_linkprop() of net/core/rtnetlink.c, Linux 6.12).
#pragma once

#include <linux/if_link.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/netlink.hpp"
#include "fabric/sysfs.hpp"
#include "hook/base/result.hpp"
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

// What `ethtool -K` changes, and what stays with a netdev that moves: its features, by ethtool netlink
// (net/ethtool/features.c, Linux 5.8).

// A bit for each feature, by the number that the running kernel gives it.
using FeatureBits = std::vector<std::uint32_t>;

struct NetdevFeatures {
  FeatureBits changeable;  // what its driver lets people turn on and off
  FeatureBits wanted;      // what they want on; counts where it is changeable
  FeatureBits active;      // what is on: one may depend on another
  friend bool operator==(const NetdevFeatures&, const NetdevFeatures&) = default;
};

// Of netdevs in the network namespace in which it is used first: that opens its socket.
class Ethtool {
 public:
  // nullopt: the kernel has no such messages.
  Result<std::optional<NetdevFeatures>> features(int ifindex, const std::string& name);
  // Sets those that are other than here, where they were and are changeable; needs CAP_NET_ADMIN. Errors: also that one
  // of them has no effect, and had one.
  Result<void> put_back(int ifindex, const std::string& name, const NetdevFeatures& before);

 private:
  Result<void> open();
  bool is_open_ = false;
  std::optional<Netlink> socket_;  // nullopt: a kernel without
  int family_ = 0;                 // 0: a kernel without
};

// Settings of a netdev that only sysfs has, and that stay with the netdev when it moves: whoever has CAP_NET_ADMIN in
// its network namespace can change them (net/core/net-sysfs.c, Linux 6.12).

struct SysfsSetting {
  const char* name;
  // The directories of its queues below queues/, without their numbers; nullptr: it is the netdev's own.
  const char* queues;
  // Writing it also sets the values of all NAPI instances, which netdev netlink changes one by one (Linux 6.13).
  bool is_of_napis = false;
};
// Each costs 3 system calls, or 3 for each queue and 1 more.
inline constexpr std::array<SysfsSetting, 6> kSysfsSettings{{{"threaded", nullptr, true},
                                                             {"gro_flush_timeout", nullptr, true},
                                                             {"napi_defer_hard_irqs", nullptr, true},
                                                             {"rps_cpus", "rx-"},
                                                             {"rps_flow_cnt", "rx-"},
                                                             {"xps_cpus", "tx-"}}};

// By setting, then by queue. Empty: the kernel has no such setting of this netdev, or it could not be read.
using SysfsSettings = std::array<std::vector<std::string>, kSysfsSettings.size()>;

// netdev: its directory. name: for messages. warnings: settings that could not be read.
SysfsSettings read_sysfs_settings(const fabric::sysfs::Directory& netdev, std::string_view name,
                                  std::vector<std::string>& warnings);
// Writes the values of before where they differ. Queues that were not there before get no value. netdev: its directory
// on a mount that is writable. Returns refusals, for people: one for each setting. The kernel refuses `threaded` while
// most netdevs are down.
std::vector<std::string> restore_sysfs_settings(const fabric::sysfs::Directory& netdev, std::string_view name,
                                                const SysfsSettings& before);

// Whether a record may contain this as a value.
bool is_sysfs_value(std::string_view text);

// Programs of bpf(2) that stay with a netdev when it moves, and of which rtnetlink knows nothing: those of tcx (Linux
// 6.6), and XDP ones that a link of bpf(2) holds (Linux 5.9), which outlives its maker where it is pinned. The calling
// process has to be in the netdev's namespace. Needs CAP_NET_ADMIN and, to detach, CAP_SYS_ADMIN.

// IDs of all programs of tcx, both directions, one that is attached twice twice. Empty: none, or an older kernel.
Result<std::vector<std::uint32_t>> tcx_programs(int ifindex, const std::string& name);
// Detaches the programs of tcx that were not there before. Returns what was refused, and that some of before are not
// there any more, for people.
std::vector<std::string> restore_tcx(int ifindex, const std::string& name, const std::vector<std::uint32_t>& before);
// Whether `now` has XDP programs that were not there before.
bool has_new_xdp(const LinkSettings& before, const LinkSettings& now);
// Detaches one of these if a link holds it: rtnetlink refuses that. A link of another namespace may have the same index
// and program, so that the next call may find one more. False: none was detached.
bool detach_xdp_link(int ifindex, const LinkSettings& before, const LinkSettings& now);

}  // namespace hook
