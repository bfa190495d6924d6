#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "fabric/snapshot.hpp"
#include "fabric/text.hpp"

namespace fabric {
namespace {

using Json = nlohmann::ordered_json;

Json unreadable(const Unreadable& value) {
  return Json{{"errno", errno_name(value.code)}};
}

template <typename T>
Json attribute(const Attr<T>& value) {
  if (const auto* failed = std::get_if<Unreadable>(&value)) return unreadable(*failed);
  return std::get<T>(value);
}

template <typename T>
void put(Json& json, const char* key, const std::optional<T>& value) {
  if (value) json[key] = *value;
}

template <typename T>
void put_or_null(Json& json, const char* key, const std::optional<T>& value) {
  json[key] = value ? Json(*value) : Json(nullptr);
}

Json gid_json(const GidEntry& entry) {
  Json json;
  json["index"] = entry.index;
  json["gid"] = to_gid_string(entry.gid);
  if (entry.type) json["type"] = attribute(*entry.type);
  json["ndev"] = entry.ndev ? attribute(*entry.ndev) : Json(nullptr);
  return json;
}

Json port_json(const Port& port) {
  Json json;
  json["port"] = port.number;
  json["state"] = attribute(port.state);
  json["phys_state"] = attribute(port.phys_state);
  json["link_layer"] = attribute(port.link_layer);
  json["rate"] = attribute(port.rate);
  put(json, "lid", port.lid);
  put(json, "sm_lid", port.sm_lid);
  put(json, "gid_tbl_len", port.gid_tbl_len);
  json["gids"] = Json::array();
  for (const GidEntry& entry : port.gids)
    json["gids"].push_back(gid_json(entry));
  return json;
}

Json hca_json(const Hca& hca) {
  Json json;
  json["name"] = hca.name;
  json["node_guid"] = hca.node_guid;
  json["node_type"] = hca.node_type;
  put_or_null(json, "pci", hca.pci);
  put(json, "numa_node", hca.numa_node);
  put(json, "driver", hca.driver);
  put(json, "vendor", hca.vendor);
  put(json, "device_id", hca.device_id);
  put(json, "pci_class", hca.pci_class);
  put(json, "physfn", hca.physfn);
  put(json, "fw_ver", hca.fw_ver);
  if (!hca.uverbs_unknown) put_or_null(json, "uverbs", hca.uverbs);
  put(json, "uverbs_dev", hca.uverbs_dev);
  put(json, "accessible", hca.accessible);
  if (hca.access_error) json["access_error"] = errno_name(*hca.access_error);
  put(json, "pci_path", hca.pci_path);
  json["ports"] = Json::array();
  for (const Port& port : hca.ports)
    json["ports"].push_back(port_json(port));
  return json;
}

Json netdev_json(const Netdev& netdev) {
  Json json;
  json["name"] = netdev.name;
  put(json, "mac", netdev.mac);
  json["carrier"] = attribute(netdev.carrier);
  put(json, "operstate", netdev.operstate);
  if (netdev.dev_id_null) json["dev_id"] = nullptr;
  put(json, "dev_id", netdev.dev_id);
  put(json, "dev_port", netdev.dev_port);
  put(json, "mtu", netdev.mtu);
  put(json, "type", netdev.type);
  json["addresses"] = Json::array();
  for (const InterfaceAddress& own : netdev.addresses)
    json["addresses"].push_back(own.text);
  put(json, "in_this_netns", netdev.in_this_netns);
  put(json, "pci", netdev.pci);
  put(json, "master", netdev.master);
  put(json, "slaves", netdev.slaves);
  return json;
}

Json gpu_json(const Gpu& gpu) {
  Json json;
  json["pci"] = gpu.pci;
  put(json, "numa_node", gpu.numa_node);
  put(json, "pci_path", gpu.pci_path);
  return json;
}

Json memlock_json(std::uint64_t bytes) {
  return bytes == std::numeric_limits<std::uint64_t>::max() ? Json("unlimited") : Json(bytes);
}

Json limits_json(const Limits& limits) {
  Json json = Json::object();
  if (limits.memlock_soft) json["memlock_soft"] = memlock_json(*limits.memlock_soft);
  if (limits.memlock_hard) json["memlock_hard"] = memlock_json(*limits.memlock_hard);
  if (limits.cap_eff) json["cap_eff"] = fmt::format("{:016x}", *limits.cap_eff);
  put(json, "uid", limits.uid);
  put(json, "initial_userns", limits.initial_userns);
  return json;
}

}  // namespace

std::string write_snapshot(const Inventory& inventory) {
  Json json;
  json["schema"] = 1;
  if (inventory.about) json["about"] = Json::parse(*inventory.about, nullptr, false);
  put(json, "rdma_cm", inventory.rdma_cm);
  json["devices"] = Json::array();
  for (const Hca& hca : inventory.hcas)
    json["devices"].push_back(hca_json(hca));
  json["netdevs"] = Json::array();
  for (const Netdev& netdev : inventory.netdevs)
    json["netdevs"].push_back(netdev_json(netdev));
  if (inventory.gpus) {
    json["gpus"] = Json::array();
    for (const Gpu& gpu : *inventory.gpus)
      json["gpus"].push_back(gpu_json(gpu));
  }
  if (inventory.routes) {
    json["routes"] = Json::array();
    for (const Route& route : *inventory.routes) {
      json["routes"].push_back(Json{{"dst", route.dst}, {"dev", route.dev}, {"table", route.table}});
    }
  }
  if (inventory.netns_mode) json["netns_mode"] = *inventory.netns_mode == NetnsMode::kShared ? "shared" : "exclusive";
  if (inventory.limits) json["limits"] = limits_json(*inventory.limits);
  if (inventory.conf) json["conf"] = *inventory.conf;
  if (inventory.env) json["env"] = *inventory.env;
  // Names come from devices and images: invalid UTF-8 is replaced, not thrown about.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace fabric
