#include "hook/install/install_record.hpp"

#include <cerrno>

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

Result<InstallRecord> parse_install_record(const std::string& text) {
  const Json json = TRY(parse_json(text, kInstallRecord, kRecordLimits));
  InstallRecord record{TRY(text_at(json, "engine")),
                       TRY(text_at(json, "way")),
                       TRY(text_at(json, "programs")),
                       TRY(text_at(json, "version")),
                       {},
                       {},
                       {},
                       false,
                       false};
  const Json* files = member(json, "files");
  const Json* directories = member(json, "directories");
  if (!files || !files->is_array()) return wrong_member("files");
  if (!directories || !directories->is_array()) return wrong_member("directories");
  for (const Json& entry : *files) {
    FileEdit edit{TRY(text_at(entry, "path")), {}, TRY(digested_text_at(entry, "after", "after_hash"))};
    if (member(entry, "before")) edit.before = TRY(digested_text_at(entry, "before", "before_hash"));
    record.edits.push_back(std::move(edit));
  }
  TRY_VOID(take_paths(*directories, "directories", record.directories));
  if (const Json* put = member(json, "put")) TRY_VOID(take_paths(*put, "put", record.put));
  record.unread = is_said(json, "unread");
  record.taken_back = is_said(json, "taken_back");
  return record;
}

}  // namespace

Result<std::optional<InstallRecord>> read_install_record(const std::string& root) {
  const auto text = TRY(read_node_file(root, kInstallRecord));
  if (!text) return std::optional<InstallRecord>();
  auto record = parse_install_record(*text);
  if (record) return std::optional(std::move(*record));
  Error error = fabric::wrap(std::move(record).error(), fmt::format("`{}` is damaged", kInstallRecord));
  error.hint = "take our part out of the engine's configuration by hand, then remove the record";
  return error;
}

Result<void> write_install_record(const std::string& root, const InstallRecord& record) {
  Json files = Json::array();
  for (const FileEdit& edit : record.edits) {
    Json entry = {{"path", edit.path}, {"after", edit.after}, {"after_hash", text_digest(edit.after)}};
    if (edit.before) {
      entry["before"] = *edit.before;
      entry["before_hash"] = text_digest(*edit.before);
    }
    files.push_back(std::move(entry));
  }
  const Json json = {{"engine", record.engine},   {"way", record.way},         {"programs", record.programs},
                     {"version", record.version}, {"files", std::move(files)}, {"directories", record.directories},
                     {"put", record.put},         {"unread", record.unread},   {"taken_back", record.taken_back}};
  return write_node_file(root, kInstallRecord, json.dump(2) + "\n");
}

Result<void> remove_install_record(const std::string& root, const InstallRecord& record) {
  TRY_VOID(remove_node_file(root, std::string(kInstallRecord) + kCandidate));
  TRY_VOID(remove_node_file(root, kInstallRecord));
  remove_empty_directories(root, record.directories);
  return {};
}

Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit) {
  if (TRY(has_node_file(root, edit.path, edit.after))) return EditState::kInstalled;
  return TRY(has_node_file(root, edit.path, edit.before)) ? EditState::kNotWritten : EditState::kChanged;
}

}  // namespace hook
