// bench_init: what starting a command through rdma-init costs, beside its peers, in one run and one table.
// docs: tests/bench/README.md
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "contest.hpp"
#include "fabric/text.hpp"
#include "sandbox.hpp"
#include "scene.hpp"

namespace {

using bench::Contestant;
using bench::Scene;
using fabric::make_error;
using fabric::Result;

constexpr int kSkip = 77;

struct Plan {
  std::string rdma_init;
  std::string reader;
  std::string tini;    // empty: not here
  std::string script;  // empty: not here
  std::vector<unsigned> hcas = {0, 1, 8, 18, 64};
  unsigned slots = 256;
  unsigned runs = 200;
  unsigned script_runs = 3;
  std::string shell;  // runs this in the scene instead of measuring
};

std::vector<std::string> environment() {
  // Quiet, all of them: writing to a terminal is not what is compared.
  return {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RDMA_INIT_LOG=quiet", "TINI_VERBOSITY=0"};
}

// That rdma-init answers right, and the reader reads everything, is a condition of comparing their times.
Result<void> check(const Plan& plan, const Scene& scene) {
  const std::string json = TRY(bench::output_of({plan.rdma_init, "env", "--format", "json"}, environment()));
  const auto answer = nlohmann::json::parse(json, nullptr, false);
  if (!answer.is_object()) return make_error("`rdma-init env --format json` printed `{}`", fabric::printable(json));
  const auto& env = answer.at("env");
  const std::string index = env.value("NCCL_IB_GID_INDEX", "");
  const std::string hcas = env.value("NCCL_IB_HCA", "");
  const std::size_t ports = hcas.empty() ? 0 : fabric::split(hcas, ',').size();
  const std::size_t most = 32;  // NCCL 2.x takes no more (MAX_IB_DEVS), and rdma-init exports the first
  const std::string wanted = scene.hcas == 0 ? "" : std::to_string(bench::kWantedIndex);
  if (index != wanted || ports != std::min<std::size_t>(scene.hcas, most)) {
    return make_error("rdma-init does not find the {} HCAs of the scene at index {}: {}", scene.hcas, wanted,
                      fabric::printable(json));
  }
  const std::string count = TRY(bench::output_of({plan.reader, "--count"}, environment()));
  if (count != fmt::format("{}\n", scene.hcas * scene.slots)) {
    return make_error("read_gid_slots reads {} slots of {}", fabric::trim(count), scene.hcas * scene.slots);
  }
  return {};
}

Result<void> measure(const Plan& plan, const Scene& scene) {
  TRY_VOID(check(plan, scene));
  const unsigned with_hcas = scene.hcas == 0 ? 0 : plan.runs;
  const std::array<std::string, 6> names = {"rdma-init -- true",     "rdma-init --reap -- true",
                                            "tini-static -- true",   "true",
                                            "read every slot, in C", "nccl_env.sh"};
  // Without an HCA the script fails, which is no figure to compare with.
  std::vector<Contestant> all = {
      {{plan.rdma_init, "--", "true"}, plan.runs},
      {{plan.rdma_init, "--reap", "--", "true"}, plan.runs},
      {{plan.tini, "--", "true"}, plan.tini.empty() ? 0 : plan.runs},
      {{"/bin/true"}, plan.runs},
      {{plan.reader}, with_hcas},
      {{"/bin/bash", plan.script}, plan.script.empty() || !with_hcas ? 0 : plan.script_runs}};
  TRY_VOID(bench::run_contest(all, environment()));
  const std::string name = scene.hcas == 0 ? "no RDMA" : fmt::format("{} HCA{}", scene.hcas, scene.hcas > 1 ? "s" : "");
  for (std::size_t i = 0; i < all.size(); ++i)
    bench::print({name, names[i], all[i].seconds});
  return {};
}

// Runs work in a child, because namespaces cannot be left; its exit code is what work returns.
int in_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child < 0) return 1;
  if (child == 0) ::_exit(work());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int complain(const fabric::Error& error, int code) {
  fmt::print(stderr, "bench_init: {}\n", error.message);
  return code;
}

int run_scene(const Plan& plan, const Scene& scene, const std::string& directory) {
  return in_child([&] {
    if (const auto entered = bench::enter(scene, directory); !entered) return complain(entered.error(), kSkip);
    // For a look at a program in a scene: strace, perf.
    if (!plan.shell.empty()) return std::system(plan.shell.c_str()) == 0 ? 0 : 1;
    const auto measured = measure(plan, scene);
    return measured ? 0 : complain(measured.error(), 1);
  });
}

std::string first_existing(const std::vector<std::string>& paths) {
  const auto found = std::find_if(paths.begin(), paths.end(),
                                  [](const std::string& path) { return ::access(path.c_str(), R_OK) == 0; });
  return found == paths.end() ? "" : *found;
}

Result<unsigned> number_of(std::string_view option, std::string_view text) {
  const auto number = fabric::parse_number<unsigned>(text);
  if (!number || *number > 100'000) return make_error("{}: `{}` is not a number up to 100000", option, text);
  return *number;
}

Result<Plan> parse(int argc, char** argv) {
  if (argc < 3) {
    return make_error(
        "usage: bench_init RDMA_INIT READ_GID_SLOTS [--runs N] [--script-runs N] [--hcas LIST] [--slots N]");
  }
  Plan plan;
  plan.rdma_init = argv[1];
  plan.reader = argv[2];
  for (int i = 3; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) return make_error("{} needs a value", option);
    const std::string_view value = argv[i + 1];
    if (option == "--runs") {
      plan.runs = TRY(number_of(option, value));
    } else if (option == "--script-runs") {
      plan.script_runs = TRY(number_of(option, value));
    } else if (option == "--shell") {
      plan.shell = value;
    } else if (option == "--slots") {
      plan.slots = std::max(TRY(number_of(option, value)), bench::kWantedIndex + 1);
    } else if (option == "--hcas") {
      plan.hcas.clear();
      for (const std::string_view part : fabric::split(value, ','))
        plan.hcas.push_back(std::min(TRY(number_of(option, part)), 100U));
    } else {
      return make_error("unknown option `{}`", option);
    }
  }
  plan.tini = bench::program("tini-static");
  const char* peers = std::getenv("RDMA_INIT_PEERS");
  const std::string directory = peers ? peers : BENCH_PEERS;
  plan.script = first_existing({directory + "/nccl_env_rooted.sh", directory + "/nccl_env.sh"});
  return plan;
}

int run(const Plan& plan) {
  const std::string parent = std::filesystem::temp_directory_path().string();
  std::string directory = parent + "/bench_init.XXXXXX";
  if (!::mkdtemp(directory.data())) {
    fmt::print(stderr, "bench_init: create a directory below `{}` failed\n", parent);
    return 1;
  }
  if (plan.shell.empty()) {
    if (plan.tini.empty()) fmt::print("tini-static is not here: install Debian's package tini\n");
    if (plan.script.empty()) fmt::print("nccl_env.sh is not here: RDMA_INIT_PEERS names its directory\n");
    std::fflush(stdout);
  }
  int code = 0;
  for (const unsigned hcas : plan.hcas) {
    if (code == 0) code = run_scene(plan, {hcas, plan.slots}, directory);
  }
  ::rmdir(directory.c_str());
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  auto plan = parse(argc, argv);
  if (!plan) {
    fmt::print(stderr, "bench_init: {}\n", plan.error().message);
    return 2;
  }
  return run(*plan);
}
