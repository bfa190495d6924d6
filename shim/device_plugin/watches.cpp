#include "shim/device_plugin/watches.hpp"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

#include "fabric/text.hpp"

namespace shim {
namespace {

using fabric::UniqueFd;

// Multicast group RDMA_NL_GROUP_NOTIFY, for changes of RDMA devices. Source: include/uapi/rdma/rdma_netlink.h,
// Linux 6.12.
constexpr unsigned kRdmaNotify = 4;
// Multicast group of the uevents that the kernel sends; udev sends its own to another group.
constexpr std::uint32_t kKernelUevents = 1;

constexpr std::uint32_t group_bit(unsigned group) {
  return 1U << (group - 1);
}

// The protocol and the multicast groups of each socket, in the order of KernelEvents::Source.
constexpr std::pair<int, std::uint32_t> kSources[] = {
    {NETLINK_ROUTE, group_bit(RTNLGRP_LINK) | group_bit(RTNLGRP_IPV4_IFADDR) | group_bit(RTNLGRP_IPV6_IFADDR)},
    {NETLINK_RDMA, group_bit(kRdmaNotify)},
    {NETLINK_KOBJECT_UEVENT, kKernelUevents}};

UniqueFd listening(int protocol, std::uint32_t groups) {
  UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, protocol));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  address.nl_groups = groups;
  // A kernel without this protocol or group refuses the socket or the bind. That is no error: the plugin also polls.
  if (socket.ok() && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    socket.reset();
  return socket;
}

// Returns true for a uevent about HCAs, netdevs or device nodes; other subsystems send many uevents. A uevent is
// "add@/devices/..." followed by NAME=value strings, each with a final zero.
bool matters(std::string_view uevent) {
  for (const std::string_view subsystem : {"SUBSYSTEM=infiniband", "SUBSYSTEM=net", "SUBSYSTEM=misc"}) {
    if (uevent.find(subsystem) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

bool KernelEvents::open() {
  for (std::size_t at = 0; at < sockets_.size(); ++at) {
    if (!sockets_[at].ok()) sockets_[at] = listening(kSources[at].first, kSources[at].second);
  }
  return sockets_[kLinks].ok() && sockets_[kUevents].ok();
}

std::vector<int> KernelEvents::fds() const {
  std::vector<int> fds;
  for (const UniqueFd& socket : sockets_) {
    if (socket.ok()) fds.push_back(socket.get());
  }
  return fds;
}

bool KernelEvents::take() {
  bool any = false;
  for (const Source source : {kLinks, kRdma, kUevents})
    any = (sockets_[source].ok() && take(source)) || any;
  return any;
}

bool KernelEvents::take(Source source) {
  bool any = false;
  std::array<char, 16384> buffer;
  for (;;) {
    const auto size = ::recv(sockets_[source].get(), buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return any;
    if (size <= 0) {
      // ENOBUFS: the kernel dropped events. Any other error, and an end, which netlink does not have, also mean that
      // events may be missing.
      sockets_[source].reset();
      return true;
    }
    any = any || source != kUevents || matters({buffer.data(), static_cast<std::size_t>(size)});
  }
}

bool FileEvents::watch(const std::vector<std::string>& directories) {
  if (!watch_.ok()) watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!watch_.ok()) return false;
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_CLOSE_WRITE | IN_ATTRIB |
                                    IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR;
  const auto add = [&](const std::string& path) {
    return ::inotify_add_watch(watch_.get(), path.c_str(), kEvents) >= 0;
  };
  bool complete = true;
  for (const std::string& directory : directories) {
    // The parent is watched before the second attempt, so that a directory that is made meanwhile is not missed.
    if (add(directory) ||
        (errno == ENOENT && add(directory.substr(0, std::max<std::size_t>(directory.rfind('/'), 1))) &&
         (add(directory) || errno == ENOENT)))
      continue;
    complete = false;
  }
  return complete;
}

bool FileEvents::take() const {
  alignas(inotify_event) std::array<char, 4096> events;
  bool any = false;
  while (::read(watch_.get(), events.data(), events.size()) > 0)
    any = true;
  return any;
}

FileIdentity file_identity(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) return {};
  // ctime tells a new socket from a removed one, whose inode number the kernel may reuse at once.
  return {static_cast<std::int64_t>(status.st_dev), static_cast<std::int64_t>(status.st_ino), status.st_ctim.tv_sec,
          status.st_ctim.tv_nsec};
}

Result<KubeletDirectory> KubeletDirectory::open(const std::string& path) {
  KubeletDirectory directory;
  directory.path_ = path;
  directory.lock_ = UniqueFd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory.lock_.ok()) return sys_error(errno, "cannot open `{}`", fabric::printable(path));
  // The lock is on the directory itself and not on a file in it, because a kubelet that starts removes the files.
  if (::flock(directory.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    const int code = errno;
    if (code == EWOULDBLOCK)
      return Error{fmt::format("another rdma-device-plugin serves `{}`", fabric::printable(path)), code,
                   "stop the other one: a node runs it as a DaemonSet or as a service, not both"};
    return sys_error(code, "cannot lock `{}`", fabric::printable(path));
  }
  directory.watch_ = UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  constexpr std::uint32_t kEvents = IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM | IN_ATTRIB | IN_MOVE_SELF;
  if (!directory.watch_.ok() || ::inotify_add_watch(directory.watch_.get(), path.c_str(), kEvents) < 0)
    return sys_error(errno, "cannot watch `{}`", fabric::printable(path));
  directory.identity_ = file_identity(path);
  return directory;
}

void KubeletDirectory::take() const {
  alignas(inotify_event) std::array<char, 4096> events;
  // The events are discarded, because callers compare the identity of the files (file_identity()) instead.
  while (::read(watch_.get(), events.data(), events.size()) > 0) {
  }
}

bool KubeletDirectory::is_there() const {
  const FileIdentity now = file_identity(path_);
  // ctime is not compared, because it changes with each file that is created or removed in the directory.
  return now.size() == identity_.size() && now[0] == identity_[0] && now[1] == identity_[1];
}

}  // namespace shim
