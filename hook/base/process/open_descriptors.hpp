// Processes that have a character device open, as /proc/PID/fd tells.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/device_number.hpp"

namespace hook {

struct DescriptorHolder {
  pid_t pid = 0;
  DeviceNumber device;
  friend bool operator==(const DescriptorHolder&, const DescriptorHolder&) = default;
};

struct FoundDescriptors {
  std::vector<DescriptorHolder> holders;
  std::map<pid_t, fabric::Error> unseen;  // processes that have not ended, and cannot be looked at
};

// Looks at the processes of this PID namespace for descriptors of one of these devices. Needs CAP_SYS_PTRACE for the
// processes of others. The cost grows with the descriptors of the node. Not seen: a descriptor that is on its way
// through a socket, in an io_uring, or in the own table of a thread that left its process's. Errors: `proc` cannot be
// listed.
fabric::Result<FoundDescriptors> find_descriptors(const std::vector<DeviceNumber>& devices,
                                                  const std::string& proc = "/proc");

}  // namespace hook
