// Any text as a container's config.json, from reading to the edit, which must keep the existing content.
#include "base/json/json.hpp"
#include "hook/apply/edit_spec.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/request/request.hpp"
#include "hook_node.hpp"
#include "require.hpp"

namespace {

using fuzz::require;
using namespace hook;

constexpr const char* kToken = "0123456789abcdef0123456789abcdef";

void edit_checked(const hook::Plan& plan, const hook::ContainerSpec& spec, const Json& config) {
  Json edited = config;
  const auto done = hook::edit_spec(hook::adjust(plan, spec, kToken), edited);
  if (!done) return fuzz::require_one_line(done.error().message, "the refusal of an edit");
  fuzz::require_kept(config, edited, "/process/rlimits", "/annotations/rdma-init.io/grant");
  Json again = edited;
  const auto now = hook::read_container_spec(edited);
  require(now.has_value(), "an edited config.json can be read");
  require(hook::edit_spec(hook::adjust(plan, *now, kToken), again).has_value(), "an edit can be repeated");
  require(again == edited, "the second edit changes nothing", edited.dump());
}

void decide_checked(const hook::ContainerSpec& spec, const Json& config, Engine engine, const hook::Config& admin) {
  const auto asked = hook::parse_request(spec, admin, engine);
  if (!asked) return fuzz::require_one_line(asked.error().message, "the refusal of a request");
  if (!asked->request) return;
  const fabric::Inventory node = fuzz::small_node();
  const hook::Candidates among(node, *asked->request, admin);
  const auto plan = hook::make_plan({among, {}, "/run/rdma-hook/views/x", false});
  if (!plan) return fuzz::require_one_line(plan.error().message, "the refusal of a plan");
  if (asked->request->has_nodes_of_grant) {
    for (const auto& hca : plan->hcas) {
      const auto found =
          std::find_if(node.hcas.begin(), node.hcas.end(), [&](const auto& h) { return h.name == hca.name; });
      require(found != node.hcas.end(), "an HCA of the node is granted", hca.name);
      // The device number determines the HCA, not the path of the node.
      const bool granted = std::any_of(spec.devices.begin(), spec.devices.end(), [&](const hook::SpecDevice& device) {
        return found->uverbs && fabric::uverbs_of_number(device.major, device.minor) == found->uverbs;
      });
      require(granted, "no HCA is added to the device plugin's HCAs", hca.name);
    }
  }
  edit_checked(*plan, spec, config);
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto config = base::parse_json(text, "config.json");
  if (!config) return fuzz::require_one_line(config.error().message, "the refusal of a config.json");
  const auto spec = hook::read_container_spec(*config);
  if (!spec) return fuzz::require_one_line(spec.error().message, "the refusal of a config.json");
  hook::Config trusting;
  trusting.annotations_may_request = {"*"};
  trusting.env_may_request = true;
  for (const Engine engine : {Engine::kRunc, Engine::kPodman, Engine::kCrio, Engine::kContainerd}) {
    decide_checked(*spec, *config, engine, hook::Config());
    decide_checked(*spec, *config, engine, trusting);
  }
}
