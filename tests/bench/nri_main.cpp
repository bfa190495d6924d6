// bench_nri: how long rdma-nri takes over CreateContainer, and how much memory it keeps, beside a plugin that does
// nothing.
// docs: tests/bench/README.md
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "fabric/text.hpp"
#include "nri_requests.hpp"
#include "nri_runtime.hpp"
#include "support/inventories.hpp"
#include "support/temp_dir.hpp"
#include "support/tree.hpp"

namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using test_support::TempDir;

constexpr int kSkip = 77;
constexpr unsigned kRails = 8;
// A table of every one of these would take minutes: this many lets the tables of allocators and runtimes settle.
constexpr unsigned kWarmUp = 20;

struct Settings {
  std::string plugin;
  std::string idle_plugin;  // empty: there is none
  unsigned requests = 2000;
};

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

struct Times {
  std::vector<double> seconds;
  // Of this share of all requests none took longer.
  double within(double share) {
    std::sort(seconds.begin(), seconds.end());
    const auto rank = static_cast<std::size_t>(share * static_cast<double>(seconds.size()));
    return seconds[std::min(rank, seconds.size() - 1)];
  }
};

// One plugin with what it is asked for.
struct Row {
  std::string name;
  std::string devices;
  std::unique_ptr<TempDir> work = std::make_unique<TempDir>();
  std::unique_ptr<Process> process = {};
  std::unique_ptr<bench::NriRuntime> runtime = {};
  Resident before = {};
  double cpu_before = 0;
  Times create = {};
  Times stop = {};
  std::size_t answer_size = 0;
  std::size_t nodes = 0;  // device nodes of the last answer
};

std::size_t count(std::string_view text, std::string_view word) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size())
    ++found;
  return found;
}

std::string first_rails(unsigned number) {
  std::string names;
  for (unsigned i = 0; i < number; ++i)
    names += fmt::format("{}mlx5_{}", i == 0 ? "" : ",", i);
  return names;
}

Result<Row> start_row(std::string name, std::string devices, const Settings& settings, bool idle) {
  Row row{.name = std::move(name), .devices = std::move(devices)};
  const TempDir& work = *row.work;
  auto runtime = TRY(bench::NriRuntime::listen(work / "nri.sock"));
  std::vector<std::string> argv{settings.idle_plugin, work / "nri.sock"};
  if (!idle) {
    auto node = test_support::rails(kRails, 4);
    for (fabric::Hca& hca : node.hcas)
      hca.uverbs_dev = fmt::format("231:{}", 192 + hca.name.back() - '0');
    test_support::lay_out(node, work / "node");
    test_support::write_file(work / "config.json", R"({"annotations_may_request": ["training"]})");
    ::chmod((work / "config.json").c_str(), 0644);
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

// One container, and its end, so that the next one finds what it wants free.
Result<void> ask(Row& row, unsigned number) {
  const std::string request = bench::container_request(number, row.devices);
  const auto created = TRY(row.runtime->ask("CreateContainer", request));
  row.create.seconds.push_back(created.seconds);
  row.answer_size = created.payload.size();
  row.nodes = count(created.payload, "/dev/infiniband/uverbs");
  if (row.devices.empty()) return {};
  row.stop.seconds.push_back(TRY(row.runtime->ask("StopContainer", request)).seconds);
  return {};
}

// A fast plugin is one that does its work: what it answered is looked at.
Result<void> check(const Row& row) {
  const std::size_t asked = row.devices.empty() ? 0 : count(row.devices, "mlx5_");
  if (row.nodes != asked) return make_error("{}: {} device nodes were given for {} HCAs", row.name, row.nodes, asked);
  return {};
}

void print_line(std::string_view name, std::string_view p50, std::string_view p99, std::string_view most,
                std::string_view cpu, std::string_view answer, std::string_view before, std::string_view after,
                std::string_view peak) {
  fmt::print("{:<28}  {:>7}  {:>7}  {:>7}  {:>8}  {:>7}  {:>10}  {:>9}  {:>8}\n", name, p50, p99, most, cpu, answer,
             before, after, peak);
}

std::string microseconds(double seconds) {
  return fmt::format("{:.0f}", seconds * 1e6);
}

Result<void> print_row(Row& row) {
  const Resident after = TRY(row.process->resident());
  const double cpu = TRY(row.process->cpu()) - row.cpu_before;
  const auto kib = [](unsigned value) { return fmt::format("{}", value); };
  print_line(row.name, microseconds(row.create.within(0.5)), microseconds(row.create.within(0.99)),
             microseconds(row.create.within(1)),
             microseconds(cpu / static_cast<double>(row.create.seconds.size() + kWarmUp)),
             fmt::format("{}", row.answer_size), kib(row.before.now_kib), kib(after.now_kib), kib(after.peak_kib));
  return {};
}

Result<void> note_start(Row& row) {
  row.before = TRY(row.process->resident());
  row.cpu_before = TRY(row.process->cpu());
  return {};
}

Result<std::vector<Row>> start_all(const Settings& settings) {
  std::vector<Row> rows;
  if (!settings.idle_plugin.empty()) rows.push_back(TRY(start_row("does nothing, on Go's stub", {}, settings, true)));
  rows.push_back(TRY(start_row("rdma-nri, nothing is asked", {}, settings, false)));
  for (const unsigned hcas : {1U, kRails}) {
    rows.push_back(TRY(
        start_row(fmt::format("rdma-nri, {} HCA{}", hcas, hcas > 1 ? "s" : ""), first_rails(hcas), settings, false)));
  }
  return rows;
}

Result<void> run(const Settings& settings) {
  auto rows = TRY(start_all(settings));
  for (Row& row : rows)
    TRY_VOID(note_start(row));
  for (unsigned number = 0; number < settings.requests + kWarmUp; ++number) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // Each follows the others as often as they follow it.
      Row& row = rows[(i + number) % rows.size()];
      if (const auto asked = ask(row, number); !asked) return fabric::wrap(asked.error(), row.name);
      if (number < kWarmUp) row.create.seconds.clear(), row.stop.seconds.clear();
    }
  }
  for (const Row& row : rows)
    TRY_VOID(check(row));
  fmt::print("CreateContainer of NRI, a request of {} bytes: microseconds to its answer over {} requests, in turns\n",
             bench::container_request(1, first_rails(kRails)).size(), settings.requests);
  print_line("", "", "", "", "CPU per", "answer,", "resident", "resident", "resident");
  print_line("plugin", "p50", "p99", "max", "container", "bytes", "before KiB", "after KiB", "peak KiB");
  for (Row& row : rows)
    TRY_VOID(print_row(row));
  for (Row& row : rows) {
    if (!row.devices.empty()) {
      fmt::print("{}, StopContainer: p50 {}, p99 {}\n", row.name, microseconds(row.stop.within(0.5)),
                 microseconds(row.stop.within(0.99)));
    }
  }
  fmt::print(
      "aims: below the plugin that does nothing in p50 and p99, asked or not; resident at most 4096 KiB and flat\n");
  return {};
}

Result<Settings> parse(int argc, char** argv) {
  if (argc < 2) return make_error("usage: bench_nri RDMA_NRI [--requests N] [--idle-plugin PROGRAM]");
  Settings settings;
  settings.plugin = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string_view option = argv[i];
    if (i + 1 == argc) return make_error("{}: a value is missing", option);
    if (option == "--idle-plugin") {
      settings.idle_plugin = argv[i + 1];
    } else if (option == "--requests") {
      const auto number = fabric::parse_number<unsigned>(argv[i + 1]);
      if (!number || *number == 0) return make_error("{}: expected a number", option);
      settings.requests = *number;
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
