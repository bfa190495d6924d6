#include "hook/admin/install/install.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/json/json.hpp"
#include "hook/admin/install/choose_engine.hpp"
#include "hook/admin/install/distribution.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/line_diff.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/node_label.hpp"
#include "hook/admin/install/programs.hpp"
#include "hook/admin/install/restart.hpp"
#include "hook/admin/install/restore.hpp"
#include "hook/apply/base_spec.hpp"
#include "hook/config/config.hpp"
#include "hook/config/read_config.hpp"

namespace hook {
namespace {

// Returns the text of a base specification, from which containerd makes the config.json of each container: the output
// of `ctr oci spec` with rdma-hook added. `ctr` is searched in the directory of the engine's program. Returns an empty
// text if `ctr` is missing and `verify` is true.
Result<std::string> make_base_spec(const std::string& root, const FoundEngine& engine, bool verify,
                                   const std::string& programs) {
  const std::string ctr = engine.program.substr(0, engine.program.rfind('/')) + "/ctr";
  if (!node_has(root, ctr, X_OK)) {
    if (verify) return std::string();
    return make_error("cannot make the base specification: `{}` is missing", ctr);
  }
  const Answer answer = TRY(query_program(root, {ctr, "oci", "spec"}));
  if (!answer.done) return make_error("`{} oci spec`: {}", ctr, shown(answer.messages, 400));
  Json spec = TRY(parse_json(answer.text, "output of `ctr oci spec`"));
  TRY_VOID(edit_base_spec(programs + "/rdma-hook", verify, spec));
  return spec.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// Sets facts.hooks_dirs to the hook directories that CRI-O or Podman reads, and facts.hooks_dir to the first writable
// one. Errors: none of the directories is writable, and a file of Podman that may name another one cannot be read.
Result<void> find_hooks_dirs(const std::string& root, EngineFacts& facts) {
  facts.hooks_dirs = {"/usr/share/containers/oci/hooks.d"};
  const auto take = [&](const EngineSettings& settings, const char* table) {
    if (settings.contains({table, "hooks_dir"})) facts.hooks_dirs = setting_list(settings, table, "hooks_dir");
  };
  Result<void> all;
  if (facts.engine.engine == Engine::kCrio) {
    take(facts.settings, "crio.runtime");
  } else {
    for (const std::string& file : facts.config_files) {
      const auto text = read_node_file(root, file);
      if (!text && all) all = text.error();
      if (text && *text) take(parse_engine_settings(**text), "engine");
    }
  }
  const auto found = std::ranges::find_if(facts.hooks_dirs, [&](const std::string& one) {
    return one.starts_with('/') && check_may_write(root, one + "/rdma-init.json").has_value();
  });
  if (found == facts.hooks_dirs.end()) return all;
  facts.hooks_dir = *found;
  return {};
}

Result<EngineFacts> gather_facts(const InstallOptions& options, const Choice& choice) {
  const std::string& root = options.root;
  const auto config = read_config(config_paths_below(root));
  if (!config) return base::wrap(config.error(), "configuration of rdma-init");
  EngineFacts facts;
  facts.engine = choice.engine;
  facts.way = choice.way;
  facts.programs = options.programs;
  facts.are_runtimes_configured = config->runtime.runtimes != RuntimeOptions().runtimes;
  auto printed = check_engine_config(root, facts.engine,
                                     fmt::format("`{}` refuses its present configuration", facts.engine.program));
  if (!printed) {
    Error error = std::move(printed).error();
    if (error.hint.empty()) error.hint = "correct that configuration first; nothing was changed";
    return error;
  }
  TRY_VOID(check_unit_runs(root, unit_of(std::string(to_string(facts.engine.engine)))));
  facts.settings = parse_engine_settings(*printed, facts.engine.engine == Engine::kCrio);
  facts.start = read_engine_start(root, facts.engine.program);
  facts.config_files = config_files(root, facts);
  const bool has_spec = facts.way == InstallWay::kNri || facts.way == InstallWay::kHook;
  if (has_spec && (facts.engine.engine == Engine::kCrio || facts.engine.engine == Engine::kPodman))
    TRY_VOID(find_hooks_dirs(root, facts));
  if (facts.engine.engine == Engine::kContainerd && has_spec)
    facts.base_spec = TRY(make_base_spec(root, facts.engine, facts.way == InstallWay::kNri, facts.programs));
  return facts;
}

// Returns the facts for Slurm. Errors: kUnsupportedNode, the node has no slurmd.
Result<EngineFacts> gather_slurm_facts(const InstallOptions& options) {
  const auto slurmd = find_engine_program(options.root, "slurmd");
  if (!slurmd)
    return Error{"`slurmd` is not installed on this node", kUnsupportedNode,
                 "install it, or select an engine with --engine"};
  TRY_VOID(check_unit_runs(options.root, "slurmd.service"));
  EngineFacts facts;
  facts.engine = {Engine::kRunc, *slurmd, 0, 0, {}};
  facts.way = InstallWay::kHook;
  facts.programs = options.programs;
  facts.slurm = SlurmNode{read_slurm_conf(options.root).value_or(SlurmConf{"/etc/slurm/slurm.conf", {}, {}, {}}),
                          node_has(options.root, "/etc/enroot/hooks.d", F_OK)};
  // Without LimitMEMLOCK= systemd's default counts, which is 8 MiB or less.
  if (const Unit unit = read_unit(options.root, "slurmd.service"); !unit.empty())
    facts.slurm->memlock = unit_memlock(unit).value_or(0);
  return facts;
}

Result<void> check_printed(const EngineFacts& facts, const InstallPlan& plan, const std::string& printed) {
  const EngineSettings after = parse_engine_settings(printed);
  if (const auto lost = lost_setting(facts.settings, after, plan.meant))
    return make_error("`{}` would lose {}", facts.engine.program, *lost);
  if (const auto missing = missing_setting(after, plan.meant))
    return make_error("`{}` would ignore {}", facts.engine.program, *missing);
  return {};
}

// Refuses a setting that a later drop-in overrides: CRI-O reads drop-ins in the order of their names. A setting that
// `crio config` does not print is accepted, because `crio config` omits some defaults.
Result<void> check_overridden(const InstallPlan& plan, const std::string& printed) {
  const EngineSettings after = parse_engine_settings(printed, true);
  for (const auto& [setting, value] : plan.meant) {
    const auto found = after.find(setting);
    if (found != after.end() && found->second != value)
      return Error{fmt::format("a later drop-in of CRI-O sets {} = {}", setting.key, found->second), EEXIST,
                   fmt::format("remove the setting from that drop-in or set it to {}", value)};
  }
  return {};
}

// Makes the engine check the temporary files. containerd 2 imports a drop-in only under its final name, so it cannot
// check the temporary drop-in directly. containerd therefore checks a file that imports the temporary files of
// config.toml and of the drop-in.
Result<void> check_plan(const std::string& root, const EngineFacts& facts, const InstallPlan& plan) {
  if (facts.slurm) return {};
  const bool containerd = facts.engine.engine == Engine::kContainerd;
  if (containerd && facts.engine.major >= 2) {
    if (plan.drop_in.empty()) return {};
    const bool edited =
        std::ranges::any_of(plan.edits, [](const FileEdit& edit) { return edit.path == kContainerdConfig; });
    const bool there = TRY(read_node_file(root, kContainerdConfig)).has_value();
    const std::string config = fmt::format("\"{}{}\", ", kContainerdConfig, edited ? kCandidate : "");
    TRY_VOID(write_node_file(root, kCheckFile,
                             fmt::format("version = {}\nimports = [{}\"{}{}\"]\n",
                                         facts.config_version == 0 ? facts.drop_in_version : facts.config_version,
                                         edited || there ? config : "", plan.drop_in, kCandidate)));
    const auto printed = check_engine_candidate(root, facts.engine, kCheckFile);
    TRY_VOID(remove_node_file(root, kCheckFile));
    return check_printed(facts, plan, TRY(printed));
  }
  for (const FileEdit& edit : plan.edits) {
    const std::string& path = edit.path;
    if (path.starts_with("/etc/rdma-init/") || path.ends_with(".json") != (facts.engine.engine == Engine::kDocker))
      continue;
    const auto printed = TRY(check_engine_candidate(root, facts.engine, path + kCandidate));
    if (containerd) TRY_VOID(check_printed(facts, plan, printed));
  }
  return {};
}

// Writes the files of a plan. All temporary files are written, and checked by the engine, before the first file is
// replaced. After the check only renames remain, which need no space.
// record: written first, without a write time, as the node's record until all files are in place.
// done: replaces `record` when all files are in place.
Result<void> write_plan(const InstallOptions& options, const EngineFacts& facts, const InstallPlan& plan,
                        const InstallRecord& record, InstallRecord done) {
  const std::string& root = options.root;
  TRY_VOID(write_install_record(root, record));
  TRY_VOID(install_programs(root, options.put_from, record.put));
  if (!root.empty()) TRY_VOID(make_cluster_directory(root));
  for (const FileEdit& edit : plan.edits)
    TRY_VOID(prepare_node_file(root, edit.path, edit.after));
  TRY_VOID(check_plan(root, facts, plan));
  if (done.is_unread()) done.written = write_time_now();
  TRY_VOID(prepare_install_record(root, done));
  for (const FileEdit& edit : plan.edits)
    TRY_VOID(commit_node_file(root, edit.path));
  const bool crio = facts.engine.engine == Engine::kCrio;
  if (!(crio ? plan.meant.empty() : plan.drop_in.empty())) {
    const std::string printed = TRY(check_engine_config(root, facts.engine, "after the change"));
    TRY_VOID(crio ? check_overridden(plan, printed) : check_printed(facts, plan, printed));
  }
  return commit_install_record(root);
}

// directories: directories that an earlier install made and that still exist.
InstallRecord record_of(const InstallOptions& options, std::string_view engine, InstallWay way,
                        const std::vector<FileEdit>& edits, std::vector<std::string> directories) {
  const std::string& root = options.root;
  InstallRecord record{std::string(engine),
                       std::string(to_word(kInstallWays, way)),
                       options.programs,
                       RDMA_INIT_VERSION,
                       edits,
                       std::move(directories),
                       options.put};
  std::vector<std::string> paths{kInstallRecord};
  for (const FileEdit& edit : edits)
    paths.push_back(edit.path);
  paths.insert(paths.end(), options.put.begin(), options.put.end());
  if (!root.empty()) paths.emplace_back(kClusterConfigPath);
  for (const std::string& path : paths)
    for (std::string& directory : missing_directories(root, path))
      if (std::ranges::find(record.directories, directory) == record.directories.end())
        record.directories.push_back(std::move(directory));
  return record;
}

// Returns whether both records write the same texts to the same paths. Texts that the files had before install are not
// compared.
bool write_the_same(const InstallRecord& one, const InstallRecord& other) {
  return std::equal(
      one.edits.begin(), one.edits.end(), other.edits.begin(), other.edits.end(),
      [](const FileEdit& left, const FileEdit& right) { return left.path == right.path && left.after == right.after; });
}

// Returns true if the engine refused the configuration that install wrote. install then tries the other form of the
// configuration, because guess_form() may have guessed wrong.
bool is_refusal(const Error& error) {
  return error.code == 0 || error.code == EINVAL;
}

// Restores the files that a failed call wrote, and adds the outcome to the error of that call. Returns false if a file
// could not be restored.
bool roll_back(const std::string& root, const InstallRecord& record, bool keeps_programs, Error& error) {
  std::vector<std::string> kept;
  std::string report;
  if (const auto taken = restore_files(root, record, {keeps_programs, false}, kept, report); !taken) {
    error.message += fmt::format("; then: {}", taken.error().message);
    error.hint = "correct the cause, then run `rdma-hook install --uninstall`";
    return false;
  }
  if (error.hint.empty())
    error.hint = is_refusal(error) ? "merge the output of `rdma-hook install --dry-run` by hand; nothing was changed"
                                   : "correct the cause and run install again; nothing was changed";
  return true;
}

// Makes the plan in the form (see guess_form()) that the engine accepts, and writes it unless this is a dry run.
// before: the record of an earlier install, whose files are already restored.
Result<InstallPlan> plan_and_write(const InstallOptions& options, EngineFacts& facts,
                                   const std::optional<InstallRecord>& before) {
  const std::string& root = options.root;
  const bool containerd = facts.engine.engine == Engine::kContainerd;
  for (const std::string& path : plan_files(facts))
    facts.files.insert_or_assign(path, read_node_file(root, path));
  TRY_VOID(check_named_files(root, facts));
  // The loop below tries the form that guess_form() selects. If the engine refuses that form, it tries the other form.
  if (containerd) guess_form(facts, TRY(file_of(facts, kContainerdConfig)).value_or(""));
  std::vector<std::string> directories = before ? before->directories : std::vector<std::string>();
  std::optional<Error> first;
  for (int form = 0; form < (containerd ? 2 : 1); ++form) {
    InstallPlan plan = TRY(plan_install(facts));
    if (options.dry_run || (plan.edits.empty() && options.put.empty())) return plan;
    InstallRecord record =
        record_of(options, facts.slurm ? kSlurm : to_string(facts.engine.engine), facts.way, plan.edits, directories);
    directories = record.directories;
    InstallRecord done = record;
    // If an upgrade writes the same files as the version before, the engine needs no restart.
    const bool needs_restart = !restart_command(facts.engine.engine, facts.way).empty() && !plan.edits.empty() &&
                               (!before || before->is_unread() || !write_the_same(*before, record));
    if (!needs_restart) {
      done.state = InstallState::kInEffect;
      done.written = before ? before->written : std::nullopt;
    }
    auto written = write_plan(options, facts, plan, record, done);
    if (written) return plan;
    // If the engine refuses both forms of the configuration, the error for the first form is returned, because that
    // form is more likely the right one. Any other error, or a file that could not be restored, ends the loop at once.
    Error error = std::move(written).error();
    const bool is_rolled_back = roll_back(root, record, before.has_value(), error);
    const bool may_try_again = is_rolled_back && is_refusal(error);
    if (!first || !may_try_again) first = std::move(error);
    if (!may_try_again) break;
    change_form(facts);
  }
  return std::move(*first);
}

std::string report_service(const EngineFacts& facts, bool is_put) {
  if (facts.way == InstallWay::kNri && !is_put)
    return fmt::format("start {}/rdma-nri: systemctl enable --now rdma-nri rdma-recover.timer\n", facts.programs);
  if (facts.way == InstallWay::kCdi)
    return fmt::format(
        "write the CDI devices: {}/rdma-hook cdi generate --engine {} --out /var/run/cdi/rdma-init.json\n",
        facts.programs, to_string(facts.engine.engine));
  return {};
}

// Returns whether record and files are as this version would write them. Errors: EEXIST, another engine or way is
// installed, or files were changed since install.
Result<bool> is_installed(const InstallOptions& options, const InstallRecord& record) {
  const std::string& root = options.root;
  const std::string_view named = options.engine ? to_string(*options.engine) : std::string_view(record.engine);
  if (options.distribution.value_or(std::string(named)) != record.engine ||
      (options.way && to_word(kInstallWays, *options.way) != record.way))
    return Error{fmt::format("cannot install: `{}`, way {}, is installed already", record.engine, record.way), EEXIST,
                 "run `rdma-hook install --uninstall` first"};
  bool complete = record.programs == options.programs && record.version == RDMA_INIT_VERSION && !record.is_restored() &&
                  record.put == options.put;
  std::vector<std::string> kept;
  for (const FileEdit& edit : record.edits) {
    const EditState state = TRY(state_of_edit(root, edit));
    complete = complete && state == EditState::kInstalled;
    if (state == EditState::kChanged) kept.push_back("`" + edit.path + "`");
  }
  if (!kept.empty())
    return changed_since(kept, "run `rdma-hook install --uninstall`, which keeps other changes, then install again");
  return complete;
}

// Copies the programs to the node and returns the text to print. This is done before a file names the programs, so that
// an engine never executes a missing program.
Result<std::string> report_installed(const InstallOptions& options) {
  std::string report;
  for (const std::string& program : TRY(install_programs(options.root, options.put_from, options.put)))
    report += fmt::format("copied `{}`\n", program);
  return report;
}

// Calls foresee_write() for each file that a call without --dry-run would write.
Result<void> foresee_writes(const std::string& root, const InstallPlan& plan, const std::vector<std::string>& put) {
  for (const FileEdit& edit : plan.edits)
    TRY_VOID(foresee_write(root, edit.path));
  for (const std::string& program : put)
    TRY_VOID(foresee_write(root, program));
  if (plan.edits.empty() && put.empty()) return {};
  return foresee_write(root, kInstallRecord);
}

// Installs on a node on which no file of an earlier install is left.
// before: the record of an earlier install, whose files are already restored.
// lines: gets the text of a dry run that fails, because a call without --dry-run would fail.
Result<std::string> install_anew(const InstallOptions& options, const std::optional<InstallRecord>& before,
                                 std::string& lines) {
  const std::string& root = options.root;
  const bool slurm = options.distribution == kSlurm;
  const Choice choice = slurm ? Choice() : TRY(choose_engine(root, options.engine, options.way));
  EngineFacts facts = TRY(slurm ? gather_slurm_facts(options) : gather_facts(options, choice));
  if (!before && !options.dry_run) TRY_VOID(remove_unfinished_record(root));
  const InstallPlan plan = TRY(plan_and_write(options, facts, before));
  std::string report;
  for (const auto& part : {choice.messages, plan.messages})
    for (const std::string& line : part)
      report += line + "\n";
  for (const FileEdit& edit : plan.edits)
    report += options.dry_run
                  ? fmt::format("would write `{}`:\n{}", edit.path, unified_diff(edit.path, edit.before, edit.after))
                  : fmt::format("wrote `{}`\n", edit.path);
  if (plan.edits.empty()) report += "nothing to write\n";
  for (const std::string& program : options.put)
    report += fmt::format("{} `{}`\n", options.dry_run ? "would copy" : "copied", program);
  for (const char* program : {"/rdma-hook", slurm ? "/rdma-init" : "/rdma-runtime"})
    if ((options.put.empty() || slurm) && !node_has(root, facts.programs + program, X_OK))
      report += fmt::format("`{}{}` is missing; remedy: copy it there before {}\n", facts.programs, program,
                            slurm ? "a job starts" : "the engine starts containers");
  if (options.dry_run) {
    const auto writable = foresee_writes(root, plan, options.put);
    if (writable) return report;
    lines = std::move(report);
    return writable.error();
  }
  TRY_VOID(renew_write_time(root));
  report += TRY(restart_if_due(root, options.restart));
  return report + report_service(facts, !options.put.empty());
}

// Completes an incomplete installation, or replaces the installation of another version: restores the files of the
// record, then installs. If the install fails, writes the files of the record again.
Result<std::string> install_again(const InstallOptions& options, InstallRecord record, std::string& lines) {
  const std::string& root = options.root;
  std::vector<FileEdit> written;
  for (const FileEdit& edit : record.edits)
    if (TRY(state_of_edit(root, edit)) == EditState::kInstalled) written.push_back(edit);
  // If all files of the record are in place and no restart is due, the engine has read the files.
  if (written.size() == record.edits.size() && !is_restart_due(root, record)) record.set_read();
  std::vector<std::string> kept;
  std::string report;
  TRY_VOID(restore_files(root, record, {true, false}, kept, report));
  auto done = install_anew(options, record, lines);
  if (done || written.empty()) return done;
  Result<void> back = write_install_record(root, record);
  for (const FileEdit& edit : written)
    if (back) back = write_node_file(root, edit.path, edit.after);
  if (back) return done;
  Error error = std::move(done).error();
  error.message += fmt::format("; then: {}", back.error().message);
  error.hint = "correct the cause, then run `rdma-hook install`";
  return error;
}

// Sets up a node of a distribution such as k3s: copies the programs if the configuration of its containerd names
// rdma-runtime. Errors: kUnsupportedNode, the configuration does not name rdma-runtime; `lines` then has the lines that
// the administrator must add.
Result<std::string> install_on(const InstallOptions& options, const Distribution& found,
                               const std::optional<InstallRecord>& before, std::string& lines) {
  if (!found.is_in_use) {
    lines = fmt::format("lines for `{}`:\n\n{}\n", found.file, found.lines);
    return Error{
        fmt::format("{} generates the configuration of its containerd, which does not name "
                    "`{}/rdma-runtime`; nothing was changed",
                    found.name, options.programs),
        kUnsupportedNode,
        fmt::format("{}run `{}`, then run install again",
                    found.is_added ? "" : fmt::format("add the printed lines to `{}`, ", found.file), found.restart)};
  }
  std::string report =
      fmt::format("{}, way runtime: `{}` has the lines of rdma-init, nothing to change\n", found.name, found.file);
  if (options.put.empty() || options.dry_run) return report;
  InstallRecord record = record_of(options, found.name, InstallWay::kRuntime, {},
                                   before ? before->directories : std::vector<std::string>());
  record.state = InstallState::kInEffect;
  if (!before || install_record_text(*before) != install_record_text(record))
    TRY_VOID(write_install_record(options.root, record));
  if (!options.root.empty()) TRY_VOID(make_cluster_directory(options.root));
  return report + TRY(report_installed(options));
}

// Returns the distribution to set up. Returns nullopt if --engine names an engine, if an engine was set up before, or
// if the node has no distribution. Errors: kUnsupportedNode, the named distribution is not installed.
Result<std::optional<Distribution>> distribution_of(const InstallOptions& options,
                                                    const std::optional<InstallRecord>& record) {
  if (options.engine || options.distribution == kSlurm ||
      (record && (!is_distribution(record->engine) || options.distribution.value_or(record->engine) != record->engine)))
    return std::optional<Distribution>();
  auto found = find_distribution(options.root, options.distribution, options.programs);
  if (!found && options.distribution)
    return Error{fmt::format("`{}` is not installed on this node", *options.distribution), kUnsupportedNode,
                 "install it, or select another engine with --engine"};
  return found;
}

Result<std::string> install_locked(const InstallOptions& asked, std::string& lines) {
  const std::string& root = asked.root;
  const auto record = TRY(read_install_record(root));
  // install_programs() checks the programs that it copies, but a dry run copies none: so their directories are checked
  // before. Without copies, the programs that the node has are checked here.
  TRY_VOID(check_places_belong_to_root(root, asked.put));
  if (asked.put.empty()) TRY_VOID(check_programs_belong_to_root(root, asked.programs));
  if (const auto found = TRY(distribution_of(asked, record))) {
    TRY_VOID(check_unit_runs(root, found->unit));
    if (!record && !asked.dry_run) TRY_VOID(remove_unfinished_record(root));
    return install_on(asked, *found, record, lines);
  }
  if (!record) return install_anew(asked, {}, lines);
  // Before the first change: an engine that does not start is neither set up nor repaired.
  TRY_VOID(check_unit_runs(root, unit_of(record->engine)));
  std::string report;
  if (!asked.dry_run && record->put == asked.put) report = TRY(report_installed(asked));
  InstallOptions options = asked;
  // Engine and way of the record are kept, because an upgrade must not select another engine or way.
  options.engine = parse_engine(record->engine);
  options.way = from_word(kInstallWays, record->way);
  if (record->engine == kSlurm) options.distribution = kSlurm;
  if (TRY(is_installed(asked, *record))) {
    report += fmt::format("{}, way {}: installed, nothing to change\n", record->engine, record->way);
    if (asked.dry_run) return report;
    TRY_VOID(remove_temporaries(root, *record));
    return report + TRY(restart_if_due(root, asked.restart));
  }
  if (asked.dry_run) return std::string("would complete an incomplete installation\n");
  return report + TRY(install_again(options, *record, lines));
}

}  // namespace

Result<std::string> install(const InstallOptions& options, std::string& lines) {
  const auto lock = TRY(lock_out_others(options.root, options.dry_run));
  auto done = install_locked(options, lines);
  if (done) *done = lock.note + *done;
  if (options.dry_run) return done;
  const bool is_unsupported = !done && done.error().code == kUnsupportedNode;
  const auto labelled = label_by_record(options.root, done             ? std::optional(NodeState::kReady)
                                                      : is_unsupported ? std::optional(NodeState::kUnsupported)
                                                                       : std::nullopt);
  if (done && !labelled) *done += labelled.error().message + "\n";
  return done;
}

Result<std::string> install_status(const std::string& root, bool json) {
  constexpr std::array kStates = {"installed", "not written", "changed since"};
  const auto record = TRY(read_install_record(root));
  if (!record) return std::string(json ? "{\"installed\": false}\n" : "nothing is installed\n");
  Json files = Json::array();
  std::string text = fmt::format("{}, way {}, by rdma-hook {}, programs in {}\n", record->engine, record->way,
                                 record->version, record->programs);
  for (const std::string& program : record->put)
    text += fmt::format("{:<14} {}\n", node_has(root, program, X_OK) ? "copied" : "missing", program);
  const bool due = is_restart_due(root, *record);
  if (due) text += restart_due_line(*record);
  for (const FileEdit& edit : record->edits) {
    const char* state = kStates.at(static_cast<std::size_t>(TRY(state_of_edit(root, edit))));
    files.push_back({{"path", edit.path}, {"state", state}});
    text += fmt::format("{:<14} {}\n", state, edit.path);
  }
  if (!json) return text;
  return Json{{"installed", true},
              {"engine", record->engine},
              {"way", record->way},
              {"version", record->version},
              {"programs", record->programs},
              {"files", std::move(files)},
              {"put", record->put},
              {"restart_due", due},
              {"state", to_word(kInstallStates, record->state)}}
             .dump(2, ' ', true) +
         "\n";
}

}  // namespace hook
