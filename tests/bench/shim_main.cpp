// bench_shim: what rdma-runtime adds to `create` of runc and crun, beside a wrapper that only executes the runtime, and
// what it takes alone.
// docs: tests/bench/README.md
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bundles.hpp"
#include "contest.hpp"
#include "fabric/text.hpp"
#include "hook/ledger/ledger.hpp"
#include "support/temp_dir.hpp"

namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using nlohmann::json;
using test_support::TempDir;

constexpr int kSkip = 77;
constexpr unsigned kAsked[] = {0, 1, bench::kRails};  // HCAs that a container asks for
constexpr std::size_t kBytes[] = {10000, 60000};      // of config.json

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
  const char* idle_hook = nullptr;  // the stage at which a hook does nothing
  std::string config = {};
  std::vector<double> seconds = {};
  std::vector<double> cpu_seconds = {};  // of it and of the processes that it waits for
  std::vector<double> peak_mib = {};
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

  Result<void> prepare(std::vector<Way>& ways, std::size_t bytes) {
    bench::lay_out_node(work_ / "node");
    bench::write_config(work_ / "config.json");
    bench::make_rootfs(work_ / "bundle", settings_.busybox);
    const json wrapped{{"runtimes", {runtime_}}, {"engine", "runc"},       {"config", work_ / "config.json"},
                       {"hook", settings_.hook}, {"root", work_ / "node"}, {"ledger", work_ / "ledger"}};
    test_support::write_file(work_ / "settings.json", wrapped.dump());
    environment_ = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "RDMA_RUNTIME_SETTINGS=" + (work_ / "settings.json"),
                    "EXEC_ONLY_RUNTIME=" + runtime_};
    for (Way& way : ways) {
      json config = TRY(bench::config_of(work_ / "node", way.hcas, bytes));
      if (way.idle_hook) bench::add_hook(config, way.idle_hook, {settings_.drain});
      way.config = config.dump();
    }
    return {};
  }

  // Everything once, in an order that differs from round to round.
  Result<void> round(std::vector<Way>& ways, unsigned number) {
    for (std::size_t i = 0; i < ways.size(); ++i)
      TRY_VOID(create(ways[(i + number) % ways.size()]));
    return {};
  }

  Result<void> measure_peak(Way& way) {
    write_bundle(way);
    auto command = arguments(way);
    command.insert(command.begin(), settings_.peak);
    const std::string text = TRY(bench::output_of(command, environment_));
    const auto kib = fabric::parse_number<unsigned>(text);
    if (!kib) return make_error("{}: `{}` is no number", settings_.peak, text);
    way.peak_mib.push_back(*kib / 1024.0);
    return clean_up(way);
  }

 private:
  Result<void> create(Way& way) {
    write_bundle(way);
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
  void write_bundle(const Way& way) const {
    for (const char* name : {"config.json", "rdma-runtime.json", "rdma-runtime.config.json"})
      std::filesystem::remove(work_ / "bundle" + "/" + name);
    test_support::write_file(work_ / "bundle" + "/config.json", way.config);
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

std::vector<Way> ways_of(const Settings& settings, const std::string& runtime, bool alone) {
  std::vector<Way> ways;
  if (!alone) {
    ways.push_back({"directly", runtime});
    ways.push_back({"directly, createRuntime hook that does nothing", runtime, 0, "createRuntime"});
    ways.push_back({"directly, poststop hook only", runtime, 0, "poststop"});
  }
  ways.push_back({"exec-only wrapper", settings.exec_only});
  for (const unsigned hcas : kAsked) {
    ways.push_back({hcas == 0 ? "rdma-runtime, nothing is asked"
                              : fmt::format("rdma-runtime, {} HCA{}", hcas, hcas > 1 ? "s" : ""),
                    settings.wrapper, hcas});
  }
  return ways;
}

// alone: in front of a program that ends at once, with the largest resident set.
Result<void> measure(const Settings& settings, const std::string& runtime, const std::string& name, bool alone) {
  for (const std::size_t bytes : kBytes) {
    auto ways = ways_of(settings, runtime, alone);
    Contest contest(settings, runtime, alone);
    TRY_VOID(contest.prepare(ways, bytes));
    for (unsigned number = 0; number < settings.runs; ++number)
      TRY_VOID(contest.round(ways, number));
    for (Way& way : ways) {
      if (alone) TRY_VOID(contest.measure_peak(way));
      for (double& seconds : way.cpu_seconds)
        seconds *= 1e3;
      bench::print({fmt::format("{}, {} kB", name, bytes / 1000),
                    way.name,
                    way.seconds,
                    {{"CPU, ms", way.cpu_seconds}, {"MiB at most", way.peak_mib}}});
    }
  }
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
  for (const std::string name : {"runc", "crun"}) {
    const auto path = bench::program(name);
    if (path.empty()) fmt::print("{} is not installed (Debian package of this name)\n", name);
    if (!path.empty()) TRY_VOID(measure(settings, path, name + " create", false));
  }
  // Its name says how its command line is read.
  const TempDir directory;
  std::filesystem::copy_file(settings.drain, directory / "runc");
  return measure(settings, directory / "runc", "alone", true);
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 6) return make_error("usage: bench_shim RDMA_RUNTIME RDMA_HOOK EXEC_ONLY DRAIN_STDIN PEAK [--runs N]");
  Settings settings{argv[1], argv[2], argv[3], argv[4], argv[5], bench::program("busybox")};
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
