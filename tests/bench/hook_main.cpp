// bench_hook: what rdma-hook adds to `runc run`, beside no hook and a C program that only drains its standard input.
// docs: tests/bench/README.md
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bundles.hpp"
#include "contest.hpp"
#include "fabric/text.hpp"
#include "support/temp_dir.hpp"

namespace {

using fabric::make_error;
using fabric::Result;
using nlohmann::json;
using test_support::TempDir;

constexpr int kSkip = 77;
constexpr rlim_t kUsualMemlock = 8 << 20;  // systemd's default, which engines hand on

// What may make a difference, and must not.
struct Scene {
  unsigned asked = 1;         // HCAs that the container names
  std::size_t bytes = 10000;  // of config.json
  unsigned vfs = 1;           // on the node, beside the rails
  unsigned grants = 0;        // in the ledger, of other containers
};
constexpr Scene kScenes[] = {
    {1}, {8}, {1, 63000}, {8, 63000}, {1, 10000, 512}, {1, 10000, 1, 1000}, {8, 63000, 512, 1000}};

struct Programs {
  std::string hook;
  std::string drain;
  std::string runc;
  std::string busybox;
};

struct Settings {
  Programs programs;
  unsigned runs = 60;
  std::size_t scenes = std::size(kScenes);
};

std::vector<std::string> environment() {
  return {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
}

std::vector<std::string> run_command(const Programs& programs, const TempDir& work, const std::string& bundle) {
  return {programs.runc,
          "--root",
          work / "runc",
          "run",
          "--bundle",
          work / bundle,
          fmt::format("bench-hook-{}-{}", bundle, ::getpid())};
}

void make_bundle(const Programs& programs, const std::string& directory, json config, const char* command) {
  bench::make_rootfs(directory, programs.busybox);
  config["process"]["args"] = {"/bin/busybox", "sh", "-c", command};
  if (*command == '\0') config["process"]["args"] = {"/bin/busybox", "true"};
  test_support::write_file(directory + "/config.json", config.dump());
}

// Without a hook, with the C hook, with rdma-hook; and one that tells what rdma-hook gave.
Result<void> make_bundles(const Programs& programs, const Scene& scene, const TempDir& work) {
  const json none = TRY(bench::config_of(work / "node", scene.asked, scene.bytes));
  json drained = none;
  json asking = none;
  for (const char* stage : {"createRuntime", "poststop"}) {
    bench::add_hook(drained, stage, {programs.drain});
    bench::add_hook(asking, stage,
                    {programs.hook, stage, "--engine", "runc", "--root", work / "node", "--ledger", work / "ledger",
                     "--config", work / "config.json"});
  }
  make_bundle(programs, work / "none", none, "");
  make_bundle(programs, work / "drain", drained, "");
  make_bundle(programs, work / "hook", asking, "");
  make_bundle(programs, work / "look", asking, "ls /sys/class/infiniband");
  return {};
}

// A fast hook is one that does its work: the view is there.
Result<void> check(const Programs& programs, const Scene& scene, const TempDir& work) {
  const std::string seen = TRY(bench::output_of(run_command(programs, work, "look"), environment()));
  const auto lines = fabric::split(fabric::trim(seen), '\n');
  if (lines.size() != scene.asked)
    return make_error("{} HCAs were asked for, and the container sees: {}", scene.asked, fabric::printable(seen));
  return {};
}

Result<void> measure(const Settings& settings, const Scene& scene) {
  const TempDir work;
  bench::lay_out_node(work / "node", scene.vfs);
  bench::write_config(work / "config.json");
  TRY_VOID(bench::fill_ledger(work / "node", work / "ledger", scene.grants));
  TRY_VOID(make_bundles(settings.programs, scene, work));
  TRY_VOID(check(settings.programs, scene, work));
  std::vector<bench::Contestant> all;
  for (const char* bundle : {"none", "drain", "hook"})
    all.push_back({run_command(settings.programs, work, bundle), settings.runs});
  TRY_VOID(bench::run_contest(all, environment()));
  const std::string name = fmt::format("{} HCA{}, {} kB, {} VF{}, {} grants", scene.asked, scene.asked > 1 ? "s" : "",
                                       scene.bytes / 1000, scene.vfs, scene.vfs > 1 ? "s" : "", scene.grants);
  bench::print({name, "no hook", all[0].seconds});
  bench::print({name, "C hook that drains stdin", all[1].seconds});
  bench::print({name, "rdma-hook", all[2].seconds});
  return {};
}

Result<void> run(const Settings& settings) {
  rlimit memlock{};
  ::getrlimit(RLIMIT_MEMLOCK, &memlock);
  memlock.rlim_cur = std::min(memlock.rlim_max, kUsualMemlock);
  ::setrlimit(RLIMIT_MEMLOCK, &memlock);
  for (std::size_t i = 0; i < settings.scenes; ++i)
    TRY_VOID(measure(settings, kScenes[i]));
  return {};
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 3) return make_error("usage: bench_hook RDMA_HOOK DRAIN_STDIN [--runs N] [--scenes N]");
  Settings settings;
  settings.programs = {argv[1], argv[2], bench::program("runc"), bench::program("busybox")};
  for (int i = 3; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const auto number = i + 1 < argc ? fabric::parse_number<unsigned>(argv[i + 1]) : std::nullopt;
    if (!number) return make_error("{}: expected a number", option);
    if (option == "--runs") {
      settings.runs = *number;
    } else if (option == "--scenes") {
      settings.scenes = std::min<std::size_t>(*number, std::size(kScenes));
    } else {
      return make_error("unknown option `{}`", option);
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  if (!settings) {
    fmt::print(stderr, "bench_hook: {}\n", settings.error().message);
    return 2;
  }
  if (::geteuid() != 0 || settings->programs.runc.empty() || settings->programs.busybox.empty()) {
    fmt::print("needs root, runc and a static busybox (Debian packages runc, busybox-static): nothing measured\n");
    return kSkip;
  }
  if (const auto done = run(*settings); !done) {
    fmt::print(stderr, "bench_hook: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
