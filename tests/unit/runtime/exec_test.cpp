#include "hook/apply/memlock.hpp"
#include "unit/runtime/scene.hpp"

namespace {

using hook::Json;
using shim_scene::kAsking;
using shim_scene::Prepare;
using shim_scene::status_of;
using test_support::read_file;
using test_support::write_file;

TEST_F(Prepare, ExecOfAContainerThatWasEdited) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  write_state(directory_ / "bundle");
  const std::string file = directory_ / "process.json";
  write_file(file, R"({"args": ["sh"], "capabilities": {}})");
  ASSERT_EQ(::chmod(file.c_str(), 0600), 0);
  exec(file);
  const Json process = Json::parse(read_file(file));
  EXPECT_EQ(process["capabilities"]["effective"].dump(), R"(["CAP_IPC_LOCK"])");
  const hook::Rlimit raised = hook::raised_memlock(4096, hook::memlock_of(0));  // from what this process has
  EXPECT_EQ(process["rlimits"],
            Json::array({{{"type", "RLIMIT_MEMLOCK"}, {"hard", raised.hard}, {"soft", raised.soft}}}));
  EXPECT_EQ(status_of(file).st_mode & 07777, 0600U);
  const struct stat before = status_of(file);
  exec(file);
  EXPECT_EQ(status_of(file).st_ino, before.st_ino);
  EXPECT_NE(::access((directory_ / "log").c_str(), F_OK), 0);
}

TEST_F(Prepare, ExecOfAnotherContainerIsNotTouched) {
  const std::string file = directory_ / "process.json";
  write_file(file, R"({"capabilities": {}})");
  exec(file);  // no state
  write_state(directory_ / "bundle");
  exec(file);  // no such bundle
  write_config(R"({"annotations": {"rdma-init.io/grant": "0123456789abcdef0123456789abcdef"}})");
  exec(file);  // an annotation is not our mark
  write_config(kAsking);
  invocation_.id = "ID";
  ASSERT_TRUE(start());
  invocation_.id = "OTHER";
  write_file(directory_ / "root/OTHER/state.json", read_file(directory_ / "root/ID/state.json"));
  exec(file);  // the bundle of another container
  EXPECT_EQ(read_file(file), R"({"capabilities": {}})");
  EXPECT_NE(::access((directory_ / "log").c_str(), F_OK), 0);
}

TEST_F(Prepare, ExecGoesOnWhateverItsFileIs) {
  write_config(kAsking);
  ASSERT_TRUE(start());
  write_state(directory_ / "bundle");
  const std::string file = directory_ / "process.json";
  exec(file);  // missing
  EXPECT_NE(::access((directory_ / "log").c_str(), F_OK), 0);
  write_file(file, "no JSON");
  exec(file);
  EXPECT_EQ(read_file(file), "no JSON");
  const Json line = Json::parse(read_file(directory_ / "log"));
  EXPECT_EQ(line["level"], "warning");
  EXPECT_NE(line["msg"].get<std::string>().find("`ID`"), std::string::npos);
}

}  // namespace
