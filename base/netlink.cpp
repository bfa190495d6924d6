#include "base/netlink.hpp"

#include "base/file.hpp"
#include "base/text.hpp"

namespace base::netlink {
namespace {

// The kernel remembers the largest buffer that the reader passed to recv(2), and returns at most 32 kB of a dump per
// recv(2) (netlink_dump(), Linux 6.12).
constexpr std::size_t kBufferSize = 32 << 10;
// Buffer of request_all() for one datagram. A netdev without the statistics takes about 1 kB. The kernel makes the
// parts of a dump at most as long as the buffer, or as 8 kB (NLMSG_GOODSIZE) if that is longer.
constexpr std::size_t kPartSize = 8 << 10;
constexpr int kDumpTries = 5;
constexpr time_t kTimeoutSeconds = 5;

// The text follows the code; in NLMSG_ERROR the request is in between. With NETLINK_CAP_ACK (Linux 4.2) the kernel
// returns only the header of the request.
std::string extended_text(const Message& answer) {
  if ((answer.flags & NLM_F_ACK_TLVS) == 0) return {};
  std::size_t skip = sizeof(int);
  if (answer.type == NLMSG_ERROR) {
    const auto error = value_of<nlmsgerr>(answer.payload);
    if (!error) return {};
    const bool capped = (answer.flags & NLM_F_CAPPED) != 0;
    skip += capped ? sizeof error->msg : NLMSG_ALIGN(std::size_t{error->msg.nlmsg_len});
  }
  if (skip >= answer.payload.size()) return {};
  std::string text = Attributes(answer.payload.subspan(skip)).text(NLMSGERR_ATTR_MSG).value_or("");
  while (text.ends_with('.'))
    text.pop_back();
  return printable(text);
}

}  // namespace

std::optional<Message> next_message(Bytes& rest) {
  const auto header = value_of<nlmsghdr>(rest);
  if (!header || header->nlmsg_len < sizeof *header || header->nlmsg_len > rest.size()) return std::nullopt;
  const Bytes body = rest.subspan(NLMSG_HDRLEN, header->nlmsg_len - NLMSG_HDRLEN);
  rest = rest.subspan(std::min<std::size_t>(NLMSG_ALIGN(header->nlmsg_len), rest.size()));
  return Message{header->nlmsg_type, body, header->nlmsg_flags, header->nlmsg_seq};
}

std::optional<int> Message::code() const {
  // The lowest code of the kernel is -MAX_ERRNO (include/linux/err.h). A lower code is garbage: INT_MIN, for one,
  // cannot be negated.
  constexpr int kMaxErrno = 4095;
  const auto code = value_of<int>(payload);
  if (!code || *code >= 0) return code ? std::optional(0) : std::nullopt;
  return *code >= -kMaxErrno ? -*code : EPROTO;
}

Attributes::Attributes(Bytes bytes) {
  constexpr std::size_t kUsualSize = 24;  // usual size of an attribute of a link
  entries_.reserve(bytes.size() / kUsualSize);
  while (const auto header = value_of<nlattr>(bytes)) {
    // Parsing ends here: after a wrong length, the start of the next attribute is unknown.
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

Query::Query(unsigned type, unsigned flags, Bytes header) : bytes_(sizeof(nlmsghdr)) {
  this->header().nlmsg_type = static_cast<std::uint16_t>(type);
  this->header().nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
  append(header);
}

void Query::append(Bytes bytes) {
  bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  bytes_.resize(NLMSG_ALIGN(bytes_.size()));
  header().nlmsg_len = static_cast<std::uint32_t>(bytes_.size());
}

void Query::put(unsigned type, Bytes value) {
  append(bytes_of(nlattr{static_cast<std::uint16_t>(NLA_HDRLEN + value.size()), static_cast<std::uint16_t>(type)}));
  append(value);
}

void Query::put(unsigned type, std::string_view text) {
  const std::string terminated(text);
  put(type, Bytes(reinterpret_cast<const std::uint8_t*>(terminated.c_str()), terminated.size() + 1));
}

Socket::Socket(UniqueFd fd) : fd_(std::move(fd)) {
  const timeval timeout{kTimeoutSeconds, 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
}

Result<Socket> Socket::open(int protocol) {
  UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
  if (!fd.ok()) return sys_error(errno, "open netlink socket (protocol {})", protocol);
  return Socket(std::move(fd));
}

int Socket::send(nlmsghdr& request) {
  request.nlmsg_seq = ++sequence_;
  return ::send(fd(), &request, request.nlmsg_len, 0) < 0 ? errno : 0;
}

int Socket::receive(const nlmsghdr& request, const std::function<std::span<std::uint8_t>()>& room, const Handler& use,
                    Ending& ending) {
  return receive_messages<1>(fd(), 0, room, [&](const Message& answer) {
    if (answer.sequence != sequence_) return true;
    ending.is_interrupted |= (answer.flags & NLM_F_DUMP_INTR) != 0;
    if (!answer.ends()) return use(answer) && (is_dump(request) || (request.nlmsg_flags & NLM_F_ACK) != 0);
    ending.code = answer.code();
    if (ending.code != 0) ending.text = extended_text(answer);
    // RDMA netlink sends an acknowledgement (error 0) before the last message of a dump. The dump continues after it.
    return answer.type == NLMSG_ERROR && is_dump(request) && ending.code == 0;
  });
}

Result<void> Socket::request(Query query, const Handler& handler) {
  const unsigned type = query.header().nlmsg_type;
  if (const int code = send(query.header()); code != 0) return sys_error(code, "netlink request of type {}", type);
  alignas(nlmsghdr) std::uint8_t buffer[kBufferSize] RDMA_INIT_UNSET;
  Ending ending;
  const int code = receive(
      query.header(), [&] { return std::span(buffer); }, handler, ending);
  if (code != 0) return sys_error(code, "receive the netlink answer to a request of type {}", type);
  if (ending.code.value_or(0) != 0) return sys_error(*ending.code, "netlink request of type {}", type);
  if (ending.is_interrupted)
    return sys_error(EINTR, "the kernel's list changed during a netlink request of type {}", type);
  return {};
}

bool Socket::turn_on(int option) {
  constexpr int kOn = 1;
  return ::setsockopt(fd_.get(), SOL_NETLINK, option, &kOn, sizeof kOn) == 0;
}

// recvmmsg(2) waits for the first answer only. The kernel has queued the answers to single requests before send(2)
// returns, and each receive of a part of a dump queues the next part (netlink_recvmsg(), Linux 6.12).
Result<std::vector<int>> Socket::request_all(std::span<Query> queries,
                                             const std::function<void(std::size_t query, const Message&)>& handler) {
  const std::uint32_t first = sequence_ + 1;
  std::vector<std::uint8_t> requests;
  for (Query& query : queries) {
    query.header().nlmsg_seq = ++sequence_;
    requests.insert(requests.end(), query.bytes().begin(), query.bytes().end());
  }
  if (::send(fd_.get(), requests.data(), requests.size(), 0) < 0) return sys_error(errno, "send netlink requests");
  alignas(nlmsghdr) std::uint8_t buffer[kMostQueries * kPartSize] RDMA_INIT_UNSET;
  std::vector<int> codes(queries.size(), 0);
  bool interrupted = false;
  std::size_t open = queries.size();
  const auto take = [&](const Message& answer) {
    const std::size_t query = answer.sequence - first;
    if (query >= queries.size()) return true;
    interrupted |= (answer.flags & NLM_F_DUMP_INTR) != 0;
    const bool is_last = answer.ends();
    if (is_last) codes[query] = answer.code().value_or(0);
    if (!is_last) handler(query, answer);
    if (is_last || !is_dump(queries[query].header())) --open;
    return open > 0;
  };
  const int code = receive_messages<kMostQueries>(
      fd_.get(), MSG_WAITFORONE, [&] { return std::span(buffer); }, take);
  if (code != 0) return sys_error(code, "receive netlink answers");
  if (interrupted) return sys_error(EINTR, "the kernel's lists changed during netlink requests");
  return codes;
}

Result<void> repeat_interrupted(const std::function<Result<void>()>& dump) {
  for (int attempt = 1;; ++attempt) {
    auto done = dump();
    if (done || done.error().code != EINTR || attempt == kDumpTries) return done;
  }
}

Result<void> dump(unsigned type, Bytes header, const std::function<void()>& restart, const Socket::Handler& handler) {
  return repeat_interrupted([&]() -> Result<void> {
    restart();
    return TRY(Socket::open(NETLINK_ROUTE)).request({type, NLM_F_DUMP, header}, handler);
  });
}

}  // namespace base::netlink
