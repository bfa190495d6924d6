// The record of a grant's rails: the state of the node's netdevs before the hook changed them. The record is written
// before the first change and removed after the last netdev is restored. The record describes a state ("the netdev is
// on the node, under this name") and no steps. A later call can therefore restore this state, whatever the last step of
// a killed call was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// The state of a netdev of the node before the hook changed it.
struct HostNetdev {
  int ifindex = 0;
  std::string name;
  std::string kind;         // kind of the netdev (Link::kind)
  std::string bus_address;  // PCI address, to identify the netdev under another name; empty: none
  std::vector<std::uint8_t> mac;
  std::vector<std::uint8_t> permanent_mac;
  // netdev_identity() of a moving netdev that has no bus address. Without it, a netdev of the same kind and MAC address
  // that a container makes could be taken for this netdev. 0: it was not recorded.
  std::uint64_t identity = 0;
  unsigned mtu = 0;
  unsigned tx_queue_length = 0;
  bool up = false;
  std::vector<NetRecord> records;          // addresses, routes and rules of a netdev that moves
  std::optional<LinkSettings> settings;    // nullopt: the netdev does not move
  std::optional<NetdevFeatures> features;  // nullopt: the netdev does not move, or the kernel does not report features
  std::optional<SysfsSettings> sysfs;      // nullopt: the netdev does not move, or is not in sysfs
  // IDs of the netdev's tcx programs; nullopt: unknown.
  std::optional<std::vector<std::uint32_t>> tcx;
  std::optional<RdmaDevice> rdma;  // the RDMA device that moves with the netdev; nullopt: none moves
  std::vector<VfAttributes> vfs;   // attributes of the VFs of a physical function, by number
  // For a VF: the netdev of its physical function, the number of the VF, and the old values of the attributes that the
  // hook changes.
  std::string pf;
  unsigned vf = 0;
  VfAttributes vf_attributes;
  friend bool operator==(const HostNetdev&, const HostNetdev&) = default;
};

// The arguments with which a CNI plugin is called to allocate addresses. A later call needs them to release the
// addresses.
struct IpamLease {
  std::string plugin;  // file name of the plugin
  std::string network;
  std::string ipam;  // JSON text of the plugin's "ipam" object
  std::string ifname;
  std::string args = {};  // CNI_ARGS of the call; empty: none
  friend bool operator==(const IpamLease&, const IpamLease&) = default;
};

struct RailRecord {
  Rail rail;
  std::string network;
  HostNetdev host;
  std::optional<IpamLease> lease;
  unsigned rule_priority = 0;         // priority of the rules for the rail's own table
  std::optional<unsigned> gid_index;  // nullopt: unknown, or add_rails() has not read it yet
  std::string device = {};            // PlannedHca::device of the rail's HCA; empty: its name counts
  // ifindex of the child in the container's namespace. The ifindex stays when the child gets another name or group. 0:
  // the netdev moves, the start did not end, the child was deleted, or an older version made the record.
  int child = 0;
  friend bool operator==(const RailRecord&, const RailRecord&) = default;
};

// The number of a network namespace in the node's network namespace (nsid); see hook/rails/netns_handle.hpp.
struct NetnsHandle {
  std::uint32_t number = 0;  // the number (nsid), 31 bits
  std::uint64_t node = 0;    // inode number of the node's network namespace
  // SO_NETNS_COOKIE of the namespace (Linux 5.14). The kernel never uses it again, as it does number and inode number.
  // 0: unknown.
  std::uint64_t cookie = 0;
  friend bool operator==(const NetnsHandle&, const NetnsHandle&) = default;
};

struct NetworkRecord {
  std::string key;          // key of the grant
  NetnsIdentity netns;      // the namespace of the rails
  std::uint32_t group = 0;  // link group of the children of the grant
  std::vector<RailRecord> rails;
  std::optional<NetnsHandle> handle = {};  // the handle of `netns`; nullopt: an older version made the record
  friend bool operator==(const NetworkRecord&, const NetworkRecord&) = default;
};

// Returns the record as one line of JSON.
std::string network_record_text(const NetworkRecord& record);
// Parses the text of a record.
// path: for messages.
// key: the key that the record must have; empty: any key.
// Errors, with remedy: malformed JSON; a member is missing or wrong; another key.
Result<NetworkRecord> parse_network_record(std::string_view text, const std::string& path, std::string_view key = {});

}  // namespace hook
