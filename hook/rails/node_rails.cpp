#include "hook/rails/node_rails.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/failure.hpp"
#include "base/warnings.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/addresses.hpp"
#include "hook/rails/open_hcas.hpp"
#include "hook/rails/record/store.hpp"
#include "hook/rails/restore_rails.hpp"

namespace hook {

NodeRails::NodeRails(std::string ledger_directory, IpamHelper* ipam, std::string root)
    : directory_(std::move(ledger_directory)), ipam_(ipam), root_(std::move(root)) {}

// Returns the record of the grant's rails; nullopt: it has none.
Result<std::optional<NodeRails::OpenRecord>> NodeRails::find_record(const std::string& key) const {
  if (TRY(NetworkRecordStore::read_presence(directory_, key)) == Presence::kAbsent) return std::optional<OpenRecord>();
  auto store = TRY(NetworkRecordStore::open(directory_));
  auto record = TRY(store.read(key));
  return record ? std::optional(OpenRecord(std::move(store), *std::move(record))) : std::nullopt;
}

Result<void> NodeRails::release_except(const std::string& key, const std::vector<PlannedHca>& held,
                                       const StoredGrant* grant) const {
  constexpr FailureReason kNetwork = FailureReason::kNetwork;
  released_.erase(key);
  if (auto found = TRY(about(kNetwork, find_record(key)))) {
    const NetworkRecord& record = found->second;
    released_.emplace(key, record);
    // A rail stays if a user of the grant still has its HCA, by its device: the HCA can have been renamed between the
    // starts of two users.
    const auto is_held = [&](const RailRecord& rail) {
      return std::ranges::any_of(held, [&](const PlannedHca& hca) {
        return rail.device.empty() ? hca.name == rail.rail.hca : booked_as(hca) == rail.device;
      });
    };
    std::vector<RailRecord> leaving;
    std::vector<RailRecord> staying;
    for (const RailRecord& rail : record.rails)
      (is_held(rail) ? staying : leaving).push_back(rail);
    if (!leaving.empty() || staying.empty()) {  // if both are empty, the record has no rail and is removed
      auto node = TRY(about(kNetwork, open_node_sockets()));
      RailRestorer restorer(std::move(node), record, deadline_, warnings_);
      TRY_VOID(about(kNetwork, restorer.restore_rails(leaving, found->first, root_ + "/proc")));
      TRY_VOID(about(kNetwork, remove_rails(*std::move(found), std::move(leaving), std::move(staying))));
    }
  }
  return grant ? check_left(held, *grant) : Result<void>();
}

// Releases the addresses of the rails that leave, and removes these rails from the record. Addresses are released last,
// so that an address is not allocated again while a netdev of this grant answers for it. After an error the rails with
// a lease of an IPAM plugin stay in the record. Rails with addresses from ranges do not stay: recover() and
// take_addresses() find these addresses in AddressPool.
Result<void> NodeRails::remove_rails(OpenRecord found, std::vector<RailRecord> leaving,
                                     std::vector<RailRecord> staying) const {
  auto& [store, record] = found;
  const auto released = release_rail_addresses(directory_, ipam_, record, leaving, deadline_);
  if (!released) {
    warnings_.push_back(released.error().message + "; remedy: run `rdma-hook recover`");
    std::erase_if(leaving, [](const RailRecord& rail) { return !rail.lease; });
    for (RailRecord& rail : leaving)
      rail.child = 0;
    staying.insert(staying.end(), leaving.begin(), leaving.end());
  }
  record.rails = std::move(staying);
  return record.rails.empty() ? store.remove(record.key) : store.write(record);
}

// Checks only HCAs of users whose start was completed (grant.hcas). A user whose start failed had no process that could
// open an HCA. During a start, descriptors are searched only after an earlier failure, because the search reads all
// processes of the node.
Result<void> NodeRails::check_left(const std::vector<PlannedHca>& held, const StoredGrant& grant) const {
  std::vector<PlannedHca> left;
  for (const PlannedHca& hca : grant.hcas)
    if (!find_hca(held, booked_as(hca))) left.push_back(hca);
  const bool has_failed = std::ranges::any_of(grant.users, [](const auto& user) { return user.ended; });
  return check_closed(left, root_, !is_start_ || has_failed, warnings_);
}

Result<std::vector<std::string>> NodeRails::recover(const Ledger& ledger, Deadline deadline) const {
  std::map<std::string, const char*> left;  // the grants that are left, by key
  const auto addresses = address_owners(directory_);
  if (!addresses) warnings_.push_back(addresses.error().message);
  for (const std::string& key : addresses ? *addresses : std::set<std::string>())
    left[key] = "addresses";
  const auto store = TRY(NetworkRecordStore::open(directory_));
  for (const std::string& key : TRY(store.keys()))
    left[key] = "rails";
  std::vector<std::string> recovered;
  std::vector<std::string> stuck;
  // The first pass does not wait, so that a grant whose rails cannot be restored yet does not use up the time of the
  // other grants.
  for (const Deadline until : {Deadline(), deadline}) {
    stuck.clear();
    std::erase_if(left, [&](const auto& item) {
      const auto released = release_addresses(ledger, directory_, item.first, until);
      if (!released.has_value())
        stuck.push_back(fmt::format("{} of `{}`: {}", item.second, item.first, released.error().message));
      if (released.has_value() && *released) recovered.push_back(fmt::format("{} of {}", item.second, item.first));
      return released.has_value();
    });
    if (stuck.empty()) break;
  }
  append(stuck, warnings_);
  return recovered;
}

std::optional<NetworkRecord> NodeRails::released(const std::string& key) const {
  const auto found = released_.find(key);
  return found == released_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::string> NodeRails::take_warnings() const {
  return std::exchange(warnings_, {});
}

}  // namespace hook
