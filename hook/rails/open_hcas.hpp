// HCAs that are still open in a process when their exclusive holder returns them: a container can pass its descriptor
// of a uverbs node to another one, and the context on it outlives the grant.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// A process that has an HCA open. Unknown counts as of a container.
struct OpenProcess {
  pid_t pid = 0;
  std::string name;
  bool of_container = true;
  friend bool operator==(const OpenProcess&, const OpenProcess&) = default;
};

struct OpenContext {
  std::uint32_t id = 0;
  std::vector<OpenProcess> processes;  // empty: none is known
};

// One HCA as it is open now.
struct OpenHca {
  std::vector<OpenContext> contexts;
  std::vector<OpenProcess> descriptors;  // processes with a descriptor of its uverbs node
};

// What the former holder of an HCA left open. Pure.
struct LeftOpen {
  std::vector<OpenProcess> holders;  // processes of containers
  unsigned unknown = 0;              // contexts of which no process is known
  std::vector<OpenProcess> of_node;  // processes in no container's cgroup: they hold nothing back
};
// Contexts that `before` names are not the former holder's; nor is a descriptor of a process that has such a context.
LeftOpen find_left_open(const OpenState& before, const OpenHca& now);
// False: a process there belongs to no container. cgroup: a path of /proc/PID/cgroup. Only groups where systemd keeps
// services and sessions, and the root, are the node's.
bool is_container_cgroup(std::string_view cgroup);

// Notes in a plan how its HCAs of mode exclusive are open, where the RDMA device stays on the node: a move ends all
// contexts by itself. Open ones are a warning in the plan. own: names of HCAs that the owner holds already: their
// contexts are its own. Asks the kernel only if root, the prefix of the node's /sys, is empty; a kernel that cannot be
// asked is a warning.
void note_open(const fabric::Inventory& inventory, const std::vector<std::string>& own, const std::string& root,
               Plan& plan);

// Fails if the former holder left one of these HCAs open. root: prefix of the node's /proc; one that is not empty has
// none if it lacks the directory. descriptors: also look there for descriptors without a context. warnings: gets what
// processes of the node have open. Errors: names HCA, processes and remedy (EBUSY); or it cannot be found out.
fabric::Result<void> check_closed(const std::vector<PlannedHca>& hcas, const std::string& root, bool descriptors,
                                  std::vector<std::string>& warnings);

// A process that has a character device open, as /proc/PID/fd tells.
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
