#include "hook/install/restore.hpp"

#include "hook/install/node_files.hpp"
#include "hook/install/programs.hpp"

namespace hook {
namespace {

// The edits to undo, and the edits of files that were changed since install.
struct UndoPlan {
  std::vector<FileEdit> undone;  // in reverse order
  std::vector<FileEdit> left;
};

Result<UndoPlan> plan_undo(const std::string& root, const InstallRecord& record) {
  UndoPlan plan;
  for (auto edit = record.edits.rbegin(); edit != record.edits.rend(); ++edit) {
    const EditState state = TRY(state_of_edit(root, *edit));
    if (state == EditState::kInstalled) plan.undone.push_back(*edit);
    if (state == EditState::kChanged) plan.left.insert(plan.left.begin(), *edit);
  }
  return plan;
}

// Writes all temporaries before the first file is restored.
Result<void> prepare_undo(const std::string& root, const UndoPlan& plan, const InstallRecord& left, bool keeps_record) {
  Result<void> prepared = keeps_record ? prepare_install_record(root, left) : Result<void>();
  for (const FileEdit& edit : plan.undone)
    if (prepared && edit.before) prepared = prepare_node_file(root, edit.path, *edit.before);
  return prepared;
}

}  // namespace

Result<void> remove_temporaries(const std::string& root, const InstallRecord& record) {
  Result<void> all = remove_node_file(root, kCheckFile);
  keep_first(all, remove_node_file(root, std::string(kCheckFile) + kCandidate));
  keep_first(all, remove_node_file(root, std::string(kInstallRecord) + kCandidate));
  for (const FileEdit& edit : record.edits)
    keep_first(all, remove_node_file(root, edit.path + kCandidate));
  return all;
}

Result<void> restore_files(const std::string& root, InstallRecord record, bool keeps_programs,
                           std::vector<std::string>& kept, std::string& said) {
  TRY_VOID(remove_temporaries(root, record));
  const InstallRecord before = record;
  // The record notes before the first change that the engine has not read the restored files.
  if (keeps_programs && !record.put.empty() && !record.is_restored()) {
    record.state = InstallState::kWritten;
    record.written = write_time_now();
  }
  const bool is_noted = record.state != before.state;
  if (is_noted) TRY_VOID(write_install_record(root, record));
  const UndoPlan plan = TRY(plan_undo(root, record));
  for (const FileEdit& edit : plan.left)
    kept.push_back("`" + edit.path + "`");
  InstallRecord left = record;
  if (plan.left.empty()) left.set_restored();
  left.edits = plan.left;
  if (!keeps_programs) left.put.clear();
  const bool keeps_record = !left.edits.empty() || !left.put.empty();
  if (auto prepared = prepare_undo(root, plan, left, keeps_record); !prepared) {
    static_cast<void>(remove_temporaries(root, record));
    // If this write fails too, the record stays at kWritten, and the engine is restarted once more than necessary.
    if (is_noted) static_cast<void>(write_install_record(root, before));
    return prepared;
  }
  for (const FileEdit& edit : plan.undone) {
    TRY_VOID(edit.before ? commit_node_file(root, edit.path) : remove_node_file(root, edit.path));
    said += fmt::format("{} `{}`\n", edit.before ? "restored" : "removed", edit.path);
  }
  if (!keeps_programs) TRY_VOID(remove_programs(root, record.put));
  if (!keeps_record) return remove_install_record(root, left);
  remove_empty_directories(root, record.directories);
  return commit_install_record(root);
}

}  // namespace hook
