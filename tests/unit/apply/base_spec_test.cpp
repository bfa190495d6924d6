// containerd's base specification, as `rdma-hook base-spec` writes it.
#include "hook/apply/base_spec.hpp"

#include <gtest/gtest.h>

#include "hook/base/json/json.hpp"

namespace hook {
namespace {

// A part of what `ctr oci spec` of containerd 2.1.9 prints.
constexpr const char* kOfContainerd = R"({
 "ociVersion": "1.2.0",
 "process": {"user": {"uid": 0, "gid": 0}, "cwd": "/", "rlimits": [{"type": "RLIMIT_NOFILE", "hard": 1024, "soft": 1024}],
             "noNewPrivileges": true},
 "root": {"path": "rootfs"},
 "linux": {"resources": {"memory": {"limit": 18446744073709551615}, "devices": [{"allow": false, "access": "rwm"}]}}
})";

Json edited(const char* text, bool verify) {
  Json spec = *parse_json(text, "x");
  const auto done = edit_base_spec("/usr/local/bin/rdma-hook", verify, spec);
  return done ? spec : Json{{"error", done.error().message}, {"hint", done.error().hint}};
}

TEST(BaseSpec, HooksAndALimitThatIsExact) {
  const Json spec = edited(kOfContainerd, false);
  EXPECT_EQ(spec["process"]["rlimits"].dump(),
            R"([{"type":"RLIMIT_MEMLOCK","soft":18446744073709551615,"hard":18446744073709551615}])");
  EXPECT_EQ(spec["linux"]["resources"]["memory"]["limit"].dump(), "18446744073709551615");
  EXPECT_EQ(spec["hooks"].dump(),
            R"({"createRuntime":[{"path":"/usr/local/bin/rdma-hook","args":["rdma-hook","createRuntime","--engine",)"
            R"("containerd"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}],)"
            R"("poststop":[{"path":"/usr/local/bin/rdma-hook","args":["rdma-hook","poststop","--engine","containerd"],)"
            R"("env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}]})");
  std::string keys;
  for (const auto& [name, value] : spec.items())
    keys += name + " ";
  EXPECT_EQ(keys, "ociVersion process root linux hooks ") << "their order stays";
}

TEST(BaseSpec, VerifyAloneAndNoLimits) {
  const Json spec = edited(kOfContainerd, true);
  EXPECT_FALSE(spec["process"].contains("rlimits"));
  EXPECT_EQ(spec["hooks"].dump(),
            R"({"createRuntime":[{"path":"/usr/local/bin/rdma-hook","args":["rdma-hook","verify","--engine",)"
            R"("containerd"],"env":["PATH=/usr/sbin:/usr/bin:/sbin:/bin"],"timeout":60}]})");
}

TEST(BaseSpec, OthersLimitsStay) {
  const char* const text =
      R"({"process": {"rlimits": [{"type": "RLIMIT_MEMLOCK", "soft": 1, "hard": 18446744073709551615},)"
      R"({"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 4096}]}})";
  EXPECT_EQ(edited(text, false)["process"]["rlimits"].dump(),
            R"([{"type":"RLIMIT_NOFILE","soft":1024,"hard":4096},)"
            R"({"type":"RLIMIT_MEMLOCK","soft":18446744073709551615,"hard":18446744073709551615}])");
  EXPECT_EQ(edited(text, true)["process"], (*parse_json(text, "x"))["process"]);
}

TEST(BaseSpec, OthersHooksStayAndOursComeOnce) {
  const char* const text = R"({"process": {}, "hooks": {"createRuntime": [{"path": "/x"}], "poststop": null}})";
  const Json once = edited(text, false);
  EXPECT_EQ(once["hooks"]["createRuntime"].size(), 2U);
  EXPECT_EQ(once["hooks"]["createRuntime"][0]["path"], "/x");
  EXPECT_EQ(edited(once.dump().c_str(), false), once);
  const Json verified = edited(once.dump().c_str(), true);
  EXPECT_EQ(verified["hooks"]["createRuntime"].size(), 2U) << "the other form goes";
  EXPECT_EQ(verified["hooks"]["createRuntime"][1]["args"][1], "verify");
  EXPECT_TRUE(verified["hooks"]["poststop"].empty());
  Json moved = once;
  ASSERT_TRUE(edit_base_spec("/opt/rdma-hook", false, moved));
  EXPECT_EQ(moved["hooks"]["createRuntime"].size(), 2U);
  EXPECT_EQ(moved["hooks"]["createRuntime"][1]["path"], "/opt/rdma-hook");
}

TEST(BaseSpec, WhatIsNoSpecification) {
  const std::vector<std::pair<const char*, const char*>> rows = {
      {"[]", "the specification: it is no JSON object"},
      {"{}", "the specification: it has no object `process`"},
      {R"({"process": []})", "the specification: it has no object `process`"},
      {R"({"process": {"rlimits": {}}})", "the specification: `rlimits` is no list"},
      {R"({"process": {}, "hooks": []})", "the specification: `hooks` is no object"},
      {R"({"process": {}, "hooks": {"poststop": {}}})", "the specification: `poststop` is no list"},
      {R"({"process": {"rlimits": [{"type": "RLIMIT_NOFILE"}, 5]}})",
       "the specification: `process.rlimits[1]` is no object"},
      {R"({"process": {}, "hooks": {"prestart": [null]}})", "the specification: `hooks.prestart[0]` is no object"},
      {R"({"process": {}, "hooks": {"poststop": [{"path": "/x"}, "y"]}})",
       "the specification: `hooks.poststop[1]` is no object"}};
  for (const auto& [text, expected] : rows) {
    const Json answer = edited(text, false);
    EXPECT_EQ(answer["error"], expected) << text;
    EXPECT_EQ(answer["hint"], "`ctr oci spec | rdma-hook base-spec` is how it is meant") << text;
  }
}

}  // namespace
}  // namespace hook
