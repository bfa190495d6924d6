#include "shim/nri/adjustment_json.hpp"

#include "hook/json/json.hpp"
#include "hook/json/json_members.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::Json;

Result<const Json*> list_at(const Json& object, const char* name) {
  const Json* list = hook::member(object, name);
  if (!list || !list->is_array()) return hook::wrong_member(name);
  return list;
}

Result<std::map<std::string, std::string>> texts_at(const Json& object, const char* name) {
  const Json* texts = hook::member(object, name);
  if (!texts || !texts->is_object()) return hook::wrong_member(name);
  std::map<std::string, std::string> map;
  for (const auto& [key, value] : texts->items())
    map[key] = TRY(hook::text_at(*texts, key.c_str()));
  return map;
}

Result<Device> parse_device(const Json& json) {
  Device device;
  device.path = TRY(hook::text_at(json, "path"));
  device.type = TRY(hook::text_at(json, "type"));
  device.major_number = static_cast<std::int64_t>(TRY(hook::number_at(json, "major", UINT32_MAX)));
  device.minor_number = static_cast<std::int64_t>(TRY(hook::number_at(json, "minor", UINT32_MAX)));
  TRY_VOID(hook::optional_number(json, "mode", device.file_mode));
  TRY_VOID(hook::optional_number(json, "uid", device.uid));
  TRY_VOID(hook::optional_number(json, "gid", device.gid));
  return device;
}

Result<Mount> parse_mount(const Json& json) {
  Mount mount;
  mount.destination = TRY(hook::text_at(json, "destination"));
  mount.type = TRY(hook::text_at(json, "type"));
  mount.source = TRY(hook::text_at(json, "source"));
  for (const Json& option : *TRY(list_at(json, "options"))) {
    if (!option.is_string()) return hook::wrong_member("options");
    mount.options.push_back(option.get<std::string>());
  }
  return mount;
}

}  // namespace

std::string adjustment_text(const ContainerAdjustment& adjustment) {
  Json json{{"annotations", adjustment.annotations},
            {"env", adjustment.env},
            {"devices", Json::array()},
            {"rlimits", Json::array()},
            {"mounts", Json::array()}};
  for (const Device& device : adjustment.devices) {
    Json one{{"path", device.path},
             {"type", device.type},
             {"major", static_cast<std::uint64_t>(device.major_number)},
             {"minor", static_cast<std::uint64_t>(device.minor_number)}};
    if (device.file_mode) one["mode"] = *device.file_mode;
    if (device.uid) one["uid"] = *device.uid;
    if (device.gid) one["gid"] = *device.gid;
    json["devices"].push_back(std::move(one));
  }
  for (const Rlimit& limit : adjustment.rlimits)
    json["rlimits"].push_back({{"type", limit.type}, {"hard", limit.hard}, {"soft", limit.soft}});
  for (const Mount& mount : adjustment.mounts) {
    json["mounts"].push_back({{"destination", mount.destination},
                              {"type", mount.type},
                              {"source", mount.source},
                              {"options", mount.options}});
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<ContainerAdjustment> parse_adjustment(std::string_view text) {
  const Json json = TRY(hook::parse_json(text, "the adjustment"));
  ContainerAdjustment adjustment;
  adjustment.annotations = TRY(texts_at(json, "annotations"));
  adjustment.env = TRY(texts_at(json, "env"));
  for (const Json& device : *TRY(list_at(json, "devices")))
    adjustment.devices.push_back(TRY(parse_device(device)));
  for (const Json& limit : *TRY(list_at(json, "rlimits"))) {
    adjustment.rlimits.push_back({TRY(hook::text_at(limit, "type")), TRY(hook::number_at(limit, "hard", UINT64_MAX)),
                                  TRY(hook::number_at(limit, "soft", UINT64_MAX))});
  }
  for (const Json& mount : *TRY(list_at(json, "mounts")))
    adjustment.mounts.push_back(TRY(parse_mount(mount)));
  return adjustment;
}

}  // namespace shim
