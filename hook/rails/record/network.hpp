// What the rails of one grant have changed on the node, so that a later call can put it right: written before the first
// change is made, removed after the last is undone. Every undoing is of a state, not of a step ("the netdev is on the
// node, under this name"), so it does not matter how far the giving, or an earlier undoing, came.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/netlink/netdev_settings.hpp"
#include "hook/rails/netlink/rdma_devices.hpp"
#include "hook/rails/netlink/records.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// The netdev on the node, as it was.
struct HostNetdev {
  int ifindex = 0;
  std::string name;
  std::string kind;         // as Link has it
  std::string bus_address;  // by which a netdev is known again that came back under another name; empty: none
  std::vector<std::uint8_t> mac;
  std::vector<std::uint8_t> permanent_mac;
  // As netdev_identity(); of one without bus address that moves, which a container could make an equal of. 0: not
  // known.
  std::uint64_t identity = 0;
  unsigned mtu = 0;
  unsigned tx_queue_length = 0;
  bool up = false;
  std::vector<NetRecord> records;          // what was configured on it; only of one that moves
  std::optional<LinkSettings> settings;    // nullopt: it does not move
  std::optional<NetdevFeatures> features;  // nullopt: as settings, or the kernel does not say
  std::optional<SysfsSettings> sysfs;      // nullopt: as settings, or sysfs does not show the netdev
  // IDs of its tcx programs. nullopt: not known.
  std::optional<std::vector<std::uint32_t>> tcx;
  std::optional<RdmaDevice> rdma;  // that moves along; nullopt: none
  std::vector<VfAttributes> vfs;   // of a physical function, by number
  // Of a VF: its physical function's netdev, its number, and the attributes that are changed.
  std::string pf;
  unsigned vf = 0;
  VfAttributes vf_attributes;
  friend bool operator==(const HostNetdev&, const HostNetdev&) = default;
};

// Addresses that a CNI plugin gave.
struct IpamLease {
  std::string plugin;  // its file name
  std::string network;
  std::string ipam;  // JSON text of the plugin's "ipam" object
  std::string ifname;
  std::string args = {};  // CNI_ARGS with which it was asked for; empty: none
  friend bool operator==(const IpamLease&, const IpamLease&) = default;
};

struct RailRecord {
  Rail rail;
  std::string network;
  HostNetdev host;
  std::optional<IpamLease> lease;
  unsigned rule_priority = 0;         // of the rules of its own table
  std::optional<unsigned> gid_index;  // once it is known
  friend bool operator==(const RailRecord&, const RailRecord&) = default;
};

struct NetworkRecord {
  std::string key;          // the grant's
  NetnsIdentity netns;      // where the rails are
  std::uint32_t group = 0;  // link group of the children
  std::vector<RailRecord> rails;
  friend bool operator==(const NetworkRecord&, const NetworkRecord&) = default;
};

std::string network_record_text(const NetworkRecord& record);
// path: for messages. key: whose it has to be; empty: anybody's. Errors: JSON's, a member that is missing or wrong,
// with the remedy.
Result<NetworkRecord> parse_network_record(std::string_view text, const std::string& path, std::string_view key = {});

}  // namespace hook
