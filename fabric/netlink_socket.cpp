#include "fabric/netlink_socket.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fabric::netlink {
namespace {

// The kernel fills at most 32 kB per dump message once a reader has shown such a buffer (netlink_dump(), 6.12).
constexpr std::size_t kBufferSize = 32 << 10;
constexpr int kDumpTries = 5;
constexpr time_t kTimeoutSeconds = 5;  // a kernel that answers nothing must not keep a trainer from starting

}  // namespace

Attributes::Attributes(Bytes bytes) {
  while (bytes.size() >= sizeof(nlattr)) {
    nlattr header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    if (header.nla_len < sizeof header || header.nla_len > bytes.size()) return;
    entries_.emplace_back(header.nla_type & NLA_TYPE_MASK, bytes.subspan(NLA_HDRLEN, header.nla_len - NLA_HDRLEN));
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header.nla_len), bytes.size()));
  }
}

Bytes Attributes::get(unsigned type) const {
  const auto found = std::find_if(entries_.begin(), entries_.end(), [type](const auto& e) { return e.first == type; });
  return found == entries_.end() ? Bytes() : found->second;
}

std::optional<std::string> Attributes::text(unsigned type) const {
  const Bytes bytes = get(type);
  if (bytes.empty()) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  return std::string(begin, strnlen(begin, bytes.size()));
}

Result<Socket> Socket::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd.ok()) return sys_error(errno, "open netlink socket (protocol {})", protocol);
  const timeval timeout{kTimeoutSeconds, 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
  return Socket(std::move(fd));
}

Result<void> Socket::request(unsigned type, unsigned flags, Bytes payload,
                             const std::function<bool(const Message&)>& handler) {
  const bool dump = (flags & NLM_F_DUMP) == NLM_F_DUMP;
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(payload.size()));
  header.nlmsg_type = static_cast<std::uint16_t>(type);
  header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  header.nlmsg_seq = ++sequence_;
  std::vector<std::uint8_t> request(header.nlmsg_len);
  std::memcpy(request.data(), &header, sizeof header);
  if (!payload.empty()) std::memcpy(request.data() + NLMSG_HDRLEN, payload.data(), payload.size());
  if (::send(fd_.get(), request.data(), request.size(), 0) < 0) return sys_error(errno, "netlink request {}", type);

  alignas(nlmsghdr) std::uint8_t buffer[kBufferSize];
  bool interrupted = false;
  for (;;) {
    const ssize_t count = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return sys_error(count < 0 ? errno : EPROTO, "netlink answer to request {}", type);
    Bytes rest(buffer, static_cast<std::size_t>(count));
    while (rest.size() >= sizeof(nlmsghdr)) {
      nlmsghdr answer{};
      std::memcpy(&answer, rest.data(), sizeof answer);
      if (answer.nlmsg_len < sizeof answer || answer.nlmsg_len > rest.size()) break;
      const Bytes body = rest.subspan(NLMSG_HDRLEN, answer.nlmsg_len - NLMSG_HDRLEN);
      rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(answer.nlmsg_len), rest.size()));
      if (answer.nlmsg_seq != sequence_) continue;
      interrupted |= (answer.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
      if (answer.nlmsg_type == NLMSG_DONE || answer.nlmsg_type == NLMSG_ERROR) {
        int code = 0;
        if (body.size() >= sizeof code) std::memcpy(&code, body.data(), sizeof code);
        if (code < 0) return sys_error(errno_of(code), "netlink request {}", type);
        if (interrupted) return sys_error(EINTR, "netlink dump {}", type);
        return {};
      }
      if (!handler(Message{answer.nlmsg_type, body}) || !dump) return {};
    }
  }
}

Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart,
                  const std::function<bool(const Message&)>& handler) {
  for (int attempt = 1;; ++attempt) {
    restart();
    Socket socket = TRY(Socket::open(NETLINK_ROUTE));
    auto done = socket.request(type, NLM_F_DUMP, header, handler);
    if (done || done.error().code != EINTR || attempt == kDumpTries) return done;
  }
}

std::optional<Address> to_address(unsigned family, Bytes bytes) {
  constexpr std::size_t kIpv4Size = 4;
  Address address;
  if (bytes.size() != (family == AF_INET ? kIpv4Size : address.bytes.size())) return std::nullopt;
  if (family == AF_INET) address.bytes[10] = address.bytes[11] = 0xff;
  std::copy(bytes.begin(), bytes.end(), address.bytes.end() - static_cast<std::ptrdiff_t>(bytes.size()));
  return address;
}

}  // namespace fabric::netlink
