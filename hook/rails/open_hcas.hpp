// Detects HCAs that are still open in a process when their exclusive grant is released. A container can pass its
// descriptor of a uverbs node to another container, and the context of the descriptor then outlives the grant.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/plan/plan.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// A process that has an HCA open.
struct OpenProcess {
  pid_t pid = 0;
  std::string name;
  bool of_container = true;  // false: a process of the node; true: a process of a container, or unknown
  friend bool operator==(const OpenProcess&, const OpenProcess&) = default;
};

struct OpenContext {
  std::uint32_t id = 0;
  std::vector<OpenProcess> processes;  // empty: the processes are unknown
};

// The contexts and descriptors of one HCA at one moment.
struct OpenHca {
  std::vector<OpenContext> contexts;
  std::vector<OpenProcess> descriptors;  // processes with a descriptor of the HCA's uverbs node
};

// The processes that opened an HCA after its grant and still have it open.
struct LeftOpen {
  std::vector<OpenProcess> of_containers;  // processes of containers
  unsigned unknown = 0;                    // number of contexts of which no process is known
  std::vector<OpenProcess> of_node;        // processes outside of containers, which do not delay the release of the HCA
};
// Returns the processes that have the HCA open `now` and did not have it open `before`, and the number of contexts
// without a known process. The contexts in `before` are older than the grant: ignores these contexts, and the
// descriptors of processes that have one of them. Pure.
LeftOpen find_left_open(const OpenState& before, const OpenHca& now);
// Returns false if processes in this cgroup belong to the node: in the root cgroup, and in cgroups in which systemd
// keeps services and sessions. Returns true for any other cgroup.
// cgroup: a path of /proc/PID/cgroup.
bool is_container_cgroup(std::string_view cgroup);

// Records in the plan the contexts that are open on the HCAs that the plan allocates in mode exclusive, and adds a
// warning for each such HCA that is open. Skips RDMA devices that move or are made again in the container, because both
// end all contexts of the device. A failed query is a warning.
// own: names of HCAs that the owner already has; their contexts belong to the owner and are not recorded.
// root: prefix of the node's /sys; the kernel is queried only if root is empty.
void note_open(const fabric::Inventory& inventory, const std::vector<std::string>& own, const std::string& root,
               Plan& plan);

// Returns an error if one of these HCAs was opened since its grant and is still open, except in processes of the node.
// Skips HCAs for which note_open() recorded nothing.
// root: prefix of the node's /proc; descriptors are not searched if root is not empty and has no /proc.
// descriptors: true also searches /proc for open descriptors of the uverbs nodes, which can exist without a context.
// warnings: gets a line for each HCA that is open in processes of the node.
// Errors: EBUSY, an HCA is open, with processes and remedy; a query of the kernel fails.
base::Result<void> check_closed(const std::vector<PlannedHca>& hcas, const std::string& root, bool descriptors,
                                std::vector<std::string>& warnings);

// A process that has a character device open, found by /proc/PID/fd.
struct OpenDescriptor {
  pid_t pid = 0;
  DeviceNumber device;
  friend bool operator==(const OpenDescriptor&, const OpenDescriptor&) = default;
};

struct FoundDescriptors {
  std::vector<OpenDescriptor> descriptors;
  std::map<pid_t, base::Error> unseen;  // running processes that cannot be read, with the reason
};

// Searches the processes of this PID namespace for descriptors of these devices. Needs CAP_SYS_PTRACE for processes of
// other users. The cost grows with the number of descriptors on the node. Does not find a descriptor in a socket's
// queue, in an io_uring, or in the private table of a thread (unshare(CLONE_FILES)).
// Errors: `proc` cannot be listed.
base::Result<FoundDescriptors> find_descriptors(const std::vector<DeviceNumber>& devices,
                                                const std::string& proc = "/proc");

}  // namespace hook
