// bench_nri: how long rdma-nri takes over CreateContainer, and how much memory it keeps, beside a plugin that does
// nothing.
// docs: tests/bench/README.md
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bundles.hpp"
#include "contest.hpp"
#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "nri_requests.hpp"
#include "nri_runtime.hpp"
#include "support/temp_dir.hpp"

namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;
using test_support::TempDir;
using Clock = std::chrono::steady_clock;

constexpr int kSkip = 77;
// So many that the tables of allocators and runtimes have settled.
constexpr unsigned kWarmUp = 20;
constexpr std::chrono::seconds kLongest(60);  // of a scene: no further request then

// Of a process and those of its children that it has waited for, so far.
Result<double> cpu_seconds(pid_t pid) {
  const std::string stat = test_support::read_file(fmt::format("/proc/{}/stat", pid));
  // utime, stime, cutime and cstime are fields 14 to 17; the name, field 2, may have spaces.
  unsigned long long own = 0, own_system = 0, waited = 0, waited_system = 0;
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos ||
      std::sscanf(stat.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &own,
                  &own_system, &waited, &waited_system) != 4) {
    return make_error("process {} tells nothing of its time", pid);
  }
  return static_cast<double>(own + own_system + waited + waited_system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

struct Resident {
  unsigned now_kib = 0;
  unsigned peak_kib = 0;
};

// A plugin that runs, ended with this.
class Process {
 public:
  static Result<std::unique_ptr<Process>> start(const std::vector<std::string>& argv, const std::string& log) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    std::vector<char*> arguments;
    for (const std::string& argument : argv)
      arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    char path[] = "PATH=/usr/sbin:/usr/bin:/sbin:/bin";
    char* environment[] = {path, nullptr};
    pid_t pid = 0;
    const int error = ::posix_spawn(&pid, argv.front().c_str(), &actions, nullptr, arguments.data(), environment);
    posix_spawn_file_actions_destroy(&actions);
    if (error != 0) return sys_error(error, "run `{}`", argv.front());
    return std::unique_ptr<Process>(new Process(pid));
  }

  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }

  // With its worker.
  Result<double> cpu() const {
    double seconds = 0;
    for (const pid_t pid : family())
      seconds += TRY(cpu_seconds(pid));
    return seconds;
  }
  // The worker is of the same program: what it adds is its anonymous memory. What it still shares of that counts twice.
  Result<Resident> resident() const {
    Resident sum;
    for (const pid_t pid : family()) {
      const auto now = kib(pid, pid == pid_ ? "VmRSS:" : "RssAnon:");
      const auto peak = pid == pid_ ? kib(pid, "VmHWM:") : now;
      if (!now || !peak) return make_error("process {} tells nothing of its memory: it has ended", pid);
      sum.now_kib += *now;
      sum.peak_kib += *peak;
    }
    return sum;
  }

 private:
  explicit Process(pid_t pid) : pid_(pid) {}

  std::vector<pid_t> family() const {
    std::vector<pid_t> pids{pid_};
    const std::string children = test_support::read_file(fmt::format("/proc/{0}/task/{0}/children", pid_));
    for (const std::string_view word : fabric::split(children, ' ')) {
      if (const auto pid = fabric::parse_number<pid_t>(word)) pids.push_back(*pid);
    }
    return pids;
  }

  // "NAME:   123 kB" in /proc/PID/status.
  static std::optional<unsigned> kib(pid_t pid, std::string_view name) {
    const std::string text = test_support::read_file(fmt::format("/proc/{}/status", pid));
    const std::size_t at = text.find(name);
    if (at == std::string::npos) return std::nullopt;
    const std::string_view line = std::string_view(text).substr(at + name.size());
    const std::size_t begin = line.find_first_not_of(" \t");
    return fabric::parse_number<unsigned>(line.substr(begin, line.find(" kB") - begin));
  }

  pid_t pid_;
};

// What may make a difference to an answer.
struct Scene {
  bool pod_network = false;  // else the pod is in the node's network namespace
  unsigned grants = 0;       // in the ledger, of other containers
};
constexpr Scene kScenes[] = {{false, 0}, {true, 0}, {true, 1000}, {false, 1000}};

struct Settings {
  std::string plugin;
  std::string idle_plugin;  // empty: there is none
  unsigned runs = 2000;
  std::size_t scenes = std::size(kScenes);
};

// One plugin with what it is asked for.
struct Row {
  std::string name;
  bench::Pod pod;
  std::unique_ptr<TempDir> work = std::make_unique<TempDir>();
  std::unique_ptr<Process> process = {};
  std::unique_ptr<bench::NriRuntime> runtime = {};
  Resident before = {};
  double cpu_before = 0;
  std::vector<double> start = {};
  std::vector<double> stop_ms = {};
  std::size_t nodes = 0;  // device nodes of the last answer
};

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size())
    ++found;
  return found;
}

Result<Row> start_row(std::string name, bench::Pod pod, const Settings& settings, std::optional<unsigned> grants) {
  Row row{.name = std::move(name), .pod = std::move(pod)};
  const TempDir& work = *row.work;
  auto runtime = TRY(bench::NriRuntime::listen(work / "nri.sock"));
  std::vector<std::string> argv{settings.idle_plugin, work / "nri.sock"};
  if (grants) {
    bench::lay_out_node(work / "node");
    test_support::write_file(work / "config.json", R"({"annotations_may_request": ["training"]})");
    ::chmod((work / "config.json").c_str(), 0644);
    TRY_VOID(bench::fill_ledger(work / "node", work / "ledger", *grants));
    argv = {settings.plugin, "--socket",    work / "nri.sock", "--config",     work / "config.json",
            "--root",        work / "node", "--ledger",        work / "ledger"};
  }
  row.process = TRY(Process::start(argv, work / "log"));
  row.runtime = std::make_unique<bench::NriRuntime>(std::move(runtime));
  if (const auto welcomed = row.runtime->welcome(); !welcomed) {
    return make_error("{}: {}\n{}", row.name, welcomed.error().message, test_support::read_file(work / "log"));
  }
  return row;
}

// One container, in a pod of its own if that has a network, and the end of both, so that the next one finds what it
// wants free.
Result<void> ask(Row& row, unsigned number) {
  const auto tell = [&](bench::PodEvent event) -> Result<double> {
    if (row.pod.netns.empty()) return 0;
    return TRY(row.runtime->ask("StateChange", bench::pod_change(event, row.pod))).seconds;
  };
  const std::string request = bench::container_request(number, row.pod);
  const double pod_seconds = TRY(tell(bench::PodEvent::kRun));
  const auto created = TRY(row.runtime->ask("CreateContainer", request));
  row.start.push_back(pod_seconds + created.seconds);
  row.nodes = count(created.payload, "/dev/infiniband/uverbs");
  if (row.pod.devices.empty()) return {};
  const double stop_seconds = TRY(row.runtime->ask("StopContainer", request)).seconds;
  row.stop_ms.push_back((stop_seconds + TRY(tell(bench::PodEvent::kStop))) * 1e3);
  return {};
}

// A fast plugin is one that does its work: what it answered is looked at.
Result<void> check(const Row& row) {
  const std::size_t asked = count(row.pod.devices, "mlx5_");
  if (row.nodes != asked) return make_error("{}: {} device nodes were given for {} HCAs", row.name, row.nodes, asked);
  return {};
}

Result<void> print(const std::string& scene, const Row& row) {
  TRY_VOID(check(row));
  const Resident after = TRY(row.process->resident());
  const double cpu = TRY(row.process->cpu()) - row.cpu_before;
  const auto mib = [](unsigned kib) { return std::vector<double>{kib / 1024.0}; };
  bench::print({scene,
                row.name,
                row.start,
                {{"CPU, ms", {cpu * 1e3 / static_cast<double>(row.start.size())}},
                 {"stop, ms", row.stop_ms},
                 {"MiB before", mib(row.before.now_kib)},
                 {"MiB after", mib(after.now_kib)},
                 {"MiB at most", mib(after.peak_kib)}}});
  return {};
}

Result<std::vector<Row>> start_all(const Settings& settings, const Scene& scene, const std::string& netns) {
  std::vector<Row> rows;
  if (!settings.idle_plugin.empty())
    rows.push_back(TRY(start_row("does nothing, on Go's stub", {{}, netns}, settings, std::nullopt)));
  for (const unsigned hcas : {0U, 1U, bench::kRails}) {
    const auto name =
        hcas == 0 ? "rdma-nri, nothing is asked" : fmt::format("rdma-nri, {} HCA{}", hcas, hcas > 1 ? "s" : "");
    rows.push_back(TRY(start_row(name, {bench::first_rails(hcas), netns}, settings, scene.grants)));
  }
  return rows;
}

Result<void> measure(const Settings& settings, const Scene& scene, const std::string& netns) {
  auto rows = TRY(start_all(settings, scene, scene.pod_network ? netns : ""));
  const auto end = Clock::now() + kLongest;
  for (unsigned number = 0; number < settings.runs + kWarmUp; ++number) {
    if (number > kWarmUp && Clock::now() > end) break;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // Each follows the others as often as they follow it.
      Row& row = rows[(i + number) % rows.size()];
      if (const auto asked = ask(row, number); !asked) return fabric::wrap(asked.error(), row.name);
      if (number + 1 != kWarmUp) continue;
      row.start.clear(), row.stop_ms.clear();
      row.before = TRY(row.process->resident());
      row.cpu_before = TRY(row.process->cpu());
    }
  }
  const auto name = fmt::format("{} network, {} grants", scene.pod_network ? "pod" : "host", scene.grants);
  for (const Row& row : rows)
    TRY_VOID(print(name, row));
  return {};
}

// A network namespace for pods, as a descriptor; this process stays in its own.
Result<UniqueFd> make_netns() {
  const UniqueFd own(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::unshare(CLONE_NEWNET) != 0) return sys_error(errno, "make a network namespace");
  UniqueFd made(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  if (::setns(own.get(), CLONE_NEWNET) != 0) return sys_error(errno, "return to the network namespace");
  return made;
}

Result<void> run(const Settings& settings) {
  const UniqueFd netns = TRY(make_netns());
  for (std::size_t i = 0; i < settings.scenes; ++i)
    TRY_VOID(measure(settings, kScenes[i], fmt::format("/proc/{}/fd/{}", ::getpid(), netns.get())));
  return {};
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 2) return make_error("usage: bench_nri RDMA_NRI [--runs N] [--scenes N] [--idle-plugin PROGRAM]");
  Settings settings;
  settings.plugin = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string_view option = argv[i];
    const unsigned number = i + 1 < argc ? fabric::parse_number<unsigned>(argv[i + 1]).value_or(0) : 0;
    if (option == "--idle-plugin" && i + 1 < argc) {
      settings.idle_plugin = argv[i + 1];
    } else if (number == 0) {
      return make_error("{}: expected a number", option);
    } else if (option == "--runs") {
      settings.runs = number;
    } else if (option == "--scenes") {
      settings.scenes = std::min<std::size_t>(number, std::size(kScenes));
    } else {
      return make_error("unknown option `{}`", option);
    }
  }
  return settings;
}

}  // namespace

int main(int argc, char** argv) {
  auto settings = parse(argc, argv);
  if (!settings) {
    fmt::print(stderr, "bench_nri: {}\n", settings.error().message);
    return 2;
  }
  if (::geteuid() != 0) {
    fmt::print("needs root, as the plugin does: nothing measured\n");
    return kSkip;
  }
  if (!settings->idle_plugin.empty() && ::access(settings->idle_plugin.c_str(), X_OK) != 0) {
    fmt::print("no `{}`: nothing to compare with (tests/shim/adaptation/build-peers)\n", settings->idle_plugin);
    settings->idle_plugin.clear();
  }
  if (const auto done = run(*settings); !done) {
    fmt::print(stderr, "bench_nri: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
