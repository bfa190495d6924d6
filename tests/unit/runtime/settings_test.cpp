#include <gtest/gtest.h>
#include <sys/stat.h>

#include "shim/runtime/log.hpp"
#include "shim/runtime/settings.hpp"
#include "support/temp_dir.hpp"
#include "unit/runtime/scene.hpp"

namespace {

using shim::Dialect;
using shim_scene::program;
using test_support::read_file;
using test_support::TempDir;

TEST(RuntimeLog, Lines) {
  constexpr std::time_t kTime = 1767323045;
  EXPECT_EQ(
      shim::log_line("error", "a \"b\" \\ c\nd\x1b[0m \xff \xc3\xa4", kTime, true),
      "{\"level\":\"error\",\"msg\":\"a \\\"b\\\" \\\\ c?d?[0m ? \xc3\xa4\",\"time\":\"2026-01-02T03:04:05Z\"}\n");
  EXPECT_EQ(shim::log_line("warning", "a \"b\"\nc", kTime, false),
            "time=\"2026-01-02T03:04:05Z\" level=warning msg=\"a \\\"b\\\"?c\"\n");
  const std::string cut = shim::log_line("error", std::string(1999, 'x') + "\xc3\xa4", kTime, true);
  EXPECT_TRUE(hook::Json::accept(cut));
  EXPECT_LT(cut.size(), 2200U);
}

TEST(RuntimeLog, CrunNamesMoreThanFiles) {
  EXPECT_EQ(shim::log_file("/l:x", Dialect::kRunc), "/l:x");
  EXPECT_EQ(shim::log_file("/l", Dialect::kCrun), "/l");
  EXPECT_EQ(shim::log_file("file:/l", Dialect::kCrun), "/l");
  EXPECT_EQ(shim::log_file("syslog:x", Dialect::kCrun), "");
  EXPECT_EQ(shim::log_file("journald:x", Dialect::kCrun), "");
}

TEST(RuntimeLog, IsAppendedTo) {
  const TempDir directory;
  shim::Invocation invocation;
  invocation.log = directory / "log.json";
  invocation.json_log = true;
  const shim::RuntimeLog log(invocation, Dialect::kRunc);
  log.warning("first");
  testing::internal::CaptureStderr();
  log.error({"second", 0, "third"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rdma-runtime: error: second; remedy: third\n");
  const std::string text = read_file(invocation.log);
  const auto end = text.find('\n');
  EXPECT_EQ(hook::Json::parse(text.substr(0, end))["level"], "warning");
  const auto error = hook::Json::parse(text.substr(end));
  EXPECT_EQ(error["level"], "error");
  EXPECT_EQ(error["msg"], "rdma-runtime: second; remedy: third");
}

TEST(Settings, TheHookSeesWhatTheRuntimeSaw) {
  const TempDir directory;
  shim::Settings settings;
  settings.hook = program(directory / "rdma-hook");
  EXPECT_TRUE(shim::hook_command(settings, hook::Engine::kDocker)->options.empty());
  settings.node.ledger = "/l";
  settings.node.config.file = "/c";
  const auto command = shim::hook_command(settings, hook::Engine::kDocker);
  EXPECT_EQ(command->options, (std::vector<std::string>{"--config", "/c", "--ledger", "/l"}));
  settings.hook = directory / "missing";
  const auto missing = shim::hook_command(settings, hook::Engine::kDocker);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().hint, "install rdma-hook beside rdma-runtime");
}

}  // namespace
