#include "hook/program/commands.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <utility>

#include "base/json/json.hpp"
#include "base/process/run_in_child.hpp"
#include "base/process/sandbox.hpp"
#include "base/text.hpp"
#include "base/warnings.hpp"
#include "fabric/inventory.hpp"
#include "fabric/snapshot.hpp"
#include "hook/admin/cluster/config_command.hpp"
#include "hook/admin/cluster/note_pools.hpp"
#include "hook/admin/doctor/doctor.hpp"
#include "hook/admin/doctor/job_fault.hpp"
#include "hook/admin/install/install.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/programs.hpp"
#include "hook/admin/metrics/count.hpp"
#include "hook/apply/cdi_file.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/claim/claims.hpp"
#include "hook/config/read_config.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/claims_of.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/grant/refused.hpp"
#include "hook/grant/search.hpp"
#include "hook/ledger/refusals.hpp"
#include "hook/ledger/runtime_records.hpp"
#include "hook/program/devices.hpp"
#include "hook/program/empty_container.hpp"
#include "hook/program/foreseen.hpp"
#include "hook/program/metrics_command.hpp"
#include "hook/program/refusal_list.hpp"
#include "hook/program/stages.hpp"
#include "hook/rails/address/ipam.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/foresee.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

constexpr int kExitDone = 0;
constexpr int kExitFailure = 1;
constexpr int kExitUnsupported = 3;  // exit code of install if it can set nothing up on this node
constexpr int kExitBroken = 2;       // exit code of doctor; with warnings only it is kExitFailure

void print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
}

// Prints JSON on stdout. Invalid UTF-8 is replaced, because names of devices and files can have any bytes.
void print(const Json& json) {
  print(json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n");
}

// Returns true if the node is a snapshot and no ledger is named: the ledger of this node has no grants for the
// snapshot.
bool is_elsewhere(const NodeSettings& node) {
  return node.snapshot && node.ledger == kLedgerPath;
}

// Errors: the caller named a file of the configuration that cannot be read. A file that is invalid is no error here.
Result<void> check_named_config(const NodeSettings& node, const Result<Config>& config) {
  if (config || !node.config.file_must_exist || config.error().code != EPERM) return {};
  return config.error();
}

struct DryRun {
  Plan plan = {};  // after a refusal the plan has only the warnings before the refusal
  std::vector<ForeseenRail> rails = {};
  Recognised caller = {};
};

// Decides as createRuntime does and makes the checks that createRuntime makes before its first change.
Result<void> decide_unbooked(ContainerRequest requesting, const std::string& bundle, const OpenLedger* open, Call& call,
                             DryRun& done) {
  Owner owner = TRY(owner_of(requesting.spec, container_owner("plan", bundle)));
  const Ledger* const ledger = open ? &open->ledger : nullptr;
  if (ledger)
    join_claims(TRY(claims_of(requesting, *ledger, call.node.root)), call.node.root, owner, *requesting.request);
  const ForeseeInput input{requesting, owner, call.node, ledger, true, "", false, &call};
  auto found = find_plan(input, nullptr, [](const ForeseenPlan&) { return Result<void>(); });
  append_once(call.notes, done.plan.warnings);
  const ForeseenPlan decided = TRY(std::move(found));
  Plan plan = decided.plan;
  foresee_memlock(requesting.spec, requesting.caller.engine, plan);
  append_once(std::exchange(plan.warnings, std::move(done.plan.warnings)), plan.warnings);
  done.plan = std::move(plan);
  auto foreseen = TRY(foresee_rails({.plan = done.plan,
                                     .config = requesting.admin,
                                     .inventory = decided.inventory,
                                     .is_snapshot = call.node.snapshot.has_value(),
                                     .ledger_directory = open ? call.node.ledger : "",
                                     .key = owner.key}));
  append_once(std::move(foreseen.warnings), done.plan.warnings);
  done.rails = std::move(foreseen.rails);
  return {};
}

// Runs `plan`. As at a container's start, the search for a free HCA releases each stale grant that it finds, with its
// rails.
Result<void> dry_run(const Options& options, Call& call, DryRun& done) {
  const NodeSettings& node = options.node;
  const bool is_empty = !options.bundle;
  const std::string text =
      TRY(is_empty ? Result<std::string>(empty_container(options.annotations, options.pod_namespace, node.engine))
                   : read_bundle_config(*options.bundle));
  std::error_code failed;  // ignored: after a failure `bundle` is empty, so no engine is detected from it
  const std::string bundle = is_empty ? "" : std::filesystem::canonical(*options.bundle, failed).string();
  const auto root = node.snapshot ? std::nullopt : std::optional(node.root);
  const auto config = read_config(node.config);
  TRY_VOID(check_named_config(node, config));
  const ContainerRequest requesting = TRY(understand(text, config, {node.engine, node.engine_is_named, bundle}, root));
  done.plan = plan_without_hcas(requesting.pod_note);
  done.plan.warnings = requesting.warnings;
  done.caller = requesting.caller;
  if (is_empty && !node.engine_is_named)
    done.caller.by = options.pod_namespace ? "the default with --namespace" : "the default without a bundle";
  if (!requesting.request) {
    // A container that requests nothing needs no node, but the caller named a file that cannot be read.
    if (node.snapshot) TRY(fabric::read_snapshot(*node.snapshot));
    return {};
  }
  const auto open = is_elsewhere(node) ? std::nullopt : TRY(OpenLedger::open_existing(call));
  auto decided = decide_unbooked(requesting, options.bundle.value_or(""), open ? &*open : nullptr, call, done);
  if (open) open->report(Releaser::kOther, call);
  return decided;
}

// Logs the warnings of a refusal as text. A printed plan and a refusal as JSON contain them.
int run_plan(const Options& options, Log& log) {
  Call call{options.node, log};
  DryRun done;
  const auto decided = dry_run(options, call, done);
  if (!decided && !options.json) log.warnings(done.plan.warnings);
  count_releases(options.node.ledger, call.outcome);
  if (!decided) {
    const Error& error = decided.error();
    log.error(error);
    if (options.json)
      print(Json{{"error", error.message}, {"hint", base::remedy_of(error)}, {"warnings", done.plan.warnings}});
    return kExitFailure;
  }
  const std::string engine(to_string(done.caller.engine));
  if (options.json) {
    Json json = plan_json(done.plan);
    json["rails"] = foreseen_json(done.rails);
    json["engine"] = {{"name", engine}, {"by", done.caller.by}};
    print(json);
  } else {
    print(fmt::format("{:<11} {}  {}\n", "engine", engine, done.caller.by) + plan_text(done.plan) +
          foreseen_text(done.rails));
  }
  return kExitDone;
}

// Calls `use` for each grant of the ledger, including stale grants, because reading releases none. Logs and skips a
// grant that cannot be read. Returns false if there is no ledger.
Result<bool> each_grant(const Options& options, const Log& log, const std::function<Result<void>(const Grant&)>& use) {
  Ledger::Unread unread;
  auto done = Ledger::for_each_at(options.node.ledger, use, &unread);
  for (const Error& error : unread)
    log.error(error);
  return done;
}

// Adds the owners of all grants. Reads network records only for owners that are printed: otherwise 10,000 grants would
// cause 10,000 reads.
Result<void> add_owners(const Options& options, const Log& log, DeviceOwners& owners) {
  const std::string& ledger = options.node.ledger;
  std::optional<NetworkRecordStore> records;
  const auto add = [&](const Grant& grant) -> Result<void> {
    std::optional<NetworkRecord> network;
    if (owners.shows(grant) && TRY(NetworkRecordStore::read_presence(ledger, grant.owner.key)) != Presence::kAbsent) {
      if (!records) records = TRY(NetworkRecordStore::open(ledger));
      network = TRY(records->read(grant.owner.key));
    }
    owners.add(grant, std::move(network));
    return {};
  };
  TRY(each_grant(options, log, add));
  return {};
}

Result<void> show_refusals(const Options& options) {
  const auto refusals = TRY(read_refusals(options.node.ledger));
  if (options.json) {
    print(refusals_json(refusals));
  } else {
    print(refusals_text(refusals));
  }
  return {};
}

// Driver and PCI location are read only for JSON, because the text does not print them.
Result<void> show_devices(const Options& options, const Log& log) {
  if (options.refused) return show_refusals(options);
  const Config config = TRY(read_config(options.node.config));
  const fabric::HcaFacts shown{
      .driver = options.json, .link_layer = true, .netdevs = true, .place = options.json, .rate = true};
  auto inventory = TRY(read_whole_node(config, options.node, shown));
  if (!is_elsewhere(options.node)) TRY_VOID(note_away_hcas(options.node, nullptr, inventory));
  std::vector<std::string> warnings;
  for (const fabric::Unread& unread : inventory.unread)
    add_once(sys_error(unread.code, "cannot read `{}`", unread.path).message, warnings);
  log.warnings(warnings);
  DeviceOwners owners(options.json);
  if (!is_elsewhere(options.node)) TRY_VOID(add_owners(options, log, owners));
  const auto write = [](const std::string& text) { print(text); };
  if (options.json) {
    write_devices_json(inventory, config, owners, write);
  } else {
    write_devices_text(inventory, config, owners, write);
  }
  return {};
}

Result<Recovered> recover_all(const OpenLedger& open, const std::string& path) {
  // The records of rdma-runtime belong to no grant, so Ledger::recover() does not remove the records of ended
  // containers.
  sweep_runtimes(path, SweptRuntimes::kAll);
  const Deadline deadline = from_now(kRecoverPatience);
  auto recovered = open.ledger.recover(deadline);
  // Rails are restored even if a grant could not be released.
  auto rails = TRY(open.rails->recover(open.ledger, deadline));
  if (recovered) std::ranges::move(rails, std::back_inserter(recovered->released));
  return recovered;
}

// Recovers the node; makes no ledger if there is none.
Result<Recovered> recover_existing(Call& call) {
  const auto open = TRY(OpenLedger::open_existing(call));
  if (!open) return Recovered();
  auto recovered = recover_all(*open, call.node.ledger);
  open->report(Releaser::kRecover, call);
  return recovered;
}

// Ends a claim whose driver is gone, so that nothing else ends it.
Result<void> end_claim(const std::string& uid, const Options& options, Log& log) {
  constexpr std::chrono::seconds kClaimPatience{5};
  TRY_VOID(unprepare_claim(uid, {.node = options.node}, log, from_now(kClaimPatience)));
  print(options.json ? Json{{"returned", Json::array({uid})}}.dump() + "\n" : fmt::format("released claim {}\n", uid));
  return {};
}

Result<void> recover(const Options& options, Log& log) {
  if (options.claim) return end_claim(*options.claim, options, log);
  for (const char* directory : {"/etc/cdi", kClaimDirectory})
    sweep_cdi(directory, log);
  if (options.node.ledger == kLedgerPath) sweep_claims({.node = options.node}, log);
  const auto config = read_config(options.node.config);
  TRY_VOID(check_named_config(options.node, config));
  auto ipam = TRY(IpamHelper::start(ipam_programs(config ? &*config : nullptr, options.node.ledger)));
  Call call{options.node, log, &ipam};
  const auto recovered = recover_existing(call);
  count_releases(options.node.ledger, call.outcome);
  if (const auto noted = config ? note_pools(options.node, *config) : Result<void>(); !noted)
    log.warning(noted.error().message);
  if (!recovered) return recovered.error();
  log.warnings(recovered->warnings);
  if (options.json) {
    print(Json{{"returned", recovered->released}});
    return {};
  }
  for (const std::string& label : recovered->released)
    print(fmt::format("released the grant of {}\n", label));
  return {};
}

int exit_code(const Result<void>& result, const Log& log) {
  if (result) return kExitDone;
  log.error(result.error());
  return kExitFailure;
}

int config_apply(const Options& options, const Log& log) {
  const auto done = options.probe   ? probe_config(options.source, options.node)
                    : options.watch ? watch_config(options.source, options.node, log)
                                    : apply_config(options.source, options.node, options.json, log);
  return done ? *done : exit_code(done.error(), log);
}

int run_metrics(const Options& options, const Log& log) {
  return exit_code(options.listen ? listen_for_metrics(options) : show_metrics(options, log), log);
}

// Sets the directory of rdma-hook and rdma-runtime on the node: the directory of --hook; else, without --root, this
// program's directory if it has rdma-runtime; else a `bin` directory of the node. With --root, install runs in an
// image: it copies the programs if --programs is set or no `bin` directory of the node has rdma-runtime.
Result<void> find_programs(const Options& options, InstallOptions& found) {
  const std::string own = TRY(hook_path(options));
  const std::string directory = own.substr(0, own.rfind('/'));
  const std::string& root = found.root;
  found.programs = directory;
  const auto has_both = [&](const std::string& at) { return node_has(root, at + "/rdma-runtime", X_OK); };
  if (options.hook || (root.empty() && has_both(directory))) return {};
  // Packages install into /usr/bin; `cmake --install` installs into /usr/local/bin.
  const bool in_bin = has_both("/usr/bin");
  found.programs = in_bin ? "/usr/bin" : "/usr/local/bin";
  if (root.empty() || ((in_bin || has_both("/usr/local/bin")) && !options.programs)) return {};
  found.programs = options.programs.value_or(kPutDirectory);
  found.put_from = directory;
  found.put = programs_to_install(directory, found.programs);
  return {};
}

Result<void> release_stale(const std::string& ledger) {
  auto ipam = TRY(IpamHelper::start(ipam_programs(nullptr, ledger)));
  NodeSettings node;
  node.ledger = ledger;
  Log log;
  Call call{node, log, &ipam};
  TRY(recover_existing(call));
  return {};
}

// Grants name their owners by paths of network namespaces, cgroups and runtime directories on the node. Such paths are
// valid only in the node's root, so a child process enters `root` first.
Result<void> release_stale_in(const std::string& root) {
  TRY(run_in_child("release of stale grants in the node's root", [&](ChildFiles&) -> Result<void> {
    if (::chroot(root.c_str()) != 0 || ::chdir("/") != 0) return sys_error(errno, "enter `{}`", root);
    return release_stale(kLedgerPath);
  }));
  return {};
}

// Releases stale grants, except for a dry run, and counts the grants that remain.
// root: the node's root, which has its /proc; empty: this node.
Result<HeldGrants> hold_after_release(const std::string& root, const std::string& ledger, bool dry_run) {
  const auto released = dry_run ? Result<void>() : root.empty() ? release_stale(ledger) : release_stale_in(root);
  HeldGrants held;
  Ledger::Unread unread;
  const auto count = [&](const Grant& grant) -> Result<void> {
    ++held.count;
    if (grant.owner.claim) held.claims.push_back(grant.owner.label);
    return {};
  };
  TRY(Ledger::for_each_recorded_at(ledger, count, &unread));
  // A grant that cannot be read may be in use, so it counts.
  held.count += unread.size();
  // If grants remain, `stuck` has the error of the release. If no grant remains, the caller does not report `stuck`, so
  // this function returns the error.
  if (!released && held.count == 0) return released.error();
  if (!released) held.stuck = released.error().message;
  return held;
}

// Refuses to install if there are grants of another format, because the programs of this version could not release
// them.
Result<void> check_formats(const std::string& ledger) {
  Ledger::Unread unread;
  const auto listed = Ledger::for_each_recorded_at(
      ledger, [](const Grant&) { return Result<void>(); }, &unread);
  if (!listed.has_value() && listed.error().code != EACCES)
    return listed.error();  // EACCES is ignored: a caller without access to the ledger cannot install either
  const auto is_other = [](const Error& error) { return error.code == EPROTONOSUPPORT; };
  const auto count = std::ranges::count_if(unread, is_other);
  if (count == 0) return {};
  return Error{
      fmt::format("{} grants have the format of another version: {}", count,
                  std::ranges::find_if(unread, is_other)->message),
      EBUSY,
      "drain the node with the programs of that version, then run `rdma-hook install` again; nothing was changed"};
}

// lines: receives the text to print although the call fails: the configuration lines for the administrator to merge by
// hand, if install cannot configure the engine of this node, or the changes that a dry run found.
Result<std::string> run_install(const Options& options, std::string& lines) {
  InstallOptions install_options = options.install;
  if (!options.status && !install_options.dry_run && ::geteuid() != 0)
    return Error{"install: requires root", EPERM, "run as root"};
  TRY_VOID(find_programs(options, install_options));
  const std::string& asked = options.node.ledger;
  const std::string ledger = asked == kLedgerPath ? install_options.root + asked : asked;
  // Only a root with its own /proc has the node's processes. A file tree for tests has no /proc.
  const bool is_in_root =
      asked == kLedgerPath && ::access((install_options.root + "/proc/self/ns/pid").c_str(), F_OK) == 0;
  const std::string root = is_in_root ? install_options.root : "";
  install_options.needed_by = [&] { return hold_after_release(root, ledger, install_options.dry_run); };
  if (!options.uninstall && !options.status) TRY_VOID(check_formats(ledger));
  if (options.uninstall) return uninstall(install_options, lines);
  return options.status ? install_status(install_options.root, options.json) : install(install_options, lines);
}

int install_code(const Options& options, const Log& log) {
  std::string lines;
  const auto report = run_install(options, lines);
  print(report ? *report : lines);
  if (report) return kExitDone;
  log.error(report.error());
  return report.error().code == kUnsupportedNode ? kExitUnsupported : kExitFailure;
}

int run_job_check(const NodeSettings& node, const Log& log) {
  const auto fault = find_job_fault(node);
  if (!fault) return exit_code(fault.error(), log);
  if (!*fault) return kExitDone;
  print(drain_reason(**fault) + "\n");
  return kExitBroken;
}

int run_doctor(const Options& options, const Log& log) {
  if (options.job) return run_job_check(options.node, log);
  const auto checks = examine_node(options.node);
  print(options.json ? findings_json(checks) : findings_text(checks, options.quiet));
  const auto grade = worst(checks);
  return !grade ? kExitDone : *grade == Grade::kBroken ? kExitBroken : kExitFailure;
}

// Starts the helper that executes IPAM plugins, before the seccomp filter forbids execve(2). The helper is also needed
// for recorded leases, because their plugins may be missing in the present configuration, or the configuration may be
// unreadable.
// has_rails: network records exist. Only poststop checks this: at a start the lookup would slow containers without
// rails.
Result<std::optional<IpamHelper>> start_ipam_helper(const Result<Config>& config, const std::string& ledger,
                                                    bool has_rails) {
  if (config && !runs_ipam_plugins(*config) && !has_rails) return std::optional<IpamHelper>();
  return IpamHelper::start_if_any(ipam_programs(config ? &*config : nullptr, ledger));
}

Result<void> run(Command command, Call& call, const Result<Config>& config) {
  if (command == Command::kPoststop) return poststop(call);
  return command == Command::kVerify ? verify(call, config) : create_runtime(call, config);
}

const char* stage_name(Command command) {
  if (command == Command::kVerify) return "verify";
  return command == Command::kPoststop ? "poststop" : "createRuntime";
}

// An error code of poststop would only prevent the engine from removing the container.
int reported_code(Command command, int code) {
  return command == Command::kPoststop ? kExitDone : code;
}

// Notes the refusal of a container. A call without the state of a container refuses none.
void note_refused_start(const char* stage, const Call& call, const Error& error) {
  if (call.container.empty()) return;
  const auto text = read_bundle_config(call.bundle);
  auto container =
      text ? refused_container(call.container, *text, {call.node.engine, call.node.engine_is_named, call.bundle})
           : RefusedContainer{call.container};
  note_refused(call.node.ledger, stage, std::move(container), error);
}

// Runs a stage with only three descriptors of the caller and behind a seccomp filter. The configuration is read before
// the filter starts, because it decides whether the IPAM helper is needed. The state and the bundle are foreign input,
// so they are read behind the filter.
int stage_code(const Options& options) {
  const auto isolated = isolate();
  Log log = Log::of_stage();
  log.set_own_text("the stage cannot start");
  if (!isolated) return exit_code(isolated, log);
  // poststop needs the configuration only to release leases of IPAM plugins.
  const bool is_end = options.command == Command::kPoststop;
  const bool has_rails = is_end && NetworkRecordStore::has_any(options.node.ledger);
  const Result<Config> config = is_end && !has_rails ? Config() : read_config(options.node.config);
  auto ipam = start_ipam_helper(config, options.node.ledger, has_rails);
  if (!ipam) return exit_code(ipam.error(), log);
  // The filter allows only the system calls of a stage.
  if (auto restricted = restrict_process(); !restricted) return exit_code(restricted, log);
  Call call{options.node, log, *ipam ? &**ipam : nullptr};
  const auto result = run(options.command, call, config);
  const int code = exit_code(result, log);
  count_stage(stage_name(options.command), call, result);
  // poststop refuses no container.
  if (!result && !is_end) note_refused_start(stage_name(options.command), call, result.error());
  // The end of the process closes ledger and log at once. A helper must be waited for.
  if (!*ipam) ::_exit(reported_code(options.command, code));
  return code;
}

int run_stage(const Options& options) {
  return reported_code(options.command, stage_code(options));
}

// Checks the paths that the caller named. A hook may need none of them, and must not fail then. doctor and check-config
// report files of the configuration that they cannot read, with all other problems.
Result<void> check_named_paths(const Options& options, const Log& log) {
  const Command command = options.command;
  const NodeSettings& node = options.node;
  if (command == Command::kCreateRuntime || command == Command::kVerify || command == Command::kPoststop) return {};
  TRY_VOID(check_root(node.root));
  // Without a ledger the commands print the same as with an empty one. A missing ledger is no error, because a node has
  // none before its first grant since the boot. The message is for a misspelt path. The report of doctor has a line for
  // it.
  const bool is_named = node.ledger != kLedgerPath || (command == Command::kMetrics && !options.listen);
  if (is_named && command != Command::kDoctor && ::access(node.ledger.c_str(), F_OK) != 0 && errno == ENOENT)
    log.info(
        fmt::format("ledger `{}` does not exist: no grant was made on this node yet", base::printable(node.ledger)));
  return {};
}

}  // namespace

int run_command(const Options& options) {
  Log log;
  if (const auto checked = check_named_paths(options, log); !checked) return exit_code(checked, log);
  switch (options.command) {
    case Command::kHelp:
      print(help_text(options.topic));
      return kExitDone;
    case Command::kVersion:
      print(std::string("rdma-hook " RDMA_INIT_VERSION "\n"));
      return kExitDone;
    case Command::kPlan:
      return run_plan(options, log);
    case Command::kDevices:
      return exit_code(show_devices(options, log), log);
    case Command::kRecover:
      return exit_code(recover(options, log), log);
    case Command::kMetrics:
      return run_metrics(options, log);
    case Command::kCdiGenerate:
      return exit_code(generate_cdi(options, log), log);
    case Command::kBaseSpec:
      return exit_code(print_base_spec(options), log);
    case Command::kDoctor:
      return run_doctor(options, log);
    case Command::kInstall:
      return install_code(options, log);
    case Command::kConfigApply:
      return config_apply(options, log);
    case Command::kConfigGenerate:
      return exit_code(print_generated_config(options, log), log);
    case Command::kCheckConfig:
      return check_config(options.node, options.json, options.nodes);
    default:
      return run_stage(options);
  }
}

}  // namespace hook
