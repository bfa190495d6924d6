// rdma-init.io/devices, /devices.CONTAINER, /mode, /network.
#include <utility>

#include "fabric/text.hpp"
#include "hook/config/annotations.hpp"
#include "hook/request/request_parsers.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr std::string_view kPrefix = "rdma-init.io/";
constexpr std::string_view kDevices = "rdma-init.io/devices";
constexpr std::string_view kMode = "rdma-init.io/mode";
constexpr std::string_view kNetwork = "rdma-init.io/network";

bool is_known(std::string_view key) {
  return key == kDevices || key == kMode || key == kNetwork || key == kGrantAnnotation ||
         (key.starts_with(kDevices) && key.substr(kDevices.size()).starts_with('.'));
}

// One warning, however many there are: an image may have written them.
std::optional<std::string> unknown_keys(const ContainerSpec& spec) {
  for (auto it = spec.annotations.lower_bound(std::string(kPrefix));
       it != spec.annotations.end() && it->first.starts_with(kPrefix); ++it) {
    if (is_known(it->first)) continue;
    return fmt::format("annotation `{}` means nothing: there are {}, {} and {}",
                       fabric::printable(std::string_view(it->first).substr(0, 128)), kDevices, kMode, kNetwork);
  }
  return std::nullopt;
}

Result<std::optional<Wish>> devices(const ContainerSpec& spec, std::string_view container_name) {
  std::optional<SourcedText> found;
  if (!container_name.empty()) {
    found = TRY(find_annotation(spec, fmt::format("{}.{}", kDevices, container_name)));
  }
  if (!found) found = TRY(find_annotation(spec, std::string(kDevices)));
  if (!found) return std::optional<Wish>();
  return std::optional<Wish>(TRY(parse_wish(found->text, found->source)));
}

}  // namespace

Result<Said> own_annotations(const ContainerSpec& spec, std::string_view container_name) {
  Said said;
  said.wish = TRY(devices(spec, container_name));
  said.mode = TRY(find_annotation(spec, std::string(kMode)));
  said.network = TRY(find_annotation(spec, std::string(kNetwork)));
  if (auto warning = unknown_keys(spec)) said.warnings.push_back(*std::move(warning));
  return said;
}

}  // namespace hook
