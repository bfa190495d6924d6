#include "hook/rails/netlink/open_netns.hpp"

#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "hook/base/process/run_in_child.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

// What the child opens, in this order.
enum Place : std::size_t { kRoute, kRdma, kPacket, kSysfs, kPlaces };
static_assert(kPlaces <= kChildFiles);

constexpr const char* kWhere = "the container's network namespace";

// nsfs only: an ioctl of this number may mean anything to another file.
Result<void> check_is_network_namespace(int fd) {
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) return sys_error(errno, "cannot use the network namespace");
  const bool good = system.f_type == NSFS_MAGIC && ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET;
  if (good) return {};
  return Error{.message = "cannot join the network namespace: the descriptor is of something else",
               .code = EINVAL,
               .hint = "an unmounted /run/netns/NAME is an empty file: is the pod's namespace still there?"};
}

Result<void> join(int netns) {
  if (setns(netns, CLONE_NEWNET) == 0) return {};
  Error error = sys_error(errno, "cannot join the container's network namespace");
  if (error.code == EPERM) error.hint = "run it as root of the node";
  return error;
}

Result<void> open_all(int netns, const NetnsParts& parts, ChildFiles& opened) {
  TRY_VOID(join(netns));
  opened[kRoute].reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!opened[kRoute].ok()) return sys_error(errno, "cannot open a netlink socket in the container's namespace");
  opened[kRdma].reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (!opened[kRdma].ok() && errno != EPROTONOSUPPORT)
    return sys_error(errno, "cannot open an RDMA netlink socket in the container's namespace");
  if (parts.packet) opened[kPacket].reset(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (parts.sysfs) opened[kSysfs] = TRY(open_sysfs());
  return {};
}

}  // namespace

Result<UniqueFd> open_sysfs(SysfsAccess access) {
  // The hook's filter knows these two sets of attributes (hook/base/process/sandbox_filter_gen.cpp).
  constexpr unsigned kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  const UniqueFd context(fsopen("sysfs", FSOPEN_CLOEXEC));
  UniqueFd sysfs;
  if (context.ok() && fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0)
    sysfs.reset(fsmount(context.get(), FSMOUNT_CLOEXEC, access == SysfsAccess::kRead ? kReadOnly : 0));
  if (sysfs.ok() || errno == ENOSYS || errno == EPERM || errno == EACCES) return sysfs;
  return sys_error(errno, "cannot mount the sysfs of a network namespace");
}

Result<NetworkNamespace> open_network_namespace(UniqueFd netns, const NetnsParts& parts) {
  TRY_VOID(check_is_network_namespace(netns.get()));
  ChildFiles opened = TRY(run_in_child(kWhere, [&](ChildFiles& all) { return open_all(netns.get(), parts, all); }));
  auto route = TRY(Netlink::adopt(std::move(opened[kRoute]), NETLINK_ROUTE));
  std::optional<Netlink> rdma;
  if (opened[kRdma].ok()) rdma = TRY(Netlink::adopt(std::move(opened[kRdma]), NETLINK_RDMA));
  return NetworkNamespace{std::move(netns), std::move(route), std::move(rdma), std::move(opened[kPacket]),
                          std::move(opened[kSysfs])};
}

Result<void> run_in_network_namespace(int netns, const std::function<Result<void>()>& function) {
  TRY_VOID(check_is_network_namespace(netns));
  const auto join_and_run = [&](ChildFiles&) {
    auto joined = join(netns);
    return joined ? function() : joined;
  };
  TRY(run_in_child(kWhere, join_and_run));
  return {};
}

}  // namespace hook
