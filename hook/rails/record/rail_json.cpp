#include "hook/rails/record/rail_json.hpp"

#include <cstdint>
#include <utility>

#include "hook/base/json/json_members.hpp"

namespace hook {
namespace {

using fabric::Result;

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

Result<void> optional_truth(const Json& object, const char* name, std::optional<bool>& truth) {
  if (member(object, name)) truth = TRY(truth_at(object, name));
  return {};
}

}  // namespace

Json vf_json(const VfAttributes& vf) {
  Json entry = Json::object();
  if (vf.mac) entry["mac"] = to_string(*vf.mac);
  put_optional(entry, "vlan", vf.vlan);
  put_optional(entry, "qos", vf.qos);
  put_optional(entry, "vlan_protocol", vf.vlan_protocol);
  put_optional(entry, "trust", vf.trust);
  put_optional(entry, "spoofchk", vf.spoofchk);
  put_optional(entry, "link_state", vf.link_state);
  put_optional(entry, "min_tx_rate", vf.min_tx_rate);
  put_optional(entry, "max_tx_rate", vf.max_tx_rate);
  put_optional(entry, "node_guid", vf.node_guid);
  put_optional(entry, "port_guid", vf.port_guid);
  return entry;
}

Result<VfAttributes> parse_vf(const Json& entry) {
  if (!entry.is_object()) return wrong_member("vf");
  VfAttributes vf;
  if (member(entry, "mac")) {
    vf.mac = parse_mac(TRY(text_at(entry, "mac")));
    if (!vf.mac) return wrong_member("mac");
  }
  TRY_VOID(optional_number(entry, "vlan", vf.vlan));
  TRY_VOID(optional_number(entry, "qos", vf.qos));
  TRY_VOID(optional_number(entry, "vlan_protocol", vf.vlan_protocol));
  TRY_VOID(optional_truth(entry, "trust", vf.trust));
  TRY_VOID(optional_truth(entry, "spoofchk", vf.spoofchk));
  TRY_VOID(optional_number(entry, "link_state", vf.link_state));
  TRY_VOID(optional_number(entry, "min_tx_rate", vf.min_tx_rate));
  TRY_VOID(optional_number(entry, "max_tx_rate", vf.max_tx_rate));
  TRY_VOID(optional_number(entry, "node_guid", vf.node_guid));
  TRY_VOID(optional_number(entry, "port_guid", vf.port_guid));
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

}  // namespace hook
