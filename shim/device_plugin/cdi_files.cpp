#include "shim/device_plugin/cdi_files.hpp"

#include <string_view>

#include "fabric/sysfs.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "hook/base/json/json.hpp"

namespace shim {
namespace {

void add_devices_of(const std::string& path, std::set<std::string>& devices) {
  const auto text = hook::read_text_file(path);
  const auto spec = text ? hook::parse_json(*text, path) : fabric::Result<hook::Json>(text.error());
  const auto kind = spec ? hook::text_at(*spec, "kind") : spec.error();
  const hook::Json* list = kind && *kind == hook::kCdiKind ? hook::member(*spec, "devices") : nullptr;
  if (!list || !list->is_array()) return;
  for (const hook::Json& device : *list) {
    if (auto name = hook::text_at(device, "name")) devices.insert(*std::move(name));
  }
}

}  // namespace

std::set<std::string> described_cdi_devices(const std::string& root) {
  std::set<std::string> devices;
  for (const char* place : {"/etc/cdi", "/var/run/cdi"}) {
    const auto directory = fabric::sysfs::Directory::open(root + place);
    if (!directory) continue;
    for (const std::string& name : directory->list()) {
      if (name.ends_with(".json")) add_devices_of(root + place + "/" + name, devices);
    }
  }
  return devices;
}

}  // namespace shim
