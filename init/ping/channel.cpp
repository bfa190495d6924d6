#include "init/ping/channel.hpp"

#include <fmt/core.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <ctime>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/timing.hpp"

namespace init::ping {
namespace {

constexpr double kConnectSeconds = 3;  // limit of one attempt in seconds: a firewall may drop packets without an answer
constexpr double kPauseSeconds = 0.2;
constexpr int kSendSeconds = 10;

// Waits for events on a socket. Returns false at the deadline.
bool wait_for(int socket, short events, double deadline) {
  for (;;) {
    const double left = std::max(0.0, deadline - clock_seconds());
    pollfd entry{socket, events, 0};
    const int count = ::poll(&entry, 1, static_cast<int>(std::ceil(left * 1000)));
    if (count > 0) return true;
    if (count == 0 && clock_seconds() >= deadline) return false;
  }
}

Result<UniqueFd> connect_to(const SocketAddress& address, double deadline) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.ok()) return sys_error(errno, "socket");
  if (::connect(fd.get(), address.raw(), address.length) != 0 && errno != EINPROGRESS)
    return sys_error(errno, "connect to {}", to_string(address));
  int error = ETIMEDOUT;
  socklen_t length = sizeof error;
  if (wait_for(fd.get(), POLLOUT, deadline)) ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return sys_error(error, "connect to {}", to_string(address));
  set_options(fd.get());
  return fd;
}

Result<UniqueFd> connect_once(const std::string& host, std::uint16_t port, double deadline) {
  const auto addresses = TRY(resolve_host(host, port));
  base::Error last;
  for (const SocketAddress& address : addresses) {
    auto fd = connect_to(address, std::min(deadline, clock_seconds() + kConnectSeconds));
    if (fd) return fd;
    last = std::move(fd).error();
  }
  return last;
}

}  // namespace

void set_options(int socket) {
  const auto set = [&](int level, int option, int value) { ::setsockopt(socket, level, option, &value, sizeof value); };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 2);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
}

std::string to_string(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(address.raw(), address.length, host.data(), host.size(), port.data(), port.size(),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "a local process";
  const bool is_ipv6 = address.storage.ss_family == AF_INET6;
  return fmt::format("{}{}{}:{}", is_ipv6 ? "[" : "", host.data(), is_ipv6 ? "]" : "", port.data());
}

Result<std::vector<SocketAddress>> resolve_host(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) return make_error("look up `{}`: {}", base::printable(host), ::gai_strerror(error));
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  ::freeaddrinfo(list);
  return addresses;
}

Result<std::string> random_nonce() {
  const auto nonce = base::random_bits<std::array<char, kNonce>>();
  if (!nonce) return sys_error(errno, "getrandom");
  return std::string(nonce->data(), nonce->size());
}

Result<Channel> Channel::connect(const std::string& host, std::uint16_t port, double deadline, std::string peer) {
  for (;;) {
    auto socket = connect_once(host, port, deadline);
    if (socket) return Channel(std::move(*socket), std::move(peer));
    if (clock_seconds() + kPauseSeconds >= deadline) return std::move(socket).error();
    constexpr timespec kPause{0, static_cast<long>(kPauseSeconds * 1e9)};
    ::nanosleep(&kPause, nullptr);
  }
}

void Channel::use(const Seals& seals) {
  seal_ = seals.rank;
  inbox_.require(seals.rank0);
}

SocketAddress Channel::own_address() const {
  SocketAddress own;
  own.length = sizeof own.storage;
  auto* const raw = reinterpret_cast<sockaddr*>(&own.storage);
  if (::getsockname(socket_.get(), raw, &own.length) != 0) own.length = 0;
  // The port is at the same place in an IPv4 and in an IPv6 address.
  reinterpret_cast<sockaddr_in*>(raw)->sin_port = 0;
  return own;
}

Result<void> Channel::send(Message message, double deadline) {
  const std::string frame = encode(std::move(message), seal_ ? &*seal_ : nullptr);
  deadline = std::min(deadline, clock_seconds() + kSendSeconds);
  for (std::size_t sent = 0; sent < frame.size();) {
    const ssize_t count = ::send(socket_.get(), frame.data() + sent, frame.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count >= 0) {
      sent += static_cast<std::size_t>(count);
    } else if (errno == EAGAIN) {
      if (!wait_for(socket_.get(), POLLOUT, deadline)) return sys_error(ETIMEDOUT, "send to {}", peer_);
    } else if (errno != EINTR) {
      return sys_error(errno, "send to {}", peer_);
    }
  }
  return {};
}

Result<Message> Channel::receive(double deadline) {
  for (;;) {
    auto message = TRY(inbox_.next());
    if (clock_seconds() >= deadline) return sys_error(ETIMEDOUT, "receive from {}", peer_);
    if (message) return std::move(*message);
    if (!wait_for(socket_.get(), POLLIN, deadline)) return sys_error(ETIMEDOUT, "receive from {}", peer_);
    std::array<char, 4096> bytes{};
    const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count == 0) return sys_error(ECONNRESET, "receive from {}", peer_);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return sys_error(errno, "receive from {}", peer_);
    if (count > 0) inbox_.add(bytes.data(), static_cast<std::size_t>(count));
  }
}

}  // namespace init::ping
