#include "hook/admin/doctor/checks.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <set>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"
#include "hook/claim/claims.hpp"
#include "hook/rails/record/store.hpp"

namespace hook {
namespace {

void check_room(const LedgerFacts& facts, Check& check) {
  // The record of a grant needs one inode and some kilobytes. The warning comes while there is room for some hundred
  // grants.
  constexpr std::uint64_t kFewBytes = 4 << 20;
  constexpr std::uint64_t kFewFiles = 256;
  const std::uint64_t kib = facts.free_bytes >> 10;
  if (facts.read_only) {
    check.add(Grade::kBroken, facts.path, "its file system is read-only: no container gets an HCA",
              "run `mount -o remount,rw /run`");
  } else if (facts.free_bytes < kFewBytes || facts.free_files < kFewFiles) {
    check.add(kib == 0 || facts.free_files == 0 ? Grade::kBroken : Grade::kWarning, facts.path,
              fmt::format("its file system has {} KiB and {} inodes left", kib, facts.free_files),
              "enlarge it, or find large files with `du -x /run` and remove those that no program uses");
  }
}

// Adds a finding for each allocated HCA that was renamed after its grant. Skips an HCA that the node does not have now:
// it is in the container's network namespace.
void check_names(const LedgerFacts& facts, Check& check) {
  std::set<std::string> reported;
  for (const Grant& grant : facts.grants) {
    for (const PlannedHca& hca : grant.hcas) {
      const auto found = hca.device.empty() ? facts.names.end() : facts.names.find(hca.device);
      if (found == facts.names.end()) continue;
      const auto& names = found->second;
      if (std::ranges::find(names, hca.name) != names.end() || !reported.insert(hca.name).second) continue;
      const std::string now = base::printable(names.front());
      const std::string before = base::printable(hca.name);
      check.add(
          Grade::kWarning, before,
          fmt::format(
              "the HCA that was allocated under this name is now named `{}`: requests, `rails` of config.json and "
              "NCCL_IB_HCA do not find the HCA by this name",
              now),
          fmt::format(
              "run `rdma dev set {} name {}`; a container with CAP_NET_ADMIN can rename HCAs while network namespaces "
              "share RDMA devices",
              now, before));
    }
  }
}

// Adds a warning for each GID whose index changed after the container started: the container's variables, such as
// NCCL_IB_GID_INDEX, keep the old index.
void check_moved(const LedgerFacts& facts, Check& check) {
  for (const MovedGid& gid : facts.moved) {
    const std::string now = gid.index ? fmt::format("at index {}", *gid.index) : std::string("not in the GID table");
    check.findings.push_back(
        {Grade::kWarning, base::printable(gid.placed.owner_label),
         fmt::format("its GID {} of {} was at index {} when the container started, and is {} now",
                     to_string(gid.placed.addresses.front()), base::printable(gid.placed.hca), gid.placed.index, now),
         "restart the container: its programs use the old index"});
  }
}

// Adds the findings of prepared claims of Dynamic Resource Allocation.
void check_prepared_claims(const LedgerFacts& facts, Check& check) {
  for (const Grant& grant : facts.grants) {
    if (!grant.owner.claim || grant.pending) continue;
    const std::string label = base::printable(grant.owner.label);
    const auto lost = facts.lost_claim_files.find(grant.owner.key);
    if (lost != facts.lost_claim_files.end())
      check.add(Grade::kBroken, label,
                fmt::format("its CDI file `{}` is missing: no container of its pods can start again", lost->second),
                "delete the pods that use the claim: rdma-dra writes the file when a new pod starts");
    if (facts.claim_driver && !facts.claim_driver->is_ready)
      check.add(Grade::kWarning, label,
                fmt::format("is prepared, but rdma-dra is not ready ({}): pods that use it stay in Terminating",
                            base::printable(facts.claim_driver->text)),
                "start rdma-dra; if it was removed for ever, run `rdma-hook recover --claim UID` for each of these "
                "claims");
  }
}

// Reads the facts of check_prepared_claims().
void read_claim_facts(const std::string& root, LedgerFacts& facts) {
  for (const Grant& grant : facts.grants) {
    if (!grant.owner.claim || grant.pending) continue;
    if (!facts.claim_driver) facts.claim_driver = base::probe_daemon(facts.path, "rdma-dra");
    const std::string file = claim_file(root + kClaimDirectory, claim_uid(grant.owner.key));
    if (::access(file.c_str(), F_OK) != 0 && errno == ENOENT) facts.lost_claim_files.emplace(grant.owner.key, file);
  }
}

// Adds the recorded GID indices of a grant's rails. Skips a stale grant, because no container uses its rails any more.
Result<void> add_gids(const std::string& ledger, const Grant& grant, std::vector<PlacedGid>& gids) {
  if (grant.stale || TRY(NetworkRecordStore::read_presence(ledger, grant.owner.key)) == Presence::kAbsent) return {};
  const auto records = TRY(NetworkRecordStore::open(ledger));
  const auto record = TRY(records.read(grant.owner.key));
  if (!record) return {};
  for (const RailRecord& rail : record->rails) {
    if (!rail.gid_index || rail.rail.addresses.empty()) continue;
    PlacedGid placed{grant.owner.label, rail.rail.hca, {}, *rail.gid_index};
    for (const RailAddress& address : rail.rail.addresses)
      placed.addresses.push_back(address.address);
    gids.push_back(std::move(placed));
  }
  return {};
}

}  // namespace

LedgerFacts read_ledger_facts(const std::string& path, const std::string& root) {
  LedgerFacts facts;
  facts.path = path;
  struct statvfs disk {};
  const std::string above = path.substr(0, path.rfind('/'));
  // The directory of the ledger does not exist before the first grant. Then its parent is read, which is on the same
  // file system.
  if (::statvfs(path.c_str(), &disk) == 0 || ::statvfs(above.c_str(), &disk) == 0) {
    facts.free_bytes = disk.f_bavail * disk.f_frsize;
    // Some file systems, such as btrfs, report no inodes. The check then uses only the free bytes.
    if (disk.f_files != 0) facts.free_files = disk.f_favail;
    facts.read_only = (disk.f_flag & ST_RDONLY) != 0;
  }
  const auto add = [&](const Grant& grant) -> Result<void> {
    facts.grants.push_back(grant);
    // If the record of a grant's rails cannot be read, its error is kept and the remaining grants are still read.
    if (auto added = add_gids(path, grant, facts.gids); !added) facts.unread.push_back(added.error());
    return {};
  };
  const auto read = Ledger::for_each_at(path, add, &facts.unread);
  facts.is_there = !read.has_value() || *read;
  if (!read.has_value()) facts.unread.push_back(read.error());
  read_claim_facts(root, facts);
  return facts;
}

std::vector<MovedGid> moved_gids(const std::vector<PlacedGid>& placed, const fabric::Inventory& inventory) {
  std::vector<MovedGid> moved;
  for (const PlacedGid& one : placed) {
    const fabric::Hca* hca = fabric::find_hca(inventory, one.hca);
    if (!hca) continue;
    std::optional<unsigned> now;
    bool stays = false;
    bool is_known = false;
    for (const fabric::Port& port : hca->ports) {
      is_known = is_known || (port.gids_complete && !port.gids_error && !port.gids.empty());
      for (const fabric::GidEntry& gid : port.gids) {
        if (std::ranges::find(one.addresses, gid.gid) == one.addresses.end()) continue;
        stays = stays || gid.index == one.index;
        if (gid.is_v2() && !now) now = gid.index;
      }
    }
    // A GID table that was not read completely cannot prove that a GID moved.
    if (is_known && !stays) moved.push_back({one, now});
  }
  return moved;
}

Check check_ledger(const LedgerFacts& facts) {
  Check check{"ledger", {}, {}};
  for (const Error& error : facts.unread)
    check.add(Grade::kBroken, facts.path, error.message, base::remedy_of(error));
  for (const Grant& grant : facts.grants) {
    if (!grant.stale) continue;
    std::vector<std::string> names;
    for (const PlannedHca& hca : grant.hcas)
      names.push_back(base::printable(hca.name));
    check.add(Grade::kWarning, base::printable(grant.owner.label),
              fmt::format("has ended but still has {}", base::join(names, ", ")),
              "run `rdma-hook recover` and `systemctl enable --now rdma-recover.timer`");
  }
  check_names(facts, check);
  check_moved(facts, check);
  check_prepared_claims(facts, check);
  check_room(facts, check);
  check.summary = facts.is_there ? fmt::format("{} grant{} in {}", facts.grants.size(),
                                               facts.grants.size() == 1 ? "" : "s", facts.path)
                                 : facts.path + " does not exist before the first grant";
  return check;
}

}  // namespace hook
