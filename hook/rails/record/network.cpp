#include "hook/rails/record/network.hpp"

#include <cstdint>
#include <utility>

#include "fabric/text.hpp"
#include "hook/base/json/json.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

constexpr int kDepth = 10;

Json address_json(const RailAddress& address) {
  Json entry{{"address", to_string(address.address)}, {"prefix", address.prefix}};
  if (address.gateway) entry["gateway"] = to_string(*address.gateway);
  return entry;
}

Result<fabric::Address> address_at(const Json& object, const char* name) {
  const auto address = fabric::parse_address(TRY(text_at(object, name)));
  if (!address) return wrong_member(name);
  return *address;
}

Result<RailAddress> parse_rail_address(const Json& entry) {
  RailAddress address;
  address.address = TRY(address_at(entry, "address"));
  address.prefix = static_cast<unsigned>(TRY(number_at(entry, "prefix", address.address.is_ipv4() ? 32 : 128)));
  if (member(entry, "gateway")) address.gateway = TRY(address_at(entry, "gateway"));
  return address;
}

Result<void> optional_value(const Json& object, const char* name, std::optional<bool>& truth) {
  if (member(object, name)) truth = TRY(truth_at(object, name));
  return {};
}

template <typename Number>
Result<void> optional_value(const Json& object, const char* name, std::optional<Number>& number) {
  return optional_number(object, name, number);
}

Json vf_json(const VfAttributes& vf) {
  Json entry = Json::object();
  if (vf.mac) entry["mac"] = to_string(*vf.mac);
  each_vf_attribute([&](const char* name, auto attribute) { put_optional(entry, name, vf.*attribute); });
  return entry;
}

Result<VfAttributes> parse_vf(const Json& entry) {
  if (!entry.is_object()) return wrong_member("vf");
  VfAttributes vf;
  if (member(entry, "mac")) {
    vf.mac = parse_mac(TRY(text_at(entry, "mac")));
    if (!vf.mac) return wrong_member("mac");
  }
  Result<void> read;
  each_vf_attribute([&](const char* name, auto attribute) {
    if (read) read = optional_value(entry, name, vf.*attribute);
  });
  TRY_VOID(read);
  return vf;
}

Json rail_json(const Rail& rail) {
  Json addresses = Json::array();
  for (const RailAddress& address : rail.addresses)
    addresses.push_back(address_json(address));
  Json entry{{"rail", rail.rail},
             {"hca", rail.hca},
             {"host", rail.host},
             {"name", rail.name},
             {"kind", to_string(rail.kind)},
             {"private", rail.macvlan_private},
             {"addresses", std::move(addresses)},
             {"vf", vf_json(rail.vf)},
             {"move_rdma", rail.move_rdma}};
  put_optional(entry, "pkey", rail.pkey);
  put_optional(entry, "mtu", rail.mtu);
  put_optional(entry, "table", rail.table);
  put_optional(entry, "recreate", rail.recreate);
  return entry;
}

Result<Rail> parse_rail(const Json& entry) {
  Rail rail;
  rail.rail = static_cast<unsigned>(TRY(number_at(entry, "rail", UINT32_MAX)));
  rail.hca = TRY(text_at(entry, "hca"));
  rail.host = TRY(text_at(entry, "host"));
  rail.name = TRY(text_at(entry, "name"));
  const auto kind = parse_rail_kind(TRY(text_at(entry, "kind")));
  const Json* addresses = member(entry, "addresses");
  const Json* vf = member(entry, "vf");
  if (!kind || !addresses || !addresses->is_array() || !vf) return wrong_member("rail");
  rail.kind = *kind;
  rail.macvlan_private = TRY(truth_at(entry, "private"));
  for (const Json& address : *addresses)
    rail.addresses.push_back(TRY(parse_rail_address(address)));
  rail.vf = TRY(parse_vf(*vf));
  rail.move_rdma = TRY(truth_at(entry, "move_rdma"));
  TRY_VOID(optional_number(entry, "pkey", rail.pkey));
  TRY_VOID(optional_number(entry, "mtu", rail.mtu));
  TRY_VOID(optional_number(entry, "table", rail.table));
  if (member(entry, "recreate")) rail.recreate = TRY(text_at(entry, "recreate"));
  return rail;
}

Result<std::vector<std::uint8_t>> bytes_at(const Json& entry, const char* name) {
  auto bytes = bytes_from_hex(TRY(text_at(entry, name)));
  if (!bytes) return wrong_member(name);
  return *std::move(bytes);
}

Json settings_json(const LinkSettings& settings) {
  Json numbers = Json::object();
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i)
    put_optional(numbers, kLinkNumbers[i].name, settings.numbers[i]);
  Json xdp = Json::object();
  for (std::size_t i = 0; i < kXdpModes.size(); ++i)
    xdp[kXdpModes[i].name] = settings.xdp[i];
  Json entry{{"flags", settings.flags},
             {"alias", settings.alias},
             {"other_names", settings.other_names},
             {"numbers", std::move(numbers)},
             {"xdp", std::move(xdp)}};
  if (!settings.broadcast.empty()) entry["broadcast"] = to_hex(settings.broadcast);
  return entry;
}

Result<LinkSettings> parse_settings(const Json& entry) {
  LinkSettings settings;
  const Json* names = member(entry, "other_names");
  const Json* numbers = member(entry, "numbers");
  const Json* xdp = member(entry, "xdp");
  if (!names || !names->is_array() || !numbers || !numbers->is_object() || !xdp) return wrong_member("settings");
  settings.flags = static_cast<unsigned>(TRY(number_at(entry, "flags", UINT32_MAX)));
  settings.alias = TRY(text_at(entry, "alias"));
  if (member(entry, "broadcast")) settings.broadcast = TRY(bytes_at(entry, "broadcast"));
  for (const Json& name : *names) {
    if (!name.is_string()) return wrong_member("other_names");
    settings.other_names.push_back(name.get<std::string>());
  }
  for (std::size_t i = 0; i < kLinkNumbers.size(); ++i)
    TRY_VOID(optional_number(*numbers, kLinkNumbers[i].name, settings.numbers[i]));
  for (std::size_t i = 0; i < kXdpModes.size(); ++i)
    settings.xdp[i] = static_cast<std::uint32_t>(TRY(number_at(*xdp, kXdpModes[i].name, UINT32_MAX)));
  return settings;
}

Result<std::vector<std::uint32_t>> numbers_at(const Json& object, const char* name) {
  const Json* list = member(object, name);
  if (!list || !list->is_array()) return wrong_member(name);
  std::vector<std::uint32_t> numbers;
  for (const Json& number : *list) {
    if (!number.is_number_unsigned() || number.get<std::uint64_t>() > UINT32_MAX) return wrong_member(name);
    numbers.push_back(number.get<std::uint32_t>());
  }
  return numbers;
}

Json sysfs_json(const SysfsSettings& settings) {
  Json entry = Json::object();
  for (std::size_t i = 0; i < settings.size(); ++i)
    if (!settings[i].empty()) entry[kSysfsSettings[i].name] = settings[i];
  return entry;
}

Result<SysfsSettings> parse_sysfs(const Json& entry) {
  SysfsSettings settings;
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const Json* list = member(entry, kSysfsSettings[i].name);
    if (!list) continue;
    if (!list->is_array()) return wrong_member(kSysfsSettings[i].name);
    for (const Json& value : *list) {
      if (!value.is_string() || !is_sysfs_value(value.get<std::string>())) return wrong_member(kSysfsSettings[i].name);
      settings[i].push_back(value.get<std::string>());
    }
  }
  return settings;
}

Json host_json(const HostNetdev& host) {
  Json records = Json::array();
  for (const NetRecord& record : host.records)
    records.push_back(Json{{"type", record.type}, {"what", to_string(record)}, {"message", to_hex(record)}});
  Json entry{{"ifindex", host.ifindex},
             {"name", host.name},
             {"kind", host.kind},
             {"bus_address", host.bus_address},
             {"mac", to_hex(host.mac)},
             {"mtu", host.mtu},
             {"tx_queue_length", host.tx_queue_length},
             {"up", host.up},
             {"records", std::move(records)},
             {"pf", host.pf},
             {"vf", host.vf},
             {"vf_attributes", vf_json(host.vf_attributes)}};
  if (!host.permanent_mac.empty()) entry["permanent_mac"] = to_hex(host.permanent_mac);
  if (host.identity != 0) entry["identity"] = host.identity;
  for (const VfAttributes& vf : host.vfs)
    entry["vfs"].push_back(vf_json(vf));
  if (host.tcx) entry["tcx"] = *host.tcx;
  if (const auto& rdma = host.rdma)
    entry["rdma"] = Json{{"index", rdma->index}, {"device", rdma->name}, {"node_guid", rdma->node_guid}};
  if (host.settings) entry["settings"] = settings_json(*host.settings);
  if (host.sysfs) entry["sysfs"] = sysfs_json(*host.sysfs);
  if (host.features) {
    entry["features"] = Json{{"changeable", host.features->changeable},
                             {"wanted", host.features->wanted},
                             {"active", host.features->active}};
  }
  return entry;
}

Result<NetRecord> parse_record(const Json& entry) {
  const auto type = static_cast<std::uint16_t>(TRY(number_at(entry, "type", UINT16_MAX)));
  auto record = record_from_hex(type, TRY(text_at(entry, "message")));
  if (!record) return wrong_member("message");
  return *std::move(record);
}

Result<HostNetdev> parse_host(const Json& entry) {
  HostNetdev host;
  host.ifindex = static_cast<int>(TRY(number_at(entry, "ifindex", INT32_MAX)));
  host.name = TRY(text_at(entry, "name"));
  host.kind = TRY(text_at(entry, "kind"));
  host.bus_address = TRY(text_at(entry, "bus_address"));
  host.mac = TRY(bytes_at(entry, "mac"));
  if (member(entry, "permanent_mac")) host.permanent_mac = TRY(bytes_at(entry, "permanent_mac"));
  if (member(entry, "identity")) host.identity = TRY(number_at(entry, "identity", UINT64_MAX));
  host.mtu = static_cast<unsigned>(TRY(number_at(entry, "mtu", UINT32_MAX)));
  host.tx_queue_length = static_cast<unsigned>(TRY(number_at(entry, "tx_queue_length", UINT32_MAX)));
  host.up = TRY(truth_at(entry, "up"));
  const Json* records = member(entry, "records");
  const Json* vf = member(entry, "vf_attributes");
  if (!records || !records->is_array() || !vf) return wrong_member("records");
  for (const Json& record : *records)
    host.records.push_back(TRY(parse_record(record)));
  host.pf = TRY(text_at(entry, "pf"));
  host.vf = static_cast<unsigned>(TRY(number_at(entry, "vf", UINT32_MAX)));
  host.vf_attributes = TRY(parse_vf(*vf));
  if (const Json* vfs = member(entry, "vfs")) {
    if (!vfs->is_array()) return wrong_member("vfs");
    for (const Json& each : *vfs)
      host.vfs.push_back(TRY(parse_vf(each)));
  }
  if (const Json* rdma = member(entry, "rdma")) {
    host.rdma.emplace();
    host.rdma->index = static_cast<std::uint32_t>(TRY(number_at(*rdma, "index", UINT32_MAX)));
    host.rdma->name = TRY(text_at(*rdma, "device"));
    host.rdma->node_guid = TRY(number_at(*rdma, "node_guid", UINT64_MAX));
  }
  if (member(entry, "tcx")) host.tcx = TRY(numbers_at(entry, "tcx"));
  if (const Json* settings = member(entry, "settings")) host.settings = TRY(parse_settings(*settings));
  if (const Json* sysfs = member(entry, "sysfs")) {
    if (!sysfs->is_object()) return wrong_member("sysfs");
    host.sysfs = TRY(parse_sysfs(*sysfs));
  }
  if (const Json* features = member(entry, "features")) {
    host.features.emplace();
    host.features->changeable = TRY(numbers_at(*features, "changeable"));
    host.features->wanted = TRY(numbers_at(*features, "wanted"));
    host.features->active = TRY(numbers_at(*features, "active"));
  }
  return host;
}

// Member by member: what a TRY() inside of the braces leaves half-made is never destroyed.
Result<IpamLease> parse_lease(const Json& entry) {
  IpamLease lease;
  lease.plugin = TRY(text_at(entry, "plugin"));
  if (lease.plugin.find('/') != std::string::npos) return wrong_member("plugin");
  lease.network = TRY(text_at(entry, "network"));
  lease.ipam = TRY(text_at(entry, "ipam"));
  lease.ifname = TRY(text_at(entry, "ifname"));
  if (member(entry, "args")) lease.args = TRY(text_at(entry, "args"));
  return lease;
}

Result<RailRecord> parse_rail_record(const Json& entry) {
  RailRecord record;
  const Json* rail = member(entry, "rail");
  const Json* host = member(entry, "host");
  if (!rail || !host) return wrong_member("rail");
  record.rail = TRY(parse_rail(*rail));
  record.network = TRY(text_at(entry, "network"));
  record.host = TRY(parse_host(*host));
  record.rule_priority = static_cast<unsigned>(TRY(number_at(entry, "rule_priority", UINT32_MAX)));
  TRY_VOID(optional_number(entry, "gid_index", record.gid_index));
  if (const Json* lease = member(entry, "lease")) record.lease = TRY(parse_lease(*lease));
  return record;
}

Json rail_record_json(const RailRecord& record) {
  Json entry{{"rail", rail_json(record.rail)}, {"network", record.network}, {"host", host_json(record.host)}};
  entry["rule_priority"] = record.rule_priority;
  put_optional(entry, "gid_index", record.gid_index);
  if (record.lease) {
    entry["lease"] = Json{{"plugin", record.lease->plugin},
                          {"network", record.lease->network},
                          {"ipam", record.lease->ipam},
                          {"ifname", record.lease->ifname}};
    if (!record.lease->args.empty()) entry["lease"]["args"] = record.lease->args;
  }
  return entry;
}

Result<NetworkRecord> parse_document(const Json& document) {
  NetworkRecord record;
  TRY_VOID(number_at(document, "format", 1));
  record.key = TRY(text_at(document, "key"));
  const Json* rails = member(document, "rails");
  if (!rails || !rails->is_array()) return wrong_member("rails");
  record.netns = TRY(netns_at(document, "netns"));
  record.group = static_cast<std::uint32_t>(TRY(number_at(document, "group", UINT32_MAX)));
  for (const Json& rail : *rails)
    record.rails.push_back(TRY(parse_rail_record(rail)));
  return record;
}

}  // namespace

std::string network_record_text(const NetworkRecord& record) {
  Json rails = Json::array();
  for (const RailRecord& rail : record.rails)
    rails.push_back(rail_record_json(rail));
  const Json document{{"format", 1},
                      {"key", record.key},
                      {"netns", netns_json(record.netns)},
                      {"group", record.group},
                      {"rails", std::move(rails)}};
  return document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<NetworkRecord> parse_network_record(std::string_view text, const std::string& path, std::string_view key) {
  const auto complete = [](Error error) {
    error.hint = "put the netdevs right by hand, remove the file and run `rdma-hook recover`";
    return error;
  };
  const auto document =
      parse_json(text, fmt::format("record `{}`", path), {.bytes = kLargestLedgerFile, .depth = kDepth});
  if (!document) return complete(document.error());
  auto record = parse_document(*document);
  if (record && !key.empty() && record->key != key)
    record = fabric::make_error("it is the record of `{}`", fabric::printable(record->key));
  if (!record) return complete(fabric::wrap(std::move(record).error(), fmt::format("cannot read `{}`", path)));
  return record;
}

}  // namespace hook
