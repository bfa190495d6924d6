#include "shim/device_plugin/hold_reader.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "fabric/sysfs.hpp"
#include "hook/grant/hcas.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::Grant;

// The kubelet puts its pods' containers below it, with whichever cgroup driver (pkg/kubelet/cm, Kubernetes 1.34:
// "kubepods.slice", "/kubepods"; kind: "kubelet-kubepods.slice").
constexpr std::string_view kPodsGroup = "kubepods";

bool is_in_pods_group(const hook::GrantUser& user) {
  constexpr std::size_t kLongest = 65536;
  if (user.cgroup && user.cgroup->path.find(kPodsGroup) != std::string::npos) return true;
  if (!user.process) return false;
  const auto groups = fabric::sysfs::read_file(fmt::format("/proc/{}/cgroup", user.process->pid), kLongest);
  const auto* text = std::get_if<std::string>(&groups);
  if (!text || text->find(kPodsGroup) == std::string::npos) return false;
  const auto same = hook::look_at(*user.process);  // after, for the number may be another's by now
  return same && *same == hook::Presence::kPresent;
}

std::vector<std::int64_t> stamp_of(const std::string& directory) {
  struct stat status {};
  if (::stat(directory.c_str(), &status) != 0) return {errno};
  return {static_cast<std::int64_t>(status.st_ino), status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
}

}  // namespace

void add_grant(const Grant& grant, bool foreign, HcaHolds& holds) {
  if (grant.vanished) return;
  for (const hook::PlannedHca& hca : grant.hcas) {
    HcaHold& hold = holds[hook::booked_as(hca)];
    if (!hca.held_only) hold.units += hca.units;
    if (!foreign) continue;
    hold.foreign.others += hca.units;
    if (hca.mode == hook::Mode::kExclusive) hold.foreign.exclusive_holder = grant.owner.label;
  }
}

// One that was a pod's stays so, while its containers end and start again.
bool HoldReader::is_of_kubelet(const Grant& grant) {
  const auto is_pods = [](const hook::GrantUser& user) { return !user.pod.empty() || is_in_pods_group(user); };
  if (std::any_of(grant.users.begin(), grant.users.end(), is_pods)) known_pods_.insert(grant.owner.key);
  return known_pods_.contains(grant.owner.key);
}

Result<void> HoldReader::read(std::vector<fabric::Error>& unread) {
  auto stamp = stamp_of(ledger_ + "/grants");
  if (stamp == stamp_ && !has_foreign_) return {};
  HcaHolds holds;
  std::set<std::string> keys;
  bool has_foreign = false;
  const auto use = [&](const Grant& grant) -> Result<void> {
    const bool foreign = !is_of_kubelet(grant);
    has_foreign = has_foreign || foreign;
    keys.insert(grant.owner.key);
    add_grant(grant, foreign, holds);
    return {};
  };
  TRY(hook::Ledger::for_each_at(ledger_, use, &unread));
  std::erase_if(known_pods_, [&](const std::string& key) { return !keys.contains(key); });
  stamp_ = std::move(stamp);
  has_foreign_ = has_foreign;
  holds_ = std::move(holds);
  return {};
}

HcaHolds HoldReader::of(const fabric::Inventory& inventory, const std::string& root) {
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory.hcas)
    names.push_back(hca.name);
  for (const auto& now : hook::devices_of(names, inventory, root).devices) {
    std::erase_if(devices_, [&](const auto& known) { return known.second == now.second && known.first != now.first; });
    devices_.insert_or_assign(now.first, now.second);
  }
  HcaHolds holds = holds_;  // also what has no device and was booked by its name
  for (const auto& [name, device] : devices_) {
    if (const auto held = holds_.find(device); held != holds_.end()) holds[name] = held->second;
  }
  return holds;
}

}  // namespace shim
