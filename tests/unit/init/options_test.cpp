#include "init/options.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <set>

#include "base/options.hpp"
#include "base/text.hpp"
#include "init/exports.hpp"
#include "support/arguments.hpp"
#include "support/results.hpp"

namespace {

using init::Command;
using init::EnvFormat;
using init::Options;
using test_support::words;

base::Result<Options> parse(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), "rdma-init");
  // Kept until the end of the test, because options.program points into argv.
  static std::deque<std::vector<std::string>> kept;
  static std::deque<std::vector<char*>> argv;
  argv.push_back(test_support::pointers_to(kept.emplace_back(std::move(arguments))));
  argv.back().push_back(nullptr);
  std::vector<char*> variables = test_support::pointers_to(environment);
  variables.push_back(nullptr);
  return init::parse_options(static_cast<int>(kept.back().size()), argv.back().data(), variables.data());
}

base::Result<Options> parse(const char* line, const char* environment = "") {
  return parse(words(line), words(environment));
}

TEST(Options, HaveDefaults) {
  const auto options = test_support::must(parse("env"));
  EXPECT_EQ(options.command, Command::kEnv);
  EXPECT_EQ(options.format, EnvFormat::kSh);
  EXPECT_EQ(options.wait_seconds, 10);
  EXPECT_EQ(options.policy.require, 0U);
  EXPECT_EQ(options.policy.exports, (std::vector<std::string>{"nccl", "ucx", "nvshmem"}));
  EXPECT_EQ(options.log, init::LogLevel::kInfo);
  EXPECT_FALSE(options.policy.strict || options.policy.override_wrong || options.reap || options.json);
  EXPECT_FALSE(options.policy.hcas || options.policy.gids.family || options.policy.nccl_version);
  EXPECT_TRUE(options.policy.gids.link_local);
}

TEST(Options, AreReadFromTheCommandLine) {
  auto arguments = words(
      "--wait 2.5 env --require=2 --strict --override --hca mlx5_0:1 --family 6 --export nccl,gloo "
      "--nccl-version=2.21.5 --no-link-local --no-node-gids "
      "--node-addresses=mlx5_0:1=10.5.0.1,mlx5_0:1=fd00::1,mlx5_1:2=10.5.1.1 --log json --format json "
      "--snapshot - --root /x");
  arguments.emplace_back("--cidr=10.0.0.0/8, fd00::/8");
  const auto options = test_support::must(parse(arguments));
  EXPECT_EQ(options.wait_seconds, 2.5);
  EXPECT_EQ(options.policy.require, 2U);
  EXPECT_TRUE(options.policy.strict && options.policy.override_wrong);
  EXPECT_EQ(options.policy.hcas->text, "mlx5_0:1");
  EXPECT_EQ(options.policy.gids.cidrs.size(), 2U);
  EXPECT_EQ(options.policy.gids.family, fabric::Family::kIpv6);
  EXPECT_FALSE(options.policy.gids.link_local || options.policy.gids.node_gids);
  const auto addresses = options.policy.gids.node_addresses.value();
  EXPECT_EQ(addresses.size(), 2U);
  EXPECT_EQ(addresses.at({"mlx5_0", 1U}).size(), 2U);
  EXPECT_EQ(to_string(addresses.at({"mlx5_1", 2U}).front()), "10.5.1.1");
  EXPECT_EQ(options.policy.exports, (std::vector<std::string>{"nccl", "gloo"}));
  EXPECT_EQ(options.policy.nccl_version, (init::nccl::Version{2, 21, 5}));
  EXPECT_EQ(options.log, init::LogLevel::kJson);
  EXPECT_EQ(options.format, EnvFormat::kJson);
  EXPECT_EQ(options.snapshot, "-");
  EXPECT_EQ(options.root, "/x");
}

TEST(Options, AreReadFromTheEnvironment) {
  const auto options = test_support::must(
      parse("env",
            "RDMA_INIT_WAIT=0 RDMA_INIT_REQUIRE=8 RDMA_INIT_STRICT=1 RDMA_INIT_OVERRIDE=1 RDMA_INIT_HCA=^mlx5_9 "
            "RDMA_INIT_CIDR=10.0.0.0/8 RDMA_INIT_FAMILY=4 RDMA_INIT_EXPORT=none RDMA_INIT_NCCL_VERSION=2.30 "
            "RDMA_INIT_NO_LINK_LOCAL=1 RDMA_INIT_REAP=1 RDMA_INIT_LOG=quiet"));
  EXPECT_EQ(options.wait_seconds, 0);
  EXPECT_EQ(options.policy.require, 8U);
  EXPECT_TRUE(options.policy.strict && options.policy.override_wrong && options.reap);
  EXPECT_TRUE(options.policy.hcas->exclude);
  EXPECT_EQ(options.policy.gids.cidrs.size(), 1U);
  EXPECT_EQ(options.policy.gids.family, fabric::Family::kIpv4);
  EXPECT_TRUE(options.policy.exports.empty());
  EXPECT_TRUE(options.policy.nccl_version);
  EXPECT_FALSE(options.policy.gids.link_local);
  EXPECT_EQ(options.log, init::LogLevel::kQuiet);
}

TEST(Options, PreferTheCommandLineToTheEnvironment) {
  const auto options =
      test_support::must(parse("--require=1 --strict env --cidr fd00::/8 --hca=mlx5_1",
                               "RDMA_INIT_REQUIRE=8 RDMA_INIT_STRICT=0 RDMA_INIT_CIDR=10.0.0.0/8 RDMA_INIT_HCA=mlx5_0 "
                               "RDMA_INIT_OVERRIDE=0"));
  EXPECT_EQ(options.policy.require, 1U);
  EXPECT_TRUE(options.policy.strict);
  EXPECT_FALSE(options.policy.override_wrong);
  EXPECT_EQ(options.policy.hcas->text, "mlx5_1");
  ASSERT_EQ(options.policy.gids.cidrs.size(), 1U);
  EXPECT_EQ(to_string(options.policy.gids.cidrs[0]), "fd00::/8") << "the list is replaced and not extended";
}

TEST(Options, IgnoreEmptyAndUnknownVariables) {
  const auto options = test_support::must(
      parse({"env"}, {"RDMA_INIT_HCA=", "RDMA_INIT_REQUIRE", "RDMA_INIT_WHATEVER=x", "RDMA_INIT_FORMAT=json",
                      "RDMA_INIT_SNAPSHOT=/x", "RDMA_INIT_ROOT=/x", "=x", ""}));
  EXPECT_FALSE(options.policy.hcas || options.snapshot);
  EXPECT_EQ(options.format, EnvFormat::kSh);
  EXPECT_TRUE(options.root.empty());
}

TEST(Options, WarnAboutUnknownVariablesWithoutTheirValue) {
  const auto warnings = [](std::vector<std::string> environment) {
    return test_support::must(parse({"env"}, std::move(environment))).warnings;
  };
  const auto unknown = [](std::string text) { return "variable `RDMA_INIT_" + text; };
  EXPECT_EQ(warnings({"RDMA_INIT_REQIRE=8", "RDMA_INIT_no_lnik_local=s3cret", "RDMA_INIT_WHATEVER=x",
                      "RDMA_INIT_EXPORT_=", "RDMA_INIT_RAIL=x", "RDMA_INIT_\n=x"}),
            (std::vector{unknown("REQIRE` is unknown (did you mean `RDMA_INIT_REQUIRE`?)"),
                         unknown("no_lnik_local` is unknown (did you mean `RDMA_INIT_NO_LINK_LOCAL`?)"),
                         unknown("WHATEVER` is unknown"), unknown("RAIL` is unknown (did you mean `RDMA_INIT_RAILS`?)"),
                         unknown("?` is unknown")}));
  EXPECT_EQ(warnings(std::vector<std::string>(1000, "RDMA_INIT_X=1")).size(), base::kMostUnknown);
  EXPECT_EQ(
      warnings({"RDMA_INIT_SERVICE_HOST=10.0.0.1", "RDMA_INIT_SERVICE_PORT_HTTP=80", "RDMA_INIT_PORT=tcp://10.0.0.1:80",
                "RDMA_INIT_PORT_80_TCP=x", "RDMA_INIT_X_SERVICE_HOST=x", "RDMA_INITS=x", "RDMA_PING_TOKEN=x"}),
      std::vector<std::string>{});
}

TEST(Options, OtherVariablesAreThoseOfTheManPage) {
  const auto ends = words(init::kOtherVariables);
  const std::set<std::string, std::less<>> known(ends.begin(), ends.end());
  EXPECT_EQ(test_support::variables_of_man_page(PROJECT_DIR "/init/rdma-init.1", "RDMA_INIT_"), known);
  for (const std::string& name : known)
    EXPECT_TRUE(parse({"env"}, {"RDMA_INIT_" + name + "=x"})->warnings.empty()) << name;
}

TEST(Options, MayPrecedeOrFollowTheSubcommand) {
  for (const char* line : {"--json doctor --strict", "doctor --json --strict", "--strict --json doctor"}) {
    const auto options = test_support::must(parse(line));
    EXPECT_EQ(options.command, Command::kDoctor);
    EXPECT_TRUE(options.json && options.policy.strict);
  }
  EXPECT_EQ(parse("topo")->command, Command::kTopo);
  EXPECT_EQ(parse("snapshot")->command, Command::kSnapshot);
}

TEST(Options, PassTheArgumentsAfterTheDashesToTheCommand) {
  const auto options = test_support::must(parse("--strict -- python3 -- env --help"));
  EXPECT_EQ(options.command, Command::kExec);
  EXPECT_STREQ(options.program[0], "python3");
  EXPECT_STREQ(options.program[1], "--");
  EXPECT_STREQ(options.program[3], "--help");
  EXPECT_EQ(options.program[4], nullptr);
}

TEST(Options, AcceptAnyTextAsValueAndHelpAlone) {
  EXPECT_EQ(parse("env --snapshot --help")->snapshot, "--help");
  EXPECT_EQ(parse("env --snapshot --")->snapshot, "--");
  EXPECT_EQ(parse("env --snapshot=")->snapshot, "");
  EXPECT_EQ(parse("env --snapshot=a=b")->snapshot, "a=b");
  EXPECT_EQ(parse("--help")->command, Command::kHelp);
  EXPECT_EQ(parse("-h")->command, Command::kHelp);
  EXPECT_EQ(parse("--version")->command, Command::kVersion);
  EXPECT_EQ(parse("env --help")->command, Command::kHelp);
  EXPECT_EQ(parse("--help env")->command, Command::kHelp);
}

TEST(Options, NameTheArgumentOrTheVariableInErrors) {
  const char* const no_command = "no command: rdma-init [options] -- command [args]";
  const std::tuple<const char*, const char*, const char*> rows[] = {
      {"", "", no_command},
      {"--strict", "", no_command},
      {"--", "", "no command after `--`"},
      {"env -- x", "", "a subcommand takes no `-- command`"},
      {"train.py", "", "unexpected argument `train.py`; put the command after `--`"},
      {"env doctor", "", "unexpected argument `doctor`; put the command after `--`"},
      {"doctr", "", "unexpected argument `doctr` (did you mean `doctor`?); put the command after `--`"},
      {"-x", "", "unexpected argument `-x`; put the command after `--`"},
      {"--nope", "", "unknown option `--nope`"},
      {"--hf-token=secret env", "", "unknown option `--hf-token`"},
      {"--stric env", "", "unknown option `--stric` (did you mean `--strict`?)"},
      {"--\x1b[2J env", "", "unknown option `--?[2J`"},
      {"env --wait", "", "`--wait` needs a value: SECONDS"},
      {"env --strict=1", "", "`--strict` takes no value"},
      {"env --wait soon", "", "--wait: expected seconds from 0 to 86400, got `soon`"},
      {"env --wait=-1", "", "--wait: expected seconds from 0 to 86400, got `-1`"},
      {"env --wait=86401", "", "--wait: expected seconds from 0 to 86400, got `86401`"},
      {"env --wait=nan", "", "--wait: expected seconds from 0 to 86400, got `nan`"},
      {"env --require=-1", "", "--require: expected a number of HCAs, got `-1`"},
      {"env --require=1.5", "", "--require: expected a number of HCAs, got `1.5`"},
      {"env --hca=", "", "--hca: ``: empty selector"},
      {"env --cidr=10.0.0.0/99", "", "--cidr: expected ADDRESS/PREFIX, got `10.0.0.0/99`"},
      {"env --node-addresses=mlx5_0=10.5.0.1", "",
       "--node-addresses: expected HCA:PORT=ADDRESS, got `mlx5_0=10.5.0.1`"},
      {"env --node-addresses=:1=10.5.0.1", "", "--node-addresses: expected HCA:PORT=ADDRESS, got `:1=10.5.0.1`"},
      {"env", "RDMA_INIT_NODE_ADDRESSES=mlx5_0:1=10.5.0.1,mlx5_1:1=x",
       "RDMA_INIT_NODE_ADDRESSES: expected HCA:PORT=ADDRESS, got `mlx5_1:1=x`"},
      {"env --cidr=10.0.0.0/8,", "", "--cidr: expected ADDRESS/PREFIX, got ``"},
      {"env --family=5", "", "--family: expected 4 or 6, got `5`"},
      {"env --nccl-version=new", "", "--nccl-version: expected X.Y.Z, got `new`"},
      {"env --log=loud", "", "--log: expected quiet, info, debug or json, got `loud`"},
      {"env --format=xml", "", "--format: expected sh, json or dotenv, got `xml`"},
      {"env", "RDMA_INIT_STRICT=yes", "RDMA_INIT_STRICT: expected 0 or 1, got `yes`"},
      {"env", "RDMA_INIT_FAMILY=five", "RDMA_INIT_FAMILY: expected 4 or 6, got `five`"},
      {"env", "RDMA_INIT_NO_LINK_LOCAL=2", "RDMA_INIT_NO_LINK_LOCAL: expected 0 or 1, got `2`"},
      {"--snapshot=x -- true", "", "`--snapshot` is no option of `--`, but of: env doctor topo snapshot"},
      {"--root=x -- true", "", "`--root` is no option of `--`, but of: env doctor topo snapshot"},
      {"--rootfs=x doctor", "", "`--rootfs` is no option of `doctor`, but of: env"},
      {"--environ=x -- true", "", "`--environ` is no option of `--`, but of: env"},
      {"env --json", "", "`--json` is no option of `env`, but of: doctor topo"},
      {"doctor --format=json", "", "`--format` is no option of `doctor`, but of: env"},
      {"--reap snapshot", "RDMA_INIT_STRICT=1", "`--reap` is no option of `snapshot`, but of: --"},
      {"topo --strict", "", "`--strict` is no option of `topo`, but of: -- env doctor"},
      {"--rootfs= env", "", "--rootfs: the path is empty"},
      {"--environ= env", "", "--environ: the path is empty"},
      {"--rootfs=x --root=y env", "", "--rootfs is of this machine, and --snapshot and --root are not; omit one"}};
  for (const auto& [line, environment, message] : rows) {
    SCOPED_TRACE(message);
    EXPECT_EQ(parse(line, environment).error().message, message);
  }
}

TEST(HelpText, ListsEveryOption) {
  const std::string help = init::help_text({});
  for (const char* option : {"--wait",         "--require",        "--strict", "--override",     "--hca",
                             "--cidr",         "--family",         "--export", "--nccl-version", "--no-link-local",
                             "--no-node-gids", "--node-addresses", "--reap",   "--log",          "--format",
                             "--json",         "--snapshot",       "--root",   "--help",         "--version"})
    EXPECT_NE(help.find(std::string("\n  ") + option), std::string::npos) << option;
}

TEST(HelpText, ListsOnlyOptionsOfTheCommand) {
  const auto has = [](std::string_view command, std::string_view option) {
    return init::help_text(command).find(fmt::format("\n  --{} ", option)) != std::string::npos;
  };
  EXPECT_TRUE(has("env", "format") && has("env", "rootfs") && has("env", "wait") && has("env", "help"));
  EXPECT_FALSE(has("env", "json") || has("env", "reap"));
  EXPECT_TRUE(has("topo", "json") && has("topo", "hca"));
  EXPECT_FALSE(has("topo", "format") || has("topo", "strict"));
  EXPECT_EQ(init::help_text("topo").find("rdma-init [options] env"), std::string::npos);
  EXPECT_EQ(test_support::must(parse("topo --help")).topic, "topo");
}

// The completions of the shells are made of this list.
TEST(HelpText, ListsValuesOfExport) {
  std::vector<std::string_view> words;
  const std::string help = init::help_text({});
  for (const std::string_view line : base::split(help, '\n'))
    for (const std::string_view word : base::split(line, ' '))
      if (!word.empty()) words.push_back(word);
  const auto names = init::export_names();
  const std::string list = fmt::format(": {} or none (", fmt::join(names, ", "));
  EXPECT_NE(fmt::format("{}", fmt::join(words, " ")).find(list), std::string::npos) << list;
}

}  // namespace
