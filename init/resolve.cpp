#include "init/resolve.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "base/file.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "fabric/library_variables.hpp"
#include "fabric/port_use.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "init/providers.hpp"
#include "init/settings.hpp"

namespace init {
namespace {

using fabric::Inventory;
using fabric::Netdev;

// Returns true if any port has a GID for the address; the address then belongs to that port.
bool has_gid_anywhere(const Inventory& inventory, const fabric::Address& address) {
  return std::ranges::any_of(inventory.hcas, [&](const fabric::Hca& hca) {
    return std::ranges::any_of(hca.ports, [&](const fabric::Port& port) {
      return std::ranges::find(port.gids, address, &fabric::GidEntry::gid) != port.gids.end();
    });
  });
}

bool is_open_ethernet(const Candidate& candidate) {
  return candidate.hca->is_accessible() && !candidate.hca->is_rejected() && candidate.port->is_active() &&
         candidate.port->is_ethernet();
}

// Returns true if the port will get GIDs for the addresses of this netdev, which is in this network namespace.
bool is_over(const Inventory& inventory, const fabric::Port& port, const Netdev& netdev) {
  return netdev.is_here() && carries(inventory.netdevs, port.netdev, netdev) == fabric::Carries::kYes;
}

// Returns an address for which no port has a GID yet, on the port's netdev or on a netdev that is stacked on it.
// global_only: the port has a link-local GID already, so only other addresses count.
const fabric::InterfaceAddress* awaited_address(const Inventory& inventory, const Candidate& candidate,
                                                const std::optional<fabric::Family>& family, bool global_only) {
  for (const Netdev& netdev : inventory.netdevs) {
    if (!netdev.is_up() || !is_over(inventory, *candidate.port, netdev)) continue;
    // If the port has GIDs already (global_only), only the netdevs of these GIDs and the port's own netdev are searched
    // for an address.
    const bool same = std::ranges::find(candidate.gids, netdev.name, &UsableGid::netdev) != candidate.gids.end();
    if (global_only && !same && candidate.port->netdev != netdev.name) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      if (own.address.is_loopback() || (global_only && own.address.is_link_local())) continue;
      if (family && own.address.family() != *family) continue;
      if (!has_gid_anywhere(inventory, own.address)) return &own;
    }
  }
  return nullptr;
}

// Describes the GID for which the wait is needed. The port can be opened and has no global GID of the wanted family,
// and an address that can get a GID on this port has none yet. nullopt: no GID is awaited.
std::optional<std::string> pending_gid(const Inventory& inventory, const Candidate& candidate,
                                       const std::optional<fabric::Family>& family) {
  const bool has_global = (candidate.best(GidRank::kIpv4) && family != fabric::Family::kIpv6) ||
                          (candidate.best(GidRank::kIpv6) && family != fabric::Family::kIpv4);
  if (!is_open_ethernet(candidate) || has_global) return std::nullopt;
  const auto* address = awaited_address(inventory, candidate, family, candidate.usable());
  if (!address) return std::nullopt;
  return fmt::format("a GID for {} on {}", to_string(address->address), printable(candidate.name()));
}

bool selected(const Policy& policy, const Candidate& candidate) {
  return !policy.hcas || selects(*policy.hcas, *candidate.hca, *candidate.port, candidate.netdevs);
}

// Describes the GID that the port still lacks: an open RoCE port with a netdev in this namespace has no usable GID, and
// the options filter GIDs or --hca names the port. nullopt: no GID is awaited, for example because another port has a
// matching GID and the options exclude all addresses of this port.
std::optional<std::string> pending_match(const Inventory& inventory, const Policy& policy, const Candidate& candidate,
                                         bool others_match) {
  if (!is_open_ethernet(candidate) || candidate.usable() || !candidate.port->netdev) return std::nullopt;
  const bool included = policy.hcas && !policy.hcas->exclude;
  if (!policy.gids.narrows() && !included) return std::nullopt;
  bool has_address = false;
  bool matching_address = false;
  for (const Netdev& netdev : inventory.netdevs) {
    if (!is_over(inventory, *candidate.port, netdev)) continue;
    for (const fabric::InterfaceAddress& own : netdev.addresses) {
      has_address |= !own.address.is_link_local();
      matching_address |= policy.gids.allows(own.address);
    }
  }
  const bool settled = policy.gids.narrows() && others_match && has_address && !matching_address;
  if (settled) return std::nullopt;
  return fmt::format("a GID on {} ({}) that the options allow", printable(candidate.name()),
                     printable(*candidate.port->netdev));
}

// Returns AF_INET6 if NCCL_IB_ADDR_FAMILY sets it: the wait then treats the variable like --family. nullopt: the
// variable is not AF_INET6, NCCL_IB_GID_INDEX fixes an index, or no netdev here has a global IPv6 address.
std::optional<fabric::Family> kept_family(const Inventory& inventory, const Settings& settings) {
  const Setting* family = find_setting(settings, "NCCL_IB_ADDR_FAMILY");
  const Setting* index = find_setting(settings, "NCCL_IB_GID_INDEX");
  if (!family || family->value != "AF_INET6" || (index && nccl::parse_index(index->value) >= 0)) return std::nullopt;
  const auto is_global = [](const fabric::InterfaceAddress& own) {
    return own.address.family() == fabric::Family::kIpv6 && !own.address.is_link_local() && !own.address.is_loopback();
  };
  const auto has_global = [&](const Netdev& netdev) {
    return netdev.is_here() && std::ranges::any_of(netdev.addresses, is_global);
  };
  return std::ranges::any_of(inventory.netdevs, has_global) ? std::optional(fabric::Family::kIpv6) : std::nullopt;
}

constexpr long kFirstPollMs = 10;
constexpr long kLastPollMs = 100;
// While only link-local GIDs are usable, the wait continues for this time: a netdev that appears is up, with a
// link-local GID, before it gets its address.
constexpr double kSettleSeconds = 1;

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

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

// Adds the configuration files in NCCL's order; settings that exist stay.
void add_conf_files(const std::map<std::string, std::string>& files, const std::vector<std::string>& order,
                    Settings& settings) {
  for (const std::string& path : order) {
    const auto file = files.find(path);
    if (file != files.end()) add_conf(file->second, path, settings);
  }
}

constexpr std::size_t kMaxPasswd = 4 << 20;

// The configuration files of a start.
struct ConfFiles {
  std::vector<std::string> paths;
  std::map<std::string, std::string> texts;  // of the files that were read, by path
};

// Warns if files were read from two homes, or from one that only some versions of NCCL use.
void warn_about_homes(const ConfFiles& files, const std::string& home, const std::string& passwd,
                      std::vector<std::string>& problems) {
  std::vector<std::string> read;
  for (const std::string& path : files.paths) {
    if (!path.starts_with("/etc/") && files.texts.contains(path)) read.push_back(printable(path));
  }
  if (read.empty() || home == passwd) return;
  problems.push_back(fmt::format(
      "{}: NCCL before 2.30 reads such a file only in the home of /etc/passwd ({}), later versions only in $HOME ({}); "
      "remedy: name the file in NCCL_CONF_FILE, or the version with --nccl-version",
      base::join(read, ", "), passwd.empty() ? "none" : printable(passwd), home.empty() ? "unset" : printable(home)));
}

// Reads the configuration files and adds their variables; settings that exist stay. problems: as for read_conf_files().
ConfFiles read_conf(const Options& options, Settings& settings, std::vector<std::string>& problems) {
  const char* variable = getenv("HOME");
  const std::string home = variable ? variable : "";
  const bool named = find_setting(settings, "NCCL_CONF_FILE") != nullptr;
  auto version = options.policy.nccl_version;
  const Setting* image = find_setting(settings, "NCCL_VERSION");
  if (image && !version) version = nccl::parse_version(image->value);
  std::string passwd;
  if (!named && (!version || *version < nccl::kHomeVariable)) {
    const auto text = base::read_below(options.tree(), "/etc/passwd", kMaxPasswd);
    passwd = passwd_home(base::value_or(text, std::string()), ::getuid());
  }
  ConfFiles files;
  files.paths = conf_paths(settings, conf_homes(version, home, passwd));
  files.texts = read_conf_files(settings, files.paths, options.tree(), problems);
  if (!named && !version) warn_about_homes(files, home, passwd, problems);
  add_conf_files(files.texts, files.paths, settings);
  return files;
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
  // A snapshot has the files that were read. It records neither $HOME nor /etc/passwd, so two homes have the order of
  // their names. A file of no home is NCCL_CONF_FILE, also if the snapshot's environment lacks the variable.
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
  add_conf_files(*inventory.conf, named, settings);
  add_conf_files(*inventory.conf, conf_paths(settings, homes), settings);
  return settings;
}

// Returns the value of a variable of the node in the environment of a snapshot.
std::string value_in(const Inventory& inventory, const char* name) {
  if (!inventory.env) return "";
  const auto found = inventory.env->find(name);
  return found == inventory.env->end() ? "" : found->second;
}

// Reads the value of fabric::kRailsName.
void take_rails(std::string_view text, Policy& policy, std::vector<std::string>& problems) {
  if (text.empty()) return;
  if (auto rails = parse_rails(text)) {
    policy.rails = *std::move(rails);
  } else {
    problems.push_back(
        fmt::format("{}: ignored, because it is not HCA=RAIL or HCA=RAIL.PLANE, joined by commas", fabric::kRailsName));
  }
}

// Drops the node's topology file if the container does not have it: NCCL would then use none, not even its default.
void check_topology(const std::string& root, SitePolicy& node) {
  const auto named = node.settings.find("NCCL_TOPO_FILE");
  if (named == node.settings.end()) return;
  const int code = error_of(base::Rooted(root).open(named->second.value));
  if (code == 0) return;
  node.problems.push_back(fmt::format("NCCL_TOPO_FILE={} ({}) is not set: {}", printable(named->second.value),
                                      kNodeSource, std::strerror(code)));
  node.settings.erase(named);
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

// Reads as much of the GID tables as the decision needs. The decision requests complete tables (needs_full) if it must
// simulate NCCL's choice, or if a fixed index is beyond the part that was read. It requests the models of the HCAs
// (needs_models) if a port cannot be used, or four HCAs are in one PCI slot.
void read_and_decide(const Options& options, bool full, Providers& providers, Resolved& resolved) {
  bool models = full;
  // kept_family() searches all netdevs.
  const bool all_netdevs = find_setting(resolved.settings, "NCCL_IB_ADDR_FAMILY") != nullptr;
  for (const bool whole_tables : {false, true}) {
    resolved.inventory =
        fabric::read_inventory({options.tree(), full, whole_tables, all_netdevs, !options.rootfs.empty()});
    providers.add_to(resolved.inventory);
    if (options.lent) resolved.lent = borrow(options.tree(), options.policy.hcas, resolved.inventory);
    const bool early = !full && (models || needs_models(resolved.inventory, options.policy));
    if (early) fabric::read_models(options.tree(), resolved.inventory);
    models |= early;
    resolved.decision = decide(resolved.inventory, resolved.settings, options.policy);
    if (resolved.decision.needs_models && !models) {
      fabric::read_models(options.tree(), resolved.inventory);
      models = true;
      resolved.decision = decide(resolved.inventory, resolved.settings, options.policy);
    }
    if (!resolved.decision.needs_full || full) return;
  }
}

void wait_for_pending(const Options& options, bool full, const Log& log, Providers& providers, Resolved& resolved) {
  // Without a pending resource, the wait costs no system call, and signals stay unchanged.
  auto pending = find_pending(resolved.inventory, resolved.settings, options.policy);
  if (!pending || options.wait_seconds <= 0) return;
  const double start = now_seconds();
  const StopSignals signals;
  double settled_since = 0;  // 0: a resource is still pending
  log.info(fmt::format("waiting up to {:g} s for {}", options.wait_seconds, *pending));
  for (long pause = kFirstPollMs; pending; pause = std::min(pause * 2, kLastPollMs)) {
    const double left = start + options.wait_seconds - now_seconds();
    if (left <= 0) {
      log.warning(fmt::format("waited {:g} s in vain for {}", options.wait_seconds, *pending));
      return;
    }
    resolved.stopped_by = signals.sleep_ms(std::min(pause, static_cast<long>(left * 1000) + 1));
    if (resolved.stopped_by) {
      return log.warning(fmt::format("signal {} ended the wait for {}", *resolved.stopped_by, *pending));
    }
    read_and_decide(options, full, providers, resolved);
    pending = find_pending(resolved.inventory, resolved.settings, options.policy);
    if (pending) {
      settled_since = 0;
      continue;
    }
    if (settled_since == 0) settled_since = now_seconds();
    const bool settled = now_seconds() - settled_since >= kSettleSeconds;
    const auto is_link_local = [](const PortReport& port) { return port.gid && port.gid->is_link_local(); };
    if (!settled && resolved.decision.uses(is_link_local)) pending = "a global address";
  }
  log.info(fmt::format("waited {:.2f} s", now_seconds() - start));
}

// Returns the variables of the environment that a snapshot keeps.
std::map<std::string, std::string> snapshot_env(const Settings& settings) {
  std::map<std::string, std::string> env;
  for (const auto& [name, setting] : settings)
    if (setting.source == "environment" && fabric::is_library_variable(name)) env[name] = setting.value;
  return env;
}

// Exports the variables of the site's policy files and of the node. A variable that the decision replaced (--override)
// is exported already.
void export_policy(const Settings& applied, const std::vector<std::string>& problems, Decision& decision) {
  for (const auto& [name, setting] : applied) {
    if (std::ranges::find(decision.env, name, &Variables::value_type::first) != decision.env.end()) continue;
    decision.env.emplace_back(name, setting.value);
    decision.kept.try_emplace(name, KeptValue{setting.value, setting.source, std::nullopt});
  }
  auto& warnings = decision.status == Status::kNone ? decision.asides : decision.warnings;
  warnings.insert(warnings.end(), problems.begin(), problems.end());
  if (decision.status == Status::kOk && !warnings.empty()) decision.status = Status::kOkWarn;
}

// Exports the variables by which libibverbs finds the node's libraries, if ports are used.
void export_lent(const Lent& lent, Decision& decision) {
  if (!lent.problem.empty())
    (decision.status == Status::kNone ? decision.asides : decision.warnings).push_back(lent.problem);
  if (decision.status == Status::kOk && !lent.problem.empty()) decision.status = Status::kOkWarn;
  if (decision.status == Status::kNone) return;
  decision.env.insert(decision.env.end(), lent.env.begin(), lent.env.end());
  if (!lent.note.empty()) decision.remarks.push_back(lent.note);
}

base::Result<Resolved> resolve_snapshot(const std::string& snapshot, Policy& policy) {
  Resolved resolved;
  resolved.inventory = TRY(fabric::read_snapshot(snapshot));
  resolved.settings = snapshot_settings(resolved.inventory);
  SitePolicy node = read_node_values(value_in(resolved.inventory, fabric::kSiteName));
  take_rails(value_in(resolved.inventory, fabric::kRailsName), policy, node.problems);
  const Settings from_node = apply_policy(node, resolved.settings);
  resolved.decision = decide(resolved.inventory, resolved.settings, policy);
  export_policy(from_node, node.problems, resolved.decision);
  return resolved;
}

}  // namespace

std::optional<std::string> find_pending(const Inventory& inventory, const Settings& settings, const Policy& asked) {
  Policy policy = asked;
  if (!policy.gids.family) policy.gids.family = kept_family(inventory, settings);
  // GIDs of the node do not count: the wait is for addresses of this network namespace.
  GidFilter own = policy.gids;
  own.node_gids = false;
  GidFilter unfiltered;
  unfiltered.node_gids = false;
  const auto matching = find_candidates(inventory, own);
  const auto all = policy.gids.narrows() || !policy.gids.link_local ? find_candidates(inventory, unfiltered) : matching;
  std::optional<std::string> awaited;
  for (const Candidate& candidate : all) {
    if (!awaited && selected(policy, candidate)) awaited = pending_gid(inventory, candidate, policy.gids.family);
  }
  const bool others_match = std::ranges::any_of(matching, [&](const Candidate& candidate) {
    return candidate.usable() && candidate.port->is_ethernet() && selected(policy, candidate);
  });
  for (const Candidate& candidate : matching) {
    if (!awaited && selected(policy, candidate)) awaited = pending_match(inventory, policy, candidate, others_match);
  }
  // Without an RDMA driver in the kernel, no HCA will appear.
  const std::size_t required = inventory.rdma_error == ENOENT ? 0 : std::max(policy.require, policy.require_used);
  std::size_t usable = count_usable_hcas(matching);
  if (usable >= required) return awaited;
  // --require also accepts HCAs that use the node's GIDs.
  usable = count_usable_hcas(find_candidates(inventory, policy.gids));
  if (usable >= required) return awaited;
  return fmt::format("{} of {} HCAs with a usable port{}{}", required - usable, required,
                     awaited ? ", among them " : "", awaited.value_or(""));
}

base::Result<Resolved> resolve(Options& options, const char* const* environment, const Log& log, bool full) {
  Resolved resolved;
  if (options.snapshot) return resolve_snapshot(*options.snapshot, options.policy);
  add_environment(environment, resolved.settings);
  const char* exported = getenv(kExportsName);
  mark_own(exported ? exported : "", resolved.settings, exported ? this_host() : "");
  const SitePolicy site = read_site_policy(base::Rooted(options.tree()), options.env_file, options.tree().empty());
  Settings from_site = apply_policy(site, resolved.settings);
  std::vector<std::string> problems = site.problems;
  // The other commands report the problems of the decision.
  if (full && options.command != Command::kDoctor) {
    for (const std::string& problem : problems)
      log.warning(problem);
  }
  auto files = read_conf(options, resolved.settings, problems).texts;  // after the environment, which has precedence
  const char* of_node = getenv(fabric::kSiteName);
  SitePolicy node = read_node_values(of_node ? of_node : "");
  check_topology(options.tree(), node);
  const char* rails = getenv(fabric::kRailsName);
  take_rails(rails ? rails : "", options.policy, node.problems);
  from_site.merge(apply_policy(node, resolved.settings));  // last: a user's value anywhere has precedence
  problems.insert(problems.end(), node.problems.begin(), node.problems.end());
  Providers providers(options.tree());
  read_and_decide(options, full, providers, resolved);
  wait_for_pending(options, full, log, providers, resolved);
  export_policy(from_site, problems, resolved.decision);
  export_lent(resolved.lent, resolved.decision);
  if (full) {
    resolved.inventory.limits = read_limits();
    for (auto& [path, text] : files)
      // A snapshot is attached to bug reports, so other lines of the files must not be in it.
      text = conf_lines(text);
    resolved.inventory.conf = std::move(files);
    resolved.inventory.env = snapshot_env(resolved.settings);
    if (exported) (*resolved.inventory.env)[kExportsName] = exported;
    if (!node.settings.empty()) (*resolved.inventory.env)[fabric::kSiteName] = of_node;
    if (!options.policy.rails.empty()) (*resolved.inventory.env)[fabric::kRailsName] = rails;
  }
  return resolved;
}

}  // namespace init
