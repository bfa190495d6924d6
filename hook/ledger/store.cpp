#include "hook/ledger/store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include "base/text.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/record.hpp"

namespace hook {
namespace {

// Parses "PID.START.N".
std::optional<StepWorker> parse_worker(std::string_view text) {
  const auto fields = base::split(text, '.');
  if (fields.size() != 3) return std::nullopt;
  const auto pid = base::parse_number<pid_t>(fields[0]);
  const auto start_time = base::parse_number<std::uint64_t>(fields[1]);
  const auto change = base::parse_number<std::uint64_t>(fields[2]);
  if (!pid || !start_time || !change || *pid <= 0) return std::nullopt;
  return StepWorker{{.pid = *pid, .start_time = *start_time}, *change};
}

Result<bool> are_done(const LedgerFiles& files, const std::string& key, const StepWorker& worker) {
  struct stat info {};
  const std::string marker = marker_name(key, worker);
  if (::fstatat(files.pending.fd.get(), marker.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) return false;
  return errno == ENOENT ? Result<bool>(true) : sys_error(errno, "cannot read `{}/{}`", files.pending.path, marker);
}

// Marks the unfinished change (steps) of this user as done if its marker is gone, or sets worker_absent. The marker is
// read again after the process is found dead, because the process may have removed its marker and then ended. The first
// read avoids the look-up of the process if the change was done long ago.
Result<void> check_steps(const LedgerFiles& files, StoredGrant& grant, StoredUser& user) {
  const StepWorker& worker = *user.worker;
  bool done = TRY(are_done(files, grant.owner.key, worker));
  if (!done) user.worker_absent = is_worker_absent(worker);
  if (user.worker_absent) done = TRY(are_done(files, grant.owner.key, worker));
  if (done) settle_user(grant, user);
  return {};
}

}  // namespace

std::string record_file(const std::string& key) {
  return key + ".json";
}

std::optional<PendingName> parse_pending_name(std::string_view name) {
  const auto parts = base::split(name, '@');
  if (parts.size() < 2 || parts.size() > 3) return std::nullopt;
  PendingName result;
  if (parts.size() == 3) {
    result.kind = PendingName::Kind::kReleased;
  } else if (!parts[0].empty()) {
    result.kind = PendingName::Kind::kMarker;
  }
  if (result.kind != PendingName::Kind::kTemporary && !is_file_name(parts[0], kLongestKey)) return std::nullopt;
  const bool is_released = result.kind == PendingName::Kind::kReleased;
  const auto worker = parse_worker(is_released ? fmt::format("{}.{}", parts[1], parts[2]) : std::string(parts[1]));
  if (!worker) return std::nullopt;
  result.key = parts[0];
  result.worker = *worker;
  return result;
}

std::string marker_name(std::string_view key, const StepWorker& worker) {
  return fmt::format("{}@{}.{}.{}", key, worker.process.pid, worker.process.start_time, worker.change);
}

// The current time is the number of the change. A counter would start again when this process executes another program,
// which has the same pid and start time. The clock does not jump with the node's time: rdma-nri derives the age of a
// grant from it.
StepWorker new_worker(const LedgerFiles& files) {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return {files.self, static_cast<std::uint64_t>(now / std::chrono::nanoseconds(1))};
}

Result<void> begin_change(const LedgerFiles& files, const std::string& key, const StepWorker& worker) {
  const std::string marker = marker_name(key, worker);
  // The process may call this function twice for one change; the marker is then kept.
  return files.begun[key].insert(marker).second ? make_empty_file(files.pending, marker) : Result<void>();
}

std::string grant_path(const LedgerFiles& files, const std::string& key) {
  return files.grants.path + "/" + record_file(key);
}

Result<std::vector<std::string>> grant_keys(const LedgerFiles& files) {
  constexpr std::string_view kEnding = ".json";
  std::vector<std::string> keys;
  for (const std::string& name : TRY(list_names(files.grants))) {
    if (!name.ends_with(kEnding)) continue;
    std::string key = name.substr(0, name.size() - kEnding.size());
    if (is_file_name(key, kLongestKey)) keys.push_back(std::move(key));
  }
  return keys;
}

Result<std::optional<StoredGrant>> read_record(const LedgerFiles& files, const std::string& key) {
  if (!key.empty() && key == files.new_key) return std::optional<StoredGrant>();
  const auto text = TRY(read_ledger_file(files.grants, record_file(key)));
  if (!text) return std::optional<StoredGrant>();
  return std::optional(TRY(parse_grant(*text, grant_path(files, key), key)));
}

Result<std::optional<StoredGrant>> read_grant(const LedgerFiles& files, const std::string& key) {
  auto grant = TRY(read_record(files, key));
  if (!grant) return grant;
  for (StoredUser& user : grant->users) {
    if (!user.worker) continue;
    grant->changed = std::max(grant->changed.value_or(0), user.worker->change);
    TRY_VOID(check_steps(files, *grant, user));
  }
  return grant;
}

Result<void> write_grant(const LedgerFiles& files, const StoredGrant& grant) {
  const std::string text = grant_text(grant);
  if (text.size() > kLargestLedgerFile) {
    std::size_t ranges = 0;
    for (const PlannedHca& hca : held_hcas(grant))
      ranges += hca.open ? hca.open->contexts.ranges() : 0;
    return Error{
        fmt::format("cannot write grant `{}`: its record has more than {} bytes (users: {}, ranges of contexts "
                    "that were open on its HCAs before: {})",
                    grant.owner.label, kLargestLedgerFile, grant.users.size(), ranges),
        0,
        ranges > grant.users.size() ? "end the processes that have the HCAs open (`rdma resource show ctx`)"
                                    : "end containers of the pod"};
  }
  if (grant.owner.key == files.new_key) files.new_key.clear();
  return files.replace_file(files.grants, record_file(grant.owner.key), text);
}

Result<void> remove_marker(const LedgerFiles& files, const std::string& key, const StepWorker& worker,
                           const std::optional<StoredGrant>& grant) {
  const auto works = [&](const StoredUser& user) { return user.worker == worker; };
  if (grant && std::ranges::any_of(grant->users, works)) return {};
  return remove_file(files.pending, marker_name(key, worker));
}

}  // namespace hook
