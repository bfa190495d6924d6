#include "hook/rails/netlink/netlink.hpp"

#include <linux/magic.h>
#include <linux/netlink.h>
#include <linux/nsfs.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/process/run_in_child.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

using base::netlink::Attributes;
using base::netlink::Bytes;

// The kernel makes the answer during send(2), so an answer that is missing after this time will not arrive.
constexpr time_t kTimeoutSeconds = 5;
constexpr int kDumpTries = 5;
constexpr std::size_t kAttributes = 4096;  // more than any request here has

struct FreeBuffer {
  void operator()(unsigned char* buffer) const { std::free(buffer); }
};

Bytes body_of(const nlmsghdr* header) {
  return {static_cast<const std::uint8_t*>(nlmsg_data(header)), static_cast<std::size_t>(nlmsg_datalen(header))};
}

// Returns the errno at the start of NLMSG_ERROR and NLMSG_DONE; 0: success.
int errno_of(Bytes body) {
  int code = 0;
  if (body.size() < sizeof code) return EPROTO;
  std::memcpy(&code, body.data(), sizeof code);
  return base::netlink::errno_of(code);
}

// Returns the text of NLMSGERR_ATTR_MSG, which libnl 3.7 does not read. The text follows the code; in NLMSG_ERROR the
// request is in between. With NETLINK_CAP_ACK (Linux 4.2) the kernel returns only the header of the request.
std::string extended_text(const nlmsghdr* answer, Bytes body) {
  if ((answer->nlmsg_flags & NLM_F_ACK_TLVS) == 0) return {};
  std::size_t skip = sizeof(int);
  if (answer->nlmsg_type == NLMSG_ERROR) {
    nlmsgerr error{};
    if (body.size() < sizeof error) return {};
    std::memcpy(&error, body.data(), sizeof error);
    const bool capped = (answer->nlmsg_flags & NLM_F_CAPPED) != 0;
    skip += capped ? sizeof error.msg : NLMSG_ALIGN(std::size_t{error.msg.nlmsg_len});
  }
  if (skip >= body.size()) return {};
  std::string text = Attributes(body.subspan(skip)).text(NLMSGERR_ATTR_MSG).value_or("");
  while (text.ends_with('.'))
    text.pop_back();
  return base::printable(text);
}

Error failure(std::string_view what, int code, const std::string& said = {}) {
  // recvmsg(2) reports the timeout of SO_RCVTIMEO as EAGAIN.
  if (code == EAGAIN || code == EWOULDBLOCK) code = ETIMEDOUT;
  Error error = sys_error(code, "cannot {}", what);
  if (!said.empty()) error.message += fmt::format(" ({})", said);
  return error;
}

// Collects the messages of the answer to one request.
class Conversation {
 public:
  Conversation(const nlmsghdr& request, const Netlink::Handler& handler)
      : sequence_(request.nlmsg_seq), is_dump_((request.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP), handler_(handler) {}

  // Returns false if this is the last message of the answer.
  bool take(const nlmsghdr* answer) {
    if (answer->nlmsg_seq != sequence_) return true;  // the answer to an earlier request, which timed out
    is_interrupted_ |= (answer->nlmsg_flags & NLM_F_DUMP_INTR) != 0;
    const bool is_error = answer->nlmsg_type == NLMSG_ERROR;
    if (is_error || answer->nlmsg_type == NLMSG_DONE) {
      code_ = errno_of(body_of(answer));
      if (code_ != 0) last_message_ = extended_text(answer, body_of(answer));
      // RDMA netlink sends an acknowledgement (error 0) before the last message of a dump. The dump continues after it.
      return is_error && is_dump_ && code_ == 0;
    }
    if (answer->nlmsg_type >= NLMSG_MIN_TYPE) handler_(answer);
    return true;
  }

  Result<void> result(std::string_view what) const {
    if (code_ != 0) return failure(what, code_, last_message_);
    if (is_interrupted_) return failure(what, EINTR, "the kernel's table changed while it was read");
    return {};
  }

 private:
  std::uint32_t sequence_;
  bool is_dump_;
  const Netlink::Handler& handler_;
  bool is_interrupted_ = false;
  int code_ = 0;
  std::string last_message_;
};

// Returns an error with libnl's text if there is no errno.
Error libnl_failure(std::string_view what, int result, int code) {
  if (code != 0) return failure(what, code);
  return Error{fmt::format("cannot {}: {}", what, nl_geterror(-result)), EIO};
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
  return Error{.message = "cannot join the network namespace: the opened file is no network namespace",
               .code = EINVAL,
               .hint = "check that the pod's namespace exists: an unmounted /run/netns/NAME is an empty file"};
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

void Netlink::Free::operator()(nl_sock* socket) const {
  nl_socket_free(socket);
}

Netlink::Netlink(Socket socket) : socket_(std::move(socket)) {}

int Netlink::fd() const {
  return nl_socket_get_fd(socket_.get());
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
  // The socket is bound here because libnl needs a bound socket. If it is bound already, the kernel refuses and keeps
  // the first binding.
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  static_cast<void>(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address));
  Socket socket(nl_socket_alloc());
  if (!socket) return sys_error(ENOMEM, "cannot use a netlink socket");
  errno = 0;
  const int result = nl_socket_set_fd(socket.get(), protocol, fd.get());
  if (result < 0) return libnl_failure("use a netlink socket", result, errno);
  const int owned = fd.release();
  // The buffer grows with the message, because messages about many VFs exceed any fixed buffer.
  nl_socket_enable_msg_peek(socket.get());
  // libnl would request an acknowledgement for each message. exchange() requests them only where it needs them.
  nl_socket_disable_auto_ack(socket.get());
  const timeval timeout{kTimeoutSeconds, 0};
  ::setsockopt(owned, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  // Errors are ignored, because older kernels do not have these options. Before Linux 4.12 errors then have no text.
  // Before Linux 4.20 the kernel does not filter dumps, so callers filter the answers too.
  const int on = 1;
  for (const int option : {NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK})
    ::setsockopt(owned, SOL_NETLINK, option, &on, sizeof on);
  return Netlink(std::move(socket));
}

Result<void> Netlink::exchange(NetlinkMessage message, int flags, std::string_view what, const Handler& handler) {
  if (!message) return failure(what, ENOMEM);
  nlmsghdr* request = nlmsg_hdr(message.get());
  request->nlmsg_flags = static_cast<std::uint16_t>(request->nlmsg_flags | flags);
  errno = 0;
  if (const int sent = nl_send_auto(socket_.get(), message.get()); sent < 0) return libnl_failure(what, sent, errno);
  Conversation conversation(*request, handler);
  for (;;) {
    sockaddr_nl sender{};
    unsigned char* buffer = nullptr;
    errno = 0;
    const int count = nl_recv(socket_.get(), &sender, &buffer, nullptr);
    const int code = errno;
    if (count <= 0) return libnl_failure(what, count, count < 0 ? code : EPROTO);
    const std::unique_ptr<unsigned char, FreeBuffer> owner(buffer);
    // A container can send messages to a socket in its own namespace. Only the kernel has port 0.
    if (sender.nl_pid != 0) continue;
    int rest = count;
    for (auto* answer = reinterpret_cast<nlmsghdr*>(buffer); nlmsg_ok(answer, rest);
         answer = nlmsg_next(answer, &rest)) {
      if (!conversation.take(answer)) return conversation.result(what);
    }
  }
}

Result<void> Netlink::change(NetlinkMessage message, std::string_view what) {
  return exchange(std::move(message), NLM_F_ACK, what, [](const nlmsghdr*) {});
}

Result<void> Netlink::read(NetlinkMessage message, std::string_view what, const Handler& handler) {
  // Without NLM_F_ACK, nothing marks the end of the answer to a single request. A dump ends with NLMSG_DONE.
  const bool dump = message && (nlmsg_hdr(message.get())->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  return exchange(std::move(message), dump ? 0 : NLM_F_ACK, what, handler);
}

Result<void> Netlink::dump(const std::function<NetlinkMessage()>& request, std::string_view what,
                           const std::function<void()>& restart, const Handler& handler) {
  for (int attempt = 1;; ++attempt) {
    restart();
    auto done = read(request(), what, handler);
    if (done || done.error().code != EINTR || attempt == kDumpTries) return done;
  }
}

RequestBuilder::RequestBuilder(int type, int flags, Bytes header)
    : message_(nlmsg_alloc_size(NLMSG_ALIGN(NLMSG_HDRLEN + header.size()) + kAttributes)) {
  if (!message_) return;
  nlmsghdr* made = nlmsg_put(message_.get(), NL_AUTO_PORT, NL_AUTO_SEQ, type, static_cast<int>(header.size()), flags);
  if (made == nullptr) {
    message_.reset();
  } else if (!header.empty()) {
    std::memcpy(nlmsg_data(made), header.data(), header.size());
  }
}

void RequestBuilder::put(int type, Bytes value) {
  if (message_ && nla_put(message_.get(), type, static_cast<int>(value.size()), value.data()) < 0) message_.reset();
}

void RequestBuilder::put(int type, std::string_view text) {
  const std::string terminated(text);
  put(type, Bytes(reinterpret_cast<const std::uint8_t*>(terminated.c_str()), terminated.size() + 1));
}

nlattr* RequestBuilder::begin(int type) {
  nlattr* nest = message_ ? nla_nest_start(message_.get(), type) : nullptr;
  if (nest == nullptr) message_.reset();
  return nest;
}

void RequestBuilder::end(nlattr* nest) {
  if (message_ && nla_nest_end(message_.get(), nest) < 0) message_.reset();
}

base::netlink::Message to_message(const nlmsghdr* header) {
  return {header->nlmsg_type, body_of(header)};
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
  // These errors mean that the kernel does not support this mount (before Linux 5.2) or does not permit it. Callers
  // continue without the mount.
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
