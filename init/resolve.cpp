#include "init/resolve.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"
#include "fabric/library_variables.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "init/pending.hpp"
#include "init/providers.hpp"
#include "init/settings.hpp"
#include "init/starter.hpp"

namespace init {
namespace {

using fabric::Inventory;

constexpr long kFirstPollMs = 10;
constexpr long kLastPollMs = 100;
// While only link-local GIDs are usable, the wait continues for this time: a netdev that appears is up, with a
// link-local GID, before it gets its address.
constexpr double kSettleSeconds = 1;

// Receives SIGTERM and SIGINT during the wait. The kernel drops both for PID 1 of a container without a handler
// (signal(7), pid_namespaces(7)); a stop would then take the engine's complete grace period. Blocks both for its
// lifetime and restores the mask, which the trainer inherits.
class StopSignals {
 public:
  StopSignals() {
    sigemptyset(&watched_);
    for (const int signal : {SIGTERM, SIGINT}) {
      struct sigaction action {};
      if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&watched_, signal);
    }
    sigprocmask(SIG_BLOCK, &watched_, &former_);
    // Signals that were blocked at start are not received here: they stay pending for the trainer.
    for (const int signal : {SIGTERM, SIGINT}) {
      if (sigismember(&former_, signal) == 1) sigdelset(&watched_, signal);
    }
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  ~StopSignals() { sigprocmask(SIG_SETMASK, &former_, nullptr); }

  // Sleeps. Returns the signal that ended the sleep, if there was one. Signals that were ignored at start stay ignored.
  std::optional<int> sleep_ms(long milliseconds) const {
    const timespec span{milliseconds / 1000, milliseconds % 1000 * 1000000};
    const int signal = sigtimedwait(&watched_, nullptr, &span);
    return signal > 0 ? std::optional(signal) : std::nullopt;
  }

 private:
  sigset_t watched_{};
  sigset_t former_{};
};

static_assert(RLIM_INFINITY == fabric::Limits::kUnlimited);

fabric::Limits read_limits() {
  fabric::Limits limits;
  rlimit memlock{};
  if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0) {
    limits.memlock_soft = memlock.rlim_cur;
    limits.memlock_hard = memlock.rlim_max;
  }
  limits.uid = geteuid();
  const auto status = base::value_or(base::read_file("/proc/self/status", base::kMostText), std::string());
  for (const std::string_view line : base::split(status, '\n')) {
    if (line.starts_with("CapEff:")) limits.cap_eff = base::parse_number<std::uint64_t>(base::trim(line.substr(7)), 16);
  }
  // ib_umem_get() calls capable(CAP_IPC_LOCK), which checks the initial user namespace (drivers/infiniband/core/umem.c,
  // Linux 6.12).
  limits.initial_userns = base::is_in_initial_userns();
  return limits;
}

// Returns the settings of the environment. Marks those that an earlier run of rdma-init exported.
Settings read_environment(const char* const* environment) {
  Settings settings;
  add_environment(environment, settings);
  const std::string exported = own_variable(kExportsName);
  if (!exported.empty()) mark_own(exported, settings, this_host());
  return settings;
}

constexpr std::size_t kMaxPasswd = 4 << 20;

// Returns a warning if files were read from two homes, or from one that only some versions of NCCL use.
std::optional<std::string> warning_about_homes(const ConfFiles& files, const std::string& home,
                                               const std::string& passwd) {
  std::vector<std::string> read;
  for (const std::string& path : files.paths) {
    if (!path.starts_with("/etc/") && files.texts.contains(path)) read.push_back(printable(path));
  }
  if (read.empty() || home == passwd) return std::nullopt;
  return fmt::format(
      "{}: NCCL before 2.30 reads such a file only in the home of /etc/passwd ({}), later versions only in $HOME ({}); "
      "remedy: name the file in NCCL_CONF_FILE, or the version with --nccl-version",
      base::join(read, ", "), passwd.empty() ? "none" : printable(passwd), home.empty() ? "unset" : printable(home));
}

// Reads the configuration files. settings: the settings with precedence, which may name the file and the version of
// NCCL.
ConfFiles read_conf(const Options& options, const Settings& settings) {
  const std::string home = own_variable("HOME");
  const bool named = find_setting(settings, "NCCL_CONF_FILE") != nullptr;
  const auto version = nccl_version(options.policy.nccl_version, settings);
  std::string passwd;
  if (!named && (!version || *version < nccl::kHomeVariable)) {
    const auto text = base::read_below(options.tree(), "/etc/passwd", kMaxPasswd);
    passwd = passwd_home(base::value_or(text, std::string()), ::getuid());
  }
  ConfFiles files = read_conf_files(settings, conf_paths(settings, conf_homes(version, home, passwd)), options.tree());
  if (named || version) return files;
  if (auto warning = warning_about_homes(files, home, passwd)) files.problems.push_back(std::move(*warning));
  return files;
}

// Returns the settings on which the decision rests: the values that the known version of NCCL reads, with the CR of a
// line. Without that CR if exports replace the values (--override).
Settings read_values(const Policy& policy, const std::optional<nccl::Version>& version, Settings settings) {
  const bool replaces = policy.override_wrong && std::ranges::find(policy.exports, "nccl") != policy.exports.end();
  return version && !replaces ? read_by(*version, std::move(settings)) : settings;
}

// Returns the settings of a snapshot.
Settings snapshot_settings(const Inventory& inventory) {
  Settings settings;
  if (inventory.env) {
    for (const auto& [name, value] : *inventory.env)
      settings[name] = {value, "environment"};
    const auto exported = inventory.env->find(kExportsName);
    if (exported != inventory.env->end()) mark_own(exported->second, settings);
  }
  if (!inventory.conf) return settings;
  // A snapshot has the files that were read, but neither $HOME nor /etc/passwd, so two homes have the order of their
  // names. A file of no home is NCCL_CONF_FILE, also if the snapshot's environment lacks the variable.
  std::vector<std::string> homes;
  std::vector<std::string> named;
  for (const auto& [path, text] : *inventory.conf) {
    const std::size_t slash = path.ends_with("/.nccl.conf") || path.ends_with("/.rccl.conf") ? path.rfind('/') : 0;
    if (slash != 0) {
      homes.push_back(path.substr(0, slash));
    } else if (path != "/etc/nccl.conf" && path != "/etc/rccl.conf") {
      named.push_back(path);
    }
  }
  settings = with_conf(std::move(settings), named, *inventory.conf);
  const std::vector<std::string> paths = conf_paths(settings, homes);
  return with_conf(std::move(settings), paths, *inventory.conf);
}

// Returns the value of a variable of the node in the environment of a snapshot.
std::string value_in(const Inventory& inventory, const char* name) {
  if (!inventory.env) return "";
  const auto found = inventory.env->find(name);
  return found == inventory.env->end() ? "" : found->second;
}

// Returns the values and rails of the node. site, rails: the values of fabric::kSiteName and fabric::kRailsName. root:
// prefix of the container's files; nullptr: unknown. A topology file that the container does not have is dropped: NCCL
// would then use none, not even its default.
SitePolicy read_node(std::string_view site, std::string_view rails, const std::string* root) {
  SitePolicy node = read_node_values(site);
  const auto topology = node.settings.find("NCCL_TOPO_FILE");
  const bool is_checked = root && topology != node.settings.end();
  if (const int code = is_checked ? error_of(base::Rooted(*root).open(topology->second.value)) : 0) {
    node.problems.push_back(fmt::format("NCCL_TOPO_FILE={} ({}) is not set: {}", printable(topology->second.value),
                                        kNodeSource, std::strerror(code)));
    node.settings.erase(topology);
  }
  if (rails.empty()) return node;
  if (auto parsed = parse_rails(rails)) {
    node.rails = *std::move(parsed);
  } else {
    node.problems.push_back(
        fmt::format("{}: ignored, because it is not HCA=RAIL or HCA=RAIL.PLANE, joined by commas", fabric::kRailsName));
  }
  return node;
}

Policy with_rails(const Policy& asked, Rails rails) {
  Policy policy = asked;
  policy.rails = std::move(rails);
  return policy;
}

// Returns true if the decision certainly needs the models of the HCAs: --hca names GUIDs, or a port is down, and the
// models show whether it is a rail.
bool needs_models(const Inventory& inventory, const Policy& policy) {
  const auto is_guid = [](const fabric::Selector& one) { return one.kind == fabric::Selector::Kind::kGuid; };
  if (policy.hcas && std::ranges::any_of(policy.hcas->selectors, is_guid)) return true;
  return std::ranges::any_of(inventory.hcas, [](const fabric::Hca& hca) {
    return hca.is_accessible() && !std::ranges::all_of(hca.ports, &fabric::Port::is_active);
  });
}

// Reads as much of the GID tables as the decision needs. The decision requests the skipped slots (needs_skipped) if it
// must simulate NCCL's choice, and complete tables (needs_full) if the simulation needs them, or if a fixed index is
// after the part that was read. The decision requests the models of the HCAs (needs_models) if a port cannot be used,
// or four HCAs are in one PCI slot.
Resolved read_and_decide(const Options& options, const Policy& policy, const Settings& settings, Providers& providers) {
  Resolved resolved;
  const bool full = options.reads_all();
  bool models = full;
  // kept_family() searches all netdevs.
  const bool all_netdevs = find_setting(settings, "NCCL_IB_ADDR_FAMILY") != nullptr;
  fabric::GidTables tables = full ? fabric::GidTables::kWhole : fabric::GidTables::kUsual;
  for (;;) {
    resolved.inventory = fabric::read_inventory({options.tree(), full, tables, all_netdevs, !options.rootfs.empty()});
    providers.add_to(resolved.inventory);
    if (options.lent) resolved.lent = borrow(options.tree(), policy.hcas, resolved.inventory);
    const bool early = !full && (models || needs_models(resolved.inventory, policy));
    if (early) fabric::read_models(options.tree(), resolved.inventory);
    models |= early;
    resolved.decision = decide(resolved.inventory, settings, policy);
    if (resolved.decision.needs_models && !models) {
      fabric::read_models(options.tree(), resolved.inventory);
      models = true;
      resolved.decision = decide(resolved.inventory, settings, policy);
    }
    const bool needs_more = resolved.decision.needs_skipped || resolved.decision.needs_full;
    if (!needs_more || tables == fabric::GidTables::kWhole) return resolved;
    tables = resolved.decision.needs_skipped ? fabric::GidTables::kFromFirst : fabric::GidTables::kWhole;
  }
}

// Reads and decides until nothing is pending.
Resolved wait_for_pending(const Options& options, const Policy& policy, const Settings& settings, const Log& log) {
  Providers providers(options.tree());
  Resolved resolved = read_and_decide(options, policy, settings, providers);
  // Starts the wait only if a resource is pending, so that other starts make no system call and leave the signals
  // unchanged.
  auto pending = find_pending(resolved.inventory, settings, policy);
  if (!pending || options.wait_seconds <= 0) return resolved;
  const double start = base::clock_seconds();
  const StopSignals signals;
  double settled_since = 0;  // time since which nothing is pending; 0: a resource is still pending
  log.info(fmt::format("waiting up to {:g} s for {}", options.wait_seconds, *pending));
  for (long pause = kFirstPollMs; pending; pause = std::min(pause * 2, kLastPollMs)) {
    const double left = start + options.wait_seconds - base::clock_seconds();
    if (left <= 0) {
      log.warning(fmt::format("waited {:g} s in vain for {}", options.wait_seconds, *pending));
      return resolved;
    }
    resolved.stopped_by = signals.sleep_ms(std::min(pause, static_cast<long>(left * 1000) + 1));
    if (resolved.stopped_by) {
      log.warning(fmt::format("signal {} ended the wait for {}", *resolved.stopped_by, *pending));
      return resolved;
    }
    resolved = read_and_decide(options, policy, settings, providers);
    pending = find_pending(resolved.inventory, settings, policy);
    if (pending) {
      settled_since = 0;
      continue;
    }
    if (settled_since == 0) settled_since = base::clock_seconds();
    const bool settled = base::clock_seconds() - settled_since >= kSettleSeconds;
    const auto is_link_local = [](const PortReport& port) { return port.gid && port.gid->is_link_local(); };
    if (!settled && resolved.decision.uses(is_link_local)) pending = "a global address";
  }
  log.info(fmt::format("waited {:.2f} s", base::clock_seconds() - start));
  return resolved;
}

// Returns the variables that a snapshot has. A snapshot is attached to bug reports, so it has only those that the
// decision reads.
std::map<std::string, std::string> snapshot_env(const Settings& settings, const SitePolicy& node) {
  std::map<std::string, std::string> env;
  for (const auto& [name, setting] : settings)
    if (setting.source == "environment" && fabric::is_library_variable(name)) env[name] = setting.value;
  if (const char* exported = getenv(kExportsName)) env[kExportsName] = exported;
  if (!node.settings.empty()) env[fabric::kSiteName] = own_variable(fabric::kSiteName);
  if (!node.rails.empty()) env[fabric::kRailsName] = own_variable(fabric::kRailsName);
  return env;
}

// Returns the files as a snapshot has them, for the same reason without lines that set no variable of NCCL.
std::map<std::string, std::string> snapshot_conf(std::map<std::string, std::string> texts) {
  for (auto& [path, text] : texts)
    text = conf_lines(text);
  return texts;
}

// Completes the result of decide(): exports the variables of the site's policy files and of the node, and the variables
// by which libibverbs finds lent libraries, if ports are used. A variable that the decision replaced (--override) is
// exported already. problems: problems of the settings, one line each.
Decision completed(Decision&& decision, const Settings& settings, std::vector<std::string> problems, const Lent& lent) {
  for (const auto& [name, setting] : settings) {
    const auto same = std::ranges::find(decision.env, name, &Variables::value_type::first);
    if (!setting.of_policy || same != decision.env.end()) continue;
    decision.env.emplace_back(name, setting.value);
    decision.kept.try_emplace(name, setting);
  }
  auto& warnings = decision.status == Status::kNone ? decision.asides : decision.warnings;
  for (std::string& problem : problems)
    warnings.push_back({"settings", Verdict::kNote, std::move(problem)});
  if (!lent.problem.empty()) warnings.push_back({"lent", Verdict::kNote, lent.problem});
  if (decision.status == Status::kNone) return std::move(decision);
  if (!warnings.empty()) decision.status = Status::kOkWarn;
  decision.env.insert(decision.env.end(), lent.env.begin(), lent.env.end());
  if (!lent.note.empty()) decision.remarks.push_back({"lent", Verdict::kNote, lent.note});
  return std::move(decision);
}

// Replaces the remedies of the decision by those of the starter.
void name_starter(const Starter& starter, Decision& decision) {
  const auto replace = [&](std::string& remedy) { remedy = remedy_for(starter, std::move(remedy)); };
  replace(decision.remedy);
  replace(decision.refusal_remedy);
  for (PortReport& port : decision.ports)
    replace(port.remedy);
}

base::Result<Resolved> resolve_snapshot(const Options& options) {
  Resolved resolved;
  resolved.inventory = TRY(fabric::read_snapshot(*options.snapshot));
  const SitePolicy node = read_node(value_in(resolved.inventory, fabric::kSiteName),
                                    value_in(resolved.inventory, fabric::kRailsName), nullptr);
  Settings read = snapshot_settings(resolved.inventory);
  const auto version = nccl_version(options.policy.nccl_version, read);
  const Settings& settings = resolved.settings =
      with_policy(read_values(options.policy, version, std::move(read)), node);
  resolved.decision = decide(resolved.inventory, settings, with_rails(options.policy, node.rails));
  resolved.decision = completed(std::move(resolved.decision), settings, node.problems, {});
  return resolved;
}

}  // namespace

base::Result<Resolved> resolve(const Options& options, const char* const* environment, const Log& log) {
  if (options.snapshot) return resolve_snapshot(options);
  return resolve_machine(options, environment, log);
}

Resolved resolve_machine(const Options& options, const char* const* environment, const Log& log) {
  const SitePolicy site = read_site_policy(base::Rooted(options.tree()), options.env_file, options.tree().empty());
  // The other commands report the problems of the decision.
  if (options.reads_all() && options.command != Command::kDoctor) {
    for (const std::string& problem : site.problems)
      log.warning(problem);
  }
  // The first source of a variable has precedence: the environment, the site, NCCL's files, and last the node, because
  // a user's value anywhere has precedence over it.
  Settings settings = with_policy(read_environment(environment), site);
  ConfFiles files = read_conf(options, settings);
  const auto version = nccl_version(options.policy.nccl_version, settings);
  settings = read_values(options.policy, version, with_conf(std::move(settings), files.paths, files.texts));
  const SitePolicy node = read_node(own_variable(fabric::kSiteName), own_variable(fabric::kRailsName), &options.tree());
  settings = with_policy(std::move(settings), node);
  Resolved resolved = wait_for_pending(options, with_rails(options.policy, node.rails), settings, log);
  std::vector<std::string> problems = site.problems;
  problems.insert(problems.end(), files.problems.begin(), files.problems.end());
  problems.insert(problems.end(), node.problems.begin(), node.problems.end());
  resolved.decision = completed(std::move(resolved.decision), settings, std::move(problems), resolved.lent);
  const bool is_short = resolved.decision.status == Status::kNone || resolved.decision.refusal;
  if (is_short && options.root.empty())
    name_starter(find_starter(options.rootfs, resolved.inventory.rdma_error != ENOENT), resolved.decision);
  if (options.reads_all()) {
    resolved.inventory.limits = read_limits();
    resolved.inventory.conf = snapshot_conf(std::move(files.texts));
    resolved.inventory.env = snapshot_env(settings, node);
  }
  resolved.settings = std::move(settings);
  return resolved;
}

}  // namespace init
