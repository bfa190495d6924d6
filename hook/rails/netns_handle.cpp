#include "hook/rails/netns_handle.hpp"

#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <linux/net_namespace.h>
#include <linux/rtnetlink.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/process/mountinfo.hpp"
#include "base/text.hpp"
#include "fabric/read_network.hpp"
#include "hook/rails/netlink/links.hpp"
#include "hook/rails/netlink/netlink.hpp"

namespace hook {
namespace {

constexpr int kMostTries = 3;
constexpr const char* kTunPath = "/dev/net/tun";
constexpr unsigned kTunMajor = 10;
constexpr unsigned kTunMinor = 200;

RequestBuilder number_request(unsigned type, int netns) {
  RequestBuilder request(type, 0, rtgenmsg{AF_UNSPEC});
  request.put(NETNSA_FD, static_cast<std::uint32_t>(netns));
  return request;
}

// Looks up a living namespace of this number, by its netdev `lo`, which no container can remove. A namespace that is
// ending counts as gone (get_net_ns_by_id(), Linux 6.12).
Result<Presence> find_number(Netlink& route, std::uint32_t number) {
  constexpr int kLoopback = 1;
  RequestBuilder request(RTM_GETLINK, 0, link_header(kLoopback));
  request.put(IFLA_EXT_MASK, std::uint32_t{RTEXT_FILTER_SKIP_STATS});
  request.put(IFLA_TARGET_NETNSID, number);
  // A kernel that does not know the attribute ignores it and describes the `lo` of this namespace.
  bool is_known = false;
  const auto found =
      route.read(request, "find the container's network namespace", [&](const base::netlink::Message& answer) {
        is_known = answer.attributes(sizeof(ifinfomsg)).has(IFLA_TARGET_NETNSID);
      });
  if (found && !is_known) return sys_error(EOPNOTSUPP, "cannot find a network namespace by its number");
  if (found) return Presence::kPresent;
  return found.error().code == EINVAL ? Result<Presence>(Presence::kAbsent) : found.error();
}

Result<Presence> await_end(Netlink& route, std::uint32_t number, int wait_ms) {
  constexpr int kPauseMs = 10;
  for (int waited = 0;; waited += kPauseMs) {
    const Presence seen = TRY(find_number(route, number));
    if (seen == Presence::kAbsent || waited >= wait_ms) return seen;
    ::usleep(kPauseMs * 1000);
  }
}

// Opens the namespace by a mount of it that this process sees. Docker keeps the mount of a container until its network
// is released, which is after poststop.
UniqueFd open_by_mount(const NetnsIdentity& identity) {
  constexpr std::size_t kLongest = std::size_t{16} << 20;
  const auto mounts = base::read_file("/proc/self/mountinfo", kLongest);
  const auto* const text = std::get_if<std::string>(&mounts);
  const std::string root = fmt::format("net:[{}]", identity.ino);
  for (const std::string_view line : base::split(text ? *text : std::string_view(), '\n')) {
    const auto mount = line.find(root) == std::string_view::npos ? std::nullopt : base::parse_mount_line(line);
    if (!mount || mount->root != root) continue;
    UniqueFd netns = base::open_to_read(AT_FDCWD, base::unescape_mount(mount->point).c_str());
    struct stat status {};
    if (netns.ok() && ::fstat(netns.get(), &status) == 0 && status.st_dev == identity.dev &&
        status.st_ino == identity.ino)
      return netns;
  }
  return {};
}

UniqueFd open_tun() {
  UniqueFd tun(::open(kTunPath, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  struct stat status {};
  const bool good = tun.ok() && ::fstat(tun.get(), &status) == 0 && S_ISCHR(status.st_mode) &&
                    status.st_rdev == makedev(kTunMajor, kTunMinor);
  return good ? std::move(tun) : UniqueFd();
}

// Opens the namespace of this number: moves a TUN netdev to it, which the kernel permits by number, and asks the
// netdev's descriptor for the namespace (TUNGETDEVNETNS, Linux 5.2). The netdev ends when `tun` is closed. Returns an
// empty descriptor if the node has no TUN, if this process may not use it, or if a process in the namespace interferes.
// The caller checks the number, because such a process can move the netdev on.
UniqueFd open_by_tun(Netlink& route, std::uint32_t number) {
  const UniqueFd tun = open_tun();
  const auto random = random_number();
  if (!tun.ok() || !random) return {};
  // Name and index are random, because they must be free in both namespaces.
  const int ifindex = ifindex_of(*random);
  ifreq request{};
  fmt::format("rdma{:x}", *random).copy(request.ifr_name, IFNAMSIZ - 1);
  request.ifr_flags = static_cast<short>(IFF_TUN | IFF_NO_PI | IFF_TUN_EXCL);
  if (::ioctl(tun.get(), TUNSETIFINDEX, &ifindex) != 0 || ::ioctl(tun.get(), TUNSETIFF, &request) != 0) return {};
  RequestBuilder move(RTM_SETLINK, 0, link_header(ifindex));
  move.put(IFLA_TARGET_NETNSID, number);
  if (!route.change(move, "move a TUN netdev")) return {};
  return UniqueFd(::ioctl(tun.get(), TUNGETDEVNETNS));
}

// Searches a network namespace among those that other processes are in, have a descriptor of, or have a socket in.
// Descriptors and sockets that are being passed are not found.
class NetnsSearch {
 public:
  using IsIt = std::function<bool(int netns)>;
  struct Found {
    UniqueFd netns;
    std::string process;  // the process that keeps the namespace, for messages
  };

  // nsfs: device number of the file system of all namespaces.
  NetnsSearch(std::string proc, dev_t nsfs, IsIt is_it)
      : proc_(std::move(proc)), nsfs_(nsfs), is_it_(std::move(is_it)) {}

  // Looks at the namespaces of all processes first: most searches end there, and descriptors are many.
  std::optional<Found> run() {
    const auto directory = Directory::open(proc_);
    const auto names = directory ? directory->list() : std::vector<std::string>();
    for (const auto look : {&NetnsSearch::look_at_own, &NetnsSearch::look_at_descriptors}) {
      for (const std::string& name : names) {
        const auto pid = base::parse_number<pid_t>(name);
        const bool is_other = pid && *pid > 0 && *pid != ::getpid();  // the hook itself can have opened the namespace
        if (is_other && (this->*look)(*pid)) return Found{std::move(found_), shown_process(*pid)};
      }
    }
    return std::nullopt;
  }

 private:
  bool look_at_own(pid_t pid) { return check(UniqueFd(::open(path(pid, "ns/net").c_str(), O_RDONLY | O_CLOEXEC))); }

  bool look_at_descriptors(pid_t pid) {
    const auto table = Directory::open(path(pid, "fd"));
    if (!table) return false;
    UniqueFd process;
    bool found = false;
    base::next_names(table->fd(), [&](std::string_view name) {
      const auto number = base::parse_number<int>(std::string(name));
      const auto target = table->read_link(name.data());
      const bool is_socket = target && target->starts_with("socket:[");
      if (!number || !target || (!is_socket && !target->starts_with("net:["))) return true;
      if (!process.ok()) process.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
      UniqueFd file = process.ok() ? copy_of(process.get(), *number) : UniqueFd();
      found = file.ok() && check(is_socket ? netns_of_socket(file.get()) : std::move(file));
      return !found;
    });
    return found;
  }

  // Copies a descriptor of the process (Linux 5.6). Opening it by its path could wait for ever, because the process can
  // replace it by a FIFO meanwhile.
  static UniqueFd copy_of(int process, int number) {
    return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_getfd, process, number, 0)));
  }

  // getsockopt(2) fails for any other file. An ioctl would reach that file, for example the server of a FUSE file.
  static UniqueFd netns_of_socket(int file) {
    int domain = 0;
    socklen_t size = sizeof domain;
    const bool is_socket = ::getsockopt(file, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0;
    return UniqueFd(is_socket ? ::ioctl(file, SIOCGSKNS) : -1);
  }

  // Checks each namespace once. AT_STATX_DONT_SYNC: as in open_hcas.cpp, the file can be of a FUSE file system.
  bool check(UniqueFd netns) {
    struct statx status {};
    if (!netns.ok() || ::statx(netns.get(), "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &status) != 0)
      return false;
    const bool is_netns = makedev(status.stx_dev_major, status.stx_dev_minor) == nsfs_;
    if (!is_netns || !seen_.insert(status.stx_ino).second || !is_it_(netns.get())) return false;
    found_ = std::move(netns);
    return true;
  }

  std::string path(pid_t pid, const char* name) const { return fmt::format("{}/{}/{}", proc_, pid, name); }

  std::string shown_process(pid_t pid) const {
    const auto name = base::read_attribute(path(pid, "comm"));
    return fmt::format("process {} (`{}`)", pid, base::printable(base::value_or(name, std::string("?"))));
  }

  std::string proc_;
  dev_t nsfs_;
  IsIt is_it_;
  std::set<std::uint64_t> seen_;
  UniqueFd found_;
};

// Opens the living namespace of this number. Returns an empty descriptor if it cannot be opened.
UniqueFd open_number(Netlink& route, std::uint32_t number, const NetnsIdentity& identity, const std::string& proc) {
  const auto has_number = [&](int netns) {
    const auto seen = netns_number(route, netns);
    return seen.has_value() && *seen == number;
  };
  for (int attempt = 0; attempt < kMostTries; ++attempt) {
    UniqueFd netns = open_by_tun(route, number);
    if (netns.ok() && has_number(netns.get())) return netns;
  }
  auto found = NetnsSearch(proc, identity.dev, has_number).run();
  return found ? std::move(found->netns) : UniqueFd();
}

Result<void> check_is_on_node(int node, const NetnsHandle& handle) {
  struct stat status {};
  if (::fstat(node, &status) != 0) return sys_error(errno, "cannot read the node's network namespace");
  if (status.st_ino == handle.node) return {};
  return Error{
      "cannot find the container's network namespace: this process is in another network namespace than the "
      "hook that added the rails",
      EXDEV, "run this command in the node's network namespace"};
}

}  // namespace

Result<NetnsHandle> make_netns_handle(Netlink& route, int node, int netns) {
  NetnsHandle handle;
  struct stat status {};
  if (::fstat(node, &status) != 0) return sys_error(errno, "cannot read the node's network namespace");
  handle.node = status.st_ino;
  for (int attempt = 0;; ++attempt) {
    // The kernel chooses the lowest free number. A large random number is not used again for another namespace.
    handle.number = (1U << 30) | (TRY(random_number()) >> 2);
    RequestBuilder request = number_request(RTM_NEWNSID, netns);
    request.put(NETNSA_NSID, handle.number);
    const auto made = route.change(request, "give the container's network namespace a number");
    if (made) return handle;
    // EEXIST: the namespace has a number, for example since an engine connected it to the node by a veth pair; or
    // another namespace has this number.
    if (made.error().code != EEXIST || attempt == kMostTries) return made.error();
    if (const auto known = TRY(netns_number(route, netns))) {
      handle.number = *known;
      return handle;
    }
  }
}

Result<std::optional<std::uint32_t>> netns_number(Netlink& route, int netns) {
  std::optional<std::uint32_t> number;
  TRY_VOID(route.read(number_request(RTM_GETNSID, netns), "read the number of a network namespace",
                      [&](const base::netlink::Message& answer) {
                        const auto value = answer.attributes(sizeof(rtgenmsg)).u32(NETNSA_NSID);
                        if (value && static_cast<std::int32_t>(*value) >= 0) number = value;
                      }));
  return number;
}

std::uint64_t netns_cookie(int socket) {
  constexpr int kNetnsCookie = 71;  // asm-generic/socket.h, Linux 5.14
  std::uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  return ::getsockopt(socket, SOL_SOCKET, kNetnsCookie, &cookie, &size) == 0 ? cookie : 0;
}

Result<KeptNetns> open_netns_by_handle(Netlink& route, int node, const NetworkRecord& record, const std::string& proc,
                                       int wait_ms) {
  const NetnsHandle& handle = *record.handle;
  const NetnsIdentity& identity = record.netns;
  TRY_VOID(check_is_on_node(node, handle));
  if (TRY(find_number(route, handle.number)) == Presence::kAbsent) return KeptNetns();
  if (UniqueFd mounted = open_by_mount(identity); mounted.ok()) return KeptNetns{std::move(mounted), true};
  if (TRY(await_end(route, handle.number, wait_ms)) == Presence::kAbsent) return KeptNetns();
  if (UniqueFd netns = open_number(route, handle.number, identity, proc); netns.ok()) {
    struct stat status {};
    if (::fstat(netns.get(), &status) != 0) return sys_error(errno, "cannot read a network namespace");
    const bool is_it = status.st_dev == identity.dev && status.st_ino == identity.ino;
    return is_it ? KeptNetns{std::move(netns), false} : KeptNetns();
  }
  if (TRY(find_number(route, handle.number)) == Presence::kAbsent) return KeptNetns();
  return Error{
      .message =
          "the container's network namespace, with its rails, outlives the container, and no process was found "
          "that keeps it: a socket of it may be in transit between two processes",
      .code = EBUSY,
      .hint = fmt::format("make the device node `{}` available to this command, or end the containers that ran at the "
                          "same time as that container, then run `rdma-hook recover`",
                          kTunPath),
      .reason = FailureReason::kBusy};
}

std::string keeper_of_netns(const NetnsIdentity& identity, const std::string& proc) {
  const auto is_it = [&](int netns) {
    struct stat status {};
    return ::fstat(netns, &status) == 0 && status.st_dev == identity.dev && status.st_ino == identity.ino;
  };
  const auto found = NetnsSearch(proc, identity.dev, is_it).run();
  return found ? found->process : std::string();
}

}  // namespace hook
