#include "hook/rails/netlink/netlink.hpp"

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
#include <cstring>
#include <utility>

#include "base/process/run_in_child.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

using base::netlink::Bytes;
using base::netlink::Message;

Error failure(std::string_view what, int code, const std::string& reason = {}) {
  // recv(2) reports the timeout of SO_RCVTIMEO as EAGAIN.
  if (code == EAGAIN || code == EWOULDBLOCK) code = ETIMEDOUT;
  Error error = sys_error(code, "cannot {}", what);
  if (!reason.empty()) error.message += fmt::format(" ({})", reason);
  return error;
}

// Makes the room as long as the next datagram, because messages about many VFs exceed any fixed length. Returns an
// empty span if nothing comes.
// room: the kernel makes the parts of a dump as long as the longest room that it has seen, up to 32 kB.
std::span<std::uint8_t> room_for_next(int fd, std::vector<std::uint8_t>& room) {
  constexpr std::size_t kUsualRoom = 32 << 10;
  if (room.empty()) room.resize(kUsualRoom);
  const ssize_t size = TEMP_FAILURE_RETRY(::recv(fd, room.data(), room.size(), MSG_PEEK | MSG_TRUNC));
  if (size == 0) errno = EPROTO;
  if (size <= 0) return {};
  if (room.size() < static_cast<std::size_t>(size)) room.resize(static_cast<std::size_t>(size));
  return room;
}

// Index in ChildFiles of each descriptor that the child process opens.
enum Place : std::size_t { kRoute, kRdma, kPacket, kSysfs, kPlaces };
static_assert(kPlaces <= kChildFiles);

constexpr const char* kWhere = "the container's network namespace";

// Returns an error if the descriptor is of no network namespace. The file system is checked first, because on a file of
// another file system the same ioctl number can mean anything.
Result<void> check_is_network_namespace(int fd) {
  struct statfs system {};
  if (fstatfs(fd, &system) != 0) return sys_error(errno, "cannot use the network namespace");
  const bool good = system.f_type == NSFS_MAGIC && ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET;
  if (good) return {};
  return Error{"cannot join the network namespace: the opened file is no network namespace", EINVAL,
               "check that the pod's namespace exists: an unmounted /run/netns/NAME is an empty file"};
}

Result<void> join(int netns) {
  if (setns(netns, CLONE_NEWNET) == 0) return {};
  Error error = sys_error(errno, "cannot join the container's network namespace");
  if (error.code == EPERM) error.hint = "run this command as root of the node";
  return error;
}

Result<void> open_all(int netns, const NetnsParts& parts, ChildFiles& opened) {
  TRY_VOID(join(netns));
  opened[kRoute].reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
  if (!opened[kRoute].ok()) return sys_error(errno, "cannot open a netlink socket in the container's namespace");
  opened[kRdma].reset(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  if (!opened[kRdma].ok() && errno != EPROTONOSUPPORT)
    return sys_error(errno, "cannot open an RDMA netlink socket in the container's namespace");
  // A refused packet socket is no error, because only the tests of addresses need it.
  if (parts.packet) opened[kPacket].reset(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (parts.sysfs) opened[kSysfs] = TRY(open_sysfs());
  return {};
}

}  // namespace

RequestBuilder::RequestBuilder(unsigned type, unsigned flags, Bytes header, std::size_t room)
    : message_(nlmsg_alloc_size(NLMSG_ALIGN(NLMSG_HDRLEN + header.size()) + room)) {
  if (!message_) return;
  nlmsghdr* const made = nlmsg_put(message_.get(), NL_AUTO_PORT, NL_AUTO_SEQ, static_cast<int>(type),
                                   static_cast<int>(header.size()), static_cast<int>(NLM_F_REQUEST | flags));
  if (made == nullptr) {
    message_.reset();
  } else if (!header.empty()) {
    std::memcpy(nlmsg_data(made), header.data(), header.size());
  }
}

void RequestBuilder::put(unsigned type, Bytes value) {
  if (message_ && nla_put(message_.get(), static_cast<int>(type), static_cast<int>(value.size()), value.data()) < 0)
    message_.reset();
}

void RequestBuilder::put(unsigned type, std::string_view text) {
  const std::string terminated(text);
  put(type, Bytes(reinterpret_cast<const std::uint8_t*>(terminated.c_str()), terminated.size() + 1));
}

nlattr* RequestBuilder::begin(unsigned type) {
  nlattr* nest = message_ ? nla_nest_start(message_.get(), static_cast<int>(type)) : nullptr;
  if (nest == nullptr) message_.reset();
  return nest;
}

void RequestBuilder::end(nlattr* nest) {
  if (message_ && nla_nest_end(message_.get(), nest) < 0) message_.reset();
}

Bytes RequestBuilder::bytes() const {
  const nlmsghdr* const made = header();
  return made == nullptr ? Bytes() : Bytes(reinterpret_cast<const std::uint8_t*>(made), made->nlmsg_len);
}

Message RequestBuilder::message() const {
  Bytes whole = bytes();
  return base::netlink::next_message(whole).value_or(Message());
}

bool each_attribute(Bytes attributes, const std::function<void(unsigned type, Bytes value)>& use) {
  int rest = 0;
  const nlattr* attribute = nullptr;
  nla_for_each_attr(attribute, reinterpret_cast<const nlattr*>(attributes.data()), static_cast<int>(attributes.size()),
                    rest) {
    use(attribute->nla_type,
        Bytes(static_cast<const std::uint8_t*>(nla_data(attribute)), static_cast<std::size_t>(nla_len(attribute))));
  }
  return rest == 0;
}

Result<Netlink> Netlink::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd.ok()) return sys_error(errno, "cannot open a netlink socket (protocol {})", protocol);
  return adopt(std::move(fd), protocol);
}

Result<std::optional<Netlink>> Netlink::open_if_known(int protocol) {
  auto opened = open(protocol);
  if (!opened && opened.error().code == EPROTONOSUPPORT) return std::optional<Netlink>();
  return std::optional(TRY(std::move(opened)));
}

Result<Netlink> Netlink::adopt(UniqueFd fd, int protocol) {
  int domain = 0;
  int own = 0;
  socklen_t size = sizeof own;
  if (::getsockopt(fd.get(), SOL_SOCKET, SO_DOMAIN, &domain, &size) != 0 ||
      ::getsockopt(fd.get(), SOL_SOCKET, SO_PROTOCOL, &own, &size) != 0)
    return sys_error(errno, "cannot use a netlink socket");
  if (domain != AF_NETLINK || own != protocol) return sys_error(EINVAL, "cannot use a netlink socket");
  Netlink netlink{base::netlink::Socket(std::move(fd))};
  // Errors are ignored, because older kernels do not have these options. Before Linux 4.12 errors then have no text.
  // Before Linux 4.20 the kernel does not filter dumps, so callers filter the answers too.
  for (const int option : {NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK})
    netlink.socket_.turn_on(option);
  return netlink;
}

Result<void> Netlink::change(const RequestBuilder& request, std::string_view what) {
  return read(request, what, [](const Message&) {});
}

Result<void> Netlink::read(const RequestBuilder& request, std::string_view what, const Handler& handler) {
  nlmsghdr* const header = request.header();
  if (header == nullptr) return failure(what, ENOMEM);
  // Without NLM_F_ACK, nothing marks the end of the answer to a single request. A dump ends with NLMSG_DONE.
  if (!base::netlink::is_dump(*header)) header->nlmsg_flags |= NLM_F_ACK;
  if (const int code = socket_.send(*header); code != 0) return failure(what, code);
  const auto use = [&](const Message& answer) {
    if (answer.type >= NLMSG_MIN_TYPE) handler(answer);
    return true;
  };
  base::netlink::Socket::Ending ending;
  const int code = socket_.receive(
      *header, [&] { return room_for_next(fd(), room_); }, use, ending);
  if (code != 0) return failure(what, code);
  if (ending.code != 0) return failure(what, ending.code.value_or(EPROTO), ending.text);
  if (ending.is_interrupted) return failure(what, EINTR, "the kernel's table changed while it was read");
  return {};
}

Result<void> Netlink::dump(const RequestBuilder& request, std::string_view what, const std::function<void()>& restart,
                           const Handler& handler) {
  return base::netlink::repeat_interrupted([&] {
    restart();
    return read(request, what, handler);
  });
}

ifinfomsg link_header(int ifindex) {
  ifinfomsg header{};
  header.ifi_family = AF_UNSPEC;
  header.ifi_index = ifindex;
  return header;
}

Result<UniqueFd> open_sysfs(SysfsAccess access) {
  // The hook's seccomp filter allows fsmount(2) only with the attributes kReadOnly or with 0
  // (base/process/sandbox_filter_gen.cpp).
  constexpr unsigned kReadOnly = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
  const UniqueFd context(fsopen("sysfs", FSOPEN_CLOEXEC));
  UniqueFd sysfs;
  if (context.ok() && fsconfig(context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0)
    sysfs.reset(fsmount(context.get(), FSMOUNT_CLOEXEC, access == SysfsAccess::kRead ? kReadOnly : 0));
  // ENOSYS, EPERM and EACCES mean that the kernel does not support this mount (before Linux 5.2) or does not permit it.
  // Callers continue without the mount.
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
