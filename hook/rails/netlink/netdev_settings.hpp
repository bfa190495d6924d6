// Reads and restores the settings of a netdev that a container with CAP_NET_ADMIN can change and that move with the
// netdev (do_setlink(), rtnl_linkprop() of net/core/rtnetlink.c, Linux 6.12).
#pragma once

#include <linux/if_link.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "fabric/read_network.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

// Settings of a netdev that are numbers, in the order in which they are restored: setting gso_max_size also sets
// gso_ipv4_max_size, and gro_max_size also sets gro_ipv4_max_size.
struct LinkNumber {
  const char* name;
  unsigned attribute;
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

// A mode of XDP. A netdev has at most one program in each mode.
struct XdpMode {
  const char* name;
  unsigned attribute;  // the attribute that has the program's ID
  std::uint32_t flag;
};
inline constexpr std::array<XdpMode, 3> kXdpModes{{{"xdpdrv", IFLA_XDP_DRV_PROG_ID, XDP_FLAGS_DRV_MODE},
                                                   {"xdpgeneric", IFLA_XDP_SKB_PROG_ID, XDP_FLAGS_SKB_MODE},
                                                   {"xdpoffload", IFLA_XDP_HW_PROG_ID, XDP_FLAGS_HW_MODE}}};

// Settings that rtnetlink reports. Texts are untrusted if a container has had the netdev.
struct LinkSettings {
  unsigned flags = 0;  // IFF_PROMISC, IFF_ALLMULTI, IFF_NOARP and other flags, but not IFF_UP
  std::string alias;
  std::vector<std::uint8_t> broadcast;                                         // link-layer address; empty: unknown
  std::vector<std::string> other_names;                                        // alternative names (Linux 5.5)
  std::array<std::optional<std::uint32_t>, kLinkNumbers.size()> numbers = {};  // nullopt: unknown to the kernel
  std::array<std::uint32_t, kXdpModes.size()> xdp = {};                        // IDs of XDP programs; 0: there is none
  friend bool operator==(const LinkSettings&, const LinkSettings&) = default;
};

// Returns the settings in an RTM_NEWLINK message.
LinkSettings link_settings(unsigned ifi_flags, const base::netlink::Attributes& attributes);

// A change that restores one setting. Each change is a message of its own, so that a refused change does not affect the
// other settings.
struct LinkRepair {
  std::string what;    // "set alias", for messages
  std::string remedy;  // arguments of `ip` that do the same
  RequestBuilder message;
};
// Returns the repairs that are sent before a move or a rename. The repairs remove alternative names and XDP programs
// that are not in `before`, because such names and programs can block a move, a rename or a change of the MTU. Pure.
// name: the netdev's name in the remedies.
std::vector<LinkRepair> link_removals(int ifindex, const std::string& name, const LinkSettings& before,
                                      const LinkSettings& now);
// Returns the repairs of all settings that link_removals() does not repair. The repairs are sent after the netdev has
// its name again. Pure.
std::vector<LinkRepair> link_repairs(int ifindex, const std::string& name, const LinkSettings& before,
                                     const LinkSettings& now);
// Returns a warning for each XDP program of the node that is not attached any more: rdma-hook cannot attach it again.
// Pure.
std::vector<std::string> lost_programs(const std::string& name, const LinkSettings& before, const LinkSettings& now);
// Sends all repairs. Returns a warning for each kind of repair that was refused.
std::vector<std::string> repair_link(Netlink& route, const std::string& name, std::vector<LinkRepair> repairs);

// Features of a netdev (`ethtool -K`), which move with the netdev and are read by ethtool netlink
// (net/ethtool/features.c, Linux 5.8).

// One bit for each feature, by its number in the running kernel.
using FeatureBits = std::vector<std::uint32_t>;

struct NetdevFeatures {
  FeatureBits changeable;  // features of which the driver allows a change
  FeatureBits wanted;      // requested to be on; valid only where `changeable` is set
  FeatureBits active;      // on; can differ from `wanted`, because a feature can depend on another one
  friend bool operator==(const NetdevFeatures&, const NetdevFeatures&) = default;
};

// A client of ethtool netlink for the network namespace of its first call, which opens the socket.
class Ethtool {
 public:
  // Reads the features of a netdev; nullopt if the kernel has no ethtool netlink or does not report features of this
  // netdev.
  Result<std::optional<NetdevFeatures>> features(int ifindex, const std::string& name);
  // Restores each feature whose `wanted` bit differs from `before`, if the feature was changeable and still is. Needs
  // CAP_NET_ADMIN. Errors: the kernel's error; EIO, the driver refuses to restore a feature.
  Result<void> restore(int ifindex, const std::string& name, const NetdevFeatures& before);

 private:
  Result<void> open();
  bool is_open_ = false;
  std::optional<Netlink> socket_;  // nullopt: the kernel has no generic netlink
  unsigned family_ = 0;            // 0: the kernel has no ethtool netlink
};

// Settings of a netdev that can be read and written only in sysfs, and that move with the netdev. A process with
// CAP_NET_ADMIN in the netdev's network namespace can change them (net/core/net-sysfs.c, Linux 6.12).

struct SysfsSetting {
  const char* name;
  // prefix of the directories below queues/, such as "rx-"; nullptr: the netdev has only one value
  const char* queues;
  // Writing this setting also overwrites the values of all NAPI instances, which Linux 6.13 can set one by one.
  bool is_of_napis = false;
};
// Reading costs 3 system calls for each setting of the netdev. For a setting of its queues it costs 3 for each queue,
// and 1 that fails at the first missing queue.
inline constexpr std::array<SysfsSetting, 6> kSysfsSettings{{{"threaded", nullptr, true},
                                                             {"gro_flush_timeout", nullptr, true},
                                                             {"napi_defer_hard_irqs", nullptr, true},
                                                             {"rps_cpus", "rx-"},
                                                             {"rps_flow_cnt", "rx-"},
                                                             {"xps_cpus", "tx-"}}};

// Values by setting, then by queue. A list is empty if the netdev does not have the setting or it could not be read.
using SysfsSettings = std::array<std::vector<std::string>, kSysfsSettings.size()>;

// Reads the settings.
// netdev: its directory in sysfs.
// name: the netdev's name in warnings.
// warnings: gets a line for each setting that could not be read.
SysfsSettings read_sysfs_settings(const base::Directory& netdev, std::string_view name,
                                  std::vector<std::string>& warnings);
// Writes the values of `before` that differ, and always the values that NAPI instances can have (is_of_napis). Skips
// settings for which `before` has no value. A queue for which `before` has no value, because it is new, gets the value
// 0. Returns one warning for each setting that the kernel refused. The kernel refuses `threaded` for most netdevs that
// are down.
// netdev: its directory on a writable mount of sysfs.
std::vector<std::string> restore_sysfs_settings(const base::Directory& netdev, std::string_view name,
                                                const SysfsSettings& before);

// Returns true if a record may contain this value. The check is needed because values are written to sysfs as root.
bool is_sysfs_value(std::string_view text);

// BPF programs that move with a netdev and that rtnetlink cannot detach: programs of tcx (Linux 6.6), and XDP programs
// that a BPF link attaches (Linux 5.9). A pinned link outlives the process that made it. The calling process must be in
// the netdev's namespace. Reading needs CAP_NET_ADMIN; detaching also needs CAP_SYS_ADMIN.

// Returns the IDs of all tcx programs in both directions; an ID is listed once for each attachment. Returns an empty
// list if there is none, the netdev is gone, or the kernel has no tcx.
Result<std::vector<std::uint32_t>> tcx_programs(int ifindex, const std::string& name);
// Detaches the tcx programs that are not in `before`. Returns a warning for each program that could not be detached,
// and for each program of `before` that is not attached any more.
std::vector<std::string> restore_tcx(int ifindex, const std::string& name, const std::vector<std::uint32_t>& before);
// Returns true if `now` has XDP programs that `before` does not have.
bool has_new_xdp(const LinkSettings& before, const LinkSettings& now);
// Detaches one new XDP program that a BPF link attaches, because rtnetlink refuses to detach it. Returns false if no
// program was detached. A second call can be necessary: a BPF link in another namespace can have the same ifindex and
// program, and be found and detached first.
bool detach_xdp_link(int ifindex, const LinkSettings& before, const LinkSettings& now);

}  // namespace hook
