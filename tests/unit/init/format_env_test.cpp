#include "init/format_env.hpp"
#include "init/decision.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/inventories.hpp"
#include "support/process.hpp"

namespace {

using init::decide;
using init::Decision;
using init::format_dotenv;
using init::format_json;
using init::format_sh;
using Json = nlohmann::json;

Decision with_value(const std::string& value) {
  Decision decision;
  decision.env = {{"NCCL_IB_HCA", value}};
  return decision;
}

const std::vector<std::string>& nasty_values() {
  static const std::vector<std::string> values = {
      "=mlx5_0:1,mlx5_1:1",
      "",
      "two words",
      "it's",
      "'",
      "''",
      "'\\''",
      "$HOME $(touch /tmp/pwned) `id` ${IFS}",
      "a;b&c|d>e<f",
      "a\"b\\c",
      "line\nbreak\n",
      "carriage\rreturn\ttab",
      "-n",
      "*?[a]~",
      "!history",
      "\x1b[31m\x7f",
      "\xff\xfe not UTF-8",
      "\xc3\xa4",
      "\\",
      "\\n",
      std::string(100000, '\''),
  };
  return values;
}

// A real shell is the judge.
TEST(FormatSh, EvalGivesTheVeryValue) {
  for (const std::string& value : nasty_values()) {
    const auto outcome = test_support::run(
        {.argv = {"/bin/sh", "-c", "eval \"$(cat)\"; printf %s. \"$NCCL_IB_HCA\"; sh -c 'printf %s. \"$NCCL_IB_HCA\"'"},
         .environment = {"PATH=/bin:/usr/bin"},
         .input = format_sh(with_value(value))});
    // $(...) drops final newlines of the whole text, never those inside of quotes.
    EXPECT_EQ(outcome.out, value + "." + value + ".") << init::shell_quote(value.substr(0, 40));
    EXPECT_EQ(outcome.err, "");
    EXPECT_EQ(outcome.exit_code, 0);
  }
}

TEST(FormatSh, IsOneExportPerVariable) {
  Decision decision = with_value("=a:1");
  decision.env.emplace_back("NCCL_IB_GID_INDEX", "3");
  EXPECT_EQ(format_sh(decision), "export NCCL_IB_HCA='=a:1'\nexport NCCL_IB_GID_INDEX='3'\n");
  EXPECT_EQ(format_sh(Decision{}), "");
}

TEST(FormatDotenv, QuotesOnlyWhatNeedsIt) {
  EXPECT_EQ(*format_dotenv(with_value("=mlx5_0:1,a-b.c/d@e^f+g")), "NCCL_IB_HCA==mlx5_0:1,a-b.c/d@e^f+g\n");
  EXPECT_EQ(*format_dotenv(with_value("a b#c")), "NCCL_IB_HCA='a b#c'\n");
  EXPECT_EQ(*format_dotenv(with_value("$HOME")), "NCCL_IB_HCA='$HOME'\n");
}

TEST(FormatDotenv, RefusesLineBreaks) {
  for (const char* value : {"a\nNCCL_DEBUG=x", "a\rb"}) {
    const auto text = format_dotenv(with_value(value));
    ASSERT_FALSE(text);
    EXPECT_TRUE(text.error().message.starts_with("NCCL_IB_HCA: `a?")) << text.error().message;
  }
}

TEST(FormatJson, HasExactlyTheseKeys) {
  fabric::Inventory node = test_support::rails(1);
  node.hcas.push_back(test_support::hca("rxe0", 7, {test_support::ethernet_port({})}));
  node.hcas.back().ports[0].rate = "2.5 Gb/sec (1X SDR)";
  node.hcas.back().ports[0].link_layer = fabric::Unreadable{EINVAL};
  const init::Settings settings = {{"NCCL_IB_GID_INDEX", {"9", "/etc/nccl.conf"}},
                                   {"NCCL_IB_TC", {"106", "environment"}}};
  const Json json = Json::parse(format_json(decide(node, settings, {})));
  const auto keys = [](const Json& object) {
    std::vector<std::string> names;
    for (const auto& [name, value] : object.items())
      names.push_back(name);
    return names;
  };
  using Keys = std::vector<std::string>;
  EXPECT_EQ(keys(json), (Keys{"env", "kept", "ports", "status", "warnings"}));
  EXPECT_EQ(json["status"], "ok_warn");
  for (const auto& [name, value] : json["env"].items())
    EXPECT_TRUE(value.is_string()) << name;
  EXPECT_FALSE(json["env"].contains("NCCL_IB_GID_INDEX")) << "what is kept is not exported";
  EXPECT_EQ(keys(json["kept"]["NCCL_IB_GID_INDEX"]), (Keys{"problem", "source", "value"}));
  EXPECT_EQ(json["kept"]["NCCL_IB_GID_INDEX"]["value"], "9");
  EXPECT_EQ(json["kept"]["NCCL_IB_GID_INDEX"]["source"], "/etc/nccl.conf");
  EXPECT_TRUE(json["kept"]["NCCL_IB_GID_INDEX"]["problem"].is_string());
  EXPECT_TRUE(json["kept"]["NCCL_IB_TC"]["problem"].is_null());
  ASSERT_EQ(json["ports"].size(), 2U);
  for (const Json& port : json["ports"]) {
    EXPECT_EQ(keys(port), (Keys{"device", "gid", "gid_index", "link_layer", "port", "rate_gbps", "reason", "used"}));
    EXPECT_FALSE(port["reason"].get<std::string>().empty());
    EXPECT_EQ(port["reason"].get<std::string>().find('\n'), std::string::npos);
  }
  EXPECT_EQ(json["ports"][0]["gid"], "0000:0000:0000:0000:0000:ffff:0a01:0001");
  EXPECT_EQ(json["ports"][0]["gid_index"], 3);
  EXPECT_TRUE(json["ports"][0]["rate_gbps"].is_number_integer());
  EXPECT_EQ(json["ports"][1]["rate_gbps"], 2.5);
  EXPECT_TRUE(json["ports"][1]["gid"].is_null() && json["ports"][1]["gid_index"].is_null());
  EXPECT_TRUE(json["ports"][1]["link_layer"].is_string());
  EXPECT_EQ(json["warnings"].size(), 1U);
}

TEST(FormatJson, StaysJsonWhateverADeviceIsCalled) {
  for (const std::string& name : nasty_values()) {
    if (name.empty()) continue;
    fabric::Inventory node = test_support::rails(1);
    node.hcas[0].name = name;
    const std::string text = format_json(decide(node, {}, {}));
    EXPECT_TRUE(Json::accept(text)) << text.substr(0, 200);
  }
}

TEST(StatusName, IsOneOfThree) {
  EXPECT_EQ(status_name(init::Status::kOk), "ok");
  EXPECT_EQ(status_name(init::Status::kOkWarn), "ok_warn");
  EXPECT_EQ(status_name(init::Status::kNone), "none");
}

}  // namespace
