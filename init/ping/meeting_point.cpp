#include "init/ping/meeting_point.hpp"

#include <fmt/core.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "base/timing.hpp"

namespace init::ping {
namespace {

constexpr double kFarewellSeconds = 2;
constexpr double kSeatSeconds = 5;            // limit for a connection to join, and for a rank to close its connection
constexpr double kCheckSeconds = 0.25;        // time between two searches for connections that are late
constexpr std::size_t kMostUnsent = 1 << 20;  // bytes that wait for a rank that does not read
// Connections that are accepted before the open ones are read again: a flood of them must not push out a rank that has
// sent its first message.
constexpr int kAccepted = 32;
// Networks with at most so many strangers count as equal: ranks share the address of their node.
constexpr std::size_t kFairShare = 64;

void watch(int events, int operation, int fd, int number, std::uint32_t which) {
  epoll_event event{};
  event.events = which;
  event.data.fd = number;
  ::epoll_ctl(events, operation, fd, &event);
}

// Returns the bytes of an IPv4 address, or of the network of an IPv6 address: one host has many of its addresses.
std::string network_of(const SocketAddress& address) {
  const auto text = [](const void* bytes, std::size_t count) {
    return std::string(static_cast<const char*>(bytes), count);
  };
  if (address.storage.ss_family == AF_INET)
    return text(&reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr, sizeof(in_addr));
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  constexpr std::size_t kPrefix = 8;
  return IN6_IS_ADDR_V4MAPPED(&ipv6) ? text(&ipv6.s6_addr[12], sizeof(in_addr)) : text(&ipv6, kPrefix);
}

}  // namespace

RaisedFileLimit::RaisedFileLimit() {
  ::getrlimit(RLIMIT_NOFILE, &before_);
  const rlimit raised{before_.rlim_max, before_.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &raised);
}

RaisedFileLimit::~RaisedFileLimit() {
  ::setrlimit(RLIMIT_NOFILE, &before_);
}

Result<MeetingPoint> MeetingPoint::listen(const SocketAddress& address, unsigned size, std::string token) {
  UniqueFd listener(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.ok()) return sys_error(errno, "socket");
  // The port may belong to connections of an earlier run that have ended.
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), address.raw(), address.length) != 0 ||
      ::listen(listener.get(), static_cast<int>(std::min(size + kSpare, 4096U))) != 0) {
    base::Error error = sys_error(errno, "listen on {}", to_string(address));
    if (error.code == EADDRINUSE) error.hint = "pass another port with --master HOST:PORT on every rank";
    return error;
  }
  UniqueFd events(::epoll_create1(EPOLL_CLOEXEC));
  if (!events.ok()) return sys_error(errno, "epoll_create1");
  watch(events.get(), EPOLL_CTL_ADD, listener.get(), kListener, EPOLLIN);
  return MeetingPoint(std::move(listener), std::move(events), size, std::move(token));
}

// A stranger that opens connections for a day can use up all numbers.
int MeetingPoint::new_number() {
  do {
    last_ = last_ == std::numeric_limits<int>::max() ? kListener + 1 : last_ + 1;
  } while (connections_.contains(last_));
  return last_;
}

void MeetingPoint::add(UniqueFd socket) {
  const int number = new_number();
  watch(events_.get(), EPOLL_CTL_ADD, socket.get(), number, EPOLLIN);
  connections_.emplace(number, Connection{std::move(socket), "this process", ""});
}

int MeetingPoint::add_rank0(Channel::Parts parts) {
  const int number = new_number();
  watch(events_.get(), EPOLL_CTL_ADD, parts.socket.get(), number, EPOLLIN);
  Connection connection{std::move(parts.socket), "rank 0", ""};
  connection.stage = Stage::kKnown;
  connection.inbox = std::move(parts.inbox);
  connection.seal = std::move(parts.seal);
  connections_.emplace(number, std::move(connection));
  return number;
}

SocketAddress MeetingPoint::address() const {
  SocketAddress own;
  own.length = sizeof own.storage;
  ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own.storage), &own.length);
  return own;
}

// Closes the connection of a stranger. Returns false if there is none.
bool MeetingPoint::close_stranger(Desk& desk) {
  const auto is_less = [](const auto& left, const auto& right) {
    const std::size_t most = std::max(left.second.size(), kFairShare);
    const std::size_t other = std::max(right.second.size(), kFairShare);
    return most != other ? most < other : *left.second.begin() > *right.second.begin();
  };
  const auto network = std::ranges::max_element(strangers_, is_less);
  if (network == strangers_.end()) return false;
  close(*network->second.begin(), desk);
  return true;
}

void MeetingPoint::forget_stranger(int number, const std::string& network) {
  const auto found = strangers_.find(network);
  if (found == strangers_.end()) return;
  found->second.erase(number);
  if (found->second.empty()) strangers_.erase(found);
}

void MeetingPoint::leave() {
  connections_.clear();
  listener_.reset();
  events_.reset();
}

void MeetingPoint::accept_some(Desk& desk) {
  for (int count = 0; count < kAccepted; ++count) {
    SocketAddress from;
    from.length = sizeof from.storage;
    UniqueFd socket(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.ok()) {
      // The limit of open files of the container may be below that of the connections.
      if (errno == EMFILE || errno == ENFILE) close_stranger(desk);
      return;
    }
    if (connections_.size() >= most_ && !close_stranger(desk)) continue;
    set_options(socket.get());
    const int number = new_number();
    watch(events_.get(), EPOLL_CTL_ADD, socket.get(), number, EPOLLIN);
    Connection connection{std::move(socket), to_string(from), network_of(from)};
    connection.ends_at = clock_seconds() + kSeatSeconds;
    strangers_[connection.network].insert(number);
    connections_.emplace(number, std::move(connection));
  }
}

void MeetingPoint::close(int number, Desk& desk) {
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  forget_stranger(number, found->second.network);
  const bool is_known = found->second.stage == Stage::kKnown;
  connections_.erase(found);
  if (is_known) desk.lose(number, clock_seconds());
}

void MeetingPoint::read_from(int number, Desk& desk) {
  Connection& connection = connections_.at(number);
  std::array<char, 16384> bytes{};
  const std::size_t most = connection.stage == Stage::kKnown ? bytes.size() : kLongestFirstFrame;
  const ssize_t count = ::recv(connection.socket.get(), bytes.data(), most, MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count <= 0) return close(number, desk);
  if (!connection.is_last) connection.inbox.add(bytes.data(), static_cast<std::size_t>(count));
  // A message may close the connection.
  for (auto at = connections_.find(number); at != connections_.end() && !at->second.is_last;
       at = connections_.find(number)) {
    auto message = at->second.inbox.next();
    if (!message && message.error().code == EBADMSG && at->second.stage == Stage::kProof)
      return refuse(number, "it has the token of another job", desk);
    if (!message) return close(number, desk);
    if (!*message) return;
    take(number, std::move(**message), desk);
  }
}

void MeetingPoint::take(int number, Message message, Desk& desk) {
  Connection& connection = connections_.at(number);
  if (connection.stage == Stage::kKnown) {
    desk.receive(number, connection.from, std::move(message), clock_seconds());
    // The check of ends_at spares the later messages of a seated rank the search of all seats.
    if (connection.ends_at > 0 && desk.has_seat(number)) {
      connection.ends_at = 0;
      forget_stranger(number, connection.network);
    }
  } else if (connection.stage == Stage::kProof && std::holds_alternative<Proof>(message)) {
    connection.stage = Stage::kKnown;
    connection.inbox.set_longest(kLongestFrame);
  } else if (auto* const hello = std::get_if<Hello>(&message); hello != nullptr && connection.stage == Stage::kHello) {
    answer_hello(number, std::move(*hello), desk);
  } else {
    close(number, desk);
  }
}

void MeetingPoint::answer_hello(int number, Hello hello, Desk& desk) {
  Connection& connection = connections_.at(number);
  connection.hello = std::move(hello);
  if (connection.hello.protocol != kProtocol) return refuse(number, "it is another version of rdma-ping", desk);
  auto nonce = random_nonce();
  if (!nonce) return refuse(number, nonce.error().message, desk);
  const std::string challenge = encode(Challenge{std::move(*nonce)});
  const Seals seals = make_seals(token_, encode(connection.hello), challenge);
  connection.inbox.require(seals.rank);
  connection.seal = seals.rank0;
  connection.stage = Stage::kProof;
  connection.unsent += challenge;
  write_to(number, desk);
}

void MeetingPoint::refuse(int number, const std::string& reason, Desk& desk) {
  Connection& connection = connections_.at(number);
  connection.is_last = true;
  desk.refuse(number, connection.from, connection.hello, reason);
}

void MeetingPoint::write_to(int number, Desk& desk) {
  Connection& connection = connections_.at(number);
  while (!connection.unsent.empty()) {
    const ssize_t count = ::send(connection.socket.get(), connection.unsent.data(), connection.unsent.size(),
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0) return close(number, desk);
    connection.unsent.erase(0, static_cast<std::size_t>(count));
  }
  // The connection is closed later: now the kernel would answer a message of this rank that is under way with a reset,
  // and the rank might lose this one.
  if (connection.unsent.empty() && connection.is_last) {
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.ends_at = clock_seconds() + kSeatSeconds;
  }
  const bool was_writing = std::exchange(connection.is_writing, !connection.unsent.empty());
  if (was_writing == connection.is_writing) return;
  watch(events_.get(), EPOLL_CTL_MOD, connection.socket.get(), number,
        connection.is_writing ? EPOLLIN | EPOLLOUT : EPOLLIN);
}

// Writes the messages of the desk, which may produce more when a connection turns out to be closed.
void MeetingPoint::deliver(Desk& desk) {
  for (;;) {
    std::vector<Desk::Outgoing> outgoing = desk.take_outgoing(is_idle_, clock_seconds());
    if (outgoing.empty()) return;
    for (Desk::Outgoing& one : outgoing) {
      const auto found = connections_.find(one.connection);
      if (found == connections_.end()) continue;
      // A Refusal has no code: the stranger may not have the keys.
      const bool is_plain = std::holds_alternative<Refusal>(one.message) || !found->second.seal;
      found->second.unsent += encode(std::move(one.message), is_plain ? nullptr : &*found->second.seal);
      found->second.is_last |= one.is_last;
      if (found->second.unsent.size() > kMostUnsent) {
        close(one.connection, desk);
      } else {
        write_to(one.connection, desk);
      }
    }
  }
}

void MeetingPoint::close_late(Desk& desk) {
  const double now = clock_seconds();
  if (now < check_at_) return;
  check_at_ = now + kCheckSeconds;
  std::vector<int> late;
  for (const auto& [number, connection] : connections_) {
    if (connection.ends_at > 0 && now > connection.ends_at) late.push_back(number);
  }
  for (const int number : late)
    close(number, desk);
}

// Waits for events until the deadline, and handles them.
void MeetingPoint::exchange(Desk& desk, double deadline) {
  std::array<epoll_event, 512> events{};
  const double left = std::clamp(deadline - clock_seconds(), 0.0, kSeatSeconds);
  const int count = ::epoll_wait(events_.get(), events.data(), static_cast<int>(events.size()),
                                 static_cast<int>(std::ceil(left * 1000)));
  is_idle_ = count < static_cast<int>(events.size());
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.fd == kListener) {
      accept_some(desk);
      continue;
    }
    if ((event.events & EPOLLOUT) != 0 && connections_.contains(event.data.fd)) write_to(event.data.fd, desk);
    if ((event.events & ~static_cast<unsigned>(EPOLLOUT)) != 0 && connections_.contains(event.data.fd))
      read_from(event.data.fd, desk);
  }
  close_late(desk);
}

void MeetingPoint::run(Desk& desk, const Log& log, const std::function<Verdict()>& decide) {
  while (!desk.is_finished()) {
    exchange(desk, desk.deadline());
    desk.pass(clock_seconds());
    deliver(desk);
    for (const std::string& line : desk.take_progress())
      log.info(line);
  }
  // The trainer may use the same port. A quicker rank's trainer must not connect to this program.
  listener_.reset();
  std::erase_if(connections_, [&](const auto& entry) { return !desk.has_seat(entry.first); });
  strangers_.clear();
  desk.announce(decide());
  deliver(desk);
  const double end = clock_seconds() + kFarewellSeconds;
  const auto is_waiting = [](const auto& entry) { return entry.second.is_last; };
  while (std::ranges::any_of(connections_, is_waiting) && clock_seconds() < end)
    exchange(desk, end);
  connections_.clear();
}

}  // namespace init::ping
