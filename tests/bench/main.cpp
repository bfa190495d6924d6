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
#include "fabric/unique_fd.hpp"
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

enum Column { kInit, kReader, kTini, kTrue, kScript, kColumns };
using Figures = std::array<std::optional<bench::Figure>, kColumns>;

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
  const std::string wanted = scene.hcas == 0 ? "" : std::to_string(bench::kWantedIndex);
  if (index != wanted || ports != scene.hcas) {
    return make_error("rdma-init does not find the {} HCAs of the scene at index {}: {}", scene.hcas, wanted,
                      fabric::printable(json));
  }
  const std::string count = TRY(bench::output_of({plan.reader, "--count"}, environment()));
  if (count != fmt::format("{}\n", scene.hcas * scene.slots)) {
    return make_error("read_gid_slots reads {} slots of {}", fabric::trim(count), scene.hcas * scene.slots);
  }
  return {};
}

Result<std::vector<Contestant>> measure(const Plan& plan, const Scene& scene) {
  TRY_VOID(check(plan, scene));
  std::vector<Contestant> all(kColumns);
  all[kInit] = {{plan.rdma_init, "--", "true"}, plan.runs};
  all[kReader] = {{plan.reader}, scene.hcas == 0 ? 0 : plan.runs};
  all[kTini] = {{plan.tini, "--", "true"}, plan.tini.empty() ? 0 : plan.runs};
  all[kTrue] = {{"/bin/true"}, plan.runs};
  // Without an HCA the script fails, which is no figure to compare with.
  all[kScript] = {{"/bin/bash", plan.script}, plan.script.empty() || scene.hcas == 0 ? 0 : plan.script_runs};
  TRY_VOID(bench::run_contest(all, environment()));
  return all;
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

// For a look at a program in a scene: strace, perf.
int run_shell(const Plan& plan, const Scene& scene, const std::string& directory) {
  return in_child([&] {
    if (const auto entered = bench::enter(scene, directory); !entered) return complain(entered.error(), kSkip);
    return std::system(plan.shell.c_str()) == 0 ? 0 : 1;
  });
}

struct Outcome {
  int code = 0;
  Figures figures;
};

// The figures come back through a pipe.
Outcome measure_in_child(const Plan& plan, const Scene& scene, const std::string& directory) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {complain(fabric::sys_error(errno, "create a pipe"), 1), {}};
  const fabric::UniqueFd read_end(ends[0]);
  fabric::UniqueFd write_end(ends[1]);
  Outcome outcome;
  outcome.code = in_child([&] {
    if (const auto entered = bench::enter(scene, directory); !entered) return complain(entered.error(), kSkip);
    const auto all = measure(plan, scene);
    if (!all) return complain(all.error(), 1);
    Figures figures;
    for (std::size_t i = 0; i < kColumns; ++i)
      figures[i] = bench::figure_of((*all)[i].seconds);
    return ::write(write_end.get(), &figures, sizeof figures) == static_cast<ssize_t>(sizeof figures) ? 0 : 1;
  });
  write_end.reset();
  if (outcome.code == 0 && ::read(read_end.get(), &outcome.figures, sizeof outcome.figures) <= 0) outcome.code = 1;
  return outcome;
}

std::string milliseconds(const std::optional<bench::Figure>& figure) {
  if (!figure) return "-";
  return fmt::format("{:.2f} ({:.2f})", figure->median * 1e3, figure->minimum * 1e3);
}

// How many times slower left is than right, by medians.
std::string ratio(const std::optional<bench::Figure>& left, const std::optional<bench::Figure>& right) {
  if (!left || !right) return "-";
  const double value = left->median / right->median;
  return value < 100 ? fmt::format("{:.2f}", value) : fmt::format("{:.0f}", value);
}

// One line of the table: its name, the programs in their order, the ratios.
void print_line(const std::array<std::string, 9>& cells) {
  fmt::print("{:>8}  {:>15}  {:>15}  {:>15}  {:>15}  {:>21}  {:>9}  {:>9}  {:>10}\n", cells[0], cells[1], cells[2],
             cells[3], cells[4], cells[5], cells[6], cells[7], cells[8]);
  std::fflush(stdout);
}

void print_header() {
  print_line({"", "rdma-init", "read every", "tini-static", "", "", "script/", "reader/", "rdma-init/"});
  print_line({"HCAs", "-- true", "slot, in C", "-- true", "true", "nccl_env.sh", "rdma-init", "rdma-init", "tini"});
}

void print_row(const Scene& scene, const Figures& f) {
  print_line({scene.hcas == 0 ? "no RDMA" : std::to_string(scene.hcas), milliseconds(f[kInit]),
              milliseconds(f[kReader]), milliseconds(f[kTini]), milliseconds(f[kTrue]), milliseconds(f[kScript]),
              ratio(f[kScript], f[kInit]), ratio(f[kReader], f[kInit]), ratio(f[kInit], f[kTini])});
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
  plan.tini = first_existing({"/usr/bin/tini-static"});
  const char* peers = std::getenv("RDMA_INIT_PEERS");
  const std::string directory = peers ? peers : BENCH_PEERS;
  plan.script = first_existing({directory + "/nccl_env_rooted.sh", directory + "/nccl_env.sh"});
  return plan;
}

int run_scenes(const Plan& plan, const std::string& directory) {
  for (const unsigned hcas : plan.hcas) {
    const Scene scene{hcas, plan.slots};
    if (!plan.shell.empty()) {
      if (const int code = run_shell(plan, scene, directory); code != 0) return code;
      continue;
    }
    const auto outcome = measure_in_child(plan, scene, directory);
    if (outcome.code != 0) return outcome.code;
    print_row(scene, outcome.figures);
  }
  return 0;
}

int run(const Plan& plan) {
  const std::string parent = std::filesystem::temp_directory_path().string();
  std::string directory = parent + "/bench_init.XXXXXX";
  if (!::mkdtemp(directory.data())) {
    fmt::print(stderr, "bench_init: create a directory below `{}` failed\n", parent);
    return 1;
  }
  if (plan.shell.empty()) {
    fmt::print("milliseconds from spawn to end: median (minimum) of {} interleaved runs, {} GID slots per port\n",
               plan.runs, plan.slots);
    if (plan.tini.empty()) fmt::print("tini-static is not here: install Debian's package tini\n");
    if (plan.script.empty()) fmt::print("nccl_env.sh is not here: RDMA_INIT_PEERS names its directory\n");
    print_header();
  }
  const int code = run_scenes(plan, directory);
  ::rmdir(directory.c_str());
  if (code == 0 && plan.shell.empty()) {
    fmt::print(
        "aims: script/rdma-init at least 1,000 at 8 HCAs; reader/rdma-init above 1; rdma-init/tini at most 1.2 without "
        "RDMA\n");
  }
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
