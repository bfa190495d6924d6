// Serves one text to HTTP clients, in a process without other duties.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Parses requests and builds answers: the part of HTTP/1.1 (RFC 9112) that a scraper needs. One request per connection;
// data after its head is not read. Pure.
//
// Libraries are too expensive here (measured on Debian 12, static-pie, -Os). libevent 2.1.12 adds 533 kB to a program
// that starts with every container, does not limit connections, and its timeout restarts at each byte, so that a slow
// client stays forever. Debian's libmicrohttpd 0.9.75 uses GnuTLS, which cannot be linked statically. Its cpp-httplib
// is only a shared library and needs OpenSSL. tests/fuzz/http_request.cpp tests the parser.

inline constexpr std::size_t kLongestHttpHead = 8192;

enum class HttpTarget { kMetrics, kIndex, kHealth };

struct HttpRequest {
  // 200, or the status of the error: 400 not a request, 404 another path, 405 not GET, 431 a head longer than
  // kLongestHttpHead, 505 not HTTP/1.
  int status = 200;
  HttpTarget target = HttpTarget::kMetrics;  // for status 200
};

// Parses the bytes that have arrived. nullopt: the head is incomplete and may continue.
std::optional<HttpRequest> read_http_request(std::string_view bytes);

// Returns an answer's head for a body of this size. The connection ends after the answer. status: of HttpRequest, 408
// or 503.
std::string http_head(int status, std::size_t body);
// Returns the body of an answer with an error status.
std::string http_body(int status);

// Limits the clients, so that silent or slow clients do not block other clients. Pure.

inline constexpr std::size_t kMostClients = 64;
inline constexpr std::size_t kMostOfOnePeer = 16;

// Order in which clients are closed for a new client: the last state first.
enum class ClientState {
  kWaits,  // for the current or the next text: never closed
  kTakes,  // its answer
  kAsks,   // has not sent a whole request
  kEnds,   // has its whole answer; further input is read, because unread data would reset the connection
};

struct ServedClient {
  std::string peer;
  ClientState state = ClientState::kAsks;
};

struct Admission {
  bool admitted = false;
  std::optional<std::size_t> closes;  // index of the client to close
};

// Decides whether a new client is served. clients: oldest first. A peer with kMostOfOnePeer clients replaces one of its
// own; otherwise, with kMostClients clients, any client can be replaced. Among these candidates admit() selects the
// last ClientState, and the oldest client in that state. admitted is false if all candidates wait for the text.
Admission admit(const std::vector<ServedClient>& clients, const std::string& peer);

// Returns the key by which clients count as one peer, so that one user cannot have many clients. An IPv6 address counts
// by its /64, and all clients of a unix socket are one peer.
std::string peer_of(const sockaddr_storage& address);

// Begins each text on the channel of serve_http().
struct TextHead {
  std::uint64_t size = 0;
  std::uint64_t ok = 1;  // 0: the text could not be read; nothing follows, and clients get 503
};
inline constexpr std::uint64_t kLargestText = 64 << 20;
// Serves clients until the process that reads the ledger closes the channel. A client has 5 s to send its request,
// waits at most 30 s for the text, and has 10 s to read it. If there are too many clients, the one that admit() selects
// gets 503.
//
// One byte on the channel requests the text; the answer is TextHead and the text. A text that is younger than
// kTextLives serves further clients. Errors: poll(2) fails.
Result<void> serve_http(const fabric::UniqueFd& listener, const fabric::UniqueFd& channel);

}  // namespace hook
