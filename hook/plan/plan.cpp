// Prints a plan as JSON and as text.
#include "hook/plan/plan.hpp"
#include "base/columns.hpp"
#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/text_digest.hpp"

namespace hook {
namespace {

constexpr const char* kLendingView = "lent-";

Json memlock_json(const std::optional<std::uint64_t>& memlock) {
  if (!memlock) return nullptr;
  return *memlock == UINT64_MAX ? Json("unlimited") : Json(*memlock);
}

std::string octal(std::uint32_t mode) {
  return fmt::format("{:04o}", mode);
}

Json node_json(const PlannedNode& node) {
  Json json = {{"path", node.path},
               {"type", "c"},
               {"major", or_null(node.major)},
               {"minor", or_null(node.minor)},
               {"mode", octal(node.mode)}};
  // A node without uid and gid in the JSON has owner root and group root.
  if (node.uid != 0) json["uid"] = node.uid;
  if (node.gid != 0) json["gid"] = node.gid;
  return json;
}

Json netdev_json(const PlannedNetdev& netdev) {
  return {{"host", netdev.host.empty() ? Json() : Json(netdev.host)},
          {"name", netdev.name},
          {"mode", to_string(netdev.mode)},
          {"hca", netdev.hca},
          {"rail", netdev.rail}};
}

Json mount_json(const PlannedMount& mount) {
  return {
      {"destination", mount.destination}, {"source", mount.source}, {"type", mount.type}, {"options", mount.options}};
}

Json limit_json(const PlannedRdmaLimit& limit) {
  return {{"hca", limit.hca},
          {"hca_handles", or_null(limit.limits.handles)},
          {"hca_objects", or_null(limit.limits.objects)}};
}

std::string rdma_limit_text(const RdmaLimits& limits) {
  const auto text = [](const std::optional<std::uint32_t>& limit) {
    return limit ? std::to_string(*limit) : std::string("no limit");
  };
  return fmt::format("objects {}, handles {}", text(limits.objects), text(limits.handles));
}

template <typename T, typename ToJson>
Json array_of(const std::vector<T>& values, ToJson to_json) {
  Json array = Json::array();
  for (const T& value : values)
    array.push_back(to_json(value));
  return array;
}

std::string number_text(const PlannedNode& node) {
  const auto text = [](const std::optional<std::uint32_t>& number) {
    return number ? std::to_string(*number) : std::string("?");
  };
  return text(node.major) + ":" + text(node.minor);
}

}  // namespace

Json plan_json(const Plan& plan) {
  Json env = Json::object();
  for (const auto& [name, value] : plan.env)
    env[name] = value;
  Json json = {{"hcas", array_of(plan.hcas, [](const PlannedHca& hca) { return Json(hca.name); })},
               {"nodes", array_of(plan.nodes, node_json)},
               {"memlock", memlock_json(plan.memlock)},
               {"capabilities", plan.capabilities},
               {"netdevs", array_of(plan.netdevs, netdev_json)},
               {"env", std::move(env)},
               {"mounts", array_of(plan.mounts, mount_json)},
               {"warnings", plan.warnings}};
  if (!plan.rdma_limits.empty()) json["rdma_limits"] = array_of(plan.rdma_limits, limit_json);
  return json;
}

std::string memlock_text(std::uint64_t bytes) {
  return bytes == UINT64_MAX ? "unlimited" : fmt::format("{} bytes", bytes);
}

std::string plan_text(const Plan& plan) {
  std::string text;
  const auto line = [&](std::string_view what, std::string_view value) {
    text += fmt::format("{:<11} {}\n", what, base::one_line(value));
  };
  if (plan.hcas.empty()) line("HCAs", "none");
  for (const PlannedHca& hca : plan.hcas)
    line("HCA", fmt::format("{}  {}{}", hca.name, to_string(hca.mode),
                            hca.units > 1 ? fmt::format(", {} units", hca.units) : ""));
  for (const PlannedNode& node : plan.nodes)
    line("node", fmt::format("{}  c {}  {}", node.path, number_text(node), octal(node.mode)));
  for (const PlannedNetdev& netdev : plan.netdevs)
    line("netdev", fmt::format("{}  {} of {} ({}, rail {})", netdev.name, to_string(netdev.mode),
                               netdev.host.empty() ? "?" : netdev.host, netdev.hca, netdev.rail));
  if (plan.memlock) line("memlock", memlock_text(*plan.memlock));
  for (const PlannedRdmaLimit& limit : plan.rdma_limits)
    line("rdma limit", fmt::format("{}  {}", limit.hca, rdma_limit_text(limit.limits)));
  // Only rdma-runtime can add a capability: NRI and a hook cannot.
  for (const std::string& capability : plan.capabilities)
    line("capability", capability + " (only with rdma-runtime)");
  for (const auto& [name, value] : plan.env)
    line("env", fmt::format("{}={}", name, value));
  for (const PlannedMount& mount : plan.mounts)
    line("mount", fmt::format("{}  from {}", mount.destination, mount.source));
  for (const std::string& warning : plan.warnings) {
    constexpr std::size_t kIndent = 12;
    text += fmt::format("{:<11} ", "warning");
    add_wrapped(base::one_line(warning), kIndent, kIndent, text);
  }
  return text;
}

std::string view_name(const std::vector<ViewEntry>& view) {
  if (view.empty()) return "none";
  std::vector<std::string> lines;
  bool has_copies = false;
  for (const ViewEntry& entry : view) {
    has_copies = has_copies || !entry.copy.empty();
    std::string line;
    const auto add = [&](const std::string& part) { line.append(part).push_back('\0'); };
    // Different entries have different lines, because names and targets have no zero byte, which separates them.
    for (const std::string* part : {&entry.directory, &entry.name, &entry.target, &entry.text})
      add(*part);
    if (!entry.copy.empty()) add(entry.copy);
    lines.push_back(std::move(line));
  }
  std::ranges::sort(lines);
  return (has_copies ? kLendingView : "set-") + text_digest(base::join(lines, ""));
}

bool is_lending_view(std::string_view name) {
  return name.starts_with(kLendingView);
}

}  // namespace hook
