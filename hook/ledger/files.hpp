// The ledger's directory: opens and checks its subdirectories once, and replaces files in one step, so that no reader
// gets half a file.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file_name.hpp"
#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

inline constexpr std::size_t kLongestHcaName = 63;
inline constexpr std::size_t kLargestLedgerFile = std::size_t{1} << 20;
inline constexpr int kKeyLockTimeoutMs = 10000;
inline constexpr int kUsualWait = -1;  // LedgerFiles::key_wait_ms
inline constexpr const char* kViews = "views";
// Target of the link `exclusive` of a free HCA (HcaState). Grants have other keys, because each key has a '-'.
inline constexpr const char* kFreeLink = "none";

inline constexpr std::uint64_t kChecksumOfNothing = 0xcbf29ce484222325U;

// Returns a checksum against damage, not against an attacker: a process that can write a record can also write its
// checksum. before: the checksum of the text before this part of it.
std::uint64_t checksum(std::string_view text, std::uint64_t before = kChecksumOfNothing);

// Checks the name of an HCA or device. Errors: it is no file name (is_file_name()), or is longer than 63
// (IB_DEVICE_NAME_MAX is 64 with the NUL).
Result<void> check_hca_name(const std::string& name);

// Returns true if root or the calling user owns the file.
bool is_ours(const struct stat& info);

// A directory that root or the calling user owns (is_ours()), with no access for group and other users.
struct LedgerDirectory {
  base::UniqueFd fd;
  std::string path;  // path of the directory, for messages only
};

// Opens a directory and checks it. make: creates it if it is missing. Errors: a symlink or another file, !is_ours(),
// open to group or other users, a read-only file system.
Result<LedgerDirectory> open_directory(int parent, const std::string& name, std::string path, bool make);

class LedgerFiles {
 public:
  // Opens the ledger's directories, and makes them if they are missing. Errors: those of open_directory() and
  // check_place().
  static Result<std::shared_ptr<LedgerFiles>> open(const std::string& path,
                                                   std::shared_ptr<const GrantEffects> effects = nullptr,
                                                   std::string container = {});
  // Makes this object as open() would return it for another call of this process. The caller has checked that the
  // directories are still those of the path, and no other object uses this one.
  void begin_call(std::shared_ptr<const GrantEffects> effects, std::string of_container);

  // For commands that only read: opens root, grants, pending and hca, makes nothing and does not check DIR/place.
  // Returns nullptr if root or grants is missing. A missing pending or hca is no error.
  static Result<std::shared_ptr<const LedgerFiles>> open_to_list(const std::string& path);

  LedgerDirectory root;
  LedgerDirectory hca;
  LedgerDirectory grants;
  LedgerDirectory pending;
  // This process. Its pid and start time are part of the names in pending/, so a child made by fork() must open its own
  // ledger.
  ProcessIdentity self;
  // Id of the container for which the ledger is open; empty: there is none. A process that locks an HCA writes the id
  // into the lock file, so that waiting processes can print it.
  std::string container;
  // The marker files in pending/ that calls through this object made and settle() has not removed yet, by the grant's
  // key.
  mutable std::map<std::string, std::set<std::string>> begun;

  // Views with copies that a grant has lost through this object, until Ledger::remove_left_views().
  mutable std::set<std::string> left_views;

  // The result of the next Ledger::take_released(): grants that this object released, and pod grants from which it
  // removed a container.
  mutable std::vector<Released> released;

  // A key that this call has made of random bits: no grant has it, so that no file is searched for it, until this call
  // writes the grant. Empty: there is none.
  mutable std::string new_key;

  mutable int key_wait_ms = kKeyLockTimeoutMs;  // longest wait for the lock of a key (KeyLock)

  // Returns the descriptor of DIR/lock, whose open file description holds the locks on keys (KeyLock). Opens the file
  // once in each process.
  Result<int> key_locks() const;

  // The next two functions call the functions of GrantEffects with the same name, if the ledger was opened with
  // effects.
  Result<void> release_except(const std::string& key, const std::vector<PlannedHca>& held,
                              const StoredGrant* grant) const {
    return effects_ ? effects_->release_except(key, held, grant) : Result<void>();
  }
  void wait_until(Deadline deadline) const {
    if (effects_) effects_->wait_until(deadline);
  }

  // The next two functions open the directory of one HCA and its subdirectory holders/. name: booked_as(). make: makes
  // the directory if it is missing; holders/ is always made.
  Result<LedgerDirectory> open_hca(const std::string& name, bool make) const;
  Result<LedgerDirectory> open_entries(const LedgerDirectory& hca) const;
  // Makes the directory of an HCA that has none. The HCA gets the link of a free HCA if DIR/hca shows that no directory
  // was removed by hand, or if there is no grant; otherwise no link.
  Result<void> begin_hca(const std::string& name) const;
  // Records that only the ledger's functions have changed the list of directories in DIR/hca: begin_hca() trusts the
  // list until another process changes it. The record is the time of the directory. Best effort.
  void seal_hcas() const;
  // Opens the directory of the views, and makes it if it is missing. Only the calls that use views open it.
  Result<LedgerDirectory> open_views() const;

  // Returns a name in pending/ that no other process and no other call uses: "@PID.START.N".
  std::string temporary_name() const;
  // Calls replace_ledger_file() with a temporary_name() in pending/.
  Result<void> replace_file(const LedgerDirectory& directory, const std::string& name, std::string_view text) const;

 private:
  std::shared_ptr<const GrantEffects> effects_;
  mutable base::UniqueFd key_locks_;
  mutable unsigned key_locks_forks_ = 0;  // number of forks at which key_locks_ was opened
};

// Checks that this process is in the PID and time namespace in which the ledger's records were written. The link
// DIR/place names them. In other namespaces the same pid and start time name another process or none. note: if the
// ledger has no record, and the link is missing or names other namespaces, makes the link for the namespaces of this
// process. Errors, if the ledger has a record: EXDEV, the link names other namespaces; EBADMSG, the link is damaged.
// Also: the link or a directory cannot be read or written.
Result<void> check_place(const LedgerFiles& files, bool note);

// Replaces the file `name` of `directory`: writes `temporary` in `pending`, then renames it. A reader gets the old text
// or the new one. Errors: `temporary` exists, or a file cannot be written; the old file then stays.
Result<void> replace_ledger_file(const LedgerDirectory& pending, const std::string& temporary,
                                 const LedgerDirectory& directory, const std::string& name, std::string_view text);

// Reads a file of the ledger; nullopt: there is none. Errors: it is not a regular file, not is_ours(), writable by
// group or other users, or larger than kLargestLedgerFile; it cannot be read.
Result<std::optional<std::string>> read_ledger_file(const LedgerDirectory& directory, const std::string& name);
// Makes an empty file with one system call. Returns false with errno: EEXIST, the name exists.
bool make_file(int directory, const std::string& path);
// Makes an empty file. Succeeds if it exists.
Result<void> make_empty_file(const LedgerDirectory& directory, const std::string& name);
// Removes a file. Succeeds if there is none.
Result<void> remove_file(const LedgerDirectory& directory, const std::string& name);
// Removes a file, or a directory with its content, at most 32 levels deep. Succeeds if there is none.
Result<void> remove_tree(const LedgerDirectory& directory, const std::string& name);
// Returns the names in a directory, without "." and "..", in no order.
Result<std::vector<std::string>> list_names(const LedgerDirectory& directory);

}  // namespace hook
