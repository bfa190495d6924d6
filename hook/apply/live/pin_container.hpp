// The live container that a state of its runtime names: its process, pinned so that no other can take its place.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/apply/live/container_root.hpp"
#include "hook/base/process/identity.hpp"
#include "hook/oci/state.hpp"

namespace hook {

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
fabric::Result<LiveContainer> pin_container(const OciState& state, const ContainerSpec& spec);

// Errors: ESRCH, the process that was pinned has ended; others: it cannot be looked at.
fabric::Result<void> check_alive(const LiveContainer& container);

// The container's root in the terms of the reader's user namespace, of the texts of /proc/PID/uid_map and gid_map
// (user_namespaces(7)); nullopt: uid 0 or gid 0 is not mapped.
std::optional<MappedRoot> parse_mapped_root(std::string_view uid_map, std::string_view gid_map);

}  // namespace hook
