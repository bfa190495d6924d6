#include "hook/program/refusal_list.hpp"

#include "base/columns.hpp"
#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/program/devices.hpp"

namespace hook {
namespace {

std::string name_of(const RefusedContainer& container) {
  if (container.pod.empty()) return fmt::format("container {}", container.id);
  const std::string pod = fmt::format("pod {}/{}", container.pod_namespace, container.pod);
  return container.name.empty() ? pod : fmt::format("{}, container {}", pod, container.name);
}

// Appends a line at this indent, wrapped. The file is foreign text, which must not control the terminal.
void add_below(std::size_t indent, std::string_view line, std::string& out) {
  out += std::string(indent, ' ');
  add_wrapped(base::one_line(line), indent, indent + 2, out);
}

}  // namespace

Json refusals_json(const std::vector<Refusal>& refusals) {
  Json list = Json::array();
  for (const Refusal& refusal : refusals) {
    const RefusedContainer& of = refusal.container;
    const Json pod =
        of.pod.empty() ? Json() : Json{{"namespace", of.pod_namespace}, {"name", of.pod}, {"container", of.name}};
    list.push_back({{"time", time_text(static_cast<std::int64_t>(refusal.time))},
                    {"container", of.id},
                    {"pod", pod},
                    {"stage", refusal.stage},
                    {"reason", refusal.reason},
                    {"message", refusal.message},
                    {"remedy", refusal.remedy}});
  }
  return Json{{"refusals", std::move(list)}};
}

std::string refusals_text(const std::vector<Refusal>& refusals) {
  if (refusals.empty()) return "no container was refused on this node since it started\n";
  std::string text;
  for (const Refusal& refusal : refusals) {
    add_below(0, fmt::format("{}  {}", time_text(static_cast<std::int64_t>(refusal.time)), name_of(refusal.container)),
              text);
    add_below(2, refusal.message, text);
    if (!refusal.remedy.empty()) add_below(2, "remedy: " + refusal.remedy, text);
  }
  return text;
}

}  // namespace hook
