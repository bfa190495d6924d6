// Which clients an HTTP server has at a time, so that silent or slow ones keep nobody else out. Pure.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace hook {

inline constexpr std::size_t kMostClients = 64;
inline constexpr std::size_t kMostOfOnePeer = 16;

// In the order in which clients give way to a new one, the last first.
enum class ClientState {
  kWaits,  // for the text that was asked for, or that is asked for next: never closed
  kTakes,  // its answer
  kAsks,   // has not sent a whole request
  kEnds,   // has all of its answer; what it sent beyond its request is read, or the kernel would reset the connection
};

struct ServedClient {
  std::string peer;
  ClientState state = ClientState::kAsks;
};

struct Admission {
  bool admitted = false;
  std::optional<std::size_t> closes;  // this one gives way
};

// clients: the oldest first. A peer with kMostOfOnePeer clients replaces one of its own; of kMostClients any gives way,
// the oldest of its state. Not admitted: all of them wait for the text.
Admission admit(const std::vector<ServedClient>& clients, const std::string& peer);

// What one user can have many of counts as one peer: an IPv6 address by its /64. All clients of a unix socket are one.
std::string peer_of(const sockaddr_storage& address);

}  // namespace hook
