// bench_shim: what rdma-runtime adds to `create` of runc and crun, beside a wrapper that only executes the runtime, and
// what it takes alone.
// docs: tests/bench/README.md
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "contest.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger.hpp"
#include "shim_bundles.hpp"
#include "support/temp_dir.hpp"

namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using nlohmann::json;
using test_support::TempDir;

constexpr int kSkip = 77;
constexpr std::array<unsigned, 3> kAsked = {0, 1, bench::kRails};  // HCAs that a container asks for

struct Settings {
  std::string wrapper;    // rdma-runtime with the settings of a file
  std::string hook;       // rdma-hook
  std::string exec_only;  // the wrapper that does nothing
  std::string drain;      // ends at once: what stands for a runtime where the wrapper is measured alone
  std::string peak;       // tells a command's largest resident set
  std::string busybox;
  unsigned runs = 60;
};

// A way to call a runtime, and what container it is called for.
struct Way {
  std::string name;
  std::string program;
  unsigned hcas = 0;
  std::vector<double> seconds = {};
  std::vector<double> cpu_seconds = {};  // of it and of the processes that it waits for
  unsigned peak_kib = 0;
};

// Of all children that were waited for.
double cpu_of_children() {
  rusage usage{};
  ::getrusage(RUSAGE_CHILDREN, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

class Contest {
 public:
  // runtime: the path of runc or crun, or of what stands for one.
  Contest(const Settings& settings, std::string runtime, bool alone)
      : settings_(settings), runtime_(std::move(runtime)), alone_(alone) {}

  Result<void> prepare() {
    bench::lay_out_node(work_ / "node");
    // No memlock: a machine without CAP_SYS_RESOURCE would have a warning to print, others would not.
    test_support::write_file(work_ / "config.json", R"({"memlock": null})");
    ::chmod((work_ / "config.json").c_str(), 0644);
    bench::make_rootfs(work_ / "bundle", settings_.busybox);
    const json wrapped{{"runtimes", {runtime_}}, {"engine", "runc"},       {"config", work_ / "config.json"},
                       {"hook", settings_.hook}, {"root", work_ / "node"}, {"ledger", work_ / "ledger"}};
    test_support::write_file(work_ / "settings.json", wrapped.dump());
    environment_ = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RDMA_RUNTIME_SETTINGS=" + (work_ / "settings.json"),
                    "EXEC_ONLY_RUNTIME=" + runtime_};
    return {};
  }

  // Everything once, in an order that differs from round to round.
  Result<void> round(std::vector<Way>& ways, unsigned number) {
    for (std::size_t i = 0; i < ways.size(); ++i)
      TRY_VOID(create(ways[(i + number) % ways.size()]));
    return {};
  }

  Result<void> measure_peak(Way& way) {
    TRY_VOID(write_bundle(way));
    auto command = arguments(way);
    command.insert(command.begin(), settings_.peak);
    const std::string text = TRY(bench::output_of(command, environment_));
    const auto kib = fabric::parse_number<unsigned>(text);
    if (!kib) return make_error("{}: `{}` is no number", settings_.peak, text);
    way.peak_kib = *kib;
    return clean_up(way);
  }

 private:
  Result<void> create(Way& way) {
    TRY_VOID(write_bundle(way));
    std::vector<bench::Contestant> one{{arguments(way), 1}};
    const double cpu_before = cpu_of_children();
    TRY_VOID(bench::run_contest(one, environment_));
    way.cpu_seconds.push_back(cpu_of_children() - cpu_before);
    way.seconds.push_back(one[0].seconds.front());
    TRY_VOID(check(way));
    return clean_up(way);
  }

  std::vector<std::string> arguments(const Way& way) const {
    std::vector<std::string> all{way.program, "--root", work_ / "state"};
    if (runtime_.ends_with("/crun")) all.push_back("--cgroup-manager=cgroupfs");
    all.insert(all.end(), {"create", "--bundle", work_ / "bundle", id()});
    return all;
  }

  std::string id() const { return fmt::format("bench-shim-{}", ::getpid()); }

  // An engine writes it anew for every container.
  Result<void> write_bundle(const Way& way) {
    for (const char* name : {"config.json", "rdma-runtime.json", "rdma-runtime.config.json"})
      std::filesystem::remove(work_ / "bundle" + "/" + name);
    test_support::write_file(work_ / "bundle" + "/config.json", TRY(bench::config_text(work_ / "node", way.hcas)));
    return {};
  }

  // A fast wrapper is one that does its work.
  Result<void> check(const Way& way) const {
    const auto config = json::parse(test_support::read_file(work_ / "bundle" + "/config.json"));
    std::size_t nodes = 0;
    if (config["linux"].contains("devices")) {
      for (const json& device : config["linux"]["devices"])
        nodes += device["path"].get<std::string>().find("uverbs") != std::string::npos;
    }
    if (nodes != way.hcas) return make_error("{}: {} nodes in config.json for {} HCAs", way.name, nodes, way.hcas);
    return {};
  }

  Result<void> clean_up(const Way& way) {
    if (!alone_) {
      std::vector<std::string> all{runtime_, "--root", work_ / "state"};
      if (runtime_.ends_with("/crun")) all.push_back("--cgroup-manager=cgroupfs");
      all.insert(all.end(), {"delete", "--force", id()});
      TRY(bench::output_of(all, environment_));
    } else if (way.hcas > 0) {
      // Booked for a process that became no container: returned, as the next call would.
      const auto ledger = TRY(hook::Ledger::open(work_ / "ledger"));
      TRY_VOID(ledger.recover());
    }
    return {};
  }

  const Settings& settings_;
  std::string runtime_;
  bool alone_;
  TempDir work_;
  std::vector<std::string> environment_;
};

std::string milliseconds(const std::vector<double>& seconds) {
  const auto figure = bench::figure_of(seconds);
  return figure ? fmt::format("{:.2f} ({:.2f})", figure->median * 1e3, figure->minimum * 1e3) : "";
}

double median(const std::vector<double>& seconds) {
  const auto figure = bench::figure_of(seconds);
  return figure ? figure->median : 0;
}

std::string over(const std::vector<double>& seconds, const std::vector<double>& others) {
  return fmt::format("{:+.2f}", (median(seconds) - median(others)) * 1e3);
}

std::vector<Way> ways_of(const Settings& settings, const std::string& runtime, bool alone) {
  std::vector<Way> ways;
  if (!alone) ways.push_back({"directly", runtime});
  ways.push_back({"exec-only wrapper", settings.exec_only});
  for (const unsigned hcas : kAsked) {
    ways.push_back({hcas == 0 ? "rdma-runtime, nothing is asked"
                              : fmt::format("rdma-runtime, {} HCA{}", hcas, hcas > 1 ? "s" : ""),
                    settings.wrapper, hcas});
  }
  return ways;
}

void print_line(std::string_view name, std::string_view time, std::string_view more, std::string_view cpu,
                std::string_view more_cpu, std::string_view last) {
  fmt::print("{:<34}  {:>15}  {:>11}  {:>15}  {:>11}  {:>8}\n", name, time, more, cpu, more_cpu, last);
}

void print_way(const Way& way, const Way& exec_only, std::string_view last) {
  print_line(way.name, milliseconds(way.seconds), over(way.seconds, exec_only.seconds), milliseconds(way.cpu_seconds),
             over(way.cpu_seconds, exec_only.cpu_seconds), last);
}

Result<void> in_front_of(const Settings& settings, const std::string& runtime) {
  Contest contest(settings, runtime, false);
  TRY_VOID(contest.prepare());
  auto ways = ways_of(settings, runtime, false);
  for (unsigned number = 0; number < settings.runs; ++number)
    TRY_VOID(contest.round(ways, number));
  fmt::print("\nmilliseconds of `create` of {}: median (minimum) of {} runs, in turns\n", runtime, settings.runs);
  print_line("", "create", "- exec-only", "CPU time", "- exec-only", "/ direct");
  for (const Way& way : ways)
    print_way(way, ways[1], fmt::format("{:.3f}", median(way.seconds) / median(ways[0].seconds)));
  return {};
}

Result<void> alone(const Settings& settings) {
  // Its name says how its command line is read.
  const TempDir directory;
  std::filesystem::copy_file(settings.drain, directory / "runc");
  Contest contest(settings, directory / "runc", true);
  TRY_VOID(contest.prepare());
  auto ways = ways_of(settings, directory / "runc", true);
  for (unsigned number = 0; number < settings.runs; ++number)
    TRY_VOID(contest.round(ways, number));
  for (Way& way : ways)
    TRY_VOID(contest.measure_peak(way));
  fmt::print("\nin front of a program that ends at once: milliseconds, and the largest resident set\n");
  print_line("", "create", "- exec-only", "CPU time", "- exec-only", "peak KiB");
  for (const Way& way : ways)
    print_way(way, ways[0], fmt::format("{}", way.peak_kib));
  return {};
}

// crun 1.8 refuses to run with control groups v1 beside an empty v2 hierarchy, unless it does not see that.
Result<void> hide_empty_v2() {
  constexpr const char* kUnified = "/sys/fs/cgroup/unified";
  if (::access(kUnified, F_OK) != 0) return {};
  if (::unshare(CLONE_NEWNS) != 0 || ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return sys_error(errno, "make a mount namespace");
  if (::umount2(kUnified, MNT_DETACH) != 0 && errno != EINVAL) return sys_error(errno, "unmount `{}`", kUnified);
  return {};
}

Result<void> run(const Settings& settings) {
  TRY_VOID(hide_empty_v2());
  unsigned found = 0;
  for (const char* runtime : {"/usr/sbin/runc", "/usr/bin/runc", "/usr/sbin/crun", "/usr/bin/crun"}) {
    if (::access(runtime, X_OK) != 0 || std::filesystem::is_symlink(runtime)) continue;
    TRY_VOID(in_front_of(settings, runtime));
    ++found;
  }
  if (found == 0) fmt::print("neither runc nor crun is installed (Debian packages of these names)\n");
  TRY_VOID(alone(settings));
  fmt::print("\naims: at most 2 ms over the exec-only wrapper; `create` at most 1.06 times as long as directly\n");
  return {};
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 6) return make_error("usage: bench_shim RDMA_RUNTIME RDMA_HOOK EXEC_ONLY DRAIN_STDIN PEAK [--runs N]");
  Settings settings{argv[1], argv[2], argv[3], argv[4], argv[5], {}};
  for (const char* path : {"/bin/busybox", "/usr/bin/busybox"}) {
    if (settings.busybox.empty() && ::access(path, X_OK) == 0) settings.busybox = path;
  }
  for (int i = 6; i < argc; i += 2) {
    if (std::string_view(argv[i]) != "--runs") return make_error("unknown option `{}`", argv[i]);
    settings.runs = i + 1 < argc ? fabric::parse_number<unsigned>(argv[i + 1]).value_or(0) : 0;
    if (settings.runs == 0) return make_error("{}: expected a number", argv[i]);
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  const auto settings = parse(argc, argv);
  if (!settings) {
    fmt::print(stderr, "bench_shim: {}\n", settings.error().message);
    return 2;
  }
  if (::geteuid() != 0 || settings->busybox.empty()) {
    fmt::print("needs root and a static busybox (Debian package busybox-static): nothing measured\n");
    return kSkip;
  }
  // What stands for a runtime reads it to its end.
  const int null = ::open("/dev/null", O_RDONLY);
  if (null < 0 || ::dup2(null, STDIN_FILENO) < 0) return 1;
  if (const auto done = run(*settings); !done) {
    fmt::print(stderr, "bench_shim: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
