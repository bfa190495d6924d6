// Serves one text to HTTP clients, in a process that may do nothing else.
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

// What a client of `rdma-hook metrics --listen` asks, and what it is told: as much of HTTP/1.1 (RFC 9112) as a scraper
// needs. One request a connection; what comes behind its head is not read. Pure.
//
// It is our own because of what a library would cost here (measured on Debian 12, static-pie, -Os): libevent 2.1.12
// adds 533 kB to a program that starts with every container, bounds no number of connections, and its time is between
// two bytes, so that a slow client stays for ever; Debian's libmicrohttpd 0.9.75 is made with GnuTLS, which cannot be
// linked statically; its cpp-httplib is a shared library alone, with OpenSSL. tests/fuzz/http_request.cpp is for this.

inline constexpr std::size_t kLongestHttpHead = 8192;

enum class HttpTarget { kMetrics, kIndex, kHealth };

struct HttpRequest {
  // 200, or what is wrong: 400 no request, 404 another path, 405 no GET, 431 a head longer than kLongestHttpHead, 505
  // not HTTP/1.
  int status = 200;
  HttpTarget target = HttpTarget::kMetrics;  // of 200
};

// Of what has come so far; nullopt: the head has not ended, and may still.
std::optional<HttpRequest> read_http_request(std::string_view bytes);

// An answer's head, for a body of this size; the connection ends behind it. status: one of the above, 408 or 503.
std::string http_head(int status, std::size_t body);
// What people are told by an answer that is not 200.
std::string http_body(int status);

// Which clients there are at a time, so that silent or slow ones keep nobody else out. Pure.

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

// A client has 5 s for its request, 30 s pass at most until the text is there, and it has 10 s to take it. Of too
// many the one that admit() names gives way, and is told 503.
//
// Asks for the text by one byte on the channel, which answers with TextHead and the text; one that is younger than
// kTextLives serves further clients too. Returns when the channel's other end is closed. Errors: it cannot wait.
struct TextHead {
  std::uint64_t size = 0;
  std::uint64_t ok = 1;  // 0: it could not be read, and nothing follows: 503
};
inline constexpr std::uint64_t kLargestText = 64 << 20;
Result<void> serve_http(const fabric::UniqueFd& listener, const fabric::UniqueFd& channel);

}  // namespace hook
