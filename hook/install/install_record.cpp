#include "hook/install/install_record.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "hook/base/json/json.hpp"
#include "hook/base/text_digest.hpp"
#include "hook/install/node_files.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::make_error;
using fabric::Result;

constexpr JsonLimits kRecordLimits{.bytes = 64 << 20};

Result<std::string> digested_text_at(const Json& entry, const char* text, const char* digest) {
  std::string found = TRY(text_at(entry, text));
  if (text_digest(found) != TRY(text_at(entry, digest))) return make_error("`{}` is not what it was", text);
  return found;
}

Result<void> take_paths(const Json& list, const char* name, std::vector<std::string>& paths) {
  if (!list.is_array()) return wrong_member(name);
  for (const Json& path : list) {
    if (!path.is_string()) return wrong_member(name);
    paths.push_back(path.get<std::string>());
  }
  return {};
}

// Before there was such a member: false.
bool is_said(const Json& json, const char* name) {
  const Json* said = member(json, name);
  return said && said->is_boolean() && said->get<bool>();
}

// The record's path, where a directory above it has the name of its temporary.
std::string path_in_temporary(const std::string& directory) {
  return directory + kCandidate + std::string(kInstallRecord).substr(directory.size());
}

// Whether nothing but the record, and directories that lead to it, is in the directory.
bool has_only_record(const std::string& root, const std::string& directory) {
  const auto place = node_path(root, directory);
  if (!place) return false;
  const std::string record = *place + std::string(kInstallRecord).substr(directory.size());
  std::error_code failed;
  bool only = true;
  for (std::filesystem::recursive_directory_iterator entry(*place, failed), end; !failed && entry != end;
       entry.increment(failed))
    only = only && (entry->path() == record || record.starts_with(entry->path().string() + "/"));
  return only && !failed;
}

// The outermost directory of ours that can go together with the record; nullopt: none.
std::optional<std::string> directory_of_record(const std::string& root, const InstallRecord& record) {
  for (const std::string& directory : record.directories)
    if (std::string(kInstallRecord).starts_with(directory + "/") && has_only_record(root, directory)) return directory;
  return std::nullopt;
}

Result<void> rename_to_temporary(const std::string& root, const std::string& directory) {
  const std::string place = TRY(node_path(root, directory));
  if (::rename(place.c_str(), (place + kCandidate).c_str()) != 0)
    return fabric::sys_error(errno, "remove `{}`", directory);
  return {};
}

}  // namespace

Result<InstallRecord> parse_install_record(const std::string& text) {
  const Json json = TRY(parse_json(text, kInstallRecord, kRecordLimits));
  InstallRecord record;
  record.engine = TRY(text_at(json, "engine"));
  record.way = TRY(text_at(json, "way"));
  record.programs = TRY(text_at(json, "programs"));
  record.version = TRY(text_at(json, "version"));
  const Json* files = member(json, "files");
  const Json* directories = member(json, "directories");
  if (!files || !files->is_array()) return wrong_member("files");
  if (!directories || !directories->is_array()) return wrong_member("directories");
  for (const Json& entry : *files) {
    FileEdit edit;
    edit.path = TRY(text_at(entry, "path"));
    edit.after = TRY(digested_text_at(entry, "after", "after_hash"));
    if (member(entry, "before")) edit.before = TRY(digested_text_at(entry, "before", "before_hash"));
    record.edits.push_back(std::move(edit));
  }
  TRY_VOID(take_paths(*directories, "directories", record.directories));
  if (const Json* put = member(json, "put")) TRY_VOID(take_paths(*put, "put", record.put));
  if (!is_said(json, "unread")) record.state = InstallState::kInEffect;
  if (is_said(json, "taken_back")) record.set_restored();
  return record;
}

std::string install_record_text(const InstallRecord& record) {
  Json files = Json::array();
  for (const FileEdit& edit : record.edits) {
    Json entry = {{"path", edit.path}, {"after", edit.after}, {"after_hash", text_digest(edit.after)}};
    if (edit.before) {
      entry["before"] = *edit.before;
      entry["before_hash"] = text_digest(*edit.before);
    }
    files.push_back(std::move(entry));
  }
  const Json json = {{"engine", record.engine},
                     {"way", record.way},
                     {"programs", record.programs},
                     {"version", record.version},
                     {"files", std::move(files)},
                     {"directories", record.directories},
                     {"put", record.put},
                     {"unread", record.is_unread()},
                     {"taken_back", record.is_restored()}};
  return json.dump(2) + "\n";
}

Result<std::optional<InstallRecord>> read_install_record(const std::string& root) {
  const auto text = TRY(read_node_file(root, kInstallRecord));
  if (!text) return std::optional<InstallRecord>();
  auto record = parse_install_record(*text);
  if (record) return std::optional(std::move(*record));
  Error error = fabric::wrap(std::move(record).error(), fmt::format("`{}` is damaged", kInstallRecord));
  error.hint = "take our part out of the engine's configuration by hand, then remove the record";
  return error;
}

Result<void> prepare_install_record(const std::string& root, const InstallRecord& record) {
  return prepare_node_file(root, kInstallRecord, install_record_text(record));
}

Result<void> commit_install_record(const std::string& root) {
  return commit_node_file(root, kInstallRecord);
}

Result<void> write_install_record(const std::string& root, const InstallRecord& record) {
  const auto missing = missing_directories(root, kInstallRecord);
  if (missing.empty()) return write_node_file(root, kInstallRecord, install_record_text(record));
  auto written = write_node_file(root, path_in_temporary(missing.front()), install_record_text(record));
  if (written) written = commit_node_file(root, missing.front());
  if (!written) static_cast<void>(remove_unfinished_record(root));
  return written;
}

Result<void> remove_install_record(const std::string& root, const InstallRecord& record) {
  TRY_VOID(remove_unfinished_record(root));
  // Those that do not lead to the record; the others are not empty yet.
  remove_empty_directories(root, record.directories);
  if (const auto directory = directory_of_record(root, record)) {
    TRY_VOID(rename_to_temporary(root, *directory));
    return remove_unfinished_record(root);
  }
  return remove_node_file(root, kInstallRecord);
}

Result<void> remove_unfinished_record(const std::string& root) {
  TRY_VOID(remove_node_file(root, std::string(kInstallRecord) + kCandidate));
  for (const std::string& directory : directories_above(kInstallRecord)) {
    const std::string temporary = directory + kCandidate;
    if (!node_has(root, temporary, F_OK)) continue;
    const std::string file = path_in_temporary(directory);
    TRY_VOID(remove_node_file(root, file + kCandidate));
    TRY_VOID(remove_node_file(root, file));
    std::vector<std::string> directories = directories_above(file);
    std::erase_if(directories, [&](const std::string& one) { return !one.starts_with(temporary); });
    remove_empty_directories(root, directories);
  }
  return {};
}

Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit) {
  if (TRY(has_node_file(root, edit.path, edit.after))) return EditState::kInstalled;
  return TRY(has_node_file(root, edit.path, edit.before)) ? EditState::kNotWritten : EditState::kChanged;
}

}  // namespace hook
