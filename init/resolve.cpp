#include "init/resolve.hpp"
#include "init/decide.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "init/pending.hpp"
#include "init/site_policy.hpp"

namespace init {
namespace {

using fabric::Inventory;

constexpr long kFirstPollMs = 10;
constexpr long kLastPollMs = 100;
// A netdev that came while waiting is up before it gets its address, and has a link-local GID in between.
constexpr double kSettleSeconds = 1;
constexpr std::size_t kMaxStatus = 64 << 10;

double now_seconds() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

// Notices SIGTERM and SIGINT while waiting. As PID 1 of a container the kernel drops both as long as there is no
// handler (signal(7), pid_namespaces(7)), so that stopping a container that waits would take the engine's whole grace
// period. Blocks them for its lifetime, and restores the mask as it was: the trainer inherits it.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&watched_);
    for (const int signal : {SIGTERM, SIGINT}) {
      struct sigaction action {};
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&watched_, signal);
    }
    sigprocmask(SIG_BLOCK, &watched_, &former_);
    // What was blocked at start is the trainer's to receive.
    for (const int signal : {SIGTERM, SIGINT}) {
      if (sigismember(&former_, signal) == 1) sigdelset(&watched_, signal);
    }
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() { sigprocmask(SIG_SETMASK, &former_, nullptr); }

  // Sleeps; the signal that ended the sleep, if one did. Signals that came ignored stay ignored.
  std::optional<int> sleep_ms(long milliseconds) const {
    const timespec span{milliseconds / 1000, milliseconds % 1000 * 1000000};
    const int signal = sigtimedwait(&watched_, nullptr, &span);
    return signal > 0 ? std::optional(signal) : std::nullopt;
  }

 private:
  sigset_t watched_{};
  sigset_t former_{};
};

std::uint64_t limit_value(rlim_t limit) {
  return limit == RLIM_INFINITY ? std::numeric_limits<std::uint64_t>::max() : limit;
}

fabric::Limits read_limits() {
  fabric::Limits limits;
  rlimit memlock{};
  if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0) {
    limits.memlock_soft = limit_value(memlock.rlim_cur);
    limits.memlock_hard = limit_value(memlock.rlim_max);
  }
  limits.uid = geteuid();
  const auto status = fabric::sysfs::read_file("/proc/self/status", kMaxStatus);
  if (const auto* text = std::get_if<std::string>(&status)) {
    for (const std::string_view line : fabric::split(*text, '\n')) {
      if (line.starts_with("CapEff:"))
        limits.cap_eff = fabric::parse_number<std::uint64_t>(fabric::trim(line.substr(7)), 16);
    }
  }
  // ib_umem_get() asks capable(CAP_IPC_LOCK), which means the initial user namespace (6.12
  // drivers/infiniband/core/umem.c).
  const auto map = fabric::sysfs::read_file("/proc/self/uid_map", kMaxStatus);
  if (const auto* text = std::get_if<std::string>(&map)) {
    limits.initial_userns = fabric::trim(*text).ends_with("4294967295");
  }
  return limits;
}

void add_conf_files(const std::map<std::string, std::string>& files, const std::vector<std::string>& order,
                    Settings& settings) {
  for (const std::string& path : order) {
    const auto file = files.find(path);
    if (file != files.end()) add_conf(file->second, path, settings);
  }
}

Settings snapshot_settings(const Inventory& inventory) {
  Settings settings;
  if (inventory.env) {
    for (const auto& [name, value] : *inventory.env)
      settings[name] = {value, "environment"};
  }
  if (!inventory.conf) return settings;
  // NCCL_CONF_FILE, if the snapshot's environment has it; else whatever is not /etc/nccl.conf is ~/.nccl.conf.
  std::vector<std::string> order = conf_paths(settings, "");
  if (order.size() == 1) {
    for (const auto& [path, text] : *inventory.conf) {
      if (path != order.back()) order.insert(order.begin(), path);
    }
  }
  add_conf_files(*inventory.conf, order, settings);
  return settings;
}

// Reads as much of the GID tables as the decision needs: it asks for whole ones (needs_full) where NCCL's own choice
// has to be simulated, or a fixed index lies behind what was read.
void read_and_decide(const Options& options, bool full, Resolved& resolved) {
  for (const bool whole_tables : {false, true}) {
    resolved.inventory = fabric::read_inventory({options.root, full, whole_tables});
    resolved.decision = decide(resolved.inventory, resolved.settings, options.policy);
    if (!resolved.decision.needs_full || full) return;
  }
}

bool only_link_local(const Decision& decision) {
  return std::any_of(decision.ports.begin(), decision.ports.end(),
                     [](const PortReport& port) { return port.used && port.gid && port.gid->is_link_local(); });
}

void wait_for_pending(const Options& options, bool full, const Log& log, Resolved& resolved) {
  // Nothing pending: not one system call more. Signals stay as they are until there is something to wait for.
  auto pending = find_pending(resolved.inventory, resolved.settings, options.policy);
  if (!pending || options.wait_seconds <= 0) return;
  const double start = now_seconds();
  const StopSignals signals;
  double settled_since = 0;  // 0: something else is still pending
  log.info(fmt::format("waiting up to {:g} s for {}", options.wait_seconds, *pending));
  for (long pause = kFirstPollMs; pending; pause = std::min(pause * 2, kLastPollMs)) {
    const double left = start + options.wait_seconds - now_seconds();
    if (left <= 0) {
      log.warning(fmt::format("waited {:g} s in vain for {}", options.wait_seconds, *pending));
      return;
    }
    resolved.stopped_by = signals.sleep_ms(std::min(pause, static_cast<long>(left * 1000) + 1));
    if (resolved.stopped_by) {
      return log.warning(fmt::format("signal {} while waiting for {}", *resolved.stopped_by, *pending));
    }
    read_and_decide(options, full, resolved);
    pending = find_pending(resolved.inventory, resolved.settings, options.policy);
    if (pending) {
      settled_since = 0;
      continue;
    }
    if (settled_since == 0) settled_since = now_seconds();
    const bool settled = now_seconds() - settled_since >= kSettleSeconds;
    if (!settled && only_link_local(resolved.decision)) pending = "a global address";
  }
  log.info(fmt::format("waited {:.2f} s", now_seconds() - start));
}

// What the decision replaced (--override) is exported already.
void export_policy(const Settings& applied, const std::vector<std::string>& problems, Decision& decision) {
  for (const auto& variable : applied) {
    const auto& [name, setting] = variable;
    if (std::any_of(decision.env.begin(), decision.env.end(),
                    [&](const auto& own) { return own.first == variable.first; })) {
      continue;
    }
    decision.env.emplace_back(name, setting.value);
    decision.kept.try_emplace(name, KeptValue{setting.value, setting.source, std::nullopt});
  }
  auto& warnings = decision.status == Status::kNone ? decision.asides : decision.warnings;
  warnings.insert(warnings.end(), problems.begin(), problems.end());
  if (decision.status == Status::kOk && !warnings.empty()) decision.status = Status::kOkWarn;
}

}  // namespace

fabric::Result<Resolved> resolve(const Options& options, const char* const* environment, const Log& log, bool full) {
  Resolved resolved;
  if (options.snapshot) {
    resolved.inventory = TRY(fabric::read_snapshot(*options.snapshot));
    resolved.settings = snapshot_settings(resolved.inventory);
    resolved.decision = decide(resolved.inventory, resolved.settings, options.policy);
    return resolved;
  }
  add_environment(environment, resolved.settings);
  const SitePolicy site = read_site_policy(Rooted(options.root), options.env_file, options.root.empty());
  const Settings from_site = apply_policy(site, resolved.settings);
  const char* home = getenv("HOME");
  const auto paths = conf_paths(resolved.settings, home ? home : "");
  std::vector<std::string> problems = site.problems;
  auto files = read_conf_files(resolved.settings, paths, options.root, problems);
  add_conf_files(files, paths, resolved.settings);  // after the environment, which beats them
  read_and_decide(options, full, resolved);
  wait_for_pending(options, full, log, resolved);
  export_policy(from_site, problems, resolved.decision);
  if (full) {
    resolved.inventory.limits = read_limits();
    for (auto& [path, text] : files)
      text = conf_lines(text);
    resolved.inventory.conf = std::move(files);
    resolved.inventory.env.emplace();
    for (const auto& [name, setting] : resolved.settings) {
      if (setting.source == "environment") (*resolved.inventory.env)[name] = setting.value;
    }
  }
  return resolved;
}

}  // namespace init
