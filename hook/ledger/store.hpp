// Reads and writes the records of grants, and the markers of changes that are under way. Locks: the caller holds the
// key's lock, unless a function states otherwise.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// A name in pending/:
//   @PID.START.N         a file that process PID is writing
//   KEY@PID.START.N      a marker (empty file): process PID has not finished its change N of the grant KEY
//   KEY@PID.START@N      the record of a released grant, until the index entries of the grant are removed
struct PendingName {
  enum class Kind { kTemporary, kMarker, kReleased };
  Kind kind = Kind::kTemporary;
  std::string key;
  StepWorker worker;
};
// Parses a name in pending/; nullopt: it has another form.
std::optional<PendingName> parse_pending_name(std::string_view name);
std::string marker_name(std::string_view key, const StepWorker& worker);
// Returns this process with the number of a new change. begin_change() makes the marker file of this change; call
// begin_change() before the change is written into the grant.
StepWorker new_worker(const LedgerFiles& files);
Result<void> begin_change(const LedgerFiles& files, const std::string& key, const StepWorker& worker);

std::string record_file(const std::string& key);  // returns the name of the record in DIR/grants
std::string grant_path(const LedgerFiles& files, const std::string& key);
// Returns the keys of all grants, in no order.
Result<std::vector<std::string>> grant_keys(const LedgerFiles& files);
// Reads a grant as it was written: checks no process and no marker. Returns nullopt if there is no such grant. Errors:
// those of read_ledger_file() and parse_grant().
Result<std::optional<StoredGrant>> read_record(const LedgerFiles& files, const std::string& key);
// Reads a grant. Steps (an unfinished change) count as done if their marker file is missing. If the caller does not
// hold the key's lock, steps that another process is rolling back may count as done, because that process removes the
// marker. Returns nullopt if there is no such grant. Errors: those of read_record(); a marker cannot be read.
Result<std::optional<StoredGrant>> read_grant(const LedgerFiles& files, const std::string& key);
// Writes the record of a grant. Errors: it is larger than kLargestLedgerFile, or cannot be written.
Result<void> write_grant(const LedgerFiles& files, const StoredGrant& grant);
// Removes the marker file of `worker`, unless the grant still lists the unfinished change of `worker`.
Result<void> remove_marker(const LedgerFiles& files, const std::string& key, const StepWorker& worker,
                           const std::optional<StoredGrant>& grant);

}  // namespace hook
