// A handle of a container's network namespace (NetnsHandle): the number (nsid) by which the node's network namespace
// knows it. A descriptor, a socket or a socket that is being passed can keep the namespace alive after its container,
// when no path leads to it any more. The handle still finds it then.
//
// Why a number, and neither a descriptor nor a mount of the namespace: the number keeps nothing alive. If the hook is
// killed at any point, or no poststop follows, the namespace still ends with its last user, and the kernel moves its
// hardware to the node. A mount would keep the namespace until `rdma-hook recover`, would exist only in some mount
// namespaces, and rdma-nri without privileges could not make it. The kernel keeps the number until the namespace ends,
// and no container can change it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/rails/record/network.hpp"

namespace hook {

class Netlink;

// Gives the namespace a number in the node's network namespace, or reads the number that it has there already.
// route: a socket of the node's namespace.
// node, netns: descriptors of the node's namespace and of the container's.
// Errors: the kernel refuses the number, or a descriptor is of no network namespace.
Result<NetnsHandle> make_netns_handle(Netlink& route, int node, int netns);

// Returns the number that the namespace of the socket `route` has for the namespace `netns`; nullopt: it has none.
Result<std::optional<std::uint32_t>> netns_number(Netlink& route, int netns);

// Returns the cookie of the socket's network namespace (SO_NETNS_COOKIE); 0: the kernel is older than Linux 5.14.
std::uint64_t netns_cookie(int socket);

// A network namespace that outlives its container, or may do so.
struct KeptNetns {
  base::UniqueFd netns;   // empty: the namespace is proven gone
  bool has_path = false;  // a path leads to it, so an engine may still use netdevs in it
};

// Opens the namespace of the record by its handle: by a mount, by a TUN netdev, or by a process that keeps it. The
// namespace is proven gone if its number belongs to no living namespace, or to another one: the kernel can use a number
// again that it has chosen itself.
// record: has a handle; the path of `netns` is not used.
// proc: the node's /proc.
// wait_ms: limit on waiting for the end of a namespace without a mount: the kernel frees sockets of ended processes
// some time later.
// Errors: EBUSY, the namespace lives on and cannot be opened: this process has no TUN, and found no process that keeps
// the namespace. EOPNOTSUPP, a kernel before Linux 4.15. EXDEV, this process is not in the node's network namespace.
Result<KeptNetns> open_netns_by_handle(Netlink& route, int node, const NetworkRecord& record, const std::string& proc,
                                       int wait_ms);

// Returns a text for messages that names a process which keeps the namespace: "process 4711 (`python3`)"; empty if none
// was found: a socket that is being passed has no process.
std::string keeper_of_netns(const NetnsIdentity& identity, const std::string& proc);

}  // namespace hook
