// The record of an installation, /var/lib/rdma-init/install.json: the files that install wrote and the texts that they
// had before. install writes it before the first file. Uninstall removes it after it has restored the last file. So a
// later call can complete a call that was killed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "base/words.hpp"

namespace hook {

inline constexpr const char* kInstallRecord = "/var/lib/rdma-init/install.json";

// A file that install writes.
// before: its text before install; nullopt if it did not exist.
// after: its text from install.
struct FileEdit {
  std::string path;
  std::optional<std::string> before;
  std::string after;
};

enum class InstallState {
  kWritten,           // the files are written or being written; the engine may not have read them
  kInEffect,          // all files are written, and the engine has read them
  kRestored,          // the files are restored; the engine may not have read them
  kRestoredInEffect,  // the files are restored, and the engine has read them
};

inline constexpr Word<InstallState> kInstallStates[] = {{"written", InstallState::kWritten},
                                                        {"in_effect", InstallState::kInEffect},
                                                        {"restored", InstallState::kRestored},
                                                        {"restored_in_effect", InstallState::kRestoredInEffect}};

// A point in time on the clock of process start times (CLOCK_BOOTTIME). This clock does not jump if the node's time is
// set.
struct WriteTime {
  std::string boot;         // /proc/sys/kernel/random/boot_id
  std::uint64_t ticks = 0;  // clock ticks since that boot, as in field 22 of /proc/PID/stat
  friend bool operator==(const WriteTime&, const WriteTime&) = default;
};
// Returns the present time; nullopt if boot_id cannot be read.
std::optional<WriteTime> write_time_now();

struct InstallRecord {
  std::string engine;
  std::string way;
  std::string programs;  // directory of rdma-runtime and rdma-hook that the files name
  std::string version;   // version of the rdma-hook that wrote the record
  std::vector<FileEdit> edits;
  std::vector<std::string> directories;  // directories that install made, outermost first
  std::vector<std::string> put;          // paths of programs that were copied to the node
  InstallState state = InstallState::kWritten;
  // The time at which the files were written or restored; nullopt if it is unknown, for example in a record of an
  // earlier version.
  std::optional<WriteTime> written = {};

  // Returns true if the engine may not have read the present files.
  bool is_unread() const { return state == InstallState::kWritten || state == InstallState::kRestored; }
  bool is_restored() const { return state == InstallState::kRestored || state == InstallState::kRestoredInEffect; }
  // Notes that the engine has read the files in their present state.
  void set_read() { state = is_restored() ? InstallState::kRestoredInEffect : InstallState::kInEffect; }
  // Notes that the files are restored. The record stays, because it lists copied programs.
  void set_restored() { state = is_unread() ? InstallState::kRestored : InstallState::kRestoredInEffect; }
};

enum class EditState { kInstalled, kNotWritten, kChanged };

// Parses a record. Pure. Errors: `text` is not a record, or a file's text in the record does not match its hash.
Result<InstallRecord> parse_install_record(const std::string& text);
std::string install_record_text(const InstallRecord& record);

// The locks of one install or uninstall.
struct InstallLock {
  base::UniqueFd
      directory;       // the lock of the ledger's directory, which only root can open; invalid: a dry run found none
  base::UniqueFd etc;  // the lock of ROOT/etc, which earlier versions take; invalid: another process has it
  std::string note;    // a line for the user if a process that is no rdma-hook has locked ROOT/etc
};

// Locks out other installs and uninstalls until the returned descriptors are closed: flock(2) of the ledger's directory
// below ROOT, which is made if it is missing, and of ROOT/etc. Leaves no lock file behind.
// dry_run: make and change nothing, but fail if root could not make the directory. Without a directory, or without
// access to it, the call then takes no lock.
// Errors: another install or uninstall is running; users other than root can change the ledger's directory.
Result<InstallLock> lock_out_others(const std::string& root, bool dry_run);

// Returns the record of the node; nullopt: there is none. Errors, with a remedy: the record is damaged.
Result<std::optional<InstallRecord>> read_install_record(const std::string& root);
// Writes the record. If its directories are missing, one rename(2) makes the directories and the record visible
// together. If the call is killed before, only a temporary file or directory remains.
Result<void> write_install_record(const std::string& root, const InstallRecord& record);
// Writes the temporary file of the record. commit_install_record() renames it later, which needs no space.
Result<void> prepare_install_record(const std::string& root, const InstallRecord& record);
Result<void> commit_install_record(const std::string& root);
// Removes the record, and the directories that install made and that are empty. A directory of install that holds only
// the record is removed together with it: one rename(2) makes both invisible.
Result<void> remove_install_record(const std::string& root, const InstallRecord& record);
// Removes the temporary files and directories that remain if a call was killed while it wrote or removed the record.
Result<void> remove_unfinished_record(const std::string& root);

// Returns whether a file of the node has the text from install, the text before install, or another text. Errors: the
// lookup fails, so the state of the file is unknown.
Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit);

}  // namespace hook
