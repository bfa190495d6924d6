#include "hook/program/options.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <iterator>
#include <tuple>

#include "hook/admin/install/plan.hpp"
#include "support/arguments.hpp"
#include "support/results.hpp"

namespace {

using namespace hook;
using test_support::must;

base::Result<Options> parse(const char* line) {
  auto words = test_support::words(line);
  return hook::parse_options(test_support::pointers_to(words));
}

TEST(HookOptions, ParsesCommandsAndOlderNames) {
  for (const auto& [text, command] :
       std::vector<std::pair<const char*, Command>>{{"createRuntime", Command::kCreateRuntime},
                                                    {"prestart", Command::kCreateRuntime},
                                                    {"poststop", Command::kPoststop},
                                                    {"devices", Command::kDevices},
                                                    {"recover", Command::kRecover},
                                                    {"metrics", Command::kMetrics},
                                                    {"check-config", Command::kCheckConfig},
                                                    {"base-spec", Command::kBaseSpec},
                                                    {"--version", Command::kVersion},
                                                    {"--help", Command::kHelp}})
    EXPECT_EQ(must(parse(text)).command, command) << text;
}

TEST(HookOptions, ConfigApplyRequiresDirectory) {
  const auto node = must(parse("config apply /config --watch"));
  EXPECT_EQ(node.command, Command::kConfigApply);
  EXPECT_EQ(node.source, "/config");
  EXPECT_TRUE(node.watch);
  EXPECT_TRUE(must(parse("config apply /config --probe")).probe);
  EXPECT_EQ(node.node.config.cluster, "/etc/rdma-init/cluster/config.json");
  const auto below = must(parse("config apply --root /host cm"));
  EXPECT_EQ(below.node.config.cluster, "/host/etc/rdma-init/cluster/config.json");
  EXPECT_EQ(below.node.config.file, "/host/etc/rdma-init/config.json");
  EXPECT_EQ(below.node.config.drop_ins, "/host/etc/rdma-init/conf.d");
  for (const char* wrong :
       {"config", "config see", "config apply", "config apply a b", "config apply a --watch --json",
        "config apply a --config /c.json", "config apply a --root relative", "config apply a --watch --probe",
        "config apply a --json --probe", "metrics --listen unix: --probe"})
    EXPECT_EQ(parse(wrong).error().code, EINVAL) << wrong;
}

TEST(HookOptions, ParsesValuesInBothForms) {
  const auto options =
      must(parse("plan --bundle=/b --engine crio --config /c.json --snapshot=s.json --root /r --ledger=/l --json"));
  EXPECT_EQ(options.bundle, "/b");
  EXPECT_EQ(options.node.engine, hook::Engine::kCrio);
  EXPECT_TRUE(options.node.engine_is_named);
  EXPECT_EQ(options.node.config.file, "/c.json");
  EXPECT_TRUE(options.node.config.file_must_exist);
  EXPECT_EQ(options.node.config.drop_ins, "");
  EXPECT_EQ(options.node.snapshot, "s.json");
  EXPECT_EQ(options.node.root, "/r");
  EXPECT_EQ(options.node.ledger, "/l");
  EXPECT_TRUE(options.json);
  const auto base_spec = must(parse("base-spec --verify --hook /usr/local/bin/rdma-hook"));
  EXPECT_TRUE(base_spec.verify);
  EXPECT_EQ(base_spec.hook, "/usr/local/bin/rdma-hook");
}

TEST(HookOptions, CollectsAnnotationsOfPlan) {
  const auto options = must(parse("plan --annotation a=1=2 --annotation=b= --annotation c=3 --annotation c=4"));
  EXPECT_EQ(options.annotations, (std::map<std::string, std::string>{{"a", "1=2"}, {"b", ""}, {"c", "4"}}));
  EXPECT_EQ(options.node.engine, hook::Engine::kRunc) << "its annotations may request HCAs";
  EXPECT_EQ(parse("plan --annotation a=1 --namespace ml")->node.engine, hook::Engine::kContainerd);
  EXPECT_EQ(parse("plan --annotation a=1 --namespace ml --engine crio")->node.engine, hook::Engine::kCrio);
}

TEST(HookOptions, HasDefaults) {
  const auto options = must(parse("createRuntime"));
  EXPECT_EQ(options.node.engine, hook::Engine::kPodman) << "annotations only narrow without --engine";
  EXPECT_EQ(parse("plan --bundle b")->node.engine, hook::Engine::kRunc);
  EXPECT_FALSE(options.node.engine_is_named);
  EXPECT_EQ(options.node.config.file, "/etc/rdma-init/config.json");
  EXPECT_EQ(options.node.ledger, "/run/rdma-hook");
  EXPECT_FALSE(options.node.snapshot);
}

TEST(HookOptions, ParsesCdiGenerate) {
  const auto options = must(parse("cdi generate --out=/etc/cdi/x.json --kind a/b --hook=/opt/rdma-hook"));
  EXPECT_EQ(options.command, Command::kCdiGenerate);
  EXPECT_EQ(options.node.engine, hook::Engine::kPodman);
  EXPECT_EQ(options.out, "/etc/cdi/x.json");
  EXPECT_EQ(options.kind, "a/b");
  EXPECT_EQ(options.hook, "/opt/rdma-hook");
  EXPECT_EQ(parse("cdi generate --engine docker")->node.engine, hook::Engine::kDocker);
  EXPECT_EQ(parse("cdi --help")->command, Command::kHelp);
}

TEST(HookOptions, PrintsHelpOfOneCommand) {
  const auto options = must(parse("install --help"));
  EXPECT_EQ(options.command, Command::kHelp);
  EXPECT_EQ(options.topic, "install");
  const std::string help = hook::help_text(options.topic);
  for (const char* part : {"rdma-hook install --uninstall", "\n  --restart ", "\n  --root DIR", "Exit codes: "})
    EXPECT_NE(help.find(part), std::string::npos) << part;
  for (const char* part : {"rdma-hook plan", "--bundle", "doctor"})
    EXPECT_EQ(help.find(part), std::string::npos) << part;
  EXPECT_EQ(parse("--help")->topic, "");
  EXPECT_EQ(parse("plan -h")->topic, "plan") << "missing options are no error with -h";
}

TEST(HookOptions, ErrorsNameTheArgument) {
  const std::tuple<const char*, int, const char*> rows[] = {
      {"", EINVAL, "no command"},
      {"create", EINVAL, "unknown command `create`"},
      {"plan", EINVAL, "plan requires --bundle DIR or --annotation KEY=VALUE"},
      {"plan --bundle b --annotation a=1", EINVAL, "--annotation cannot be combined with --bundle"},
      {"plan --annotation a", EINVAL, "--annotation `a`: expected KEY=VALUE"},
      {"plan --annotation =1", EINVAL, "--annotation `=1`: expected KEY=VALUE"},
      {"plan --bundle b --namespace ml", EINVAL, "--namespace requires --annotation KEY=VALUE"},
      {"plan --annotation a=1 --namespace ml --engine runc", EINVAL,
       "--namespace requires --engine containerd or crio"},
      {"cdi", EINVAL, "`cdi` requires a second word: `cdi generate`"},
      {"cdi validate", EINVAL, "`cdi` requires a second word: `cdi generate`"},
      {"plan --bundle", EINVAL, "`--bundle` needs a value: DIR"},
      {"devices x", EINVAL, "unexpected argument `x`"},
      {"devices --what=1", EINVAL, "unknown option `--what`"},
      {"devices --dry-run", EINVAL, "`devices` has no option `--dry-run`"},
      {"check-config --ledger /x", EINVAL, "`check-config` has no option `--ledger`"},
      {"base-spec --ledger /x", EINVAL, "`base-spec` has no option `--ledger`"},
      {"base-spec --config /x", EINVAL, "`base-spec` has no option `--config`"},
      {"install --config /x", EINVAL, "`install` has no option `--config`"},
      {"install --engine runc", EINVAL,
       "--engine `runc`: expected docker, podman, crio, containerd, k3s, rke2, microk8s or slurm"},
      {"metrics --config /x", EINVAL, "`metrics` has no option `--config`"},
      {"metrics --snapshot /x", EINVAL, "`metrics` has no option `--snapshot`"},
      {"config apply d --config /x", EINVAL, "`config` has no option `--config`"},
      {"config apply d --ledger /x", EINVAL, "`config` has no option `--ledger`"},
      {"cdi generate --ledger /x", EINVAL, "`cdi` has no option `--ledger`"},
      {"base-spec --snapshot /x", EINVAL, "`base-spec` has no option `--snapshot`"},
      {"check-config --bundle x", EINVAL, "`check-config` has no option `--bundle`"},
      {"recover --watch", EINVAL, "`recover` has no option `--watch`"},
      {"devices --probe", EINVAL, "`devices` has no option `--probe`"},
      {"devices --jsn", EINVAL, "unknown option `--jsn` (did you mean `--json`?)"},
      {"devices --refused --snapshot s", EINVAL, "--refused excludes --snapshot"},
      {"devices --root r --refused", EINVAL, "--refused excludes --root"},
      {"doctor --job --quiet", EINVAL, "--job excludes --quiet"},
      {"doctor --json --quiet", EINVAL, "--json excludes --quiet"},
      {"install --status --way nri --restart", EINVAL, "--status excludes --way"},
      {"install --status --uninstall", EINVAL, "--status excludes --uninstall"},
      {"install --status --ledger /x", EINVAL, "--status excludes --ledger"},
      {"install --uninstall --way nri", EINVAL, "--uninstall excludes --way"},
      {"install --uninstall --engine docker", EINVAL, "--uninstall excludes --engine"},
      {"install --hook=/x --uninstall", EINVAL, "--uninstall excludes --hook"},
      {"install --json", EINVAL, "install: --json requires --status"},
      {"uninstall", EINVAL, "unknown command `uninstall` (did you mean `install --uninstall`?)"},
      {"install --engine cri-o", EINVAL,
       "--engine `cri-o`: expected docker, podman, crio, containerd, k3s, rke2, microk8s or slurm (did you mean "
       "`crio`?)"},
      {"plan --bundle b --engine Containerd", EINVAL,
       "--engine `Containerd`: expected runc, docker, podman, crio or containerd (did you mean `containerd`?)"},
      {"install --way nrl", EINVAL, "--way `nrl`: expected nri, runtime, hook or cdi (did you mean `nri`?)"},
      {"doctr", EINVAL, "unknown command `doctr` (did you mean `doctor`?)"},
      {"devices --json=1", EINVAL, "`--json` takes no value"},
      {"plan --bundle b --engine k3s", EINVAL, "--engine k3s is only for install without --way"},
      {"install --engine k3s --way nri", EINVAL, "--engine k3s is only for install without --way"},
      {"install --force", EINVAL, "--force requires --uninstall"},
      {"install --engine dokcer", EINVAL,
       "--engine `dokcer`: expected docker, podman, crio, containerd, k3s, rke2, microk8s or slurm (did you mean "
       "`docker`?)"},
      {"plan --bundle b --engine lxc", EINVAL, "--engine `lxc`: expected runc, docker, podman, crio or containerd"},
      {"createContainer", ENOTSUP,
       "`createContainer` runs in the container or after its start: HCAs cannot be granted there"},
      {"startContainer", ENOTSUP,
       "`startContainer` runs in the container or after its start: HCAs cannot be granted there"},
      {"poststart", ENOTSUP, "`poststart` runs in the container or after its start: HCAs cannot be granted there"}};
  for (const auto& [line, code, message] : rows) {
    const base::Error error = parse(line).error();
    EXPECT_EQ(error.message, message);
    EXPECT_EQ(error.code, code) << line;
    EXPECT_FALSE(error.hint.empty()) << line;
  }
}

// Returns the words that the help of a command lists for an option.
std::vector<std::string> listed_words(const char* command, const std::string& option) {
  const std::string text = help_text(command);
  std::vector<std::string> words;
  std::size_t at = text.find("  " + option + " NAME");
  if (at == std::string::npos) return words;
  for (at += option.size() + 7; text[at] != ':'; ++at) {
    if (text[at] == ' ' || text[at] == '\n' || text[at] == ',')
      words.emplace_back();
    else
      words.back() += text[at];
  }
  std::erase_if(words, [](const std::string& word) { return word.empty() || word == "or"; });
  return words;
}

TEST(HookOptions, AcceptsEachWordOfHelp) {
  const std::tuple<const char*, const char*, const char*, std::size_t> rows[] = {
      {"plan", "plan --bundle b", "--engine", std::size(kEngineWords)},
      {"createRuntime", "createRuntime", "--engine", std::size(kEngineWords)},
      {"install", "install", "--engine", std::size(kEngineWords) + 3},
      {"install", "install", "--way", std::size(kInstallWays)}};
  for (const auto& [command, line, option, count] : rows) {
    const auto words = listed_words(command, option);
    EXPECT_EQ(words.size(), count) << command;
    for (const std::string& word : words)
      EXPECT_TRUE(parse(fmt::format("{} {} {}", line, option, word).c_str()))
          << command << ' ' << option << ' ' << word;
  }
}

TEST(HookOptions, BareHelpIsOfAllCommands) {
  for (const char* line : {"-h", "--help", "help"}) {
    const Options options = must(parse(line));
    EXPECT_EQ(options.command, Command::kHelp) << line;
    EXPECT_EQ(options.topic, "") << line;
  }
  EXPECT_EQ(must(parse("plan -h")).topic, "plan");
}

}  // namespace
