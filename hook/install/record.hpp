// The record of an installation, /var/lib/rdma-init/install.json: the files that install wrote and their earlier
// contents. It is written before the first file and removed after the last one. A later call can therefore complete a
// call that was killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/base/words.hpp"

namespace hook {

inline constexpr const char* kInstallRecord = "/var/lib/rdma-init/install.json";

// A file to write.
// before: its present text; nullopt if it does not exist.
struct FileEdit {
  std::string path;
  std::optional<std::string> before;
  std::string after;
};

enum class InstallState {
  kWritten,           // the files are written or being written; the engine may not have read them
  kInEffect,          // as kWritten, and the engine has read them
  kRestored,          // the files are restored; the engine may not have read them
  kRestoredInEffect,  // as kRestored, and the engine has read them
};

inline constexpr Word<InstallState> kInstallStates[] = {{"written", InstallState::kWritten},
                                                        {"in_effect", InstallState::kInEffect},
                                                        {"restored", InstallState::kRestored},
                                                        {"restored_in_effect", InstallState::kRestoredInEffect}};

// A point in time, by the clock that gives processes their start time. This clock does not jump if the node's time is
// set.
struct WriteTime {
  std::string boot;         // /proc/sys/kernel/random/boot_id
  std::uint64_t ticks = 0;  // clock ticks since that boot, as in field 22 of /proc/PID/stat
  friend bool operator==(const WriteTime&, const WriteTime&) = default;
};
// Returns the present time; nullopt if the identity of the boot cannot be read.
std::optional<WriteTime> write_time_now();

struct InstallRecord {
  std::string engine;
  std::string way;
  std::string programs;  // directory of rdma-runtime and rdma-hook, as the files name it
  std::string version;   // version of the rdma-hook that wrote the record
  std::vector<FileEdit> edits;
  std::vector<std::string> directories;  // directories that install made, outermost first
  std::vector<std::string> put;          // programs that were copied to the node, by path
  InstallState state = InstallState::kWritten;
  // The time at which the files were written or restored; nullopt if it is unknown, for example in a record of an
  // earlier version.
  std::optional<WriteTime> written = {};

  // Returns true if the engine may not have read the present files.
  bool is_unread() const { return state == InstallState::kWritten || state == InstallState::kRestored; }
  bool is_restored() const { return state == InstallState::kRestored || state == InstallState::kRestoredInEffect; }
  // Notes that the engine has read the present files.
  void set_read() { state = is_restored() ? InstallState::kRestoredInEffect : InstallState::kInEffect; }
  // Notes that the files are restored; the copied programs remain.
  void set_restored() { state = is_unread() ? InstallState::kRestored : InstallState::kRestoredInEffect; }
};

enum class EditState { kInstalled, kNotWritten, kChanged };

// Parses a record. Pure. Errors: it is not such a record, or a text does not match its hash.
Result<InstallRecord> parse_install_record(const std::string& text);
std::string install_record_text(const InstallRecord& record);

// Returns the record of the node; nullopt: nothing is installed. Errors: the record is damaged, with the remedy.
Result<std::optional<InstallRecord>> read_install_record(const std::string& root);
// Writes the record. Missing directories appear together with the record, by one rename(2), so a killed call leaves
// only a temporary.
Result<void> write_install_record(const std::string& root, const InstallRecord& record);
// Writes the temporary of the record. commit_install_record() renames it later, which needs no space.
Result<void> prepare_install_record(const std::string& root, const InstallRecord& record);
Result<void> commit_install_record(const std::string& root);
// Removes the record, and the empty ones of the directories that install made. A directory of install that holds only
// the record disappears together with it, by one rename(2).
Result<void> remove_install_record(const std::string& root, const InstallRecord& record);
// Removes the temporaries that remain if a call was killed while it wrote or removed the record.
Result<void> remove_unfinished_record(const std::string& root);

// Compares a file of the node with its edit. Errors: the lookup fails, so the state of the file is unknown.
Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit);

}  // namespace hook
