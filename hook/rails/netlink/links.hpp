// Reads, makes, moves and changes netdevs by rtnetlink (include/uapi/linux/if_link.h, Linux 6.12).
#pragma once

#include <linux/rtnetlink.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.hpp"
#include "base/result.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

struct Link {
  int ifindex = 0;
  std::string name;
  std::string kind;               // IFLA_INFO_KIND; empty: hardware
  std::vector<std::uint8_t> mac;  // 6 bytes for Ethernet, 20 for IPoIB
  // The MAC address of the hardware. The kernel reports it since Linux 5.6. Empty: the netdev has none, as most
  // software netdevs.
  std::vector<std::uint8_t> permanent_mac;
  unsigned mtu = 0;
  unsigned tx_queue_length = 0;
  bool up = false;        // IFF_UP
  bool running = false;   // IFF_RUNNING: up and with carrier
  int lower_ifindex = 0;  // ifindex of the netdev below, from IFLA_LINK
  // IFLA_LINK_NETNSID: the number of the namespace to which lower_ifindex belongs; negative: the kernel could not give
  // it a number. nullopt: the namespace of this netdev.
  std::optional<std::int32_t> lower_netns;
  int master_ifindex = 0;
  unsigned group = 0;
  std::string bus_address;  // IFLA_PARENT_DEV_NAME (Linux 5.14): "0000:1a:00.0"; empty: none, or an older kernel
  // Only find_link() sets the members below.
  unsigned vfs = 0;  // IFLA_NUM_VF; reading it makes a driver report every VF
  LinkSettings settings;
  std::string qdisc;  // kind of the root qdisc
};

// Returns a random number, for names and numbers that must be free in several namespaces.
Result<std::uint32_t> random_number();
// Returns a large interface index made of a random number. The kernel counts indices from 1, so it is almost certainly
// free in each namespace.
int ifindex_of(std::uint32_t random);

// Reads one netdev with all members of Link; nullopt if there is no such netdev.
Result<std::optional<Link>> find_link(Netlink& route, std::string_view name);
Result<std::optional<Link>> find_link(Netlink& route, int ifindex);
// Reads all netdevs of the namespace.
Result<std::vector<Link>> all_links(Netlink& route);

// Opens the netdev's directory in sysfs; nullopt if the netdev is gone or has been renamed since `link` was read.
// sysfs: a descriptor of the sysfs of its namespace.
Result<std::optional<base::Directory>> open_netdev(int sysfs, const Link& link);

// Returns a number that identifies the netdev among all netdevs since the node's start, in any namespace and after any
// change. The number is the inode number of the netdev's directory in sysfs: the kernel assigns it once and keeps it
// when the netdev moves. Returns 0 if the netdev is gone or has been renamed since `link` was read.
// sysfs: a descriptor of the sysfs of its namespace.
// Source: kernfs_new_node(), kernfs_rename_ns(), fs/kernfs/dir.c, Linux 6.12.
Result<std::uint64_t> netdev_identity(int sysfs, const Link& link);
// Returns the netdev that has this kind (IFLA_INFO_KIND) and this netdev_identity(); nullopt if there is none.
// Errors: EAGAIN, netdevs are renamed while their names are read.
Result<std::optional<Link>> find_by_identity(Netlink& route, int sysfs, const std::string& kind,
                                             std::uint64_t identity);

struct NewChild {
  RailKind kind = RailKind::kMacvlan;
  bool macvlan_private = false;
  std::optional<std::uint16_t> pkey = {};  // partition key of kIpoib
  std::string name = {};
  int parent = 0;  // ifindex of the parent in the namespace of the socket
  std::optional<unsigned> mtu = {};
  std::optional<MacAddress> mac = {};
  std::uint32_t group = 0;
  int netns = -1;  // descriptor of the namespace in which the child appears; -1: the namespace of the socket
};
// Makes a child netdev. After an error no child is left on the node, unless the error reports one. An ipoib child is
// made on the node and then moved, because older kernels lose an ipoib child that is made in another namespace.
// route: a socket of the node's namespace.
// Errors: EEXIST (the namespace has a netdev of this name), EOPNOTSUPP (the kernel does not have this kind), EINVAL
// (invalid name; a parent that cannot have such a child), EBUSY (the parent is in use by another kind).
Result<void> create_child(Netlink& route, const NewChild& child);

// ARP settings that RDMA needs if several netdevs are in one subnet (Documentation/networking/ip-sysctl.rst).
struct ArpSettings {
  unsigned arp_ignore = 1;    // replies to a request only on the netdev that has the address
  unsigned arp_announce = 2;  // sends requests with an address of the netdev's own subnet
  unsigned rp_filter = 2;     // loose: replies may arrive on another netdev
};

// Changes of one netdev. One message has all members that are set.
struct LinkChange {
  std::optional<std::string> name = {};
  std::optional<unsigned> mtu = {};
  std::optional<std::vector<std::uint8_t>> mac = {};
  std::optional<unsigned> tx_queue_length = {};
  std::optional<bool> up = {};
  std::optional<std::uint32_t> group = {};
  std::optional<int> netns = {};        // descriptor of the target namespace of a move
  std::optional<ArpSettings> arp = {};  // IFLA_AF_SPEC, IFLA_INET_CONF: sets them without /proc/sys
};
// Changes a netdev. Kernels before 6.2 rename a netdev only while it is down, so the caller has to set it down.
// Errors: EEXIST, the name is taken. The kernel moves a netdev before it renames it, so after this error the netdev may
// be in the target namespace under its old name. Then find_link() does not find it here.
Result<void> change_link(Netlink& route, int ifindex, const LinkChange& change);

// Deletes a netdev. A missing netdev is no error.
Result<void> delete_link(Netlink& route, int ifindex);
// Deletes all netdevs of a group with one message and one grace period of the kernel. A group without netdevs is no
// error. Errors: EINVAL for group 0; EOPNOTSUPP if the group has a hardware netdev (then no netdev is deleted).
Result<void> delete_link_group(Netlink& route, std::uint32_t group);

// Make the messages of the functions above. Pure.
// ifindex: the index that the child gets; 0: the kernel chooses it.
RequestBuilder child_request(const NewChild& child, int ifindex);
RequestBuilder change_request(int ifindex, const LinkChange& change);

// Functions that vf.cpp uses too.

// Returns true if dev_valid_name() (net/core/dev.c) accepts the name, and the name has no control character and no '%',
// which the kernel would replace by a number.
bool is_netdev_name(std::string_view name);
// Fails with EINVAL for an invalid name.
Result<void> check_name(const std::string& name);

// Returns the name for messages, "`eth0`", or "netdev 7" if the netdev is gone.
std::string shown_link(Netlink& route, int ifindex);
// Sends a change. An error has the text "VERB `eth0`"; the name of the netdev is read only after an error.
Result<void> change_named(Netlink& route, const RequestBuilder& request, int ifindex, std::string_view verb);

}  // namespace hook
