#include "twin.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <thread>

namespace trainer {

using namespace fabric;

namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<AddressList> resolve(const char* host, const std::string& port) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_family = AF_INET;
  wanted.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | (host == nullptr ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  if (const int code = getaddrinfo(host, port.c_str(), &wanted, &found); code != 0)
    return make_error("address `{}` port `{}`: {}", host == nullptr ? "*" : host, port, gai_strerror(code));
  return AddressList(found, freeaddrinfo);
}

}  // namespace

Result<Twin> Twin::with_timeout(UniqueFd socket, int timeout) {
  const timeval limit{timeout, 0};
  if (setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0)
    return sys_error(errno, "SO_RCVTIMEO");
  return Twin(std::move(socket));
}

Result<Twin> Twin::listen(const std::string& port, int timeout) {
  const auto address = TRY(resolve(nullptr, port));
  const UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  if (!socket.ok() || setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(socket.get(), address->ai_addr, address->ai_addrlen) != 0 || ::listen(socket.get(), 1) != 0) {
    return sys_error(errno, "listen on port {}", port);
  }
  pollfd event{socket.get(), POLLIN, 0};
  if (poll(&event, 1, timeout * 1000) <= 0)
    return make_error("no twin connected to port {} within {} s", port, timeout);
  UniqueFd accepted(accept4(socket.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.ok()) return sys_error(errno, "accept on port {}", port);
  return with_timeout(std::move(accepted), timeout);
}

Result<Twin> Twin::connect(const std::string& host, const std::string& port, int timeout) {
  const auto address = TRY(resolve(host.c_str(), port));
  for (const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(timeout);;) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.ok() && ::connect(socket.get(), address->ai_addr, address->ai_addrlen) == 0)
      return with_timeout(std::move(socket), timeout);
    const int code = errno;
    if (std::chrono::steady_clock::now() >= end) return sys_error(code, "connect to {}:{}", host, port);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

Result<std::string> Twin::read_line() {
  std::string line;
  while (line.size() < 1000) {
    char byte = 0;
    const ssize_t count = recv(socket_.get(), &byte, 1, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return sys_error(errno, "wait for the twin");
    if (count == 0) return make_error("the twin is gone");
    if (byte == '\n') return line;
    line += byte;
  }
  return make_error("the twin sent a line that is too long");
}

Result<std::string> Twin::exchange(const std::string& tag, const std::string& text) {
  const std::string line = tag + " " + text + "\n";
  // The line fits into the buffer of a socket, so that both sides can send first.
  if (send(socket_.get(), line.data(), line.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(line.size()))
    return sys_error(errno, "send `{}` to the twin", tag);
  const std::string answer = TRY(read_line());
  if (!answer.starts_with(tag + " ")) return make_error("the twin is at `{}`, not at `{}`", answer, tag);
  return answer.substr(tag.size() + 1);
}

Result<EndpointAddress> Twin::exchange_address(const EndpointAddress& own) {
  const auto answer = TRY(
      exchange("address", fmt::format("{} {} {} {}", own.qp_number, own.packet_sequence, own.lid, gid_text(own.gid))));
  EndpointAddress twin;
  char gid[INET6_ADDRSTRLEN] = {};
  if (std::sscanf(answer.c_str(), "%u %u %hu %45s", &twin.qp_number, &twin.packet_sequence, &twin.lid, gid) != 4 ||
      inet_pton(AF_INET6, gid, twin.gid.data()) != 1) {
    return make_error("`{}` is no address of a twin", answer);
  }
  return twin;
}

}  // namespace trainer
