#include "shim/runtime/features.hpp"

#include "unit/shim/runtime/scene.hpp"

namespace {

using namespace shim;
using namespace shim_scene;
using test_support::must;

TEST(Features, HaveNetdevs) {
  const std::tuple<const char*, std::optional<bool>> rows[] = {
      {R"({"ociVersionMax": "1.1.0+dev", "linux": {"netDevices": {"enabled": true}}})", true},  // crun 1.28
      {R"({"ociVersionMax": "1.2.1", "linux": {"namespaces": []}})", false},                    // runc 1.3.6
      {R"({"linux": {"netDevices": {"enabled": false}}})", false},
      {R"({"linux": {"netDevices": {}}})", std::nullopt},
      {R"({"linux": {"netDevices": {"enabled": 1}}})", std::nullopt},
      {R"({"ociVersionMax": "1.3.0"})", std::nullopt},
      {"[]", std::nullopt},
      {"unknown command features", std::nullopt},
      {"", std::nullopt}};
  for (const auto& [text, moves] : rows)
    EXPECT_EQ(moves_netdevs(text), moves) << text;
}

class MovedNetdevs : public Prepare {
 protected:
  // A runtime whose command `features` prints this text, and notes that it ran.
  void use_runtime(const std::string& features) {
    invocation_.runtime = program(directory_ / "runtime");
    test_support::write_file(invocation_.runtime,
                             fmt::format("#!/bin/sh\n[ \"$1\" = features ] && : > {}\n{}\n", asked(), features));
  }
  void write_container(bool moves) {
    base::Json requesting = base::Json::parse(kAsking);
    requesting["linux"]["namespaces"] = {{{"type", "pid"}}, {{"type", "mount"}}, {{"type", "network"}}};
    if (moves) requesting["linux"]["netDevices"] = {{"rail7", base::Json::object()}};
    write_config(requesting.dump());
  }
  std::string asked() const { return directory_ / "asked"; }
  bool was_asked() const { return ::access(asked().c_str(), F_OK) == 0; }
};

TEST_F(MovedNetdevs, AreRefusedIfTheRuntimeIgnoresThem) {
  use_runtime(R"(echo '{"linux": {}}')");
  write_container(true);
  EXPECT_EQ(
      start().error().message,
      fmt::format("cannot move rail7 into the container (linux.netDevices): `{}` ignores it", invocation_.runtime));
  EXPECT_TRUE(was_asked());
  EXPECT_FALSE(has_exec_grant());
}

TEST_F(MovedNetdevs, AreAcceptedIfTheRuntimeMovesThem) {
  use_runtime(R"(echo '{"linux": {"netDevices": {"enabled": true}}}')");
  write_container(true);
  must(start());
  EXPECT_TRUE(was_asked());
  EXPECT_FALSE(has_log());
}

TEST_F(MovedNetdevs, CauseAWarningIfTheRuntimeDoesNotAnswer) {
  use_runtime("echo unknown command features >&2; exit 1");
  write_container(true);
  must(start());
  EXPECT_TRUE(has_log());
  EXPECT_EQ(grants().size(), 1U);
}

TEST_F(MovedNetdevs, OnlyThenTheRuntimeIsAsked) {
  use_runtime(R"(echo '{"linux": {}}')");
  write_container(false);
  must(start());
  EXPECT_FALSE(was_asked());
}

}  // namespace
