#include "shim/runtime/features.hpp"

#include <fmt/core.h>

#include <vector>

#include "base/json/json.hpp"
#include "base/process/query_program.hpp"
#include "base/text.hpp"

namespace shim {
namespace {

constexpr int kAnswerMs = 5'000;
constexpr const char* kWithoutNetdevs =
    "use runc 1.4, crun 1.22 or later, or remove linux.netDevices from the container";

}  // namespace

std::optional<bool> moves_netdevs(std::string_view features) {
  const auto json = base::parse_json(features, "the features of the runtime");
  if (!json || !json->is_object()) return std::nullopt;
  const base::Json* linux_part = base::member(*json, "linux");
  if (!linux_part) return std::nullopt;
  const base::Json* netdevs = base::member(*linux_part, "netDevices");
  if (!netdevs) return false;
  const base::Json* enabled = base::member(*netdevs, "enabled");
  const bool* value = enabled ? enabled->get_ptr<const bool*>() : nullptr;
  return value ? std::optional(*value) : std::nullopt;
}

Result<std::string> check_moved_netdevs(const hook::ContainerSpec& spec, const std::string& runtime) {
  if (spec.moved_netdevs.empty() || !spec.has_netns) return std::string();
  const std::vector<std::string> names(spec.moved_netdevs.begin(), spec.moved_netdevs.end());
  const std::string netdevs = base::printable(base::join(names, ", "));
  const auto answer = base::query_program("", {runtime, "features"}, {}, kAnswerMs);
  const auto moves = answer && answer->done ? moves_netdevs(answer->text) : std::nullopt;
  if (moves == true) return std::string();
  const std::string shown = base::printable(runtime);
  if (moves == false) {
    return Error{fmt::format("cannot move {} into the container (linux.netDevices): `{}` ignores it", netdevs, shown),
                 0, kWithoutNetdevs};
  }
  return fmt::format("whether `{}` moves {} into the container (linux.netDevices) is not known: {}; remedy: {}", shown,
                     netdevs, answer ? "`features` has no answer" : answer.error().message, kWithoutNetdevs);
}

}  // namespace shim
