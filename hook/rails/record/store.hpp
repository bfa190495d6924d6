// Where the records of rails are: DIR/network/KEY.json, DIR and KEY as hook/ledger has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/presence.hpp"
#include "hook/base/result.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class LedgerFiles;
struct LedgerDirectory;

// The records of one ledger. A writer of one holds the lock of its key, or is the only process that works for it.
class NetworkRecordStore {
 public:
  static Result<NetworkRecordStore> open(const std::string& ledger_directory);
  // Whether there is a record of this key; costs one system call. Errors: that cannot be seen.
  static Result<Presence> look_at(const std::string& ledger_directory, const std::string& key);
  // Whether there may be a record of any key; true also where the records cannot be looked at.
  static bool has_any(const std::string& ledger_directory);
  Result<std::optional<NetworkRecord>> read(const std::string& key) const;
  Result<void> write(const NetworkRecord& record) const;
  Result<void> remove(const std::string& key) const;
  Result<std::vector<std::string>> keys() const;

 private:
  NetworkRecordStore(std::shared_ptr<const LedgerFiles> files, std::shared_ptr<const LedgerDirectory> records);
  std::shared_ptr<const LedgerFiles> files_;
  std::shared_ptr<const LedgerDirectory> records_;
};

}  // namespace hook
