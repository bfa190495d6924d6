// The connection of a rank to rank 0: messages in both directions, with a deadline for each wait.
#pragma once

#include <netinet/in.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "init/ping/messages.hpp"

namespace init::ping {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
  const sockaddr* raw() const { return reinterpret_cast<const sockaddr*>(&storage); }
  friend std::string to_string(const SocketAddress& address);  // "10.0.0.1:4792", "[fd00::1]:4792"
};

// Returns the addresses of a host, which may be a name or a numeric address. Errors: the host has none.
base::Result<std::vector<SocketAddress>> resolve_host(const std::string& host, std::uint16_t port);

// Returns kNonce random bytes. Errors: the kernel gives none.
base::Result<std::string> random_nonce();

class Channel {
 public:
  explicit Channel(base::UniqueFd socket) : socket_(std::move(socket)) {}
  // Connects to rank 0. Until the deadline, repeats the look-up of the name and the connection: rank 0 may start later.
  // deadline: clock_seconds(). Errors: the last failure.
  static base::Result<Channel> connect(const std::string& host, std::uint16_t port, double deadline);

  // From now on all messages have codes, in both directions.
  void use(const Seals& seals);
  // deadline: clock_seconds(). Errors: rank 0 has closed the connection, or does not read for 10 s or until the
  // deadline.
  base::Result<void> send(Message message, double deadline);
  // Errors: ETIMEDOUT at the deadline, ECONNRESET if rank 0 has closed the connection, EBADMSG if a code is wrong, or
  // the bytes are no message.
  base::Result<Message> receive(double deadline);
  int fd() const { return socket_.get(); }

 private:
  base::UniqueFd socket_;
  Inbox inbox_;
  std::optional<Seal> seal_;  // makes the codes of this rank's messages
};

}  // namespace init::ping
