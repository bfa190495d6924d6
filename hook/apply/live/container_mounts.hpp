// The mounts of a container: what config.json says of them, what its process's mountinfo says (proc(5), Linux 2.6.26),
// and what a descriptor says (statx(2), Linux 5.8).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

struct ContainerMounts {
  std::vector<SpecMount> spec;
  std::string mountinfo;  // of the container's process
};

struct Mounted {
  std::uint64_t id = 0;  // 0: the kernel does not say (before Linux 5.8)
  bool is_root = false;  // of its mount
  std::uint64_t dev = 0;
};
// nullopt with errno set.
std::optional<Mounted> mounted(int fd);

// Whether a mount on the mount with that id can appear in other mount namespaces. An id that is not listed, 0 among
// them, counts as shared when any mount is.
bool is_shared(std::string_view mountinfo, std::uint64_t id);
// Whether the mount with that id lies on the mount with the other id; false where it is not listed.
bool lies_on(std::string_view mountinfo, std::uint64_t id, std::uint64_t below);
// Whether config.json mounts a file system of the container's own at /dev.
bool has_own_dev(const std::vector<SpecMount>& mounts);
// Whether the mount of config.json that holds this path is a bind: the one with the longest destination above the path
// or at it, of equals the last. Destinations are taken as they are written, below "/".
bool is_in_bind(const std::vector<SpecMount>& mounts, const std::string& path);

// An error where a mount on fd, which is `path` in the container, would appear on the node too.
fabric::Result<void> check_not_shared(int fd, std::string_view mountinfo, const std::string& path);

// Cuts a detached mount off from the one it was cloned from (a mount onto a part of it would appear there), and gives
// it attributes, MOUNT_ATTR_*. False with errno set: ENOSYS before Linux 5.12.
bool seal_tree(int tree, std::uint64_t attributes);

}  // namespace hook
