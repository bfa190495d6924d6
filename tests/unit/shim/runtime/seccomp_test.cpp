#include "shim/runtime/seccomp.hpp"

#include <gtest/gtest.h>
#include <seccomp.h>

#include <set>

namespace {

using base::Json;
using namespace shim;

std::set<std::string_view> refused(const char* profile) {
  std::set<std::string_view> names;
  for (const NeededCall& call : shim::refused_calls(Json::parse(profile)))
    names.insert(call.name);
  return names;
}

std::set<std::string_view> all() {
  std::set<std::string_view> names;
  for (const NeededCall& call : shim::needed_calls())
    names.insert(call.name);
  return names;
}

TEST(Seccomp, LibseccompKnowsEveryName) {
  for (const NeededCall& call : shim::needed_calls()) {
    const std::string name(call.name);
    for (const std::uint32_t architecture : {SCMP_ARCH_X86_64, SCMP_ARCH_AARCH64})
      EXPECT_GE(seccomp_syscall_resolve_name_arch(architecture, name.c_str()), 0) << name;
    EXPECT_FALSE(call.who.empty()) << name;
  }
}

TEST(Seccomp, RefusesNothingWithoutProfile) {
  for (const char* profile : {"null", "{}", "[]", "7", R"({"defaultAction": 7, "syscalls": {}})",
                              R"({"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [7, {"names": 7, "action": []}]})"}) {
    EXPECT_EQ(refused(profile), std::set<std::string_view>()) << profile;
  }
}

TEST(Seccomp, AppliesDefaultAction) {
  for (const char* action :
       {"SCMP_ACT_ERRNO", "SCMP_ACT_KILL", "SCMP_ACT_KILL_PROCESS", "SCMP_ACT_KILL_THREAD", "SCMP_ACT_TRAP"})
    EXPECT_EQ(refused(Json{{"defaultAction", action}}.dump().c_str()), all()) << action;
  for (const char* action : {"SCMP_ACT_ALLOW", "SCMP_ACT_LOG", "SCMP_ACT_NOTIFY", "SCMP_ACT_TRACE"})
    EXPECT_TRUE(refused(Json{{"defaultAction", action}}.dump().c_str()).empty()) << action;
}

TEST(Seccomp, AppliesRules) {
  // `expected`: those of mlock and mbind that are refused; every other call is allowed.
  const std::tuple<const char*, const char*, std::set<std::string_view>> rows[] = {
      {"refused by name", R"([{"names": ["mbind", "mlock"], "action": "SCMP_ACT_ERRNO"}])", {"mbind", "mlock"}},
      {"under a condition", R"([{"names": ["mbind"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 0}]}])", {}},
      {"under none", R"([{"names": ["mbind"], "action": "SCMP_ACT_ERRNO", "args": []}])", {"mbind"}},
      {"allowed under a condition",
       R"([{"names": ["mbind"], "action": "SCMP_ACT_ERRNO"},
           {"names": ["mbind"], "action": "SCMP_ACT_ALLOW", "args": [{"index": 0}]}])",
       {}},
      {"asked for", R"([{"names": ["mbind"], "action": "SCMP_ACT_NOTIFY"}])", {}}};
  for (const auto& [name, rules, expected] : rows) {
    const Json profile{{"defaultAction", "SCMP_ACT_ALLOW"}, {"syscalls", Json::parse(rules)}};
    EXPECT_EQ(refused(profile.dump().c_str()), expected) << name;
  }
}

TEST(Seccomp, WarningNamesCallsAndTheirLibraries) {
  EXPECT_EQ(shim::seccomp_warning({}), "");
  const NeededCall calls[] = {{"mbind", "libnuma"}, {"mlock", "UCX"}};
  EXPECT_EQ(
      shim::seccomp_warning(calls),
      "the container's seccomp profile refuses system calls that RDMA may need: mbind for libnuma, mlock for UCX; "
      "remedy: allow them in the profile");
}

TEST(Seccomp, AllowsRefusedCalls) {
  Json config = Json::parse(R"({"linux": {"seccomp": {"defaultAction": "SCMP_ACT_ERRNO", "flags": ["x"],
    "defaultErrnoRet": 18446744073709551615,
    "syscalls": [{"names": ["mbind"], "action": "SCMP_ACT_ERRNO", "errnoRet": 1},
                 {"names": ["read", "mlock"], "action": "SCMP_ACT_KILL"},
                 {"names": ["ioctl"], "action": "SCMP_ACT_ERRNO", "args": [{"index": 1}]},
                 {"names": ["clone"], "action": "SCMP_ACT_ALLOW", "x": 1}]}}})");
  ASSERT_TRUE(shim::allow_calls(shim::refused_calls(config["linux"]["seccomp"]), config));
  EXPECT_TRUE(shim::refused_calls(config["linux"]["seccomp"]).empty());
  const Json& seccomp = config["linux"]["seccomp"];
  EXPECT_EQ(seccomp["defaultErrnoRet"].dump(), "18446744073709551615");
  ASSERT_EQ(seccomp["syscalls"].size(), 4U);
  EXPECT_EQ(seccomp["syscalls"][0].dump(), R"({"names":["read"],"action":"SCMP_ACT_KILL"})");
  EXPECT_EQ(seccomp["syscalls"][2].dump(), R"({"names":["clone"],"action":"SCMP_ACT_ALLOW","x":1})");
  EXPECT_EQ(seccomp["syscalls"][3]["action"], "SCMP_ACT_ALLOW");
}

TEST(Seccomp, ChangesNothingWithoutProfile) {
  const NeededCall calls[] = {{"mbind", "libnuma"}};
  const std::pair<const char*, bool> rows[] = {{"[]", true},
                                               {"{}", true},
                                               {R"({"linux": null})", true},
                                               {R"({"linux": {"seccomp": null}})", true},
                                               {R"({"linux": {"seccomp": 7}})", false},
                                               {R"({"linux": {"seccomp": {"syscalls": 7}}})", false}};
  for (const auto& [text, is_allowed] : rows) {
    Json config = Json::parse(text);
    EXPECT_EQ(static_cast<bool>(shim::allow_calls(calls, config)), is_allowed) << text;
    EXPECT_EQ(config, Json::parse(text));
  }
}

}  // namespace
