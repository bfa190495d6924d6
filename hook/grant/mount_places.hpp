// Where a runtime makes the mounts of a container that does not exist yet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

// Returns why one of the directories can take no mount: it is in a volume of the node, where the runtime would make the
// mount point, or the image has a link or a file there. nullopt: all can take a mount. The runtime follows the links of
// the image, such as /var/run of Debian's. rootfs: the image's file tree; empty: unknown. Then, and before Linux 5.6,
// only /var/run counts as a link.
std::optional<Error> cannot_mount(const std::vector<std::string>& directories, const std::vector<SpecMount>& mounts,
                                  const std::string& rootfs);

}  // namespace hook
