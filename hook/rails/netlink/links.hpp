// Netdevs by rtnetlink: reading, making children, moving, changing (include/uapi/linux/if_link.h, Linux 6.12).
#pragma once

#include <linux/rtnetlink.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/sysfs.hpp"
#include "hook/base/result.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

struct Link {
  int ifindex = 0;
  std::string name;
  std::string kind;                         // IFLA_INFO_KIND; empty: hardware
  std::vector<std::uint8_t> mac;            // 6 bytes for Ethernet, 20 for IPoIB
  std::vector<std::uint8_t> permanent_mac;  // nobody can set it (Linux 5.6); empty: none, as of most software netdevs
  unsigned mtu = 0;
  unsigned tx_queue_length = 0;
  bool up = false;                  // IFF_UP
  bool running = false;             // IFF_RUNNING: up and with carrier
  int lower_ifindex = 0;            // IFLA_LINK
  bool lower_is_elsewhere = false;  // IFLA_LINK_NETNSID: lower_ifindex counts in another namespace
  int master_ifindex = 0;
  unsigned group = 0;
  std::string bus_address;  // IFLA_PARENT_DEV_NAME (Linux 5.14): "0000:1a:00.0"; empty: none, or an older kernel
  // Only of find_link():
  unsigned vfs = 0;  // IFLA_NUM_VF: a driver that is asked for it reports on every VF
  LinkSettings settings;
  std::string qdisc;  // kind of the root one
};

// nullopt: there is no such netdev.
Result<std::optional<Link>> find_link(Netlink& route, std::string_view name);
Result<std::optional<Link>> find_link(Netlink& route, int ifindex);
Result<std::vector<Link>> all_links(Netlink& route);

// Its directory in sysfs. sysfs: of the netdev's namespace. nullopt: it is not under this name (any more).
Result<std::optional<fabric::sysfs::Directory>> open_netdev(int sysfs, const Link& link);

// What tells a netdev from every other one since the node's start, whatever namespace it is in and whatever is set on
// it: the inode number of its directory in sysfs, which the kernel gives once and moves along (kernfs_new_node(),
// kernfs_rename_ns(), fs/kernfs/dir.c, Linux 6.12). sysfs: of the netdev's namespace. 0: it is not under this name (any
// more).
Result<std::uint64_t> netdev_identity(int sysfs, const Link& link);
// nullopt: no netdev of this kind there is it. Errors: they change while they are looked at (EAGAIN).
Result<std::optional<Link>> find_by_identity(Netlink& route, int sysfs, const std::string& kind,
                                             std::uint64_t identity);

struct NewChild {
  RailKind kind = RailKind::kMacvlan;
  bool macvlan_private = false;
  std::optional<std::uint16_t> pkey = {};  // kIpoib
  std::string name = {};
  int parent = 0;  // ifindex in the namespace of the socket
  std::optional<unsigned> mtu = {};
  std::optional<MacAddress> mac = {};
  std::uint32_t group = 0;
  int netns = -1;  // descriptor of the namespace where it appears, under this name at once; -1: the socket's own
};
// The node's socket. ipoib children are made on the node, under their name if it is free there, and then moved: made
// elsewhere, older kernels lose them. Errors: EEXIST (the namespace has a netdev of this name), EOPNOTSUPP (the kernel
// has no such kind), EINVAL (no netdev's name; a parent that takes no such child), EBUSY (the parent is in use by
// another kind); nothing is left behind on the node.
Result<void> create_child(Netlink& route, const NewChild& child);

// Answers by ARP as RDMA wants it, several netdevs in one subnet: Documentation/networking/ip-sysctl.rst.
struct ArpSettings {
  unsigned arp_ignore = 1;    // answer for an address only on the netdev that has it
  unsigned arp_announce = 2;  // ask with an address of the netdev's own subnet
  unsigned rp_filter = 2;     // loose: packets may come back another way
};

// What is set goes in one message.
struct LinkChange {
  std::optional<std::string> name = {};
  std::optional<unsigned> mtu = {};
  std::optional<std::vector<std::uint8_t>> mac = {};
  std::optional<unsigned> tx_queue_length = {};
  std::optional<bool> up = {};
  std::optional<std::uint32_t> group = {};
  std::optional<int> netns = {};        // descriptor: moves there, under `name` if that is set
  std::optional<ArpSettings> arp = {};  // IFLA_AF_SPEC, IFLA_INET_CONF: of this netdev, without /proc/sys
};
// Renaming wants a netdev that is down on kernels before 6.2: the caller sees to that. The kernel moves first: when the
// name is taken there (EEXIST), the netdev may have moved already, under the name that it had; find_link() then finds
// none here.
Result<void> change_link(Netlink& route, int ifindex, const LinkChange& change);

// Success when it is gone already.
Result<void> delete_link(Netlink& route, int ifindex);
// All of a group in one message and in one grace period of the kernel, however many they are. Success when there are
// none. Group 0 is refused; hardware in the group keeps all of it from being deleted (EOPNOTSUPP).
Result<void> delete_link_group(Netlink& route, std::uint32_t group);

// Pure parts of the above. A message is null without memory.
// ifindex: which one the child gets, 0: the kernel's choice.
NetlinkMessage child_request(const NewChild& child, int ifindex);
NetlinkMessage change_request(int ifindex, const LinkChange& change);

// For vf.cpp too.
// dev_valid_name() (net/core/dev.c), and no '%', which would ask the kernel for a number.
bool is_netdev_name(std::string_view name);
// Errors: EINVAL for text that is no netdev's name.
Result<void> check_name(const std::string& name);

// For messages about a netdev that the caller knows by its index: "`eth0`", or "netdev 7" when it is gone.
std::string shown_link(Netlink& route, int ifindex);
// Runs change() with a name in its text, "VERB `eth0`", which is looked up only when there is something to say.
Result<void> change_named(Netlink& route, NetlinkMessage message, int ifindex, std::string_view verb);

}  // namespace hook
