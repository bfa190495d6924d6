#include "hook/admin/install/record.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <ctime>
#include <filesystem>

#include "base/file.hpp"
#include "base/json/record.hpp"
#include "base/proc.hpp"
#include "base/process/root_lock.hpp"
#include "base/text_digest.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/programs.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {
namespace {

constexpr std::chrono::milliseconds kNoWait{0};
// A process in another PID namespace is not visible: it can be an install of an earlier version, or a stranger's. Such
// an install ends within this time, unless it restarts an engine.
constexpr std::chrono::milliseconds kOldInstallPatience{5000};

// Opens the directory of the ledger below root, and makes sure that only root can open it.
// dry_run: change nothing, and return an invalid descriptor if there is no such directory or no access to it.
Result<base::UniqueFd> open_ledger_directory(const std::string& root, bool dry_run) {
  const std::string path = TRY(node_path(root, kLedgerPath));
  base::UniqueFd fd = base::open_to_list(AT_FDCWD, path.c_str());
  if (!fd.ok() && dry_run && (errno == ENOENT || errno == EACCES)) return fd;
  struct stat status {};
  if (!fd.ok() || ::fstat(fd.get(), &status) != 0) return sys_error(errno, "open `{}`", path);
  const bool others_change = status.st_uid != ::geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0;
  if (others_change)
    return Error{fmt::format("users other than root can change `{}`", path), EPERM,
                 "make it a directory of root with mode 0700, or remove it if no container uses an HCA"};
  // An engine that makes the directory for a mount gives it mode 0755. Then any user could open and lock it.
  if (!dry_run && !is_private(status) && ::fchmod(fd.get(), 0700) != 0) return sys_error(errno, "close `{}`", path);
  return fd;
}

constexpr JsonLimits kRecordLimits{.bytes = 64 << 20};

// Returns the path of the record while `directory`, which is above the record, has its temporary name.
std::string path_in_temporary(const std::string& directory) {
  return directory + kCandidate + std::string(kInstallRecord).substr(directory.size());
}

// Returns whether the directory contains only the record and the directories on the way to it.
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

// Returns the outermost directory that install made and that can be removed with the record; nullopt: none.
std::optional<std::string> directory_of_record(const std::string& root, const InstallRecord& record) {
  for (const std::string& directory : record.directories)
    if (std::string(kInstallRecord).starts_with(directory + "/") && has_only_record(root, directory)) return directory;
  return std::nullopt;
}

// Hides a directory with the record below it, by one rename(2). It replaces no file, so it is no base::replace_file().
Result<void> rename_to_temporary(const std::string& root, const std::string& directory) {
  const std::string place = TRY(node_path(root, directory));
  if (::rename(place.c_str(), (place + kCandidate).c_str()) != 0) return sys_error(errno, "remove `{}`", directory);
  return {};
}

}  // namespace

void describe(auto& members, FileEdit& edit) {
  // The hashes detect a damaged text, which must not be restored.
  std::string before_hash = text_digest(edit.before.value_or(""));
  std::string after_hash = text_digest(edit.after);
  members("path", edit.path);
  members.optional("before", edit.before);
  members("before_hash", before_hash);
  members.require(text_digest(edit.before.value_or("")) == before_hash, "before");
  members("after", edit.after);
  members("after_hash", after_hash);
  members.require(text_digest(edit.after) == after_hash, "after");
}

void describe(auto& members, WriteTime& time) {
  members("boot", time.boot);
  members("ticks", time.ticks);
}

void describe(auto& members, InstallRecord& record) {
  members("engine", record.engine);
  members("way", record.way);
  members("programs", record.programs);
  members("version", record.version);
  members("files", record.edits);
  members("directories", record.directories);
  members("put", record.put);
  members.word("state", record.state, kInstallStates);
  members.optional("written", record.written);
}

std::optional<WriteTime> write_time_now() {
  struct timespec now {};
  const auto boot = base::read_boot_id();
  const auto* const id = std::get_if<std::string>(&boot);
  if (!id || ::clock_gettime(CLOCK_BOOTTIME, &now) != 0) return std::nullopt;
  const auto hertz = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  return WriteTime{*id, static_cast<std::uint64_t>(now.tv_sec) * hertz +
                            static_cast<std::uint64_t>(now.tv_nsec) * hertz / 1'000'000'000};
}

Result<InstallRecord> parse_install_record(const std::string& text) {
  return from_record<InstallRecord>(TRY(parse_json(text, kInstallRecord, kRecordLimits)));
}

std::string install_record_text(const InstallRecord& record) {
  return to_record(record).dump(2) + "\n";
}

Result<std::optional<InstallRecord>> read_install_record(const std::string& root) {
  const auto text = TRY(read_node_file(root, kInstallRecord));
  if (!text) return std::optional<InstallRecord>();
  auto record = parse_install_record(*text);
  if (record) return std::optional(std::move(*record));
  Error error = base::wrap(std::move(record).error(), fmt::format("`{}` is damaged", kInstallRecord));
  error.hint = "remove the lines of rdma-init from the engine's configuration by hand, then remove the record";
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
  // The missing directories are made below a temporary name with the record in them. One rename then makes all visible.
  auto written = write_node_file(root, path_in_temporary(missing.front()), install_record_text(record));
  if (written) written = commit_node_file(root, missing.front());
  if (!written) static_cast<void>(remove_unfinished_record(root));
  return written;
}

Result<void> remove_install_record(const std::string& root, const InstallRecord& record) {
  TRY_VOID(remove_unfinished_record(root));
  // The record's own directory and those above it are not empty yet, so this removes only the other directories.
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

Result<InstallLock> lock_out_others(const std::string& root, bool dry_run) {
  InstallLock lock;
  if (!dry_run) {
    TRY_VOID(make_ledger_directory(root));
  } else if (!node_has(root, kLedgerPath, F_OK)) {
    TRY_VOID(foresee_write(root, kLedgerPath));
  }
  lock.directory = TRY(open_ledger_directory(root, dry_run));
  if (lock.directory.ok() && !TRY(lock_within(lock.directory.get(), kNoWait)))
    return Error{
        fmt::format("another `rdma-hook install` or uninstall is running: {}", locking_process(lock.directory.get())),
        0, "run this again when it has ended"};
  lock.etc.reset(::open((root + "/etc").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.etc.ok()) {
    Error error = sys_error(errno, "open `{}/etc`", root);
    error.hint = "name the root directory of a node with --root";
    return error;
  }
  // A dry run does not wait for the old lock, because it changes nothing.
  const OldLock old = TRY(take_old_lock(lock.etc.get(), root + "/etc", dry_run ? kNoWait : kOldInstallPatience));
  if (!old.held) {
    lock.etc.reset();
    lock.note = fmt::format("{} has locked `{}/etc`; ignoring this lock\n", old.process, root);
  }
  return lock;
}

Result<EditState> state_of_edit(const std::string& root, const FileEdit& edit) {
  if (TRY(has_node_file(root, edit.path, edit.after))) return EditState::kInstalled;
  return TRY(has_node_file(root, edit.path, edit.before)) ? EditState::kNotWritten : EditState::kChanged;
}

}  // namespace hook
