// /var/lib/rdma-init/install.json: what install wrote, and what was there before. It is written before the first file
// and removed after the last one, so that install or uninstall completes whatever was killed in between.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/base/words.hpp"

namespace hook {

inline constexpr const char* kInstallRecord = "/var/lib/rdma-init/install.json";

// A file as it shall be; before: as it is, nullopt where there is none.
struct FileEdit {
  std::string path;
  std::optional<std::string> before;
  std::string after;
};

enum class InstallState {
  kWritten,           // the files are written, or being written; the engine may not have read them
  kInEffect,          // and it has read them
  kRestored,          // they are as they were before; the engine may not have read that
  kRestoredInEffect,  // and it has read that
};

inline constexpr Word<InstallState> kInstallStates[] = {{"written", InstallState::kWritten},
                                                        {"in_effect", InstallState::kInEffect},
                                                        {"restored", InstallState::kRestored},
                                                        {"restored_in_effect", InstallState::kRestoredInEffect}};

struct InstallRecord {
  std::string engine;
  std::string way;
  std::string programs;  // directory of rdma-runtime and rdma-hook that the files name
  std::string version;   // of the rdma-hook that wrote it
  std::vector<FileEdit> edits;
  std::vector<std::string> directories;  // that were not there, the outermost first
  std::vector<std::string> put;          // programs that were put on the node, by path
  InstallState state = InstallState::kWritten;

  // The engine may not have read its files as they are.
  bool is_unread() const { return state == InstallState::kWritten || state == InstallState::kRestored; }
  bool is_restored() const { return state == InstallState::kRestored || state == InstallState::kRestoredInEffect; }
  // The engine has read them.
  void set_read() { state = is_restored() ? InstallState::kRestoredInEffect : InstallState::kInEffect; }
  // They are as they were before install; the programs that were put are left.
  void set_restored() { state = is_unread() ? InstallState::kRestored : InstallState::kRestoredInEffect; }
};

enum class EditState { kInstalled, kNotWritten, kChanged };

// Errors: no such record; a text with another hash than its own.
Result<InstallRecord> parse_install_record(const std::string& text);
std::string install_record_text(const InstallRecord& record);

// nullopt: nothing is installed. Errors: a record that is damaged (each text has a hash), with the remedy.
Result<std::optional<InstallRecord>> read_install_record(const std::string& root);
// A directory that is missing for it appears together with the record, by one rename(2).
Result<void> write_install_record(const std::string& root, const InstallRecord& record);
// Writes the record's temporary, which commit_install_record() then makes the record without needing room.
Result<void> prepare_install_record(const std::string& root, const InstallRecord& record);
Result<void> commit_install_record(const std::string& root);
// Removes the record's directories too, if they are empty: those above the record by one rename(2), together with it.
Result<void> remove_install_record(const std::string& root, const InstallRecord& record);
// Removes what a call that was killed left of a record that is not there yet, or not any more.
Result<void> remove_unfinished_record(const std::string& root);

// Errors: the file cannot be seen, and is then neither.
Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit);

}  // namespace hook
