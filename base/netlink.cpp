#include "base/netlink.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

namespace base::netlink {
namespace {

// The kernel remembers the largest buffer that the reader passed to recv(2), and returns at most 32 kB of a dump per
// recv(2) (netlink_dump(), Linux 6.12).
constexpr std::size_t kBufferSize = 32 << 10;
// Of request_all(). A netdev without the statistics takes about 1 kB; a part of a dump is at most as long as the
// buffer, or 8 kB (NLMSG_GOODSIZE) if that is longer.
constexpr std::size_t kPartSize = 8 << 10;
constexpr int kDumpTries = 5;
constexpr time_t kTimeoutSeconds = 5;  // a container must start even if the kernel does not answer

// Appends a request to the bytes of a datagram.
void append_request(std::vector<std::uint8_t>& datagram, unsigned type, unsigned flags, std::uint32_t sequence,
                    Bytes payload) {
  nlmsghdr header{};
  header.nlmsg_len = static_cast<std::uint32_t>(NLMSG_LENGTH(payload.size()));
  header.nlmsg_type = static_cast<std::uint16_t>(type);
  header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  header.nlmsg_seq = sequence;
  const Bytes bytes = bytes_of(header);
  datagram.insert(datagram.end(), bytes.begin(), bytes.end());
  datagram.insert(datagram.end(), payload.begin(), payload.end());
  datagram.resize(NLMSG_ALIGN(datagram.size()));
}

// Receives several datagrams with one system call.
class Datagrams {
 public:
  Datagrams() {
    for (std::size_t i = 0; i < headers_.size(); ++i) {
      pieces_[i] = {buffers_[i], kPartSize};
      headers_[i].msg_hdr.msg_iov = &pieces_[i];
      headers_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  // Waits for the first datagram only. Errors: the errno of recvmmsg(2), EMSGSIZE for a datagram that was cut.
  Result<std::vector<Bytes>> receive(int fd) {
    const auto count =
        TEMP_FAILURE_RETRY(::recvmmsg(fd, headers_.data(), Socket::kMostQueries, MSG_WAITFORONE, nullptr));
    if (count <= 0) return sys_error(count < 0 ? errno : EPROTO, "receive netlink answers");
    std::vector<Bytes> datagrams;
    for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
      if ((headers_[i].msg_hdr.msg_flags & MSG_TRUNC) != 0) return sys_error(EMSGSIZE, "receive a netlink answer");
      datagrams.emplace_back(buffers_[i], headers_[i].msg_len);
    }
    return datagrams;
  }

 private:
  alignas(nlmsghdr) std::uint8_t buffers_[Socket::kMostQueries][kPartSize];
  std::array<iovec, Socket::kMostQueries> pieces_{};
  std::array<mmsghdr, Socket::kMostQueries> headers_{};
};

}  // namespace

std::optional<NextMessage> next_message(Bytes& rest) {
  const auto header = value_of<nlmsghdr>(rest);
  if (!header || header->nlmsg_len < sizeof *header || header->nlmsg_len > rest.size()) return std::nullopt;
  const Bytes body = rest.subspan(NLMSG_HDRLEN, header->nlmsg_len - NLMSG_HDRLEN);
  rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header->nlmsg_len), rest.size()));
  return NextMessage{*header, body};
}

Attributes::Attributes(Bytes bytes) {
  constexpr std::size_t kUsualSize = 24;  // of an attribute of a link
  entries_.reserve(bytes.size() / kUsualSize);
  while (const auto header = value_of<nlattr>(bytes)) {
    // A wrong length makes the rest of the message unreadable.
    if (header->nla_len < sizeof *header || header->nla_len > bytes.size()) return;
    // NLA_TYPE_MASK clears the flags for nested and byte-ordered attributes.
    entries_.emplace_back(header->nla_type & NLA_TYPE_MASK, bytes.subspan(NLA_HDRLEN, header->nla_len - NLA_HDRLEN));
    bytes = bytes.subspan(std::min<std::size_t>(NLA_ALIGN(header->nla_len), bytes.size()));
  }
}

Bytes Attributes::get(unsigned type) const {
  const auto found = std::ranges::find(entries_, type, &std::pair<unsigned, Bytes>::first);
  return found == entries_.end() ? Bytes() : found->second;
}

std::optional<std::string> Attributes::text(unsigned type) const {
  const Bytes bytes = get(type);
  if (bytes.empty()) return std::nullopt;
  const auto* begin = reinterpret_cast<const char*>(bytes.data());
  // The terminating zero may be missing in a malformed attribute.
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
  // NLM_F_DUMP consists of two bits, and one of them alone is NLM_F_ROOT. So both bits must be set.
  const bool dump = (flags & NLM_F_DUMP) == NLM_F_DUMP;
  std::vector<std::uint8_t> request;
  append_request(request, type, flags, ++sequence_, payload);
  if (::send(fd_.get(), request.data(), request.size(), 0) < 0)
    return sys_error(errno, "netlink request of type {}", type);

  alignas(nlmsghdr) std::uint8_t buffer[kBufferSize];
  bool interrupted = false;
  for (;;) {
    const ssize_t count = TEMP_FAILURE_RETRY(::recv(fd_.get(), buffer, sizeof buffer, 0));
    if (count <= 0)
      return sys_error(count < 0 ? errno : EPROTO, "receive the netlink answer to a request of type {}", type);
    Bytes rest(buffer, static_cast<std::size_t>(count));
    while (const auto answer = next_message(rest)) {
      const auto& [head, body] = *answer;
      // This message answers an earlier request on the socket.
      if (head.nlmsg_seq != sequence_) continue;
      // NLM_F_DUMP_INTR: the table changed during the dump. Any part may have it; EINTR is returned after the last
      // part.
      interrupted |= (head.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
      if (head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR) {
        // NLMSG_ERROR with code 0 is an acknowledgement.
        const int code = value_of<int>(body).value_or(0);
        if (code < 0) return sys_error(errno_of(code), "netlink request of type {}", type);
        if (interrupted) return sys_error(EINTR, "the kernel's list changed during a netlink request of type {}", type);
        return {};
      }
      if (!handler(Message{head.nlmsg_type, body}) || !dump) return {};
    }
  }
}

bool Socket::set_strict() {
  constexpr int kOn = 1;
  return ::setsockopt(fd_.get(), SOL_NETLINK, NETLINK_GET_STRICT_CHK, &kOn, sizeof kOn) == 0;
}

// recvmmsg(2) waits for the first answer only. The kernel has queued the answers to single requests before send(2)
// returns, and each receive of a part of a dump queues the next part (netlink_recvmsg(), Linux 6.12).
Result<std::vector<int>> Socket::request_all(std::span<const Query> queries,
                                             const std::function<void(std::size_t query, const Message&)>& handler) {
  const std::uint32_t first = sequence_ + 1;
  std::vector<std::uint8_t> requests;
  for (const Query& query : queries)
    append_request(requests, query.type, query.flags, ++sequence_, query.payload);
  if (::send(fd_.get(), requests.data(), requests.size(), 0) < 0) return sys_error(errno, "send netlink requests");
  Datagrams datagrams;
  std::vector<int> codes(queries.size(), 0);
  bool interrupted = false;
  for (std::size_t open = queries.size(); open > 0;) {
    for (Bytes rest : TRY(datagrams.receive(fd_.get()))) {
      while (const auto answer = next_message(rest)) {
        const auto& [head, body] = *answer;
        const std::size_t query = head.nlmsg_seq - first;
        if (query >= queries.size()) continue;
        interrupted |= (head.nlmsg_flags & NLM_F_DUMP_INTR) != 0;
        const bool ends = head.nlmsg_type == NLMSG_DONE || head.nlmsg_type == NLMSG_ERROR;
        if (ends) codes[query] = errno_of(value_of<int>(body).value_or(0));
        if (!ends) handler(query, Message{head.nlmsg_type, body});
        if ((ends || queries[query].flags == 0) && open > 0) --open;
      }
    }
  }
  if (interrupted) return sys_error(EINTR, "the kernel's lists changed during netlink requests");
  return codes;
}

Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart,
                  const std::function<bool(const Message&)>& handler) {
  for (int attempt = 1;; ++attempt) {
    restart();
    Socket socket = TRY(Socket::open(NETLINK_ROUTE));
    auto done = socket.request(type, NLM_F_DUMP, header, handler);
    // Only EINTR is worth another attempt: the table changed during the dump. On a busy node this may happen each time,
    // so the last attempt returns the error.
    if (done || done.error().code != EINTR || attempt == kDumpTries) return done;
  }
}

}  // namespace base::netlink
