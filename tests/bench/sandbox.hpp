// Mount and network namespaces of a process's own, in which a scene looks like the machine.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "scene.hpp"

namespace bench {

// Enters new namespaces and makes the scene real there: its files lie over /sys and /dev, and the network namespace has
// the rails (veth, their other ends in a second namespace), a management netdev eth0 with the default route, and lo.
// directory: an empty one, which becomes the mount point of a tmpfs in the new mount namespace.
//
// Without privileges it tries a user namespace. The process cannot come back, and the rails end with it: call it in a
// child, and do not exec.
// Errors: namespaces or mounts refused; iproute2 or veth missing.
fabric::Result<void> enter(const Scene& scene, const std::string& directory);

}  // namespace bench
