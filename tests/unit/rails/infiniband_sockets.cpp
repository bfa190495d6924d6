// The program's own netlink sockets end in the model: what is sent on one goes to it, and what it says is read from it.
// socket(2), setns(2) and libnl's nl_socket_set_fd(), nl_send_auto() and nl_recv() of the program end here (linker
// option
// --wrap).

#include <fcntl.h>
#include <netlink/netlink.h>
#include <netlink/socket.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>

#include "unit/rails/infiniband_node.hpp"

extern "C" {
// The linker's names. NOLINTBEGIN(bugprone-reserved-identifier)
int __real_socket(int domain, int type, int protocol);
int __real_nl_socket_set_fd(nl_sock* socket, int protocol, int fd);
// NOLINTEND(bugprone-reserved-identifier)
}

namespace test_support {
namespace {

struct ScriptedSocket {
  int protocol = 0;
  int netns = 0;
  std::vector<std::uint8_t> answer = {};  // to the last request, all of its messages
};

// Of this process: a forked child has a copy.
int process_netns = 0;
std::map<int, ScriptedSocket> sockets;
std::map<int, int> netns_of_fd;

int open_scripted(int protocol, int netns) {
  // A real one: libnl asks for its address.
  const int fd = __real_socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
  if (fd >= 0) sockets[fd] = {protocol, netns};
  return fd;
}

ScriptedSocket& scripted(const nl_sock* socket) {
  return sockets.at(nl_socket_get_fd(socket));
}

// netlink_rcv_skb(), netlink_dump(), netlink_ack() of net/netlink/af_netlink.c, for a socket with NETLINK_CAP_ACK
// (Linux 6.12): a dump's first error is that of its start.
void serve(ScriptedSocket& socket, const nlmsghdr& request) {
  const bool is_dump = (request.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  NodeReply reply = InfinibandNode::current->answer(
      {socket.protocol, socket.netns, process_netns, is_dump, hook::to_message(&request)});
  if (is_dump && reply.code == 0) {
    reply.messages.push_back(hook::RequestBuilder(NLMSG_DONE, NLM_F_MULTI, int{0}).take());
  } else {
    reply.messages.push_back(hook::RequestBuilder(NLMSG_ERROR, NLM_F_CAPPED, nlmsgerr{-reply.code, request}).take());
  }
  for (const hook::NetlinkMessage& message : reply.messages) {
    nlmsghdr* header = nlmsg_hdr(message.get());
    header->nlmsg_seq = request.nlmsg_seq;
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(header);
    socket.answer.insert(socket.answer.end(), bytes, bytes + header->nlmsg_len);
    socket.answer.resize(NLMSG_ALIGN(socket.answer.size()));
  }
}

}  // namespace

InfinibandNode::~InfinibandNode() {
  ::munmap(state_, sizeof(IbState));
  current = nullptr;
  sockets.clear();
  netns_of_fd.clear();
}

fabric::UniqueFd InfinibandNode::open_socket(int protocol, int netns) {
  return fabric::UniqueFd(open_scripted(protocol, netns));
}

fabric::UniqueFd InfinibandNode::open_netns(int netns) {
  fabric::UniqueFd fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  netns_of_fd[fd.get()] = netns;
  return fd;
}

int InfinibandNode::netns_of(int fd) {
  return netns_of_fd.at(fd);
}

}  // namespace test_support

extern "C" {
// NOLINTBEGIN(bugprone-reserved-identifier)
int __wrap_socket(int domain, int type, int protocol) {
  if (domain != AF_NETLINK) return __real_socket(domain, type, protocol);
  return test_support::open_scripted(protocol, test_support::process_netns);
}

// Only a child that the program forked joins another namespace.
int __wrap_setns(int fd, int) {
  test_support::process_netns = test_support::InfinibandNode::netns_of(fd);
  return 0;
}

int __wrap_nl_socket_set_fd(nl_sock* socket, int, int fd) {
  return __real_nl_socket_set_fd(socket, NETLINK_ROUTE, fd);
}

int __wrap_nl_send_auto(nl_sock* socket, nl_msg* message) {
  nl_complete_msg(socket, message);
  test_support::serve(test_support::scripted(socket), *nlmsg_hdr(message));
  return static_cast<int>(nlmsg_hdr(message)->nlmsg_len);
}

int __wrap_nl_recv(nl_sock* socket, sockaddr_nl* sender, unsigned char** buffer, ucred**) {
  const auto answer = std::exchange(test_support::scripted(socket).answer, {});
  *sender = {};                                                       // number 0: the kernel
  *buffer = static_cast<unsigned char*>(std::malloc(answer.size()));  // NOLINT(*-no-malloc): whoever receives frees it
  std::memcpy(*buffer, answer.data(), answer.size());
  return static_cast<int>(answer.size());
}
// NOLINTEND(bugprone-reserved-identifier)
}
