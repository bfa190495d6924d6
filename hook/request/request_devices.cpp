// What a device plugin, --device or CDI left in the container's configuration.
#include <algorithm>

#include "fabric/inventory.hpp"
#include "fabric/text.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::make_error;
using fabric::Result;

// "PREFIXn" with n a number and nothing else.
bool is_numbered(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) && path.size() > prefix.size() && path.size() <= prefix.size() + 9 &&
         std::all_of(path.begin() + static_cast<std::ptrdiff_t>(prefix.size()), path.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<SpecDevice> given_uverbs_nodes(const ContainerSpec& spec) {
  std::vector<SpecDevice> given;
  for (const SpecDevice& device : spec.devices) {
    if (device.type != 'c' || !device.path.starts_with('/') || !fabric::uverbs_number(device.path)) continue;
    if (std::find(given.begin(), given.end(), device) == given.end()) given.push_back(device);
  }
  return given;
}

std::vector<std::string> given_gpu_nodes(const ContainerSpec& spec) {
  std::vector<std::string> nodes;
  for (const SpecDevice& device : spec.devices) {
    if (device.type == 'c' && (is_numbered(device.path, "/dev/nvidia") || is_numbered(device.path, "/dev/dri/card") ||
                               is_numbered(device.path, "/dev/dri/renderD"))) {
      nodes.push_back(device.path);
    }
  }
  return nodes;
}

Result<std::vector<std::string>> pcidevice_order(const ContainerSpec& spec) {
  std::vector<std::string> order;
  for (const std::string& entry : spec.env) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || !entry.starts_with("PCIDEVICE_")) continue;
    const std::string_view name = std::string_view(entry).substr(0, equals);
    if (name.ends_with("_INFO")) continue;
    const std::string source = "variable " + fabric::printable(name.substr(0, 128));
    const std::string_view value = std::string_view(entry).substr(equals + 1);
    TRY_VOID(check_size(value, source));
    for (const std::string_view item : fabric::split(value, ',')) {
      if (!fabric::trim(item).empty()) order.emplace_back(fabric::trim(item));
      if (order.size() > kMaxListEntries) {
        return make_error("{}: a list of over {} entries", source, kMaxListEntries);
      }
    }
  }
  return order;
}

}  // namespace hook
