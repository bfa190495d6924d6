#include "hook/rails/netlink/open_netns.hpp"

#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

// What the child opens, in this order.
enum Place : std::size_t { kRoute, kRdma, kPacket, kSysfs, kPlaces };
using Opened = std::array<UniqueFd, kPlaces>;

// What the child says, in one message; the descriptors that are `present` come with it.
struct Report {
  int failed = 0;
  int code = 0;
  char message[2000] = {};
  char hint[2000] = {};
  bool present[kPlaces] = {};
};
using Rights = std::array<char, CMSG_SPACE(kPlaces * sizeof(int))>;

template <std::size_t N>
void copy_text(char (&target)[N], const std::string& text) {
  std::memcpy(target, text.data(), std::min(text.size(), N - 1));
}

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

// -1: a kernel before 5.2, or one that keeps it from us.
int open_sysfs() {
  const UniqueFd context(fsopen("sysfs", FSOPEN_CLOEXEC));
  if (!context.ok() || fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) return -1;
  return fsmount(context.get(), FSMOUNT_CLOEXEC,
                 MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

Result<void> open_all(int netns, const NetnsParts& parts, Opened& opened) {
  TRY_VOID(join(netns));
  opened[kRoute].reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!opened[kRoute].ok()) return sys_error(errno, "cannot open a netlink socket in the container's namespace");
  opened[kRdma].reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (parts.packet) opened[kPacket].reset(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (parts.sysfs) opened[kSysfs].reset(open_sysfs());
  return {};
}

// An array on the stack cannot be const: msghdr wants it changeable.
bool send_report(int channel, Report& report, const Opened& opened) {
  std::array<int, kPlaces> fds{};
  std::size_t count = 0;
  for (std::size_t place = 0; place < kPlaces; ++place) {
    report.present[place] = opened[place].ok();
    if (opened[place].ok()) fds[count++] = opened[place].get();
  }
  iovec text{&report, sizeof report};
  alignas(cmsghdr) Rights rights{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  if (count > 0) {
    message.msg_control = rights.data();
    message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(count * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), count * sizeof(int));
  }
  return sendmsg(channel, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof report);
}

// False: the child ended without a word, or some of its descriptors did not arrive (RLIMIT_NOFILE).
bool receive_report(int channel, Report& report, Opened& opened) {
  iovec text{&report, sizeof report};
  alignas(cmsghdr) Rights rights{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = rights.data();
  message.msg_controllen = rights.size();
  ssize_t count = 0;
  do {
    count = recvmsg(channel, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  std::array<int, kPlaces> fds{};
  std::size_t arrived = 0;
  const cmsghdr* header = count < 0 ? nullptr : CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
    arrived = std::min<std::size_t>((header->cmsg_len - CMSG_LEN(0)) / sizeof(int), kPlaces);
    std::memcpy(fds.data(), CMSG_DATA(header), arrived * sizeof(int));
  }
  std::size_t used = 0;
  for (std::size_t place = 0; place < kPlaces && used < arrived; ++place) {
    if (report.present[place]) opened[place].reset(fds[used++]);
  }
  const auto expected = static_cast<std::size_t>(std::count(report.present, report.present + kPlaces, true));
  return count == static_cast<ssize_t>(sizeof report) && arrived == expected;
}

[[noreturn]] void be_the_child(int channel, pid_t parent, const std::function<Result<void>(Opened&)>& function) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before that was set
  Report report;
  Opened opened;
  if (auto done = function(opened); !done) {
    report.failed = 1;
    report.code = done.error().code;
    copy_text(report.message, done.error().message);
    copy_text(report.hint, done.error().hint);
    opened = {};
  }
  _exit(send_report(channel, report, opened) ? 0 : 1);
}

Result<Opened> run_child(const std::function<Result<void>(Opened&)>& function) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return sys_error(errno, "cannot make a pair of sockets");
  }
  const UniqueFd ours(ends[0]);
  UniqueFd theirs(ends[1]);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) return sys_error(errno, "cannot fork");
  if (child == 0) be_the_child(theirs.get(), parent, function);
  theirs.reset();
  Report report;
  Opened opened;
  const bool told = receive_report(ours.get(), report, opened);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!told) {
    return fabric::make_error("cannot work in the container's network namespace: the child ended with wait status {}",
                              status);
  }
  if (report.failed != 0) return Error{report.message, report.code, report.hint};
  return opened;
}

}  // namespace

Result<NetworkNamespace> open_network_namespace(UniqueFd netns, const NetnsParts& parts) {
  TRY_VOID(check_is_network_namespace(netns.get()));
  Opened opened = TRY(run_child([&](Opened& all) { return open_all(netns.get(), parts, all); }));
  auto route = TRY(Netlink::adopt(std::move(opened[kRoute]), NETLINK_ROUTE));
  std::optional<Netlink> rdma;
  if (opened[kRdma].ok()) rdma = TRY(Netlink::adopt(std::move(opened[kRdma]), NETLINK_RDMA));
  return NetworkNamespace{std::move(netns), std::move(route), std::move(rdma), std::move(opened[kPacket]),
                          std::move(opened[kSysfs])};
}

Result<void> run_in_network_namespace(int netns, const std::function<Result<void>()>& function) {
  TRY_VOID(check_is_network_namespace(netns));
  const auto join_and_run = [&](Opened&) {
    auto joined = join(netns);
    return joined ? function() : joined;
  };
  TRY(run_child(join_and_run));
  return {};
}

}  // namespace hook
