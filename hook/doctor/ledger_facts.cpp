#include "hook/doctor/ledger_facts.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <set>

#include "fabric/remedy.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

void check_room(const LedgerFacts& facts, Check& check) {
  constexpr std::uint64_t kFewBytes = 4 << 20;
  constexpr std::uint64_t kFewFiles = 256;
  const std::uint64_t kib = facts.free_bytes >> 10;
  if (facts.read_only) {
    check.findings.push_back({Grade::kBroken, facts.path,
                              "its file system is read-only: no container is given anything",
                              "mount -o remount,rw /run"});
  } else if (facts.free_bytes < kFewBytes || facts.free_files < kFewFiles) {
    check.findings.push_back({kib == 0 || facts.free_files == 0 ? Grade::kBroken : Grade::kWarning, facts.path,
                              fmt::format("its file system has {} KiB and {} files left", kib, facts.free_files),
                              "look for what fills /run (`du -x /run`)"});
  }
}

// An HCA that is not here is a container's.
void check_names(const LedgerFacts& facts, Check& check) {
  std::set<std::string> reported;
  for (const Grant& grant : facts.grants) {
    for (const PlannedHca& hca : grant.hcas) {
      const auto found = hca.device.empty() ? facts.names.end() : facts.names.find(hca.device);
      if (found == facts.names.end()) continue;
      const auto& names = found->second;
      if (std::find(names.begin(), names.end(), hca.name) != names.end() || !reported.insert(hca.name).second) continue;
      const std::string now = fabric::printable(names.front());
      const std::string before = fabric::printable(hca.name);
      check.findings.push_back(
          {Grade::kWarning, before,
           fmt::format("the HCA that was allocated under this name is named `{}` now: requests by name, `rails` of "
                       "config.json and NCCL_IB_HCA miss it",
                       now),
           fmt::format(
               "rdma dev set {} name {}; a container with CAP_NET_ADMIN can rename HCAs while network namespaces "
               "share RDMA devices",
               now, before)});
    }
  }
}

}  // namespace

LedgerFacts read_ledger_facts(const std::string& path) {
  LedgerFacts facts;
  facts.path = path;
  struct statvfs disk {};
  const std::string above = path.substr(0, path.rfind('/'));
  if (::statvfs(path.c_str(), &disk) == 0 || ::statvfs(above.c_str(), &disk) == 0) {
    facts.free_bytes = disk.f_bavail * disk.f_frsize;
    if (disk.f_files != 0) facts.free_files = disk.f_favail;
    facts.read_only = (disk.f_flag & ST_RDONLY) != 0;
  }
  const auto add = [&](const Grant& grant) -> fabric::Result<void> {
    facts.grants.push_back(grant);
    return {};
  };
  const auto read = Ledger::for_each_at(path, add, &facts.unread);
  facts.is_there = !read.has_value() || *read;
  if (!read.has_value()) facts.unread.push_back(read.error());
  return facts;
}

Check check_ledger(const LedgerFacts& facts) {
  Check check{"ledger", {}, {}};
  for (const fabric::Error& error : facts.unread)
    check.findings.push_back({Grade::kBroken, facts.path, error.message, fabric::remedy_of(error)});
  for (const Grant& grant : facts.grants) {
    if (!grant.vanished) continue;
    std::vector<std::string> names;
    for (const PlannedHca& hca : grant.hcas)
      names.push_back(fabric::printable(hca.name));
    check.findings.push_back(
        {Grade::kWarning, fabric::printable(grant.owner.label),
         fmt::format("is gone, and still holds {}", fabric::join(names, ", ")),
         "rdma-hook recover; is rdma-recover.timer on? (systemctl enable --now rdma-recover.timer)"});
  }
  check_names(facts, check);
  check_room(facts, check);
  check.summary = facts.is_there ? fmt::format("{} grant{} in {}", facts.grants.size(),
                                               facts.grants.size() == 1 ? "" : "s", facts.path)
                                 : facts.path + " is made with the first grant";
  return check;
}

}  // namespace hook
