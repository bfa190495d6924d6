#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "base/process/identity.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/engine_settings.hpp"
#include "hook/admin/install/install.hpp"
#include "hook/admin/install/node_label.hpp"
#include "hook/admin/install/plan.hpp"
#include "hook/admin/install/record.hpp"
#include "hook/admin/install/restart.hpp"
#include "support/results.hpp"
#include "support/temp_dir.hpp"

namespace hook {
namespace {

using test_support::must;

// The settings that `rdma-hook install` reads from an engine, and the files that it writes.

// Parts of the output of `containerd config dump` of 1.7.24 and 2.1.9.
constexpr const char* kOne = R"(version = 2
[plugins]
  [plugins."io.containerd.grpc.v1.cri".containerd]
      default_runtime_name = "nvidia"
        [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
          base_runtime_spec = ""
          pod_annotations = ["a/*", "rdma-init.io/*"]
          runtime_type = "io.containerd.runc.v2"
          [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
            BinaryName = "/usr/bin/nvidia-container-runtime"
            SystemdCgroup = true
  [plugins."io.containerd.nri.v1.nri"]
    disable = true
)";
constexpr const char* kTwo = R"(version = 3
imports = ['conf.d/*.toml']
[plugins]
  [plugins.'io.containerd.cri.v1.runtime']
    [plugins.'io.containerd.cri.v1.runtime'.containerd]
      default_runtime_name = 'runc'
        [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
          runtime_type = 'io.containerd.runc.v2'
          pod_annotations = []
  [plugins.'io.containerd.nri.v1.nri']
    disable = false
)";

EngineFacts facts_of(int major, const char* printed, InstallWay way) {
  EngineFacts facts;
  facts.engine = {Engine::kContainerd, "/usr/bin/containerd", major, 0, {}};
  facts.settings = parse_engine_settings(printed);
  facts.way = way;
  facts.programs = "/opt/bin";
  facts.base_spec = way == InstallWay::kRuntime ? "" : "{}\n";
  return facts;
}

base::Result<std::optional<std::string>> nothing(const std::string&) {
  return std::optional<std::string>();
}

// Makes the plan with the files in `read`.
base::Result<InstallPlan> plan_of(EngineFacts facts, const auto& read) {
  for (const std::string& path : plan_files(facts))
    facts.files.insert_or_assign(path, read(path));
  return plan_install(facts);
}

TEST(EngineSettings, ParsesTablesKeysAndQuotes) {
  const EngineSettings settings = parse_engine_settings(kOne);
  EXPECT_EQ(setting_text(settings, "plugins.'io.containerd.grpc.v1.cri'.containerd", "default_runtime_name"), "nvidia");
  EXPECT_EQ(setting_text(settings, "", "version"), "");
  EXPECT_EQ(settings.at({"plugins.'io.containerd.nri.v1.nri'", "disable"}), "true");
}

// The record and 90-engine.json are JSON, which must be UTF-8.
TEST(InstallPlan, RefusesSettingThatIsNotUtf8) {
  EngineFacts facts = facts_of(2, kTwo, InstallWay::kRuntime);
  facts.settings[{"plugins.x", "BinaryName"}] = "'/usr/bin/nvidia-container-runtime\xf8'";
  EXPECT_EQ(plan_of(facts, nothing).error().message,
            "`/usr/bin/containerd` prints a setting that is not UTF-8: [plugins.x]: BinaryName");
}

// Output of CRI-O 1.37 (https://github.com/cri-o/cri-o, pkg/config/template.go).
TEST(EngineSettings, ReadsCommentedDefaultsOfCrio) {
  const EngineSettings settings = parse_engine_settings(R"([crio.runtime]
# enable_x = false
# Restoring needs more privileges, which is set in the
# [crio.other] table by its option.
# default_runtime = "crun"
# - allowed (optional, array of strings): allowed = [] is the default.
# hooks_dir = [
# 	"/usr/share/containers/oci/hooks.d",
# ]
# Each entry has the form:
#
# [crio.runtime.runtimes.runtime-handler]
# runtime_path = "/path/to/the/executable"
# monitor_env = [
# ]

# [crio.runtime.runtimes.runc]
# runtime_path = "/usr/bin/runc"
[crio.runtime.runtimes.crun]
allowed = [
	"io.a",
	"io.b",
]
none = [
]
[crio.image]
unfinished = [
	"x",
)",
                                                        true);
  const EngineSettings wanted{{{"crio.runtime", "enable_x"}, "false"},
                              {{"crio.runtime", "default_runtime"}, "'crun'"},
                              {{"crio.runtime", "hooks_dir"}, "['/usr/share/containers/oci/hooks.d']"},
                              {{"crio.runtime.runtimes.runc", "runtime_path"}, "'/usr/bin/runc'"},
                              {{"crio.runtime.runtimes.crun", "allowed"}, "['io.a', 'io.b']"},
                              {{"crio.runtime.runtimes.crun", "none"}, "[]"}};
  EXPECT_EQ(settings, wanted);
}

TEST(EngineSettings, FindsLostAndMissingSettings) {
  const EngineSettings before{
      {{"t", "kept"}, "'a'"}, {{"t", "none"}, "[]"}, {{"", "version"}, "2"}, {{"t", "set"}, "1"}};
  const EngineSettings meant{{{"t", "set"}, "2"}};
  EXPECT_EQ(lost_setting(before, {{{"t", "kept"}, "'a'"}}, meant), std::nullopt);
  EXPECT_EQ(lost_setting(before, {{{"t", "kept"}, "'b'"}}, meant), "[t]: kept");
  EXPECT_EQ(lost_setting(before, {}, meant), "[t]: kept");
  EXPECT_EQ(missing_setting({{{"t", "set"}, "2"}}, meant), std::nullopt);
  EXPECT_EQ(missing_setting(before, meant), "[t]: set");
}

// The default handler is written completely, because a first table of handlers replaces it. Annotations are added to
// its present ones.
TEST(InstallPlan, AddsBlockForContainerd1) {
  const auto plan = must(plan_of(facts_of(1, kOne, InstallWay::kNri), nothing));
  ASSERT_EQ(plan.edits.size(), 2U);
  EXPECT_EQ(plan.edits[0].path, "/etc/containerd/rdma-verify.json");
  EXPECT_EQ(plan.edits[1].after, R"(version = 2

# Written by `rdma-hook install`; `rdma-hook install --uninstall` removes it.
[plugins."io.containerd.nri.v1.nri"]
  disable = false

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "/etc/containerd/rdma-verify.json"
  pod_annotations = ["a/*", "rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
  SystemdCgroup = true

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  base_runtime_spec = "/etc/containerd/rdma-verify.json"
  pod_annotations = ["a/*", "rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
  SystemdCgroup = true
# End of the lines of `rdma-hook install`.
)");
}

// The header and members can be written in several forms. A present equal value is no change.
TEST(InstallPlan, EditsExistingTablesOfContainerd1) {
  const auto read = [](const std::string& path) -> base::Result<std::optional<std::string>> {
    if (path != kContainerdConfig) return std::optional<std::string>();
    return std::optional<std::string>(R"(version = 2
[ "plugins".'io.containerd.grpc.v1.cri'.containerd.runtimes."nvidia" ] # of GPUs
    runtime_type = 'io.containerd.runc.v2'
  pod_annotations=["a/*", "rdma-init.io/*"]
  # base_runtime_spec = ""
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
[plugins."io.containerd.nri.v1.nri"]
disable = true # not yet
[debug])");
  };
  const auto plan = must(plan_of(facts_of(1, kOne, InstallWay::kNri), read));
  ASSERT_EQ(plan.edits.size(), 2U);
  EXPECT_EQ(plan.edits[1].after, R"(version = 2
[ "plugins".'io.containerd.grpc.v1.cri'.containerd.runtimes."nvidia" ] # of GPUs
  base_runtime_spec = "/etc/containerd/rdma-verify.json"  # rdma-hook install
    runtime_type = 'io.containerd.runc.v2'
  pod_annotations = ["a/*", "rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]  # rdma-hook install
  # base_runtime_spec = ""
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
BinaryName = "/usr/bin/nvidia-container-runtime"
[plugins."io.containerd.nri.v1.nri"]
disable = false  # rdma-hook install
[debug]

# Written by `rdma-hook install`; `rdma-hook install --uninstall` removes it.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "/etc/containerd/rdma-verify.json"
  pod_annotations = ["a/*", "rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
  SystemdCgroup = true
# End of the lines of `rdma-hook install`.
)");
}

TEST(InstallPlan, EditsTableWithNumberSignInItsName) {
  EngineFacts facts = facts_of(1, kOne, InstallWay::kNri);
  facts.settings[{handlers_of(facts), "default_runtime_name"}] = "'a#b'";
  const auto plan = must(plan_of(facts, [](const std::string& path) -> base::Result<std::optional<std::string>> {
    if (path != kContainerdConfig) return std::optional<std::string>();
    return std::optional<std::string>("[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.'a#b'] # own\n");
  }));
  const std::string& text = plan.edits.back().after;
  EXPECT_NE(text.find("# own\n  runtime_type = "), std::string::npos) << text;
  EXPECT_EQ(text.find("runtimes.a#b"), std::string::npos) << text;
}

TEST(InstallPlan, WritesDropInToImportedDirectoryOfContainerd2) {
  const auto plan = must(plan_of(facts_of(2, kTwo, InstallWay::kRuntime), nothing));
  ASSERT_EQ(plan.edits.size(), 1U);
  EXPECT_EQ(plan.edits[0].path, "/etc/containerd/conf.d/rdma-init.toml");
  EXPECT_EQ(plan.edits[0].after,
            R"(# Written by `rdma-hook install`; `rdma-hook install --uninstall` removes it.
version = 3

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rdma]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rdma.options]
  BinaryName = "/opt/bin/rdma-runtime"
  SystemdCgroup = false
)");
}

// Copied programs stay while a container has HCAs, or if the grants cannot be counted.
TEST(Uninstall, KeepsProgramsWhileGrantsNeedThem) {
  const test_support::TempDir directory;
  InstallOptions options;
  options.root = directory.path();
  const std::string program = directory / "opt/rdma-init/bin/rdma-hook";
  const std::string cluster = directory / "etc/rdma-init/cluster/config.json";
  test_support::write_file(program, "program");
  test_support::write_file(cluster, "{}");
  const std::vector<std::string> directories = {"/opt/rdma-init", "/opt/rdma-init/bin"};
  const std::vector<std::string> programs = {"/opt/rdma-init/bin/rdma-hook"};
  ASSERT_TRUE(write_install_record(
      options.root,
      {"podman", "hook", "/opt/rdma-init/bin", "0.1.0", {}, directories, programs, InstallState::kInEffect}));
  base::Result<HeldGrants> needed = HeldGrants{2, ""};
  options.needed_by = [&needed] { return needed; };
  std::string lines;
  const base::Error refused = uninstall(options, lines).error();
  EXPECT_EQ(refused.code, EBUSY);
  EXPECT_NE(refused.message.find("2 containers or pods have RDMA devices"), std::string::npos);
  EXPECT_EQ(refused.message.find("that ended"), std::string::npos);
  options.dry_run = true;
  EXPECT_EQ(uninstall(options, lines).error().code, EBUSY) << "a dry run refuses too";
  EXPECT_EQ(lines, "would remove `/opt/rdma-init/bin/rdma-hook`\n");
  options.dry_run = false;
  needed = HeldGrants{1, "rail1 is away"};
  const base::Error stale = uninstall(options, lines).error();
  EXPECT_NE(stale.message.find("the HCAs of containers that ended cannot be released: rail1 is away"),
            std::string::npos);
  EXPECT_TRUE(stale.hint.starts_with("run `rdma-hook recover` and follow its remedy"));
  needed = HeldGrants{1, "", {"claim team/nics"}};
  const base::Error prepared = uninstall(options, lines).error();
  EXPECT_NE(prepared.message.find("prepared for Kubernetes: claim team/nics"), std::string::npos);
  EXPECT_TRUE(prepared.hint.starts_with("delete the pods of these claims while rdma-dra runs"));
  EXPECT_TRUE(std::filesystem::exists(program));
  EXPECT_TRUE(std::filesystem::exists(cluster));
  needed = base::make_error("cannot look");
  EXPECT_FALSE(uninstall(options, lines));
  EXPECT_TRUE(std::filesystem::exists(program));
  needed = HeldGrants();
  must(uninstall(options, lines));
  EXPECT_FALSE(std::filesystem::exists(options.root + "/opt/rdma-init"));
  EXPECT_FALSE(std::filesystem::exists(options.root + kInstallRecord));
  EXPECT_FALSE(std::filesystem::exists(options.root + "/etc/rdma-init"));
}

// The handler of RuntimeClass `rdma` is a copy of the default handler with its base specification. An existing handler
// `rdma` stays.
TEST(InstallPlan, CopiesDefaultHandlerAsRdma) {
  const std::string runtimes = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.";
  EngineFacts facts = facts_of(2, kTwo, InstallWay::kNri);
  facts.settings[{runtimes + "runc", "base_runtime_spec"}] = "'/etc/own.json'";
  auto plan = must(plan_of(facts, nothing));
  EXPECT_EQ(plan.meant.at({runtimes + "rdma", "base_runtime_spec"}), "'/etc/own.json'");
  EXPECT_EQ(plan.edits.front().path, "/etc/containerd/conf.d/rdma-init.toml");
  facts.settings[{runtimes + "rdma", "runtime_type"}] = "'io.containerd.kata.v2'";
  plan = must(plan_of(facts, nothing));
  EXPECT_FALSE(plan.meant.contains({runtimes + "rdma", "base_runtime_spec"}));
}

// A pod with NVIDIA's handler must not start either while rdma-nri is down.
TEST(InstallPlan, AddsVerifyToEveryHandlerOfRunc) {
  EngineFacts facts = facts_of(2, kTwo, InstallWay::kNri);
  const std::string runtimes = "plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.";
  facts.settings[{runtimes + "nvidia", "runtime_type"}] = "'io.containerd.runc.v2'";
  facts.settings[{runtimes + "kata", "runtime_type"}] = "'io.containerd.kata.v2'";
  facts.settings[{runtimes + "own", "runtime_type"}] = "'io.containerd.runc.v2'";
  facts.settings[{runtimes + "own", "base_runtime_spec"}] = "'/etc/own.json'";
  const auto plan = must(plan_of(facts, nothing));
  for (const char* handler : {"nvidia", "runc"})
    EXPECT_EQ(plan.meant.at({runtimes + handler, "base_runtime_spec"}), "'/etc/containerd/rdma-verify.json'");
  for (const char* handler : {"kata", "own"})
    EXPECT_FALSE(plan.meant.contains({runtimes + handler, "base_runtime_spec"}));
  ASSERT_FALSE(plan.messages.empty());
  EXPECT_NE(plan.messages.back().find("handler `own` uses `/etc/own.json`"), std::string::npos);
}

TEST(InstallPlan, UsesVersionOfConfigToml) {
  const auto version_of = [](std::string_view config) {
    EngineFacts facts = facts_of(2, kTwo, InstallWay::kNri);
    guess_form(facts, config);
    return facts.drop_in_version;
  };
  EXPECT_EQ(version_of("# x\nversion = 2\n[a]\n"), 2U);
  EXPECT_EQ(version_of("version = 3\n[a]\nversion = 2\n"), 3U);
  EXPECT_EQ(version_of(""), 3U);
}

TEST(InstallRecord, RefusesTextWithWrongHash) {
  InstallRecord record{"docker", "runtime", "/usr/bin", "0.1.0", {{"/etc/a", "old", "new"}, {"/etc/b", {}, "b"}},
                       {},       {}};
  record.state = InstallState::kRestored;
  const std::string text = install_record_text(record);
  EXPECT_EQ(install_record_text(must(parse_install_record(text))), text);
  for (const char* part : {"new", "old"}) {
    std::string damaged = text;
    damaged.replace(damaged.find(fmt::format(": \"{}\"", part)), 3, ": \"x");
    EXPECT_FALSE(parse_install_record(damaged)) << part;
  }
}

TEST(InstallRecord, RequiresBothFieldsOfWriteTime) {
  InstallRecord record{"docker", "runtime", "/usr/bin", "0.1.0", {}, {}, {}};
  EXPECT_EQ(install_record_text(record).find("ticks"), std::string::npos);
  EXPECT_EQ(must(parse_install_record(install_record_text(record))).written, std::nullopt);
  record.written = WriteTime{"boot", 7};
  const std::string text = install_record_text(record);
  EXPECT_EQ(must(parse_install_record(text)).written, record.written);
  for (const char* part : {"\"boot\": \"boot\",", "\"ticks\": 7"}) {
    std::string other = text;
    const std::size_t at = other.find(part);
    ASSERT_NE(at, std::string::npos) << part;
    other.replace(at, std::string(part).size(), std::string(part).ends_with(",") ? "" : "\"more\": 7");
    EXPECT_FALSE(parse_install_record(other)) << other;
  }
}

TEST(InstallRecord, WriteTimeIsInClockOfProcessStart) {
  const auto before = must(identify(::getpid())).start_time;
  const auto now = write_time_now();
  ASSERT_TRUE(now);
  EXPECT_GE(now->ticks, before);
  EXPECT_LT(now->ticks, before + 3600U * static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK)));
  EXPECT_EQ(now->boot.size(), 36U);
}

class RestartDue : public ::testing::Test {
 protected:
  // Lays out a process below the root.
  void run_engine(int pid, const char* name, std::uint64_t started, const char* pids = "1") {
    const std::string process = directory_ / fmt::format("proc/{}", pid);
    test_support::write_file(process + "/comm", fmt::format("{}\n", name));
    test_support::write_file(process + "/status", fmt::format("NSpid:\t{}\n", pids));
    test_support::write_file(process + "/stat",
                             fmt::format("{} ({}) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 {} 0\n", pid, name, started));
  }
  bool is_due(const InstallRecord& record) { return is_restart_due(directory_.path(), record); }

  test_support::TempDir directory_;
  InstallRecord record_{"containerd", "nri", "/usr/bin", "0.1.0", {{"/etc/a", {}, "a"}}, {}, {}};
};

TEST_F(RestartDue, WithoutProof) {
  EXPECT_TRUE(is_due(record_));
  record_.written = write_time_now();
  EXPECT_TRUE(is_due(record_));
  run_engine(7, "containerd", record_.written->ticks);
  EXPECT_TRUE(is_due(record_));
  run_engine(7, "containerd-shim", record_.written->ticks + 1);
  EXPECT_TRUE(is_due(record_));
  EXPECT_EQ(restart_due_line(record_),
            "restart due: containerd has not read `/etc/a`; remedy: systemctl restart containerd\n");
}

TEST_F(RestartDue, UntilEachProcessOfNodeStartedLater) {
  record_.written = write_time_now();
  run_engine(7, "containerd", record_.written->ticks + 1);
  EXPECT_FALSE(is_due(record_));
  run_engine(8, "containerd", 1);
  EXPECT_TRUE(is_due(record_));
  run_engine(8, "containerd", 1, "8 1");
  EXPECT_FALSE(is_due(record_));
}

TEST_F(RestartDue, UntilNextBoot) {
  record_.written = write_time_now();
  record_.written->boot = "before";
  EXPECT_FALSE(is_due(record_));
}

TEST_F(RestartDue, NeverForEngineThatReadsAtEachStart) {
  record_.engine = "podman";
  EXPECT_FALSE(is_due(record_));
  record_.engine = "k3s";
  EXPECT_FALSE(is_due(record_));
}

TEST(NodeLabel, IsOneLineOfNodeFeatureDiscovery) {
  EXPECT_EQ(node_label_text(NodeState::kReady), "rdma-init.io/state=ready\n");
  EXPECT_EQ(node_label_text(NodeState::kRestartDue), "rdma-init.io/state=restart-due\n");
  EXPECT_EQ(node_label_text(NodeState::kUnsupported), "rdma-init.io/state=unsupported\n");
  EXPECT_EQ(complete_label_text(true), "rdma-init.io/complete=true\n");
  EXPECT_EQ(complete_label_text(false), "rdma-init.io/complete=false\n");
}

TEST(NodeLabel, WritesNothingWithoutDirectory) {
  const test_support::TempDir directory;
  must(label_node(directory.path(), NodeState::kReady));
  must(label_node(directory.path(), std::nullopt));
  EXPECT_FALSE(std::filesystem::exists(directory / "etc"));
}

TEST(InstallPlan, RefusesToReplaceForeignFile) {
  EngineFacts facts;
  facts.files.insert_or_assign("/etc/a", std::optional<std::string>("theirs"));
  InstallPlan plan;
  EXPECT_EQ(add_own_file(plan, facts, "/etc/a", "ours").error().message, "`/etc/a` exists with another content");
  EXPECT_TRUE(add_own_file(plan, facts, "/etc/a", "theirs"));
  EXPECT_TRUE(plan.edits.empty());
}

}  // namespace
}  // namespace hook
