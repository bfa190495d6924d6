// The ledger's directory: descriptors that are opened and checked once, files that appear whole or not at all.
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

#include "fabric/unique_fd.hpp"
#include "hook/base/file_name.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

inline constexpr std::size_t kLongestHcaName = 63;
inline constexpr std::size_t kLargestLedgerFile = std::size_t{1} << 20;

// Of what was written here, against damage: whoever means harm can write it, too.
std::uint64_t checksum(std::string_view text);

// As is_file_name(); IB_DEVICE_NAME_MAX is 64 with the zero.
Result<void> check_hca_name(const std::string& name);

// Root's or the calling user's.
bool is_ours(const struct stat& info);

// A directory that is ours, and closed to all others.
struct LedgerDirectory {
  fabric::UniqueFd fd;
  std::string path;  // for messages only
};

// make: if it is missing. Errors: a symlink, another file, not ours, open to others, a read-only file system.
Result<LedgerDirectory> open_directory(int parent, const std::string& name, std::string path, bool make);

class LedgerFiles {
 public:
  // Errors: as open_directory(); this process is in another PID or time namespace than those that the ledger's facts
  // are of (DIR/place), where the number and the start time of a process mean another one or nothing.
  static Result<std::shared_ptr<const LedgerFiles>> open(const std::string& path,
                                                         std::shared_ptr<const GrantEffects> effects = nullptr,
                                                         std::string container = {});

  // With root, grants and pending alone, as they are: nothing is made or noted, and DIR/place is not looked at.
  // nullptr: there is no ledger.
  static Result<std::shared_ptr<const LedgerFiles>> open_to_list(const std::string& path);

  LedgerDirectory root;
  LedgerDirectory hca;
  LedgerDirectory grants;
  LedgerDirectory pending;
  LedgerDirectory views;
  // This process: written into the names of what is under way. A child made by fork() opens its own ledger.
  ProcessIdentity self;
  std::string container;  // for whom: told to who waits for a lock; empty: for none
  // The markers of what was booked or bound through this ledger and is not settled, by the grant's key.
  mutable std::map<std::string, std::set<std::string>> begun;

  // What was returned or left through this ledger.
  mutable std::vector<Released> released;

  // As GrantEffects has them; without any, there is nothing to undo.
  Result<void> undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                           const StoredGrant* grant) const {
    return effects_ ? effects_->undo_beyond(key, held, grant) : Result<void>();
  }
  void wait_until(Deadline deadline) const {
    if (effects_) effects_->wait_until(deadline);
  }

  // The directory of one HCA (booked_as()), and its holders/.
  Result<LedgerDirectory> open_hca(const std::string& name, bool make) const;
  Result<LedgerDirectory> open_holders(const LedgerDirectory& hca) const;

  // A name in pending/ that no other process and no other call uses: "@PID.START.N".
  std::string temporary_name() const;
  // Written in pending/, then renamed: readers see the old text or the new.
  Result<void> replace_file(const LedgerDirectory& directory, const std::string& name, std::string_view text) const;

 private:
  std::shared_ptr<const GrantEffects> effects_;
};

// Whether this process is where the ledger's facts are of. note: this place, where none is noted or it no longer
// matters. Errors: as LedgerFiles::open() (EXDEV).
Result<void> check_place(const LedgerFiles& files, bool note);

// nullopt: there is no such file. Errors: a symlink, not ours, writable by others, over kLargestLedgerFile.
Result<std::optional<std::string>> read_ledger_file(const LedgerDirectory& directory, const std::string& name);
// Makes an empty file; success when it is there already.
Result<void> make_empty_file(const LedgerDirectory& directory, const std::string& name);
// Success when it is not there.
Result<void> remove_file(const LedgerDirectory& directory, const std::string& name);
// Removes a directory with what is in it, also where others put more there (bounded), or a file; success when it is not
// there.
Result<void> remove_tree(const LedgerDirectory& directory, const std::string& name);
// Without "." and "..", in no order.
Result<std::vector<std::string>> list_names(const LedgerDirectory& directory);

}  // namespace hook
