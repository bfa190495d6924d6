#include "shim/runtime/invocation.hpp"

#include <gtest/gtest.h>

#include "support/arguments.hpp"

namespace {

using namespace shim;

constexpr Dialect kRunc = Dialect::kRunc;
constexpr Dialect kCrun = Dialect::kCrun;

Invocation parse(const char* line, Dialect dialect) {
  auto words = test_support::words(line);
  return shim::parse_invocation(test_support::pointers_to(words), dialect);
}

void expect_start(const char* line, Dialect dialect, const char* bundle, const char* id, const char* config) {
  const Invocation invocation = parse(line, dialect);
  EXPECT_EQ(invocation.action, Action::kStart);
  EXPECT_EQ(invocation.bundle, bundle);
  EXPECT_EQ(invocation.id, id);
  EXPECT_EQ(invocation.config_file, config);
}

// Options with the same meaning in both syntaxes.
TEST(Invocation, ParsesCreateAndRunOfEngines) {
  const struct {
    const char *name, *line, *bundle, *id;
    const char* config = "";
  } rows[] = {
      {"containerd 1.6",
       "--root /run/containerd/runc/k8s.io --log /b/log.json --log-format json --systemd-cgroup create --bundle /b "
       "--pid-file /b/init.pid ID",
       "/b", "ID"},
      {"containerd with a terminal",
       "--root /r --log /b/log.json --log-format json create --bundle /b --pid-file /b/init.pid --console-socket /s ID",
       "/b", "ID"},
      {"rootless containerd", "--root /r --rootless=true --log /l create --bundle /b ID", "/b", "ID"},
      {"conmon of CRI-O", "--root=/run/runc create --bundle /b --pid-file /p ID", "/b", "ID"},
      {"Podman", "--log-format=json --log /l create --bundle /b --pid-file /p ID", "/b", "ID"},
      {"Podman with a cgroup manager", "--cgroup-manager cgroupfs --log-format=json --log=/l create --bundle /b ID",
       "/b", "ID"},
      {"BuildKit", "--log /l --log-format json run --bundle /b --keep ID", "/b", "ID"},
      {"buildah", "create --bundle /b --pid-file /p ID", "/b", "ID"},
      {"a person", "run ID", "", "ID"},
      {"a person detaches", "--debug run -d --bundle=/b ID", "/b", "ID"},
      {"the short letter", "create -b /b ID", "/b", "ID"},
      {"an equals sign in a value", "create --bundle=/b=c ID", "/b=c", "ID"},
      {"the last one counts", "create --bundle /a --bundle /b ID", "/b", "ID"},
      {"an empty value", "create --bundle= ID", "", "ID"},
      {"the end of options", "create --bundle /b -- ID", "/b", "ID"},
      {"the end of global options", "-- create --bundle /b ID", "/b", "ID"},
      {"another configuration", "create --bundle /b --config /c.json ID", "/b", "ID", "/c.json"},
      {"a root of the name create", "--root create create --bundle create create", "create", "create"},
      {"a value that looks like an option", "create --pid-file --bundle --bundle /b ID", "/b", "ID"},
      {"an unknown option with a value", "--new value create --newer value --bundle /b ID", "/b", "ID"},
      {"an unknown option without one", "--new create --newer --bundle /b ID", "/b", "ID"},
      {"an unknown option in front of the id", "create --bundle /b --newer ID", "/b", "ID"},
      {"an unknown option with a glued value", "--new=value create --newer=value --bundle /b ID", "/b", "ID"},
      {"criu", "--criu /usr/sbin/criu create -b /b ID", "/b", "ID"},
      {"levels", "--log-level warning create -b /b --preserve-fds 3 ID", "/b", "ID"},
      {"nothing behind the command", "create", "", ""},
      {"a value that is missing", "create --bundle", "", ""}};
  for (const auto& row : rows) {
    for (const Dialect dialect : {kRunc, kCrun}) {
      SCOPED_TRACE(std::string(row.name) + (dialect == kRunc ? ", runc" : ", crun"));
      expect_start(row.line, dialect, row.bundle, row.id, row.config);
    }
  }
}

TEST(Invocation, ParsesSyntaxOfOnlyOneRuntime) {
  const struct {
    const char* line;
    Dialect dialect;
    const char *bundle, *id;
    const char* config = "";
  } rows[] = {{"create -b=/b ID", kRunc, "/b", "ID"},
              {"create -b=/b ID", kCrun, "=/b", "ID"},
              {"-root /r create -bundle /b ID", kRunc, "/b", "ID"},
              {"create -bundle=/b ID", kRunc, "/b", "ID"},
              {"create -b/b ID", kCrun, "/b", "ID"},
              {"run -db /b ID", kCrun, "/b", "ID"},
              {"create --bun /b ID", kCrun, "/b", "ID"},
              {"--sys --roo=/r --cg cgroupfs create --bu=/b ID", kCrun, "/b", "ID"},
              {"create --p /x --bundle /b ID", kCrun, "/b", "ID"},  // --pid-file or --preserve-fds: both have a value
              {"create -f /c.json -b /b ID", kCrun, "/b", "ID", "/c.json"},
              {"create --conf=/c.json -b /b ID", kCrun, "/b", "ID", "/c.json"},
              {"create ID --bundle /b", kRunc, "/b", "ID"},
              {"--debug=true create --no-pivot=false -b /b ID", kRunc, "/b", "ID"}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.line);
    expect_start(row.line, row.dialect, row.bundle, row.id, row.config);
  }
}

TEST(Invocation, PassesOtherCommandLines) {
  const std::pair<const char*, Action> rows[] = {
      {"", Action::kPass},
      {"state create", Action::kPass},
      {"--root create state ID", Action::kPass},
      {"--log create --log-format json delete --force create", Action::kDelete},
      {"start create", Action::kPass},
      {"kill ID create", Action::kPass},
      {"features", Action::kPass},
      {"restore --bundle /b create", Action::kRestore},
      {"delete create --bundle /b", Action::kDelete},
      {"delete --help create", Action::kPass},
      {"create --help", Action::kPass},
      {"create -h", Action::kPass},
      {"create --help=true", Action::kPass},
      {"create --help=false ID", Action::kStart},
      {"delete --help=0 ID", Action::kDelete},
      {"help create", Action::kPass},
      {"-", Action::kPass},
      {"--", Action::kPass},
      {"--root", Action::kPass},
      {"exec create create --bundle /b", Action::kExec},
      {"exec ID create", Action::kExec},
      {"exec --help", Action::kPass},
      {"--version", Action::kVersion},
      {"-v", Action::kVersion},
      {"--version create --bundle /b ID", Action::kVersion},
      {"--root /r --version", Action::kVersion},
      {"--help", Action::kHelp},
      {"-h", Action::kHelp}};
  for (const auto& [line, action] : rows) {
    for (const Dialect dialect : {kRunc, kCrun})
      EXPECT_EQ(parse(line, dialect).action, action) << line << (dialect == kRunc ? ", runc" : ", crun");
  }
  EXPECT_EQ(parse("-V", kCrun).action, Action::kVersion);
  EXPECT_EQ(parse("-?", kCrun).action, Action::kHelp);
  EXPECT_EQ(parse("--usage", kCrun).action, Action::kHelp);
}

TEST(Invocation, ParsesExec) {
  const struct {
    const char *line, *file, *id;
    Dialect dialect = kRunc;
  } rows[] = {{"--root /r --log /l --log-format json exec --process /tmp/runc-process1 --detach --pid-file /p ID",
               "/tmp/runc-process1", "ID"},
              {"exec -p /f ID", "/f", "ID"},
              {"exec --process=/f --tty ID", "/f", "ID"},
              {"exec -p=/f ID", "/f", "ID"},
              {"exec -process /f ID", "/f", "ID"},
              {"exec ID ls -p /f", "", "ID"},
              {"exec --env A=b --cwd / -u 0:0 ID sh -c x --process /f", "", "ID"},
              {"exec -- ID --process /f", "", "ID"},
              {"exec --cap CAP_KILL --process /f ID", "/f", "ID"},
              {"exec --process /f --new ID", "/f", "ID"},
              {"exec -t -p /f ID", "/f", "ID", kCrun},
              {"exec -dp /f ID", "/f", "ID", kCrun},
              {"exec -dp/f ID", "/f", "ID", kCrun},
              {"exec -tfalse --process /f ID", "/f", "ID", kCrun},
              {"exec --proces=/f ID", "", "ID", kCrun},  // or --process-label: crun refuses it
              {"exec --cgroup x --process /f ID", "/f", "ID", kCrun}};
  for (const auto& row : rows) {
    SCOPED_TRACE(row.line);
    const Invocation invocation = parse(row.line, row.dialect);
    EXPECT_EQ(invocation.action, Action::kExec);
    EXPECT_EQ(invocation.process_file, row.file);
    EXPECT_EQ(invocation.id, row.id);
  }
}

TEST(Invocation, FindsContainerOfOtherCommands) {
  const char* const lines[] = {"state ID",
                               "kill ID KILL",
                               "kill --all ID 9",
                               "kill -a ID 9",
                               "delete ID",
                               "delete --force ID",
                               "delete -f ID",
                               "delete -- ID",
                               "ps --format json ID",
                               "ps -f json ID",
                               "ps ID -ef",
                               "pause ID",
                               "resume ID",
                               "update --resources - ID",
                               "update -r - ID",
                               "update --resources=- ID",
                               "events --stats ID",
                               "events --interval 5s ID",
                               "update --memory 4096 --cpu-quota -1 ID",
                               "--root /r --log /l --log-format json start ID",
                               "checkpoint --image-path /i --leave-running ID",
                               "checkpoint --tcp-established --work-path /w ID",
                               "restore --image-path /i --bundle /b ID",
                               "restore -d --shell-job --bundle /b ID"};
  for (const char* line : lines) {
    for (const Dialect dialect : {kRunc, kCrun})
      EXPECT_EQ(parse(line, dialect).id, "ID") << line << (dialect == kRunc ? ", runc" : ", crun");
  }
  for (const char* line : {"list --format json", "features", "spec", "--version", "state", "help ID"})
    EXPECT_EQ(parse(line, kRunc).id, "") << line;
  EXPECT_TRUE(parse("create ID", kRunc).is_create);
  EXPECT_FALSE(parse("run ID", kRunc).is_create);
}

TEST(Invocation, ParsesLogAndRoot) {
  const Invocation json = parse("--root /r --log /l --log-format json state ID", kRunc);
  EXPECT_EQ(json.root, "/r");
  EXPECT_EQ(json.log, "/l");
  EXPECT_TRUE(json.json_log);
  EXPECT_FALSE(parse("--log /l --log-format=text create ID", kRunc).json_log);
  EXPECT_TRUE(parse("--log-f=json --log=/l create ID", kCrun).json_log);
  EXPECT_FALSE(parse("create --log-format=json ID", kCrun).json_log);
}

TEST(Invocation, DerivesDialectFromProgramName) {
  EXPECT_EQ(shim::dialect_of("/usr/bin/crun"), kCrun);
  EXPECT_EQ(shim::dialect_of("krun"), kCrun);
  EXPECT_EQ(shim::dialect_of("/usr/bin/crun-wasm"), kCrun);
  EXPECT_EQ(shim::dialect_of("/usr/sbin/runc"), kRunc);
  EXPECT_EQ(shim::dialect_of("/opt/crun/nvidia-container-runtime"), kRunc);
}

}  // namespace
