#include "base/file.hpp"
#include "base/text.hpp"
#include "hook/admin/doctor/checks.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/slurm_conf.hpp"
#include "hook/apply/memlock.hpp"

namespace hook {
std::optional<SlurmFacts> read_slurm_facts(const std::string& root) {
  constexpr std::size_t kLimits = 4096;
  auto conf = read_slurm_conf(root);
  if (!conf) return std::nullopt;
  SlurmFacts facts{std::move(*conf), {}};
  // Debian's file is slurmd-wlm. A slurmd that executes itself again for a new configuration has the name of its file.
  for (const EngineProcess& process : find_processes(root, {"slurmd", "slurmd-wlm"})) {
    if (process.in_container) continue;
    const auto limits = base::read_file(process.directory + "/limits", kLimits);
    if (const auto* text = std::get_if<std::string>(&limits))
      if (const auto memlock = memlock_in(*text)) facts.memlocks.push_back(memlock->soft);
  }
  return facts;
}

Check check_slurm(const SlurmFacts& facts) {
  const std::string file = base::printable(facts.conf.path);
  Check check{"slurm", fmt::format("{}; {} slurmd", file, facts.memlocks.size()), {}, facts.conf.error.empty()};
  for (const std::uint64_t memlock : facts.memlocks) {
    if (memlock == UINT64_MAX) continue;
    check.add(Grade::kWarning, "slurmd.service",
              fmt::format("slurmd has a soft RLIMIT_MEMLOCK of {}, which jobs inherit", limit_text(memlock)),
              "add LimitMEMLOCK=infinity to [Service] with `systemctl edit slurmd.service`, then restart it");
  }
  if (!check.looked) check.summary = facts.conf.error;
  if (!check.looked || !propagates_memlock(facts.conf.settings)) return check;
  check.add(Grade::kWarning, file, "RLIMIT_MEMLOCK of the shell that submits a job replaces that of slurmd",
            fmt::format("set `{}` in it on all nodes, then run `scontrol reconfigure`",
                        setting_with_memlock(facts.conf.settings)));
  return check;
}

}  // namespace hook
