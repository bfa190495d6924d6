// Settings of a netdev that only sysfs has, and that stay with the netdev when it moves: whoever has CAP_NET_ADMIN in
// its network namespace can change them (net/core/net-sysfs.c, Linux 6.12).
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/sysfs.hpp"

namespace hook {

struct SysfsSetting {
  const char* name;
  // The directories of its queues below queues/, without their numbers; nullptr: it is the netdev's own.
  const char* queues;
  // Writing it also sets the values of all NAPI instances, which netdev netlink changes one by one (Linux 6.13).
  bool is_of_napis = false;
};
// Each costs 3 system calls, or 3 for each queue and 1 more.
inline constexpr std::array<SysfsSetting, 6> kSysfsSettings{{{"threaded", nullptr, true},
                                                             {"gro_flush_timeout", nullptr, true},
                                                             {"napi_defer_hard_irqs", nullptr, true},
                                                             {"rps_cpus", "rx-"},
                                                             {"rps_flow_cnt", "rx-"},
                                                             {"xps_cpus", "tx-"}}};

// By setting, then by queue. Empty: the kernel has no such setting of this netdev, or it could not be read.
using SysfsSettings = std::array<std::vector<std::string>, kSysfsSettings.size()>;

// netdev: its directory. name: for messages. warnings: settings that could not be read.
SysfsSettings read_sysfs_settings(const fabric::sysfs::Directory& netdev, std::string_view name,
                                  std::vector<std::string>& warnings);
// Writes the values of before where they differ. Queues that were not there before get no value. netdev: its directory
// on a mount that is writable. Returns refusals, for people: one for each setting. The kernel refuses `threaded` while
// most netdevs are down.
std::vector<std::string> restore_sysfs_settings(const fabric::sysfs::Directory& netdev, std::string_view name,
                                                const SysfsSettings& before);

// Whether a record may contain this as a value.
bool is_sysfs_value(std::string_view text);

}  // namespace hook
