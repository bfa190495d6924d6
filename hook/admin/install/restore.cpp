#include "hook/admin/install/restore.hpp"

#include <cerrno>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/admin/install/line_diff.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/plan.hpp"
#include "hook/admin/install/programs.hpp"

namespace hook {
namespace {

// A file to restore.
// edit.before: the text to write; nullopt if the file is to be removed.
// edit.after: the present text.
struct RestoredFile {
  FileEdit edit;
  std::string report;
};

// The files to restore, and the edits of files that are kept.
struct RestorePlan {
  std::vector<RestoredFile> files;  // the files to restore, in reverse order
  std::vector<FileEdit> left;
};

// Returns `present` with the block from kOurs to kOursEnd replaced by the block that install wrote, so that
// without_changes() finds the block. Lines that an administrator added inside the block are lost.
std::string with_written_block(const std::string& present, const std::string& after) {
  const auto block_in = [](const std::string& text) -> std::pair<std::size_t, std::size_t> {
    const std::size_t begin = text.find(kOurs);
    const std::size_t end = begin == std::string::npos ? begin : text.find(kOursEnd, begin);
    return end == std::string::npos ? std::pair<std::size_t, std::size_t>() : std::pair(begin, end - begin);
  };
  const auto [begin, size] = block_in(present);
  const auto [written_begin, written_size] = block_in(after);
  if (size == 0 || written_size == 0) return present;
  return present.substr(0, begin) + after.substr(written_begin, written_size) + present.substr(begin + size);
}

// Returns the present text of a changed file without the changes of install; nullopt if these changes cannot be found.
std::optional<std::string> without_install(const FileEdit& edit, const std::string& present) {
  if (!edit.before) return std::nullopt;
  auto text = without_changes(*edit.before, edit.after, present);
  if (!text) text = without_changes(*edit.before, edit.after, with_written_block(present, edit.after));
  // If a member was added after the last member of install, the text without install's members has a comma too many and
  // is not JSON. Such a file is kept.
  JsonFault fault;
  if (text && edit.path.ends_with(".json") && !base::trim(*text).empty() && !try_parse_json(*text, {}, fault))
    return std::nullopt;
  return text;
}

RestoredFile forced(const FileEdit& edit, const std::string& present) {
  return {{edit.path, edit.before, present},
          fmt::format("{} `{}` without the changes since install:\n{}", edit.before ? "restored" : "removed", edit.path,
                      unified_diff(edit.path, edit.after, present))};
}

// Adds a file, which was changed since install, to the plan.
void plan_changed(const std::string& root, const FileEdit& edit, bool force, RestorePlan& plan) {
  const auto present = read_node_file(root, edit.path);
  const bool is_file = present && *present;
  // A file without any line of install needs no change: an earlier call restored the file and was killed before it
  // updated the record, or an administrator removed the lines.
  if (is_file && edit.before && !has_added_line(*edit.before, edit.after, **present)) return;
  if (const auto text = is_file ? without_install(edit, **present) : std::nullopt) {
    plan.files.push_back({{edit.path, text, **present},
                          fmt::format("removed the changes of install from `{}`; later changes stay\n", edit.path)});
  } else if (force && present && (*present || edit.before)) {
    plan.files.push_back(forced(edit, present->value_or("")));
  } else {
    plan.left.insert(plan.left.begin(), edit);
  }
}

Result<RestorePlan> plan_restore(const std::string& root, const InstallRecord& record, bool force) {
  RestorePlan plan;
  for (auto edit = record.edits.rbegin(); edit != record.edits.rend(); ++edit) {
    const EditState state = TRY(state_of_edit(root, *edit));
    if (state == EditState::kInstalled)
      plan.files.push_back({*edit, fmt::format("{} `{}`\n", edit->before ? "restored" : "removed", edit->path)});
    if (state == EditState::kChanged) plan_changed(root, *edit, force, plan);
  }
  return plan;
}

// Writes all temporary files before the first file is restored, so that no file is changed if there is no space.
Result<void> prepare_restore(const std::string& root, const RestorePlan& plan, const InstallRecord& left,
                             bool keeps_record) {
  Result<void> prepared = keeps_record ? prepare_install_record(root, left) : Result<void>();
  for (const auto& [edit, report] : plan.files)
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

Result<void> restore_files(const std::string& root, InstallRecord record, const RestoreOptions& options,
                           std::vector<std::string>& kept, std::string& report) {
  TRY_VOID(remove_temporaries(root, record));
  const InstallRecord before = record;
  // The record gets the state "written" before the first file is restored. If this call is killed, the next call reads
  // this state and knows that the engine may not have read the restored files.
  if (options.keeps_programs && !record.put.empty() && !record.is_restored()) {
    record.state = InstallState::kWritten;
    record.written = write_time_now();
  }
  const bool is_noted = record.state != before.state;
  if (is_noted) TRY_VOID(write_install_record(root, record));
  const RestorePlan plan = TRY(plan_restore(root, record, options.force));
  for (const FileEdit& edit : plan.left)
    kept.push_back("`" + edit.path + "`");
  InstallRecord left = record;
  if (plan.left.empty()) left.set_restored();
  left.edits = plan.left;
  if (!options.keeps_programs) left.put.clear();
  const bool keeps_record = !left.edits.empty() || !left.put.empty();
  if (auto prepared = prepare_restore(root, plan, left, keeps_record); !prepared) {
    static_cast<void>(remove_temporaries(root, record));
    // The record gets its earlier state again, because no file was changed. If this write fails too, the record keeps
    // the state "written", and a later call restarts the engine without need.
    if (is_noted) static_cast<void>(write_install_record(root, before));
    return prepared;
  }
  for (const auto& [edit, line] : plan.files) {
    TRY_VOID(edit.before ? commit_node_file(root, edit.path) : remove_node_file(root, edit.path));
    report += line;
  }
  if (!options.keeps_programs) TRY_VOID(remove_programs(root, record.put));
  if (!keeps_record) return remove_install_record(root, left);
  remove_empty_directories(root, record.directories);
  return commit_install_record(root);
}

Result<std::string> foresee_restore(const std::string& root, const InstallRecord& record, bool force,
                                    std::vector<std::string>& kept) {
  const RestorePlan plan = TRY(plan_restore(root, record, force));
  std::string report;
  for (const auto& [edit, line] : plan.files) {
    TRY_VOID(foresee_write(root, edit.path));
    report += fmt::format("would {} `{}`:\n{}", edit.before ? "restore" : "remove", edit.path,
                          unified_diff(edit.path, edit.after, edit.before));
  }
  for (const FileEdit& edit : plan.left) {
    kept.push_back("`" + edit.path + "`");
    report += fmt::format("would keep `{}`, which was changed since install\n", edit.path);
  }
  return report;
}

Error changed_since(const std::vector<std::string>& kept, const char* remedy) {
  return {fmt::format("files changed since install were kept: {}", base::join(kept, ", ")), EEXIST, remedy};
}

}  // namespace hook
