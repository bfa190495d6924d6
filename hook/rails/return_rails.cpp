#include "hook/rails/return_rails.hpp"

#include <fcntl.h>
#include <linux/rtnetlink.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "hook/rails/plan/rail_config.hpp"
#include "hook/rails/rail_addresses.hpp"
#include "hook/rails/rail_links.hpp"

namespace hook {
namespace {

using fabric::Result;

// Hardware of a namespace that has ended comes back within some hundred milliseconds, on a loaded node within seconds.
constexpr int kComebackMs = 5000;

// The namespace of the rails, if it is still there; it may be dying.
std::optional<NetworkNamespace> reopen(const NetnsIdentity& netns) {
  fabric::UniqueFd fd(::open(netns.path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  if (!fd.ok() || ::fstat(fd.get(), &status) != 0) return std::nullopt;
  if (status.st_dev != netns.dev || status.st_ino != netns.ino) return std::nullopt;
  auto inside = open_network_namespace(std::move(fd), NetnsParts());
  return inside ? std::optional(std::move(*inside)) : std::nullopt;
}

bool is_held(const RailRecord& rail, const std::vector<PlannedHca>& held) {
  return std::any_of(held.begin(), held.end(), [&](const PlannedHca& hca) { return hca.name == rail.rail.hca; });
}

void note(Result<void>& first, Result<void> result) {
  if (first && !result) first = std::move(result);
}

// All children at once: the kernel waits for its readers once per message, and that is what deleting a netdev costs.
Result<void> remove_children(NetworkNamespace* inside, const NetworkRecord& record,
                             const std::vector<RailRecord>& leaving) {
  const bool children = std::any_of(leaving.begin(), leaving.end(),
                                    [](const RailRecord& rail) { return rail.rail.kind != RailKind::kMove; });
  if (!inside || !children || leaving.size() != record.rails.size()) return {};
  return delete_link_group(inside->route, record.group);
}

// Rules name addresses, not netdevs: they do not go when a netdev goes.
Result<void> remove_rules(NetworkNamespace* inside, const std::vector<RailRecord>& leaving) {
  if (!inside) return {};
  for (const RailRecord& rail : leaving) {
    auto records = configure_rail(rail.rail, rail.host.ifindex, rail.rule_priority, rail.host.records).routes;
    std::erase_if(records, [](const NetRecord& record) { return record.type != RTM_NEWRULE; });
    TRY_VOID(remove_records(inside->route, records));
  }
  return {};
}

// Returns with the rails that could not be put right.
Result<void> put_back(const NetworkRecord& record, std::vector<RailRecord>& leaving,
                      std::vector<std::string>& warnings) {
  auto node = TRY(open_node_sockets());
  auto inside = reopen(record.netns);
  NetworkNamespace* const place = inside ? &*inside : nullptr;
  Result<void> first = remove_rules(place, leaving);
  note(first, remove_children(place, record, leaving));
  for (auto rail = leaving.rbegin(); rail != leaving.rend(); ++rail)
    note(first, put_back_rail(node, place, *rail, kComebackMs, warnings, record.group));
  return first;
}

}  // namespace

NodeRails::NodeRails(std::string ledger_directory, IpamHelper* ipam)
    : directory_(std::move(ledger_directory)), ipam_(ipam) {}

Result<void> NodeRails::undo_beyond(const std::string& key, const std::vector<PlannedHca>& held) const {
  if (!NetworkRecordStore::has(directory_, key)) return {};
  const auto store = TRY(NetworkRecordStore::open(directory_));
  auto record = TRY(store.read(key));
  if (!record) return {};
  std::vector<RailRecord> leaving;
  std::vector<RailRecord> staying;
  for (RailRecord& rail : record->rails)
    (is_held(rail, held) ? staying : leaving).push_back(rail);
  if (leaving.empty() && !staying.empty()) return {};
  TRY_VOID(put_back(*record, leaving, warnings_));
  // Addresses go last: nobody else may have them while a netdev still answers for them.
  if (const auto returned = return_addresses(directory_, ipam_, key, record->netns, leaving); !returned) {
    warnings_.push_back(returned.error().message);
    std::erase_if(leaving, [](const RailRecord& rail) { return !rail.lease; });
    staying.insert(staying.end(), leaving.begin(), leaving.end());
  }
  record->rails = std::move(staying);
  return record->rails.empty() ? store.remove(key) : store.write(*record);
}

Result<std::vector<std::string>> NodeRails::recover(const Ledger& ledger) const {
  std::vector<std::string> recovered;
  const auto store = TRY(NetworkRecordStore::open(directory_));
  for (const std::string& key : TRY(store.keys())) {
    if (TRY(ledger.find(key))) continue;
    const auto undone = undo_all(key);
    if (!undone) warnings_.push_back(undone.error().message);  // the others all the same
    if (!NetworkRecordStore::has(directory_, key)) recovered.push_back(key);
  }
  return recovered;
}

std::vector<std::string> NodeRails::take_warnings() const {
  return std::exchange(warnings_, {});
}

}  // namespace hook
