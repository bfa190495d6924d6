// The connection of a rank to rank 0, or to its relay: messages in both directions, with a deadline for each wait.
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

// Sends messages without a delay, and makes the kernel end the connection within seconds if the peer's node fails.
void set_options(int socket);

class Channel {
 public:
  // peer: for messages.
  explicit Channel(base::UniqueFd socket, std::string peer = "rank 0")
      : socket_(std::move(socket)), peer_(std::move(peer)) {}
  // Connects to the peer. Until the deadline, repeats the look-up of the name and the connection: the peer may start
  // later. deadline: clock_seconds(). Errors: the last failure.
  static base::Result<Channel> connect(const std::string& host, std::uint16_t port, double deadline,
                                       std::string peer = "rank 0");

  // From now on all messages have codes, in both directions.
  void use(const Seals& seals);
  // deadline: clock_seconds(). Errors: the peer has closed the connection, or does not read for 10 s or until the
  // deadline.
  base::Result<void> send(Message message, double deadline);
  // Errors: ETIMEDOUT at the deadline, ECONNRESET if the peer has closed the connection, EBADMSG if a code is wrong, or
  // the bytes are no message.
  base::Result<Message> receive(double deadline);
  // Returns the address of this end without a port.
  SocketAddress own_address() const;
  const std::string& peer() const { return peer_; }

  // The parts of a channel, for a process that waits for several connections.
  struct Parts {
    base::UniqueFd socket;
    Inbox inbox;
    std::optional<Seal> seal;
  };
  Parts release() && { return {std::move(socket_), std::move(inbox_), std::move(seal_)}; }

 private:
  base::UniqueFd socket_;
  std::string peer_;
  Inbox inbox_;
  std::optional<Seal> seal_;  // makes the codes of this rank's messages
};

}  // namespace init::ping
