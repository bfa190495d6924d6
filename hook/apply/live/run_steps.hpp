// Runs the steps of live_steps() on a live container.
//
// All paths below the container's root are resolved from one pinned descriptor (open_in_root()), in a child that has
// joined the container's mount namespace. No symlink is followed, because the image controls them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/apply/live/container_root.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/engine.hpp"
#include "hook/oci/state.hpp"

namespace hook {

// The container of a runtime's state. Its process is pinned, so that no other process can replace it.
struct LiveContainer {
  OciState state;
  ProcessIdentity init;
  fabric::UniqueFd pidfd;            // of init; invalid before Linux 5.3
  fabric::UniqueFd mount_namespace;  // of init
  std::string root_path;             // absolute: root.path of config.json, joined to the bundle
  FileId rootfs;                     // its identity on the node
  NodeFiles node;
  ContainerMounts mounts;
  std::optional<MappedRoot> owner;  // with a user namespace: the container's root on the node
};

// Checks the container of a runtime's state and pins its process. Errors: the process has ended; it is in the node's
// mount namespace; the bundle's root file system does not exist; /proc is not a proc file system; with a user
// namespace, uid 0 or gid 0 is not mapped. The file steps of run_steps() check that the process belongs to the bundle.
Result<LiveContainer> pin_container(const OciState& state, const ContainerSpec& spec);

// Checks that the pinned process still runs. Errors: ESRCH, the process has ended; other codes: the lookup failed.
Result<void> check_alive(const LiveContainer& container);

// Returns the container's root as ids of the reader's user namespace, from the texts of /proc/PID/uid_map and gid_map
// (user_namespaces(7)); nullopt: uid 0 or gid 0 is not mapped.
std::optional<MappedRoot> parse_mapped_root(std::string_view uid_map, std::string_view gid_map);

// Runs the steps in order, but all file steps together at the first of them. A file step succeeds only if the process
// belongs to this bundle (ContainerRoot::open()). Each step is idempotent. The first error ends the call; the caller
// then fails the start, and the runtime and the kernel discard the container's mounts, cgroup and process.
// Returns warnings: changes that were not possible and do not fail the container.
Result<std::vector<std::string>> run_steps(const LiveContainer& container, const std::vector<Step>& steps,
                                           Engine engine);

// Runs live_steps() and run_steps() of a plan; does nothing for an empty plan. root: prefix of the node's /dev. Returns
// warnings. Errors: as these two functions.
Result<std::vector<std::string>> apply_live(const Plan& plan, const ContainerSpec& spec, const LiveContainer& container,
                                            Engine engine, const std::string& root);

// Raises RLIMIT_MEMLOCK of a running process, the first one of a container, before it executes the workload. Raises
// soft and hard limit to `bytes` (UINT64_MAX: unlimited) and never lowers them. Without CAP_SYS_RESOURCE only the soft
// limit is raised, to the hard one, and the returned warning has the result. Errors: as prlimit(2), except EPERM.
Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes, Engine engine);

// Runs a function in a child (run_in_child()) that has joined another mount namespace. setns(2) changes the root and
// working directory of the whole process, so the hook itself never calls it.
Result<void> run_in_mount_namespace(int mount_namespace, const std::function<Result<void>()>& function);

}  // namespace hook
