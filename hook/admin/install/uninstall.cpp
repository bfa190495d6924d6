#include <cerrno>
#include <utility>

#include "base/text.hpp"
#include "hook/admin/install/distribution.hpp"
#include "hook/admin/install/install.hpp"
#include "hook/admin/install/node_label.hpp"
#include "hook/admin/install/plan.hpp"
#include "hook/admin/install/programs.hpp"
#include "hook/admin/install/restart.hpp"
#include "hook/admin/install/restore.hpp"

namespace hook {
namespace {

Error still_held(const HeldGrants& held, const std::string& programs, bool dry_run) {
  std::string message = fmt::format(
      "kept the programs in `{1}`: {0} containers or pods have RDMA devices and need the programs when they end{2}",
      held.count, programs, dry_run ? "" : "; the engine's files are restored");
  std::string remedy = "drain the node or stop the containers that `rdma-hook devices` lists, then run this again";
  if (!held.claims.empty()) {
    message += fmt::format("; prepared for Kubernetes: {}", base::join_first(held.claims, 8));
    // Without rdma-dra the kubelet cannot end a claim, and its pods stay in Terminating.
    remedy =
        "delete the pods of these claims while rdma-dra runs; if rdma-dra was removed, add it again, or run "
        "`rdma-hook recover --claim UID` for each claim that `rdma-hook doctor` names; then run this again";
  }
  if (!held.stuck.empty()) {
    message += fmt::format("; the HCAs of containers that ended cannot be released: {}", held.stuck);
    remedy =
        "run `rdma-hook recover` and follow its remedy; stop the containers that `rdma-hook devices` lists; then run "
        "this again";
  }
  return Error{std::move(message), EBUSY, std::move(remedy)};
}

// Checks that no configuration that the engine reads names the programs. Errors: EBUSY, the distribution's file names
// the programs, or a restart is needed but --restart is not set. record: the record, with state "restored".
Result<void> check_not_named(const InstallOptions& options, const InstallRecord& record) {
  if (is_distribution(record.engine)) {
    const auto found = find_distribution(options.root, record.engine, record.programs);
    if (found && (found->is_in_use || found->is_added))
      return Error{
          fmt::format("kept the programs in `{}`: `{}` names rdma-runtime", record.programs, found->file), EBUSY,
          fmt::format("remove the lines of rdma-init from that file, run `{}`, then run this again", found->restart)};
  }
  if (!options.restart && is_restart_due(options.root, record))
    return Error{fmt::format("kept the programs in `{}` until the engine reads its restored files", record.programs),
                 EBUSY,
                 "run `rdma-hook install --uninstall --restart`: it restarts the engine and removes the programs"};
  return {};
}

// Checks that no grant is left. Errors: EBUSY, grants need the programs for their release.
Result<void> check_no_grants(const InstallOptions& options, const InstallRecord& record) {
  const HeldGrants held = options.needed_by ? TRY(options.needed_by()) : HeldGrants();
  if (held.count > 0) return still_held(held, record.programs, options.dry_run);
  return {};
}

// Restarts the engine if it may not have read the restored files, then removes the copied programs. Errors: those of
// check_not_named() and check_no_grants().
Result<std::string> take_away_programs(const InstallOptions& options) {
  const auto record = TRY(read_install_record(options.root));
  if (!record) return std::string();
  TRY_VOID(check_not_named(options, *record));
  std::string report = TRY(restart_if_due(options.root, options.restart));
  TRY_VOID(check_no_grants(options, *record));
  // The files are restored, so the record lists only the programs.
  TRY_VOID(remove_programs(options.root, record->put));
  TRY_VOID(remove_install_record(options.root, *record));
  for (const std::string& program : record->put)
    report += fmt::format("removed `{}`\n", program);
  return report;
}

Error kept_files(const std::vector<std::string>& kept) {
  return changed_since(kept,
                       "remove the lines of rdma-init from these files, or add --force, which prints and drops the "
                       "changes; then run this again");
}

// Returns the record as it is when its files are restored now.
InstallRecord restored_now(const InstallRecord& record) {
  InstallRecord restored = record;
  restored.state = InstallState::kRestored;
  restored.written = write_time_now();
  return restored;
}

// Restores the files of the record, then removes the copied programs.
Result<std::string> uninstall_record(const InstallOptions& options, const InstallRecord& record) {
  std::string report;
  std::vector<std::string> kept;
  TRY_VOID(restore_files(options.root, record, {true, options.force}, kept, report));
  if (!kept.empty()) return kept_files(kept);
  TRY_VOID(renew_write_time(options.root));
  if (!record.put.empty()) return report + TRY(take_away_programs(options));
  if (report.empty()) return report + "all files are already restored\n";
  // restore_files() removed the record, because no copied program is left. A copy of the record decides whether a
  // restart is due.
  const InstallRecord restored = restored_now(record);
  if (!is_restart_due(options.root, restored)) return report;
  return report + (options.restart ? TRY(restart_engine(options.root, restored)) : restart_due_line(restored));
}

// Returns what uninstall_record() would do. lines: gets the same text, for the case of an error.
Result<std::string> would_uninstall(const InstallOptions& options, const InstallRecord& record, std::string& lines) {
  std::vector<std::string> kept;
  std::string report = TRY(foresee_restore(options.root, record, options.force, kept));
  const bool restores = !report.empty();
  for (const std::string& program : record.put)
    report += fmt::format("would remove `{}`\n", program);
  lines += report;
  if (!kept.empty()) return kept_files(kept);
  if (record.put.empty()) return report;
  TRY_VOID(check_not_named(options, restores ? restored_now(record) : record));
  TRY_VOID(check_no_grants(options, record));
  return report;
}

Result<std::string> uninstall_locked(const InstallOptions& options, std::string& lines) {
  const auto record = TRY(read_install_record(options.root));
  std::string report;
  if (record && record->engine == kSlurm) report = TRY(check_unused_slurm_files(options.root));
  if (record && options.dry_run) {
    lines = report;
    return report + TRY(would_uninstall(options, *record, lines));
  }
  if (record) {
    report += TRY(uninstall_record(options, *record));
  } else {
    report = "nothing is installed\n";
    if (!options.dry_run) TRY_VOID(remove_unfinished_record(options.root));
  }
  // If install ran in an image, `config apply` wrote cluster/config.json. The file and its directory are removed,
  // because no process updates the file after uninstall.
  if (!options.root.empty() && !options.dry_run) TRY_VOID(remove_cluster_directory(options.root));
  return report;
}

}  // namespace

Result<std::string> uninstall(const InstallOptions& options, std::string& lines) {
  const auto lock = TRY(lock_out_others(options.root, options.dry_run));
  auto done = uninstall_locked(options, lines);
  if (done) *done = lock.note + *done;
  if (!done && done.error().hint.empty()) {
    Error error = std::move(done).error();
    error.hint = "correct the cause, then run this again";
    done = std::move(error);
  }
  if (options.dry_run) return done;
  const auto labelled = label_by_record(options.root, std::nullopt);
  const auto completed = label_complete(options.root, std::nullopt);
  if (done && !labelled) return labelled.error();
  if (done && !completed) return completed.error();
  return done;
}

}  // namespace hook
