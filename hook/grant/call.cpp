#include "hook/grant/call.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include "base/failure.hpp"
#include "hook/ledger/absence.hpp"
#include "hook/ledger/files.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

ReleaseReason reason_of(const Released& released, Releaser by) {
  if (!released.was_allocated) return ReleaseReason::kInterrupted;
  if (released.grant.owner.claim) return ReleaseReason::kClaimEnded;
  if (by == Releaser::kPoststop) return ReleaseReason::kPoststop;
  if (by == Releaser::kRecover) return ReleaseReason::kRecover;
  return is_namespace_absent(released.grant.owner) ? ReleaseReason::kNamespaceEnded : ReleaseReason::kContainerEnded;
}

std::vector<std::string> ids_of(const Grant& grant) {
  std::vector<std::string> ids;
  for (const GrantUser& user : grant.users)
    ids.push_back(user.id);
  return ids;
}

}  // namespace

Result<OpenLedger> OpenLedger::open(Call& call) {
  auto rails = std::make_shared<NodeRails>(call.node.ledger, call.ipam, call.node.root);
  auto ledger =
      TRY(about(FailureReason::kLedger, call.node.kept_ledger ? call.node.kept_ledger->open(rails, call.container)
                                                              : Ledger::open(call.node.ledger, rails, call.container)));
  return OpenLedger{std::move(rails), std::move(ledger)};
}

Result<const OpenLedger*> OpenLedger::keep(Call& call) {
  call.ledger = TRY(open(call));
  return &*call.ledger;
}

Result<std::optional<OpenLedger>> OpenLedger::open_existing(Call& call) {
  if (::access(call.node.ledger.c_str(), F_OK) != 0 && errno == ENOENT) return std::optional<OpenLedger>();
  return std::optional(TRY(open(call)));
}

void OpenLedger::repair(const Log& log) const {
  if (const auto repaired = ledger.repair_pending(); !repaired) log.warning(repaired.error().message);
}

void OpenLedger::report(Releaser by, Call& call) const {
  const bool is_poststop = by == Releaser::kPoststop;
  const std::int64_t now = std::time(nullptr);
  for (Released& released : ledger.take_released()) {
    if (released.stays && !is_poststop) continue;
    const ReleaseReason reason = reason_of(released, by);
    Grant& grant = released.grant;
    const ReleaseEvent event{.owner = grant.owner,
                             .containers = is_poststop ? std::vector<std::string>{call.container} : ids_of(grant),
                             .hcas = std::move(grant.hcas),
                             .rails = rails->released(grant.owner.key),
                             .held = static_cast<std::uint64_t>(std::max<std::int64_t>(0, now - grant.since)),
                             .reason = reason,
                             .left = released.stays,
                             .rails_us = released.rails_us};
    if (is_poststop) call.timing.step("return", "rails", released.rails_us);
    call.log.info(released_line(event, is_poststop ? &call.timing : nullptr));
    if (!released.stays) call.outcome.released.push_back(reason);
  }
  call.log.warnings(rails->take_warnings());
  ledger.remove_left_views();
}

std::optional<NetworkRecord> read_rails_of(const std::string& ledger_directory, const std::string& key) {
  // Most grants have no rails: then this check is the only system call.
  if (is_proven_absent(NetworkRecordStore::read_presence(ledger_directory, key))) return std::nullopt;
  const std::string path = ledger_directory + "/network";
  const auto directory = open_directory(AT_FDCWD, path, path, false);
  const auto text = directory ? read_ledger_file(*directory, key + ".json") : directory.error();
  auto record = text && *text ? parse_network_record(**text, path) : Result<NetworkRecord>(Error{});
  // A record that cannot be read is no error here: the code that needs the rails reads it again, and reports the error.
  return record ? std::optional(std::move(*record)) : std::nullopt;
}

}  // namespace hook
