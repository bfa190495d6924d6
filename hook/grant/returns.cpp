#include "hook/grant/returns.hpp"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <utility>

#include "hook/base/failure.hpp"
#include "hook/grant/open_hcas.hpp"
#include "hook/ledger/ledger_files.hpp"
#include "hook/ledger/ledger_grant.hpp"
#include "hook/rails/record/network_record_store.hpp"

namespace hook {
namespace {

using fabric::Result;

bool was_given(const StoredGrant& grant) {
  const auto settled = [](const StoredUser& user) { return user.settled; };
  return !grant.hcas.empty() || std::any_of(grant.users.begin(), grant.users.end(), settled);
}

// By this process, or by one that may not have ended: a start that fails, or is under way.
bool is_worked_on(const StoredGrant& grant) {
  return std::any_of(grant.users.begin(), grant.users.end(),
                     [](const StoredUser& user) { return user.worker && !user.worker_gone; });
}

std::vector<std::string> ids_of(const StoredGrant& grant) {
  std::vector<std::string> ids;
  for (const StoredUser& user : grant.users)
    ids.push_back(user.user.id);
  return ids;
}

std::uint64_t microseconds_since(std::chrono::steady_clock::time_point begin) {
  const auto passed = std::chrono::steady_clock::now() - begin;
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(passed).count());
}

}  // namespace

std::optional<NetworkRecord> read_rails_of(const std::string& ledger_directory, const std::string& key) {
  if (is_proven_gone(NetworkRecordStore::look_at(ledger_directory, key))) return std::nullopt;
  const std::string path = ledger_directory + "/network";
  const auto directory = open_directory(AT_FDCWD, path, path, false);
  const auto text = directory ? read_ledger_file(*directory, key + ".json") : directory.error();
  auto record = text && *text ? parse_network_record(**text, path) : Result<NetworkRecord>(fabric::Error{});
  return record ? std::optional(std::move(*record)) : std::nullopt;  // why not is said by the steps that need it
}

ReturnReason Returns::reason_of(const StoredGrant& grant) const {
  if (!was_given(grant)) return ReturnReason::kInterrupted;
  if (timing_) return ReturnReason::kPoststop;
  if (caller_ == Caller::kRecover) return ReturnReason::kRecover;
  const bool gone = grant.owner.netns && is_proven_gone(look_at(*grant.owner.netns));
  return gone ? ReturnReason::kNamespaceGone : ReturnReason::kContainerGone;
}

// Of what was never given nothing can be left open.
Result<void> Returns::check_left(const std::vector<PlannedHca>& held, const StoredGrant& grant) const {
  std::vector<PlannedHca> left;
  for (const PlannedHca& hca : grant.hcas) {
    if (!find_hca(held, booked_as(hca))) left.push_back(hca);
  }
  const bool has_failed =
      std::any_of(grant.users.begin(), grant.users.end(), [](const auto& user) { return user.ended; });
  return check_closed(left, root_, !is_start_ || has_failed, warnings_);
}

Result<void> Returns::undo_beyond(const std::string& key, const std::vector<PlannedHca>& held,
                                  const StoredGrant* grant) const {
  const StoredGrant* const whole = grant;
  // A pod's grant that stays is of interest only when this is about one of its containers.
  if (!held.empty() && !timing_) grant = nullptr;
  auto rails = grant ? read_rails_of(directory_, key) : std::nullopt;  // now: undoing removes the record
  if (timing_) timing_->step("return");
  const auto begin = std::chrono::steady_clock::now();
  auto undone = about(FailureReason::kNetwork, rails_.undo_beyond(key, held, grant));
  if (undone && whole) undone = check_left(held, *whole);
  if (timing_) timing_->step("rails");
  if (!undone || !grant || (!was_given(*grant) && is_worked_on(*grant))) return undone;
  Returned returned{.owner = grant->owner, .containers = ids_of(*grant), .hcas = held_hcas(*grant), .rails = {}};
  if (timing_) returned.containers = {container_};
  returned.rails = std::move(rails);
  returned.held = static_cast<std::uint64_t>(std::max<std::int64_t>(0, std::time(nullptr) - grant->since));
  returned.reason = reason_of(*grant);
  returned.left = !held.empty();
  returned.rails_us = microseconds_since(begin);
  notes_.push_back({std::move(returned), timing_});
  return undone;
}

void Returns::begin_poststop(std::string_view container, Timing& timing) {
  container_ = container;
  timing_ = &timing;
}

void Returns::end_poststop() {
  if (timing_) timing_->step("return");
  timing_ = nullptr;
}

void Returns::report(const Log& log, Outcome& outcome) const {
  for (const Note& note : std::exchange(notes_, {})) {
    log.info(returned_line(note.returned, note.timing));
    if (!note.returned.left) outcome.returned.push_back(note.returned.reason);
  }
  log.warnings(rails_.take_warnings());
  log.warnings(std::exchange(warnings_, {}));
}

}  // namespace hook
