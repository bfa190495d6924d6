#include "hook/apply/cdi_spec.hpp"

#include <algorithm>
#include <cctype>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/warnings.hpp"
#include "fabric/library_variables.hpp"
#include "hook/plan/choose.hpp"
#include "hook/plan/parts.hpp"
#include "hook/plan/pools.hpp"

namespace hook {
namespace {

constexpr const char* kCdiVersion = "0.3.0";
constexpr const char* kAll = "all";
constexpr const char* kPermissions = "rw";  // permissions without mknod, because the runtime makes the node

bool is_letter(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) != 0;
}
bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// Returns whether the text begins with a letter, ends with a letter or digit, and otherwise has only letters, digits
// and the characters of `others`.
bool is_name(std::string_view text, std::string_view others) {
  return !text.empty() && is_letter(text.front()) && is_word(text.back()) &&
         std::ranges::all_of(text, [&](char c) { return is_word(c) || others.find(c) != std::string_view::npos; });
}

// Returns whether CDI allows the name of a device. The kernel allows more characters in the name of an RDMA device.
bool is_device_name(std::string_view text) {
  return is_name(text, "_-.:");
}

// Returns a hook entry. The engine runs the hook for every container that gets a CDI device of this specification, also
// if the container has no other request.
Json hook_json(const CdiOptions& options, const char* stage) {
  Json arguments = {"rdma-hook", stage};
  if (options.engine) {
    arguments.push_back("--engine");
    arguments.push_back(to_string(*options.engine));
  }
  return Json{{"hookName", stage}, {"path", options.hook}, {"args", std::move(arguments)}};
}

// Returns the part of a plan that depends on no container.
Plan plan_of(std::vector<PlannedNode> nodes, const std::vector<ChosenHca>& hcas) {
  Plan plan;
  plan.nodes = std::move(nodes);
  if (const SiteValues values = site_values(hcas, plan); !values.empty())
    plan.env.emplace(fabric::kSiteName, fabric::site_text(values));
  return plan;
}

// Returns the edits by which an engine applies the plan. The edits have no device numbers, which the engine reads.
Json edits_json(const Plan& plan) {
  Json edits = Json::object();
  for (const PlannedNode& node : plan.nodes)
    edits["deviceNodes"].push_back(Json{{"path", node.path},
                                        {"type", "c"},
                                        {"fileMode", node.mode},
                                        {"permissions", kPermissions},
                                        {"uid", node.uid},
                                        {"gid", node.gid}});
  for (const auto& [name, value] : plan.env)
    edits["env"].push_back(fmt::format("{}={}", name, value));
  return edits;
}

// The engine applies the edits of `common` once per container, whatever the number of its CDI devices.
Json spec_json(Json devices, const Plan& common, const CdiOptions& options) {
  Json edits = edits_json(common);
  if (!options.hook.empty())
    edits["hooks"] = Json::array({hook_json(options, "createRuntime"), hook_json(options, "poststop")});
  return Json{{"cdiVersion", kCdiVersion},
              {"kind", options.kind},
              {"devices", std::move(devices)},
              {"containerEdits", std::move(edits)}};
}

// Returns why an HCA of a pool gets no CDI device, "" if it gets one.
std::string obstacle_of(const NodeHca& hca) {
  if (hca.pool_unread) return unknown_pool(hca).message;
  if (!hca.hca->uverbs) return "it has no uverbs node";
  return is_device_name(hca.name()) && hca.name() != kAll ? "" : "CDI does not allow this name";
}

}  // namespace

Result<void> check_cdi_kind(std::string_view kind) {
  const std::size_t slash = kind.find('/');
  if (slash != std::string_view::npos && is_name(kind.substr(0, slash), "_-.") && is_name(kind.substr(slash + 1), "_-"))
    return {};
  return Error{fmt::format("`{}` is not a CDI kind", base::printable(kind)), 0,
               fmt::format("write a vendor and a class, such as `{}`", kCdiKind)};
}

Result<std::pair<Json, std::vector<std::string>>> cdi_spec(const fabric::Inventory& inventory, const Config& config,
                                                           const CdiOptions& options) {
  TRY_VOID(check_cdi_kind(options.kind));
  TRY_VOID(was_read(inventory, fabric::Unread::Part::kHcas));
  const NodeMap node(inventory, config);
  // rdma_cm is in the edits that all devices share; here it would be added once for each device.
  NodeOptions own = config.nodes;
  own.rdma_cm = false;
  std::vector<std::string> warnings;
  Json devices = Json::array();
  Plan all;
  std::vector<ChosenHca> offered;
  for (const NodeHca* hca : node.by_rail()) {
    if (!hca->pool && !hca->pool_unread) continue;
    if (const std::string obstacle = obstacle_of(*hca); !obstacle.empty()) {
      warnings.push_back(fmt::format("`{}` is skipped: {}", base::printable(hca->name()), obstacle));
      continue;
    }
    const auto terms = terms_for(*hca, Request(), config);
    offered.push_back({hca, terms ? *terms : Terms()});
    const Plan plan = plan_of(TRY(planned_nodes(own, inventory, {hca})), {offered.back()});
    devices.push_back(Json{{"name", hca->name()}, {"containerEdits", edits_json(plan)}});
    all.nodes.insert(all.nodes.end(), plan.nodes.begin(), plan.nodes.end());
  }
  if (offered.empty())
    return Error{"this node has no HCA for containers", 0, "check HCAs and pools with `rdma-hook devices`"};
  all = plan_of(std::move(all.nodes), offered);
  append(all.warnings, warnings);
  devices.push_back(Json{{"name", kAll}, {"containerEdits", edits_json(all)}});

  const Plan common = plan_of(TRY(planned_nodes(config.nodes, inventory, {})), {});
  return std::pair(spec_json(devices, common, options), std::move(warnings));
}

Json cdi_spec_of(const std::vector<CdiDevice>& devices, const Plan& common, const CdiOptions& options) {
  Json listed = Json::array();
  for (const CdiDevice& device : devices) {
    Plan plan;
    plan.nodes = device.nodes;
    listed.push_back(Json{{"name", device.name}, {"containerEdits", edits_json(plan)}});
  }
  return spec_json(std::move(listed), common, options);
}

}  // namespace hook
