#include "hook/rails/record/network.hpp"

#include <algorithm>
#include <utility>

#include "base/json/record.hpp"
#include "base/text.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

constexpr int kDepth = 10;            // levels of nesting; records have fewer
constexpr std::uint64_t kFormat = 1;  // records of another format are refused, because restoring could be wrong

std::string hex_of(const std::vector<std::uint8_t>& bytes) {
  return to_hex(bytes);
}

constexpr auto as_text = [](const auto& value) { return to_string(*value); };

}  // namespace

// describe() lists the members of a type once, for both directions: `members` either writes them to JSON or reads them
// from JSON.

void describe(auto& members, RailAddress& address) {
  members.text(
      "address", address.address, [](const fabric::Address& ip) { return to_string(ip); }, fabric::parse_address);
  members("prefix", address.prefix);
  members.require(address.prefix <= (address.address.is_ipv4() ? 32U : 128U), "prefix");
  members.optional_text("gateway", address.gateway, as_text, fabric::parse_address);
}

void describe(auto& members, VfAttributes& vf) {
  members.optional_text("mac", vf.mac, as_text, parse_mac);
  each_vf_attribute([&](const char* name, auto attribute) { members.optional(name, vf.*attribute); });
}

void describe(auto& members, Rail& rail) {
  members("rail", rail.rail);
  members("hca", rail.hca);
  members("host", rail.host);
  members("name", rail.name);
  members.word("kind", rail.kind, kRailKinds);
  members("private", rail.macvlan_private);
  members("addresses", rail.addresses);
  members("vf", rail.vf);
  members("move_rdma", rail.move_rdma);
  members.optional("pkey", rail.pkey);
  members.optional("mtu", rail.mtu);
  members.optional("table", rail.table);
  members.optional("recreate", rail.recreate);
}

void describe(auto& members, LinkSettings& settings) {
  members("flags", settings.flags);
  members("alias", settings.alias);
  members("other_names", settings.other_names);
  members.group("numbers", [&](auto& numbers) {
    for (std::size_t i = 0; i < kLinkNumbers.size(); ++i)
      numbers.optional(kLinkNumbers[i].name, settings.numbers[i]);
  });
  members.group("xdp", [&](auto& xdp) {
    for (std::size_t i = 0; i < kXdpModes.size(); ++i)
      xdp(kXdpModes[i].name, settings.xdp[i]);
  });
  members.optional_text("broadcast", settings.broadcast, hex_of, bytes_from_hex);
}

void describe(auto& members, NetdevFeatures& features) {
  members("changeable", features.changeable);
  members("wanted", features.wanted);
  members("active", features.active);
}

void describe(auto& members, RdmaDevice& device) {
  members("index", device.index);
  members("device", device.name);
  members("node_guid", device.node_guid);
}

void describe(auto& members, NetRecord& record) {
  std::uint16_t type = record.type;
  // The message is written in hexadecimal, byte for byte, because a restore sends the same bytes to the kernel. "what"
  // is a text for people; rdma-hook does not read it.
  members("type", type);
  members.note("what", [&] { return to_string(record); });
  members.text(
      "message", record, [](const NetRecord& message) { return to_hex(message); },
      [&](std::string_view hex) { return record_from_hex(type, hex); });
}

void describe_sysfs(auto& members, std::optional<SysfsSettings>& settings) {
  if (!settings) settings.emplace();
  for (std::size_t i = 0; i < settings->size(); ++i) {
    const char* const name = kSysfsSettings[i].name;
    std::vector<std::string>& values = (*settings)[i];
    members.optional(name, values);
    // The values are checked, because they are written to sysfs as root.
    members.require(std::ranges::all_of(values, is_sysfs_value), name);
  }
}

void describe(auto& members, HostNetdev& host) {
  members("ifindex", host.ifindex);
  members("name", host.name);
  members("kind", host.kind);
  members("bus_address", host.bus_address);
  members.text("mac", host.mac, hex_of, bytes_from_hex);
  members.optional_text("permanent_mac", host.permanent_mac, hex_of, bytes_from_hex);
  members.optional("identity", host.identity);
  members("mtu", host.mtu);
  members("tx_queue_length", host.tx_queue_length);
  members("up", host.up);
  members("records", host.records);
  members("pf", host.pf);
  members("vf", host.vf);
  members("vf_attributes", host.vf_attributes);
  members.optional("vfs", host.vfs);
  members.optional("tcx", host.tcx);
  members.optional("rdma", host.rdma);
  members.optional("settings", host.settings);
  members.optional_group("sysfs", host.sysfs.has_value(), [&](auto& sysfs) { describe_sysfs(sysfs, host.sysfs); });
  members.optional("features", host.features);
}

void describe(auto& members, IpamLease& lease) {
  members("plugin", lease.plugin);
  // A path is refused, because with a path a record could choose the program that root executes.
  members.require(lease.plugin.find('/') == std::string::npos, "plugin");
  members("network", lease.network);
  members("ipam", lease.ipam);
  members("ifname", lease.ifname);
  members.optional("args", lease.args);
}

void describe(auto& members, RailRecord& record) {
  members("rail", record.rail);
  members("network", record.network);
  members("host", record.host);
  members("rule_priority", record.rule_priority);
  members.optional("gid_index", record.gid_index);
  members.optional("lease", record.lease);
  members.optional("device", record.device);
  members.optional("child", record.child);
}

void describe(auto& members, NetnsHandle& handle) {
  members("number", handle.number);
  members.require(handle.number <= INT32_MAX, "number");
  members("node", handle.node);
  members.optional("cookie", handle.cookie);
}

void describe(auto& members, NetworkRecord& record) {
  std::uint64_t format = kFormat;
  members("format", format);
  members.require(format == kFormat, "format");
  members("key", record.key);
  members("netns", record.netns);
  members("group", record.group);
  members("rails", record.rails);
  members.optional("handle", record.handle);
}

std::string network_record_text(const NetworkRecord& record) {
  return to_record(record).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<NetworkRecord> parse_network_record(std::string_view text, const std::string& path, std::string_view key) {
  const auto complete = [](Error error) {
    error.hint = "restore the netdevs by hand, remove the file and run `rdma-hook recover`";
    return error;
  };
  const auto document =
      parse_json(text, fmt::format("record `{}`", path), {.bytes = kLargestLedgerFile, .depth = kDepth});
  if (!document) return complete(document.error());
  auto record = from_record<NetworkRecord>(*document);
  // A record that has another key than its file name is refused, because it would restore netdevs that another grant
  // uses.
  if (record && !key.empty() && record->key != key)
    record = make_error("it is the record of the grant `{}`", base::printable(record->key));
  if (!record) return complete(base::wrap(std::move(record).error(), fmt::format("cannot read `{}`", path)));
  return record;
}

}  // namespace hook
