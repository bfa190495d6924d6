#include "unit/hook_scripted_kernel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>

extern "C" {
// The linker's names. NOLINTBEGIN(bugprone-reserved-identifier)
int __real_socket(int domain, int type, int protocol);
int __real_setns(int fd, int type);
int __real_getsockopt(int fd, int level, int option, void* value, socklen_t* length);
ssize_t __real_sendmsg(int fd, const msghdr* message, int flags);
ssize_t __real_recvmsg(int fd, msghdr* message, int flags);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace test_support {
namespace {

struct ScriptedSocket {
  ino_t inode = 0;  // a descriptor's number is used again
  int protocol = 0;
  int netns = 0;
  std::deque<Buffer> answers = {};
};

ino_t inode_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// Of this process: a forked child has a copy.
ScriptedKernel* kernel = nullptr;
int process_netns = 0;
std::map<int, ScriptedSocket> sockets;
std::map<int, int> netns_of_fd;

int open_scripted(int protocol, int netns) {
  // A real one: libnl asks for its address.
  const int fd = __real_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd >= 0) sockets[fd] = {inode_of(fd), protocol, netns};
  return fd;
}

Buffer message_of(const nlmsghdr& request, unsigned type, unsigned flags, ByteView payload) {
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_HDRLEN + payload.size());
  header.nlmsg_type = static_cast<std::uint16_t>(type);
  header.nlmsg_flags = static_cast<std::uint16_t>(flags);
  header.nlmsg_seq = request.nlmsg_seq;
  header.nlmsg_pid = request.nlmsg_pid;
  Buffer message(NLMSG_ALIGN(header.nlmsg_len));
  std::memcpy(message.data(), &header, sizeof header);
  std::copy(payload.begin(), payload.end(), message.begin() + NLMSG_HDRLEN);
  return message;
}

// netlink_ack() of net/netlink/af_netlink.c, for a socket with NETLINK_CAP_ACK and NETLINK_EXT_ACK (Linux 6.12).
Buffer acknowledgement(const nlmsghdr& request, const ScriptedReply& reply) {
  nlmsgerr error{};
  error.error = -reply.code;
  error.msg = request;
  unsigned flags = NLM_F_CAPPED;
  AttributeWriter body(error);
  if (!reply.said.empty()) {
    flags |= NLM_F_ACK_TLVS;
    body.put(NLMSGERR_ATTR_MSG, std::string_view(reply.said));
  }
  return message_of(request, NLMSG_ERROR, flags, body.buffer());
}

// netlink_rcv_skb(), netlink_dump(): a dump's first error is that of its start.
void serve(ScriptedSocket& socket, const Buffer& sent) {
  const auto request = value_at<nlmsghdr>(sent);
  if (sent.size() < sizeof request || request.nlmsg_len > sent.size()) std::abort();
  const bool is_dump = (request.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  const auto payload = ByteView(sent).subspan(NLMSG_HDRLEN, request.nlmsg_len - NLMSG_HDRLEN);
  const ScriptedReply reply =
      kernel->answer({socket.protocol, socket.netns, process_netns, request.nlmsg_type, is_dump, payload});
  for (const Buffer& message : reply.messages)
    socket.answers.push_back(message_of(request, reply.type, is_dump ? NLM_F_MULTI : 0, message));
  if (is_dump && reply.code == 0) {
    socket.answers.push_back(message_of(request, NLMSG_DONE, NLM_F_MULTI, AttributeWriter(int{0}).buffer()));
  } else if (reply.code != 0 || (request.nlmsg_flags & NLM_F_ACK) != 0) {
    socket.answers.push_back(acknowledgement(request, reply));
  }
}

ssize_t receive(ScriptedSocket& socket, msghdr& message, int flags) {
  if (socket.answers.empty()) {
    errno = EAGAIN;
    return -1;
  }
  const Buffer answer = socket.answers.front();
  if ((flags & MSG_PEEK) == 0) socket.answers.pop_front();
  const std::size_t room = message.msg_iovlen == 0 ? 0 : message.msg_iov[0].iov_len;
  const std::size_t count = std::min(room, answer.size());
  if (count > 0) std::memcpy(message.msg_iov[0].iov_base, answer.data(), count);
  message.msg_flags = count < answer.size() ? MSG_TRUNC : 0;
  message.msg_controllen = 0;
  sockaddr_nl sender{};  // number 0: the kernel
  sender.nl_family = AF_NETLINK;
  if (message.msg_name != nullptr) std::memcpy(message.msg_name, &sender, sizeof sender);
  message.msg_namelen = sizeof sender;
  return static_cast<ssize_t>((flags & MSG_TRUNC) != 0 ? answer.size() : count);
}

ScriptedSocket* scripted(int fd) {
  const auto found = kernel == nullptr ? sockets.end() : sockets.find(fd);
  return found == sockets.end() || found->second.inode != inode_of(fd) ? nullptr : &found->second;
}

}  // namespace

AttributeWriter& AttributeWriter::put(unsigned type, std::string_view text) {
  const std::string terminated(text);
  return put_bytes(type, {reinterpret_cast<const std::uint8_t*>(terminated.c_str()), terminated.size() + 1});
}

AttributeWriter& AttributeWriter::put_bytes(unsigned type, ByteView value) {
  const nlattr header{static_cast<std::uint16_t>(NLA_HDRLEN + value.size()), static_cast<std::uint16_t>(type)};
  append(&header, sizeof header);
  append(value.data(), value.size());
  return *this;
}

void AttributeWriter::append(const void* data, std::size_t size) {
  const auto* bytes = static_cast<const std::uint8_t*>(data);
  buffer_.insert(buffer_.end(), bytes, bytes + size);
  buffer_.resize(NLA_ALIGN(buffer_.size()));
}

ByteView find_attribute(ByteView attributes, unsigned type) {
  while (attributes.size() >= sizeof(nlattr)) {
    const auto header = value_at<nlattr>(attributes);
    if (header.nla_len < NLA_HDRLEN || header.nla_len > attributes.size()) std::abort();
    const auto payload = attributes.subspan(NLA_HDRLEN, std::size_t{header.nla_len} - NLA_HDRLEN);
    if ((header.nla_type & NLA_TYPE_MASK) == type) return payload;
    attributes = attributes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), attributes.size()));
  }
  return {};
}

std::string text_of(ByteView bytes) {
  return {bytes.begin(), std::find(bytes.begin(), bytes.end(), 0)};
}

ScriptedKernel::ScriptedKernel() {
  if (kernel != nullptr) std::abort();
  kernel = this;
}

ScriptedKernel::~ScriptedKernel() {
  kernel = nullptr;
  process_netns = 0;
  sockets.clear();
  netns_of_fd.clear();
}

fabric::UniqueFd ScriptedKernel::open_socket(int protocol, int netns) {
  return fabric::UniqueFd(open_scripted(protocol, netns));
}

fabric::UniqueFd ScriptedKernel::open_netns(int netns) {
  fabric::UniqueFd fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  netns_of_fd[fd.get()] = netns;
  return fd;
}

int ScriptedKernel::netns_of(int fd) {
  const auto found = netns_of_fd.find(fd);
  return found == netns_of_fd.end() ? -1 : found->second;
}

}  // namespace test_support

using test_support::kernel;
using test_support::scripted;

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
int __wrap_socket(int domain, int type, int protocol) {
  if (kernel == nullptr || domain != AF_NETLINK) return __real_socket(domain, type, protocol);
  return test_support::open_scripted(protocol, test_support::process_netns);
}

int __wrap_setns(int fd, int type) {
  const int netns = test_support::ScriptedKernel::netns_of(fd);
  if (kernel == nullptr || netns < 0) return __real_setns(fd, type);
  test_support::process_netns = netns;
  return 0;
}

int __wrap_getsockopt(int fd, int level, int option, void* value, socklen_t* length) {
  const auto* socket = scripted(fd);
  if (socket == nullptr || level != SOL_SOCKET || option != SO_PROTOCOL || *length < sizeof(int)) {
    return __real_getsockopt(fd, level, option, value, length);
  }
  std::memcpy(value, &socket->protocol, sizeof socket->protocol);
  return 0;
}

ssize_t __wrap_sendmsg(int fd, const msghdr* message, int flags) {
  auto* socket = scripted(fd);
  if (socket == nullptr) return __real_sendmsg(fd, message, flags);
  test_support::Buffer sent;
  for (std::size_t i = 0; i < message->msg_iovlen; ++i) {
    const auto* begin = static_cast<const std::uint8_t*>(message->msg_iov[i].iov_base);
    sent.insert(sent.end(), begin, begin + message->msg_iov[i].iov_len);
  }
  serve(*socket, sent);
  return static_cast<ssize_t>(sent.size());
}

ssize_t __wrap_recvmsg(int fd, msghdr* message, int flags) {
  auto* socket = scripted(fd);
  return socket == nullptr ? __real_recvmsg(fd, message, flags) : test_support::receive(*socket, *message, flags);
}
// NOLINTEND(bugprone-reserved-identifier)
}
