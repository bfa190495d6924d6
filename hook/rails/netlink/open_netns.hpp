// What one can do in another network namespace without being in it: sockets and a sysfs that were opened there.
#pragma once

#include <functional>
#include <optional>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {

struct NetworkNamespace {
  fabric::UniqueFd netns;       // /proc/PID/ns/net or the path of a pod's
  Netlink route;                // NETLINK_ROUTE there
  std::optional<Netlink> rdma;  // NETLINK_RDMA there; nullopt: the kernel has none
  fabric::UniqueFd packet;      // AF_PACKET, SOCK_RAW, protocol 0 (bind it first); empty: not asked for, or refused
  // A detached mount of sysfs as the namespace sees it (fsopen, Linux 5.2), read-only: for openat(). Empty: not
  // asked for, or an older kernel.
  fabric::UniqueFd sysfs;
};

// The parts that are opened only where needed: a packet socket and a mount are closed only after a grace period of the
// kernel, some 10 ms.
struct NetnsParts {
  bool packet = false;
  bool sysfs = false;
};

// A detached mount of sysfs as the process's network namespace sees it. Empty: a kernel before 5.2, or one that keeps
// it from us.
enum class SysfsAccess { kRead, kWrite };
fabric::Result<fabric::UniqueFd> open_sysfs(SysfsAccess access = SysfsAccess::kRead);

// setns(2) happens in one forked child only, which opens all of it and hands it back. Errors: no network
// namespace, or it is gone.
fabric::Result<NetworkNamespace> open_network_namespace(fabric::UniqueFd netns, const NetnsParts& parts);

// The few things that must be done by a process of that namespace (move_rdma_device_from()): as run_in_child().
fabric::Result<void> run_in_network_namespace(int netns, const std::function<fabric::Result<void>()>& function);

}  // namespace hook
