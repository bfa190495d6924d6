// Runs the steps of live_steps() on a container that exists but has not started its program.
//
// All paths below the container's root are resolved from one open descriptor (open_in_root()), in a child process that
// has joined the container's mount namespace. Symlinks are not followed, because the image controls them.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/live/container_root.hpp"
#include "hook/apply/live/steps.hpp"
#include "hook/oci/engine.hpp"
#include "hook/oci/state.hpp"

namespace hook {

// The container that the runtime names in the state on the hook's standard input. Open descriptors identify its
// process, so that no later process with the same PID is mistaken for it.
struct LiveContainer {
  OciState state;
  ProcessIdentity init;
  base::UniqueFd pidfd;            // pidfd of the container's init; invalid before Linux 5.3
  base::UniqueFd mount_namespace;  // mount namespace of the container's init
  std::string root_path;           // absolute: root.path of config.json, joined to the bundle
  FileId rootfs;                   // identity of the directory root_path on the node
  NodeFiles node;
  ContainerMounts mounts;
  std::optional<MappedRoot> owner;  // the node's uid and gid for 0 in the user namespace; nullopt: there is none
};

// Checks the container that a runtime's state names, and opens descriptors that identify its process. Errors: the
// process has ended; it is in the node's mount namespace; the bundle's root file system does not exist; /proc is not a
// proc file system; with a user namespace, uid 0 or gid 0 is not mapped. Whether the process belongs to the bundle is
// checked only by the file steps of run_steps().
Result<LiveContainer> pin_container(const OciState& state, const ContainerSpec& spec);

// Checks that the container's process still runs. Errors: ESRCH, the process has ended; other codes: the lookup failed.
Result<void> check_alive(const LiveContainer& container);

// Returns the uid and gid to which a user namespace maps its uid 0 and gid 0, from the texts of /proc/PID/uid_map and
// gid_map (user_namespaces(7)); nullopt: uid 0 or gid 0 is not mapped. The returned ids are valid in the user namespace
// of the process that read the texts.
std::optional<MappedRoot> parse_mapped_root(std::string_view uid_map, std::string_view gid_map);

// Runs the steps in order. Exception: all file steps run when the first of them is reached. A file step succeeds only
// if the process belongs to this bundle (ContainerRoot::open()). Each step is idempotent. The first error ends the
// call; the caller then fails the start, and the runtime and the kernel discard the container's mounts, cgroup and
// process.
// Returns warnings: changes that were not possible and do not fail the container.
Result<std::vector<std::string>> run_steps(const LiveContainer& container, const std::vector<Step>& steps,
                                           Engine engine);

// Plans the steps (live_steps()) and runs them (run_steps()). root: prefix of the node's /dev. Returns warnings.
// Errors: those of live_steps() and run_steps().
Result<std::vector<std::string>> apply_live(const Adjustment& adjustment, const ContainerSpec& spec,
                                            const LiveContainer& container, Engine engine, const std::string& root);

// Raises RLIMIT_MEMLOCK of the container's first process, before it executes the container's program. Raises soft and
// hard limit to `bytes` (UINT64_MAX: unlimited) and never lowers them. Without CAP_SYS_RESOURCE only the soft limit can
// be raised, up to the hard one; the returned warning then has the resulting limit. Errors: those of prlimit(2), except
// EPERM.
Result<std::optional<std::string>> raise_memlock(pid_t pid, std::uint64_t bytes, Engine engine);

// Runs a function in a child process (run_in_child()) that has joined another mount namespace. setns(2) changes the
// root and working directory of the whole process, so the hook itself never calls it.
Result<void> run_in_mount_namespace(int mount_namespace, const std::function<Result<void>()>& function);

}  // namespace hook
