#include "shim/kubelet/held_hcas.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/proc.hpp"

namespace shim {
namespace {

using hook::Grant;

// Part of the name of the cgroup above all pods of the kubelet: "kubepods.slice" or "/kubepods", by cgroup driver, and
// "kubelet-kubepods.slice" on kind nodes. Source: pkg/kubelet/cm, Kubernetes 1.34.
constexpr std::string_view kPodsGroup = "kubepods";

bool is_in_pods_group(const hook::GrantUser& user) {
  if (user.cgroup && user.cgroup->path.find(kPodsGroup) != std::string::npos) return true;
  if (!user.process) return false;
  const auto groups = base::read_proc_cgroup(user.process->pid);
  if (!groups || groups->find(kPodsGroup) == std::string::npos) return false;
  const auto same = base::read_presence(*user.process);  // checked last: another process may have got the PID
  return same && *same == base::Presence::kPresent;
}

constexpr std::chrono::milliseconds kUntilOld{20};

struct Stamp {
  std::vector<std::int64_t> value;  // a value for HeldHcaReader::stamp_
  bool is_young = false;            // a later change may leave `value` as it is
};

// The kernel sets mtime from a clock that advances 100 to 1,000 times a second (current_time(), fs/inode.c,
// Linux 6.12). An mtime in the future, after the clock was set back, is old: the clock does not show that moment again
// soon.
Stamp stamp_of(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return {{errno}, false};
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const timespec& then = status.st_mtim;
  const std::int64_t age = (now.tv_sec - then.tv_sec) * 1'000'000'000 + (now.tv_nsec - then.tv_nsec);
  return {{static_cast<std::int64_t>(status.st_ino), then.tv_sec, then.tv_nsec},
          std::chrono::abs(std::chrono::nanoseconds(age)) < kUntilOld};
}

}  // namespace

HcaHold hold_of(const HcaHolds& holds, const std::string& hca) {
  const auto found = holds.find(hca);
  return found == holds.end() ? HcaHold() : found->second;
}

hook::Holdings foreign_holdings(const HcaHolds& holds) {
  hook::Holdings foreign;
  for (const auto& [name, hold] : holds)
    foreign.emplace(name, hold.foreign);
  return foreign;
}

void add_grant(const Grant& grant, bool foreign, HcaHolds& holds) {
  if (grant.stale) return;
  for (const hook::PlannedHca& hca : grant.hcas) {
    if (!hca.claim.empty()) continue;
    HcaHold& hold = holds[hook::booked_as(hca)];
    if (!hca.held_only) hold.units += hca.units;
    hold.is_exclusive = hold.is_exclusive || hca.mode == hook::Mode::kExclusive;
    if (!foreign) continue;
    hold.foreign.others += hca.units;
    if (hca.mode == hook::Mode::kExclusive) hold.foreign.exclusive_owner = grant.owner.label;
  }
}

// Returns true for a grant that a pod of the kubelet has used. The grant stays a pod's grant while the pod's containers
// end and start again.
bool HeldHcaReader::is_of_kubelet(const Grant& grant) {
  const auto is_pods = [](const hook::GrantUser& user) { return !user.pod.empty() || is_in_pods_group(user); };
  if (std::ranges::any_of(grant.users, is_pods)) known_pods_.insert(grant.owner.key);
  return known_pods_.contains(grant.owner.key);
}

Result<void> HeldHcaReader::read(std::vector<Error>& unread) {
  Stamp stamp = stamp_of(ledger_ + "/grants");
  again_at_.reset();
  // Each grant is a file in this directory, so the directory's mtime changes with every grant and release. While there
  // are foreign grants, the ledger is read each time, because their owners may end without a change of the ledger.
  if (stamp.value == stamp_ && !has_foreign_) return {};
  if (stamp.is_young) again_at_ = std::chrono::steady_clock::now() + kUntilOld;
  HcaHolds holds;
  std::map<std::string, BookedHca> booked;
  std::set<std::string> keys;
  bool has_foreign = false;
  const auto use = [&](const Grant& grant) -> Result<void> {
    const bool is_claim = grant.owner.kind == hook::Owner::Kind::kClaim;
    const bool foreign = foreign_ == Foreign::kOutsideOfClaims ? !is_claim : !is_of_kubelet(grant);
    // A claim ends only by a change of the ledger, and a grant that uses only HCAs of claims holds none.
    const auto is_own = [](const hook::PlannedHca& hca) { return hca.claim.empty(); };
    has_foreign = has_foreign || (foreign && !is_claim && std::ranges::any_of(grant.hcas, is_own));
    keys.insert(grant.owner.key);
    add_grant(grant, foreign, holds);
    for (const hook::PlannedHca& hca : grant.hcas) {
      if (grant.stale || hca.held_only) continue;
      // A pod that uses the HCA of a claim has the rail.
      BookedHca& known = booked[hook::booked_as(hca)];
      if (known.owner.empty() || !is_claim) known = {hca.name, grant.owner.key};
    }
    return {};
  };
  // Results are stored only after a complete read: after an error the grants of the last complete read count.
  TRY(hook::Ledger::for_each_at(ledger_, use, &unread));
  std::erase_if(known_pods_, [&](const std::string& key) { return !keys.contains(key); });
  stamp_ = stamp.is_young ? std::vector<std::int64_t>() : std::move(stamp.value);
  has_foreign_ = has_foreign;
  holds_ = std::move(holds);
  booked_ = std::move(booked);
  return {};
}

bool HeldHcaReader::read_again() {
  const HcaHolds before = holds_;
  std::vector<Error> unread;
  return !read(unread) || holds_ != before;
}

HcaHolds HeldHcaReader::of(const fabric::Inventory& inventory, const std::string& root) {
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory.hcas)
    names.push_back(hca.name);
  for (const auto& now : hook::devices_of(names, inventory, root).devices) {
    // The old name of a renamed HCA is removed, so that the same device does not count under two names.
    std::erase_if(devices_, [&](const auto& known) { return known.second == now.second && known.first != now.first; });
    devices_.insert_or_assign(now.first, now.second);
  }
  away_.clear();
  for (const auto& [device, hca] : booked_) {
    // clang++ 14 cannot capture `device`, a part of a structured binding, by reference.
    const auto is_it = [&wanted = device](const auto& known) { return known.second == wanted; };
    // A name that another HCA has now stays with that HCA.
    if (std::ranges::none_of(devices_, is_it)) devices_.emplace(hca.name, device);
    const auto known = devices_.find(hca.name);
    const bool is_its_name = known != devices_.end() && known->second == device;
    if (is_its_name && !fabric::find_hca(inventory, hca.name)) away_.emplace(device, hca);
  }
  HcaHolds holds = holds_;  // includes HCAs without a known device, which the ledger books by name
  for (const auto& [name, device] : devices_)
    if (const auto held = holds_.find(device); held != holds_.end()) holds[name] = held->second;
  return holds;
}

}  // namespace shim
