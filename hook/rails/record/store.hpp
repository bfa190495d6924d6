// Keeps the records of rails in DIR/network/KEY.json. DIR and KEY are the same as in hook/ledger.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/presence.hpp"
#include "base/result.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class LedgerFiles;
struct LedgerDirectory;

// The records of one ledger. Locks: a process that writes a record has the lock of its key, or is the only process that
// works for this key.
class NetworkRecordStore {
 public:
  // Opens the records; makes the directory if it is missing.
  static Result<NetworkRecordStore> open(const std::string& ledger_directory);
  // Checks whether this key has a record, with one system call. Errors: the lookup fails.
  static Result<Presence> read_presence(const std::string& ledger_directory, const std::string& key);
  // Returns false if the directory of the records is empty or missing. Returns true if it has a file or cannot be read.
  static bool has_any(const std::string& ledger_directory);
  // Reads the record of this key; nullopt if it has none. Errors: those of parse_network_record().
  Result<std::optional<NetworkRecord>> read(const std::string& key) const;
  // Replaces the record of its key. Errors: EFBIG, larger than kLargestLedgerFile; an error of the file system.
  Result<void> write(const NetworkRecord& record) const;
  // Removes the record of this key.
  Result<void> remove(const std::string& key) const;
  // Returns the keys that have a record.
  Result<std::vector<std::string>> keys() const;

 private:
  NetworkRecordStore(std::shared_ptr<const LedgerFiles> files, std::shared_ptr<const LedgerDirectory> records);
  std::shared_ptr<const LedgerFiles> files_;
  std::shared_ptr<const LedgerDirectory> records_;
};

}  // namespace hook
