// Carries out the steps of live_steps() on a live container.
//
// Everything below the container's root is resolved by openat2(2) from one pinned descriptor, in one forked child that
// has joined the container's mount namespace; nothing there is followed, whatever the image put there.
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

// The live container that a state of its runtime names: its process, pinned so that no other can take its place.
struct LiveContainer {
  OciState state;
  ProcessIdentity init;
  fabric::UniqueFd pidfd;            // of init; empty before Linux 5.3
  fabric::UniqueFd mount_namespace;  // of init
  std::string root_path;             // absolute: root.path of config.json, joined to the bundle
  FileId rootfs;                     // what the node has there
  NodeFiles node;
  ContainerMounts mounts;
  std::optional<MappedRoot> owner;  // with a user namespace: who the container's root is on the node
};

// Checks that the state's pid is the init of a container and of this bundle: alive, not this node's mount namespace,
// and its root file system there. Errors name the pid. /proc is believed only when it is one.
Result<LiveContainer> pin_container(const OciState& state, const ContainerSpec& spec);

// Errors: ESRCH, the process that was pinned has ended; others: it cannot be looked at.
Result<void> check_alive(const LiveContainer& container);

// The container's root in the terms of the reader's user namespace, of the texts of /proc/PID/uid_map and gid_map
// (user_namespaces(7)); nullopt: uid 0 or gid 0 is not mapped.
std::optional<MappedRoot> parse_mapped_root(std::string_view uid_map, std::string_view gid_map);

// In order, but all files at once, in the place of the first of them: that they can be made shows that the process is
// of this bundle. Each step is idempotent. The first error ends it: the caller fails the start, and runtime and kernel
// throw away the container's mounts, cgroup and process. Returns warnings: what could not be done, without failing the
// container.
Result<std::vector<std::string>> run_steps(const LiveContainer& container, const std::vector<Step>& steps,
                                           Engine engine);

// live_steps() and run_steps() of a plan; nothing for a plan of nothing. root: prefix of the node's /dev. Returns
// warnings. Errors: as both.
Result<std::vector<std::string>> apply_live(const Plan& plan, const ContainerSpec& spec, const LiveContainer& container,
                                            Engine engine, const std::string& root);

// RLIMIT_MEMLOCK of a process that already runs: the first one of a container, before it becomes the workload. Raises
// soft and hard limit to bytes (UINT64_MAX: unlimited); never lowers them. Without CAP_SYS_RESOURCE the hard
// limit stays and the soft one is raised to it: the returned warning says what the container has then. Errors: there is
// no such process.
Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes, Engine engine);

// Runs a function in a child (run_in_child()) that has joined another mount namespace: setns(2) changes the root and
// the working directory of the whole process, so it never happens in the hook itself.
Result<void> run_in_mount_namespace(int mount_namespace, const std::function<Result<void>()>& function);

}  // namespace hook
