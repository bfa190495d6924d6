// Tests of whole decisions: the input is a node, a container and an administrator's configuration, the output is a plan
// or a refusal. A case is a folder of plans/ (README.md there); a new folder is a new case.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "base/json/json.hpp"
#include "fabric/snapshot.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/plan.hpp"
#include "hook/program/foreseen.hpp"
#include "hook/request/request.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

namespace fs = std::filesystem;
using test_support::read_file;

constexpr const char* kViewDirectory = "/run/rdma-hook/views";

struct Case {
  Json about;  // case.json
  fabric::Inventory inventory;
  ContainerSpec spec;
  Config config;
  Engine engine = Engine::kRunc;
  Holdings holdings;
};

Holdings read_holdings(const Json& about) {
  Holdings holdings;
  const Json held = about.value("held", Json::object());
  for (const auto& [name, json] : held.items()) {
    Holding holding;
    holding.own = json.value("own", false);
    holding.own_units = json.value("own_units", holding.own ? 1U : 0U);
    holding.others = json.value("others", 0U);
    if (json.contains("exclusive")) holding.exclusive_owner = json["exclusive"].get<std::string>();
    holdings[name] = holding;
  }
  return holdings;
}

// Reads NAME.json of a directory. Throws nlohmann::json::exception, which fails the test.
Json read_named(const std::string& directory, const Json& name) {
  return Json::parse(read_file(directory + "/" + name.get<std::string>() + ".json"));
}

base::Result<Case> read_case(const std::string& folder) {
  Case one;
  one.about = TRY(parse_json(read_file(folder + "/case.json"), "case.json"));
  const Json node =
      one.about.contains("fixture") ? read_named(FIXTURES, one.about["fixture"]) : read_named(PLANS, "node");
  one.inventory = TRY(fabric::parse_snapshot(node.patch(one.about.value("change", Json::array())).dump()));
  Json container = read_named(PLANS, "container");
  container.merge_patch(one.about.at("container"));
  one.spec = TRY(read_container_spec(container));
  if (one.about.contains("config")) {
    const Json& config = one.about["config"];
    const Json whole = config.is_string() ? read_named(PLANS, "config-" + config.get<std::string>()) : config;
    const ParsedConfig parsed = parse_config({{"config.json", whole.dump()}});
    if (!parsed.problems.empty()) return base::make_error("{}", to_string(parsed.problems.front()));
    one.config = parsed.config;
  }
  if (one.about.contains("sample")) {
    const std::string name = one.about["sample"].get<std::string>();
    one.config = TRY(valid_config({{name, read_file(std::string(SAMPLES) + "/" + name + ".json")}}));
  }
  // A sample that names a file of the node, which this machine lacks.
  if (one.about.contains("node_index"))
    one.config.node_index = NodeIndex{NodeIndex::By::kNumber, one.about["node_index"].get<std::uint64_t>()};
  const auto engine = parse_engine(one.about.value("engine", "runc"));
  if (!engine) return base::make_error("case.json: unknown engine");
  one.engine = *engine;
  one.holdings = read_holdings(one.about);
  return one;
}

// Returns the output of `rdma-hook plan --json`.
base::Result<Json> decide(const Case& one) {
  ParsedRequest asked = TRY(parse_request(one.spec, one.config, one.engine));
  Plan plan = plan_without_hcas(asked.pod_note);
  Json rails = Json::array();
  if (asked.request) {
    const Candidates among(one.inventory, *asked.request, one.config);
    plan = TRY(make_plan({.among = among,
                          .holdings = one.holdings,
                          .view_directory = kViewDirectory,
                          .host_network = !one.spec.has_netns,
                          .view_mount = one.spec.may_remount ? ViewMount::kOverlay : ViewMount::kBind,
                          .variables = true,
                          .pod_note = asked.pod_note,
                          .moved_netdevs = one.spec.moved_netdevs}));
    // A plan must have only HCAs that were locked.
    const auto locked = among.names();
    for (const PlannedHca& hca : plan.hcas)
      EXPECT_NE(std::find(locked.begin(), locked.end(), hca.name), locked.end()) << hca.name;
    const auto foreseen = TRY(foresee_rails(
        {.plan = plan, .config = one.config, .inventory = one.inventory, .is_snapshot = true, .key = "plan"}));
    plan.warnings.insert(plan.warnings.end(), foreseen.warnings.begin(), foreseen.warnings.end());
    rails = foreseen_json(foreseen.rails);
  }
  plan.warnings.insert(plan.warnings.begin(), asked.warnings.begin(), asked.warnings.end());
  Json json = plan_json(plan);
  if (!rails.empty()) json["rails"] = std::move(rails);
  return json;
}

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(PLANS))
    if (entry.is_directory()) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

class GoldenPlan : public testing::TestWithParam<std::string> {};

TEST_P(GoldenPlan, EqualsExpectedPlanOrRefusal) {
  const std::string folder = std::string(PLANS) + "/" + GetParam();
  const auto one = read_case(folder);
  ASSERT_TRUE(one) << one.error().message;
  const auto plan = decide(*one);
  const bool refusal = fs::exists(folder + "/refusal.json");
  ASSERT_NE(refusal, fs::exists(folder + "/plan.json")) << "a case has a plan.json or a refusal.json";
  const Json expected = Json::parse(read_file(folder + (refusal ? "/refusal.json" : "/plan.json")));
  const Json answer = plan ? *plan : Json{{"error", plan.error().message}, {"hint", plan.error().hint}};
  EXPECT_EQ(answer.dump(1), expected.dump(1));
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(plans, GoldenPlan, testing::ValuesIn(cases()), test_name);

}  // namespace
}  // namespace hook
