#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iterator>

#include "base/text.hpp"
#include "shim/runtime/choose_runtime.hpp"
#include "shim/runtime/exec_grant.hpp"
#include "shim/runtime/spec_file.hpp"
#include "shim/runtime/state_directory.hpp"
#include "support/results.hpp"
#include "unit/shim/runtime/scene.hpp"

namespace {

using namespace shim;
using shim_scene::program;
using namespace test_support;

const base::ProcessIdentity kSelf = base::identify(::getpid()).value();

base::FileId id_of(const std::string& path) {
  const struct stat status = shim_scene::status_of(path);
  return {status.st_dev, status.st_ino};
}

TEST(FindRuntime, FindsProgramByPathAndByName) {
  const TempDir directory;
  const std::string runtime = program(directory / "bin/some-runtime");
  write_file(directory / "sbin/some-runtime", "not executable");
  const std::string path = "bin::" + directory / "missing" + ":" + directory / "sbin" + ":" + directory / "bin";
  const auto find = [&](const std::vector<std::string>& names) { return shim::find_runtime(names, path, {}); };
  EXPECT_EQ(*find({"some-runtime"}), runtime);
  EXPECT_EQ(*find({"other-runtime", "some-runtime"}), runtime);
  EXPECT_EQ(*find({directory / "missing", runtime}), runtime);
  const auto missing = find({"other-runtime", directory / "sbin/some-runtime"});
  EXPECT_NE(missing.error().message.find("searched for `other-runtime`, `/"), std::string::npos);
  EXPECT_FALSE(missing.error().hint.empty());
  EXPECT_FALSE(find({"./some-runtime"}));
  EXPECT_FALSE(find({""}));
  EXPECT_FALSE(find({directory / "bin"}));  // a directory
  EXPECT_FALSE(find({}));
}

TEST(FindRuntime, SkipsItselfUnderAnyName) {
  const TempDir directory;
  const std::string own = program(directory / "rdma-runtime");
  ASSERT_EQ(::mkdir((directory / "bin").c_str(), 0755), 0);
  ASSERT_EQ(::symlink(own.c_str(), (directory / "bin/some-runtime").c_str()), 0);
  const std::string other = program(directory / "sbin/some-runtime");
  const std::string path = directory / "bin" + ":" + directory / "sbin";
  EXPECT_EQ(*shim::find_runtime({"some-runtime"}, path, id_of(own)), other);
  const auto refused = shim::find_runtime({own, directory / "bin/some-runtime"}, path, id_of(own));
  EXPECT_NE(refused.error().message.find("rdma-runtime itself"), std::string::npos);
  EXPECT_EQ(*shim::own_id(), id_of("/proc/self/exe"));
}

TEST(SpecFile, KeepsOwnerAndModeWhenReplaced) {
  const TempDir directory;
  const std::string path = directory / "config.json";
  write_file(path, "old");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  const bool is_root = ::geteuid() == 0;
  if (is_root) {
    ASSERT_EQ(::chown(path.c_str(), 1234, 4321), 0);
  }
  const auto file = SpecFile::open(directory.path(), "config.json");
  ASSERT_TRUE(file && *file);
  EXPECT_EQ((*file)->text(), "old");
  ASSERT_TRUE((*file)->rewrite("never", kSelf)) << "a file that is not put in place";
  EXPECT_EQ(read_file(path), "old");
  auto edited = must((*file)->rewrite("new", kSelf));
  EXPECT_NE(edited.version(), (*file)->version());
  ASSERT_TRUE(edited.put_in_place());
  EXPECT_EQ(read_file(path), "new");
  const struct stat status = shim_scene::status_of(path);
  EXPECT_EQ(status.st_mode & 07777, 0640U);
  EXPECT_EQ(status.st_uid, is_root ? 1234U : ::geteuid());
  const std::filesystem::directory_iterator entries(directory.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);  // no temporary file is left
}

TEST(SpecFile, RefusesOtherFileTypesAndSplitsPaths) {
  const TempDir directory;
  write_file(directory / "real", "{}");
  ASSERT_EQ(::symlink("real", (directory / "link").c_str()), 0);
  ASSERT_EQ(::mkfifo((directory / "pipe").c_str(), 0600), 0);
  EXPECT_FALSE(*SpecFile::open(directory.path(), "missing"));
  EXPECT_FALSE(*SpecFile::open(directory / "missing", "x"));
  EXPECT_FALSE(*SpecFile::open(directory / "real", "x"));
  EXPECT_EQ(SpecFile::open(directory.path(), "link").error().code, ELOOP);
  EXPECT_FALSE(SpecFile::open(directory.path(), "pipe"));
  EXPECT_FALSE(SpecFile::open(directory.path(), "."));
  EXPECT_FALSE(SpecFile::open(directory.path(), "real", {.bytes = 1}));
  EXPECT_EQ(must(must(SpecFile::open(directory / "real"))).path(), directory / "real");
  EXPECT_EQ(base::parent_of("/a/b"), "/a");
  EXPECT_EQ(base::last_component("/a/b"), "b");
  EXPECT_EQ(base::parent_of("/b"), "/");
  EXPECT_EQ(base::parent_of("b"), ".");
}

TEST(ExecGrant, IsReadAsWritten) {
  const TempDir directory;
  write_file(directory / "config.json", "edited");
  const auto config = SpecFile::open(directory.path(), "config.json");
  const shim::ExecGrant exec_grant{"id", (*config)->version(), {true, UINT64_MAX}};
  EXPECT_FALSE(*shim::read_exec_grant(directory.path()));
  EXPECT_FALSE(*shim::read_original(directory.path(), exec_grant.edited));
  ASSERT_TRUE(shim::write_exec_grant(directory.path(), exec_grant, "original", kSelf));
  const auto read = must(must(shim::read_exec_grant(directory.path())));
  EXPECT_EQ(read.id, "id");
  EXPECT_EQ(read.edited, exec_grant.edited);
  EXPECT_EQ(read.process, exec_grant.process);
  EXPECT_EQ(*shim::read_original(directory.path(), exec_grant.edited), "original");
  auto other = exec_grant.edited;
  ++other.mtime_ns;
  EXPECT_FALSE(*shim::read_original(directory.path(), other));
  ASSERT_EQ(::chmod((directory / shim::kExecGrantName).c_str(), 0666), 0);
  EXPECT_FALSE(shim::read_exec_grant(directory.path()));
  shim::remove_exec_grant(directory.path());
  EXPECT_FALSE(*shim::read_exec_grant(directory.path()));
  EXPECT_NE(::access((directory / shim::kOriginalName).c_str(), F_OK), 0);
}

TEST(ExecGrant, RefusesDamagedFiles) {
  const std::string whole = shim::exec_grant_text({"id", {1, 2, 3, 4}, {true, std::nullopt}});
  ASSERT_TRUE(shim::parse_exec_grant(whole));
  EXPECT_FALSE(shim::parse_exec_grant(whole)->process.memlock);
  const auto json = base::Json::parse(whole);
  for (const char* name : {"id", "config", "ipc_lock"}) {
    auto damaged = json;
    damaged[name] = -1;
    EXPECT_FALSE(shim::parse_exec_grant(damaged.dump())) << name;
    damaged.erase(name);
    EXPECT_FALSE(shim::parse_exec_grant(damaged.dump())) << name;
  }
  EXPECT_FALSE(shim::parse_exec_grant(""));
  EXPECT_FALSE(shim::parse_exec_grant("[]"));
}

TEST(FindBundle, ReadsStateOfRuncAndCrun) {
  using Kind = hook::RuntimeState::Kind;
  EXPECT_EQ(hook::bundle_of_state(Kind::kRunc, R"({"config": {"labels": ["a=b", "bundle=/b"]}})"), "/b");
  // An annotation named "bundle".
  EXPECT_EQ(hook::bundle_of_state(Kind::kRunc, R"({"config": {"labels": ["bundle=/evil", "bundle=/b"]}})"), "/b");
  for (const char* text : {"", "[]", "{}", R"({"config": {"labels": {}}})", R"({"config": {"labels": []}})",
                           R"({"config": {"labels": [7]}})", R"({"config": {"labels": ["bundle=b"]}})",
                           R"({"config": {"labels": ["bundle=/b", "a=b"]}})"}) {
    EXPECT_FALSE(hook::bundle_of_state(Kind::kRunc, text)) << text;
  }
  EXPECT_EQ(hook::bundle_of_state(Kind::kCrun, R"({"pid": 1, "bundle": "/b"})"), "/b");
  EXPECT_FALSE(hook::bundle_of_state(Kind::kCrun, R"({"bundle": "b"})"));
  EXPECT_FALSE(hook::bundle_of_state(Kind::kCrun, R"({"bundle": 7})"));
  const TempDir root;
  write_file(root / "one/state.json", R"({"config": {"labels": ["bundle=/one"]}})");
  write_file(root / "two/status", R"({"bundle": "/two"})");
  const auto find = [&](const char* id) {
    shim::Invocation invocation;
    invocation.root = root.path();
    invocation.id = id;
    return shim::find_bundle(invocation);
  };
  EXPECT_EQ(find("one"), "/one");
  EXPECT_EQ(find("two"), "/two");
  for (const char* id : {"three", "", ".", "..", "../one", "one/"})
    EXPECT_FALSE(find(id)) << id;
}

TEST(RuntimeLog, FormatsLinesAsJsonAndText) {
  constexpr std::time_t kTime = 1767323045;
  EXPECT_EQ(
      shim::log_line("error", "a \"b\" \\ c\nd\x1b[0m \xff \xc3\xa4", kTime, true),
      "{\"level\":\"error\",\"msg\":\"a \\\"b\\\" \\\\ c?d?[0m ? \xc3\xa4\",\"time\":\"2026-01-02T03:04:05Z\"}\n");
  EXPECT_EQ(shim::log_line("warning", "a \"b\"\nc", kTime, false),
            "time=\"2026-01-02T03:04:05Z\" level=warning msg=\"a \\\"b\\\"?c\"\n");
  const std::string cut = shim::log_line("error", std::string(1999, 'x') + "\xc3\xa4", kTime, true);
  EXPECT_TRUE(base::Json::accept(cut));
  EXPECT_LT(cut.size(), 2200U);
}

TEST(RuntimeLog, AcceptsCrunsLogKinds) {
  EXPECT_EQ(shim::log_file("/l:x", Dialect::kRunc), "/l:x");
  EXPECT_EQ(shim::log_file("/l", Dialect::kCrun), "/l");
  EXPECT_EQ(shim::log_file("file:/l", Dialect::kCrun), "/l");
  EXPECT_EQ(shim::log_file("syslog:x", Dialect::kCrun), "");
  EXPECT_EQ(shim::log_file("journald:x", Dialect::kCrun), "");
}

TEST(RuntimeLog, AppendsToExistingFile) {
  const TempDir directory;
  shim::Invocation invocation;
  invocation.log = directory / "log.json";
  invocation.json_log = true;
  const shim::RuntimeLog log(invocation);
  log.warning("first");
  testing::internal::CaptureStderr();
  log.error({"second", 0, "third"});
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "rdma-runtime: error: second; remedy: third\n");
  const std::string text = read_file(invocation.log);
  const auto end = text.find('\n');
  EXPECT_EQ(base::Json::parse(text.substr(0, end))["level"], "warning");
  const auto error = base::Json::parse(text.substr(end));
  EXPECT_EQ(error["level"], "error");
  EXPECT_EQ(error["msg"], "rdma-runtime: second; remedy: third");
}

TEST(Settings, PassesNonDefaultPathsToHook) {
  const TempDir directory;
  shim::Settings settings;
  settings.hook = program(directory / "rdma-hook");
  EXPECT_TRUE(shim::hook_command(settings, hook::Engine::kDocker)->options.empty());
  settings.node.ledger = "/l";
  settings.node.config.file = "/c";
  const auto command = shim::hook_command(settings, hook::Engine::kDocker);
  EXPECT_EQ(command->options, (std::vector<std::string>{"--config", "/c", "--ledger", "/l"}));
  settings.hook = directory / "missing";
  EXPECT_EQ(shim::hook_command(settings, hook::Engine::kDocker).error().hint, "install rdma-hook beside rdma-runtime");
}

}  // namespace
