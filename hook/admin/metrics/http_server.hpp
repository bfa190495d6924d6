// Serves the text of the metrics to HTTP clients, in a process that does nothing else.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace hook {

// Parses requests and builds answers: the part of HTTP/1.1 (RFC 9112) that a scraper needs. A connection has one
// request; data after the head of the request is ignored. Pure.
//
// Libraries for HTTP are not used (measured on Debian 12, static-pie, -Os). libevent 2.1.12 adds 533 kB to a program
// that starts with every container, does not limit connections, and its timeout restarts at each byte, so that a slow
// client stays forever. Debian's libmicrohttpd 0.9.75 uses GnuTLS, which cannot be linked statically. Its cpp-httplib
// is only a shared library and needs OpenSSL. tests/fuzz/http_request.cpp tests the parser.

inline constexpr std::size_t kLongestHttpHead = 8192;

enum class HttpTarget { kMetrics, kIndex, kHealth };

struct HttpRequest {
  // 200, or the status of the error: 400 not a request, 404 another path, 405 not GET, 431 a head longer than
  // kLongestHttpHead, 505 not HTTP/1.
  int status = 200;
  HttpTarget target = HttpTarget::kMetrics;  // the target of a request with status 200
};

// Parses the bytes that have arrived. nullopt: the head is incomplete and may continue.
std::optional<HttpRequest> read_http_request(std::string_view bytes);

// Returns an answer's head for a body of this size. The connection ends after the answer. status: HttpRequest::status,
// 408 or 503.
std::string http_head(int status, std::size_t body);
// Returns the body of an answer with an error status.
std::string http_body(int status);

// Limits the clients, so that silent or slow clients do not block other clients. Pure.

inline constexpr std::size_t kMostClients = 64;
inline constexpr std::size_t kMostOfOnePeer = 16;

// The state of a client. If a client must be closed for a new one, a client in the last of these states is closed
// first.
enum class ClientState {
  kWaits,  // waits for the metrics text, and is not closed for a new client
  kTakes,  // reads its answer
  kAsks,   // the client has not sent its whole request
  kEnds,   // the client has its answer; its input is read, because unread input makes close(2) a reset
};

struct ServedClient {
  std::string peer;
  ClientState state = ClientState::kAsks;
};

struct Admission {
  bool admitted = false;
  std::optional<std::size_t> closes;  // index of the client to close
};

// Decides whether a new client is served. clients: oldest first. If the peer already has kMostOfOnePeer clients, one of
// these is closed. Otherwise, if there are kMostClients clients, one of all clients is closed. admit() selects a client
// in the last ClientState, and the oldest client in that state. admitted is false if all clients
// that admit() may close wait for the metrics text.
Admission admit(const std::vector<ServedClient>& clients, const std::string& peer);

// Returns a key. Clients with the same key count as one peer, so that one user cannot occupy all places. An IPv6
// address counts by its /64, and all clients of a unix socket are one peer.
std::string peer_of(const sockaddr_storage& address);

// Begins each text on the channel of serve_http().
struct TextHead {
  std::uint64_t size = 0;
  std::uint64_t ok = 1;  // 0: the text could not be read and does not follow, and clients get 503
};
inline constexpr std::uint64_t kLargestText = 64 << 20;
// Serves clients until the process that reads the ledger closes the channel. A client has 5 s to send its request,
// waits at most 30 s for the text, and has 10 s to read it. If there are too many clients, admit() selects a client to
// close, which gets 503 if it has not sent its request. If admit() does not admit the new client, that client gets 503.
//
// One byte on the channel requests the metrics text; the answer is TextHead and the text. Clients that come within
// kTextLives after the answer get the same text. Errors: poll(2) fails.
Result<void> serve_http(const base::UniqueFd& listener, const base::UniqueFd& channel);

}  // namespace hook
