#include "hook/admin/metrics/http_server.hpp"

#include <fmt/core.h>
#include <netinet/in.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <iterator>
#include <list>
#include <memory>
#include <utility>

namespace hook {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kEndOfHead = "\r\n\r\n";

// The last entry also stands for an unlisted status.
constexpr std::pair<int, const char*> kPhrases[] = {{200, "OK"},
                                                    {400, "Bad Request"},
                                                    {404, "Not Found"},
                                                    {405, "Method Not Allowed"},
                                                    {408, "Request Timeout"},
                                                    {431, "Request Header Fields Too Large"},
                                                    {505, "HTTP Version Not Supported"},
                                                    {503, "Service Unavailable"}};

const char* phrase_of(int status) {
  const auto* last = std::end(kPhrases) - 1;
  return std::find_if(kPhrases, last, [&](const auto& known) { return known.first == status; })->second;
}

bool is_visible(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c > 0x20 && c < 0x7f; });
}

// Parses METHOD TARGET HTTP/1.N.
HttpRequest read_request_line(std::string_view line) {
  const std::size_t first = line.find(' ');
  const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos) return {400};
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, second - first - 1);
  const std::string_view version = line.substr(second + 1);
  // Refuses control characters and further blanks, which RFC 9112 does not allow either.
  if (!is_visible(method) || !is_visible(target) || !is_visible(version) || !version.starts_with("HTTP/")) return {400};
  if (!version.starts_with("HTTP/1.")) return {505};
  if (method != "GET") return {405};
  const std::string_view path = target.substr(0, target.find('?'));
  if (path == "/metrics") return {200, HttpTarget::kMetrics};
  if (path == "/") return {200, HttpTarget::kIndex};
  return path == "/healthz" ? HttpRequest{200, HttpTarget::kHealth} : HttpRequest{404};
}

using Clock = std::chrono::steady_clock;
using Text = std::shared_ptr<const std::string>;

constexpr seconds kForRequest{5};
constexpr seconds kForText{30};
constexpr seconds kForAnswer{10};
constexpr seconds kForEnd{1};
// Limits the reads of the ledger by root to one per second, for any number of clients.
constexpr seconds kTextLives{1};
constexpr milliseconds kBetweenAccepts{100};  // pause after a failure for lack of memory or descriptors

struct Client : ServedClient {
  UniqueFd fd;
  Clock::time_point until;
  std::string request = {};
  bool is_requested = false;
  std::string head = {};
  Text body = {};
  std::size_t sent = 0;
};

Text plain_text(std::string text) {
  return std::make_shared<const std::string>(std::move(text));
}

void answer(Client& client, int status, Text body) {
  client.head = http_head(status, body->size());
  client.body = std::move(body);
  client.state = ClientState::kTakes;
  client.until = Clock::now() + kForAnswer;
}

void refuse(Client& client, int status) {
  answer(client, status, plain_text(http_body(status)));
}

class HttpServer {
 public:
  HttpServer(const UniqueFd& listener, const UniqueFd& channel) : listener_(listener), channel_(channel) {}

  Result<void> run() {
    while (!is_over_) {
      ask();
      TRY_VOID(wait());
      std::erase_if(clients_, [](const Client& client) { return !client.fd.ok(); });
    }
    return {};
  }

 private:
  // Answers clients that wait for the metrics text, if the last text is younger than kTextLives. Otherwise requests a
  // new text from the reading process, unless a request is under way.
  void ask() {
    for (Client& client : clients_) {
      if (client.state != ClientState::kWaits) continue;
      if (text_ && Clock::now() - text_at_ < kTextLives) {
        answer(client, 200, text_);
        continue;
      }
      if (is_requesting_) continue;  // the client gets the requested text, or the next one if it came after the request
      const char byte = 'm';
      if (::send(channel_.get(), &byte, 1, MSG_NOSIGNAL) != 1) is_over_ = true;
      is_requesting_ = true;
      for (Client& other : clients_)
        other.is_requested = other.state == ClientState::kWaits;
    }
  }

  Result<void> wait() {
    std::vector<pollfd> fds{{channel_.get(), POLLIN, 0}};
    const auto now = Clock::now();
    fds.push_back({now >= accept_from_ ? listener_.get() : -1, POLLIN, 0});
    // Without a client and without a pause there is no deadline: the process waits for the next connection.
    std::optional<Clock::time_point> next;
    if (now < accept_from_) next = accept_from_;
    for (const Client& client : clients_) {
      const bool takes = client.state == ClientState::kTakes;
      const bool waits = client.state == ClientState::kWaits;
      // A client that waits for the metrics text is polled for no event: poll(2) still reports POLLERR and POLLHUP,
      // which show that the client is gone.
      fds.push_back({client.fd.get(), static_cast<short>(takes ? POLLOUT : waits ? 0 : POLLIN), 0});
      next = std::min(next.value_or(client.until), client.until);
    }
    const auto pause =
        next ? std::max(std::chrono::ceil<milliseconds>(*next - now), milliseconds(0)) : milliseconds(-1);
    const int ready = ::poll(fds.data(), fds.size(), static_cast<int>(pause.count()));
    if (ready < 0 && errno != EINTR) return sys_error(errno, "cannot wait for clients");
    if (ready < 0) return {};
    std::size_t at = 2;
    for (Client& client : clients_)
      tend(client, fds[at++].revents);
    if (fds[0].revents != 0) take_text();
    if (fds[1].revents != 0) accept_clients();
    return {};
  }

  void tend(Client& client, short events) const {
    // `until` is the deadline of a whole state: a client cannot extend it by sending single bytes.
    const bool late = Clock::now() >= client.until;
    switch (client.state) {
      case ClientState::kAsks:
        if (events != 0) return read_request(client);
        if (late) refuse(client, 408);
        return;
      case ClientState::kWaits:
        if ((events & (POLLERR | POLLHUP)) != 0) return client.fd.reset();
        if (late) refuse(client, 503);
        return;
      case ClientState::kTakes:
        if (events != 0) write_answer(client);
        if (client.fd.ok() && late && client.state == ClientState::kTakes) client.fd.reset();
        return;
      case ClientState::kEnds:
        if (late || (events != 0 && !drain(client.fd.get()))) client.fd.reset();
        return;
    }
  }

  static void read_request(Client& client) {
    std::array<char, kLongestHttpHead> bytes;
    // A client can send at most kLongestHttpHead bytes before it gets an answer.
    const ssize_t count = ::recv(client.fd.get(), bytes.data(), kLongestHttpHead - client.request.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) return client.fd.reset();
    client.request.append(bytes.data(), static_cast<std::size_t>(count));
    const auto request = read_http_request(client.request);
    if (!request) return;
    if (request->status != 200) return refuse(client, request->status);
    if (request->target == HttpTarget::kHealth) return answer(client, 200, plain_text("ok\n"));
    if (request->target == HttpTarget::kIndex)
      return answer(client, 200, plain_text("rdma-hook: /metrics, /healthz\n"));
    client.state = ClientState::kWaits;
    client.until = Clock::now() + kForText;
  }

  static void write_answer(Client& client) {
    const std::size_t whole = client.head.size() + client.body->size();
    while (client.sent < whole) {
      // Head and body are sent separately, because all clients share one body.
      const bool in_head = client.sent < client.head.size();
      const std::string& part = in_head ? client.head : *client.body;
      const std::size_t from = in_head ? client.sent : client.sent - client.head.size();
      const ssize_t count = ::send(client.fd.get(), part.data() + from, part.size() - from, MSG_NOSIGNAL);
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (count <= 0) return client.fd.reset();
      client.sent += static_cast<std::size_t>(count);
    }
    client.body.reset();
    // shutdown(2) in place of close(2), which would reset a connection with unread input, so that the client could lose
    // its answer.
    ::shutdown(client.fd.get(), SHUT_WR);
    client.state = ClientState::kEnds;
    client.until = Clock::now() + kForEnd;
  }

  // Reads and discards input. Returns false if the client has closed its end.
  static bool drain(int fd) {
    std::array<char, 4096> bytes;
    const ssize_t count = ::recv(fd, bytes.data(), bytes.size(), 0);
    return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
  }

  void accept_clients() {
    // The number of connections that one pass accepts is limited, so that a flood of new connections does not stop the
    // service of accepted clients.
    constexpr int kMostAtOnce = 64;
    for (int i = 0; i < kMostAtOnce; ++i) {
      sockaddr_storage address{};
      socklen_t length = sizeof address;
      UniqueFd fd(
          ::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&address), &length, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!fd.ok()) {
        // Makes a pause, because after these errors the connection stays in the queue: poll(2) would return at once,
        // again and again.
        const bool later = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        if (later) accept_from_ = Clock::now() + kBetweenAccepts;
        return;
      }
      const std::string peer = peer_of(address);
      if (!make_room(peer)) {
        turn_away(fd);
        continue;
      }
      // Reads a request that has arrived already, before the next new client can replace this client.
      read_request(clients_.emplace_back(Client{{peer}, std::move(fd), Clock::now() + kForRequest}));
    }
  }

  // Closes a client if there are too many for a new client of this peer. Returns false if none can be closed.
  bool make_room(const std::string& peer) {
    std::erase_if(clients_, [](const Client& client) { return !client.fd.ok(); });
    const Admission admission = admit({clients_.begin(), clients_.end()}, peer);
    if (admission.closes) {
      const auto closed = std::next(clients_.begin(), static_cast<std::ptrdiff_t>(*admission.closes));
      if (closed->state == ClientState::kAsks) turn_away(closed->fd);
      clients_.erase(closed);
    }
    return admission.admitted;
  }

  static void turn_away(const UniqueFd& fd) {
    const std::string body = http_body(503);
    const std::string whole = http_head(503, body.size()) + body;
    // close(2) with unread input would reset the connection, and the client would lose the answer.
    drain(fd.get());
    (void)!::send(fd.get(), whole.data(), whole.size(), MSG_NOSIGNAL);
    ::shutdown(fd.get(), SHUT_WR);
  }

  void take_text() {
    std::array<char, 65536> bytes;
    const ssize_t count = ::recv(channel_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (count <= 0) {
      is_over_ = true;
      return;
    }
    // The text can arrive in several pieces; clients are served between them.
    incoming_.append(bytes.data(), static_cast<std::size_t>(count));
    TextHead head;
    if (incoming_.size() < sizeof head) return;
    std::memcpy(&head, incoming_.data(), sizeof head);
    // The process of root at the other end sends no larger text, so the bytes are not a TextHead.
    if (head.size > kLargestText) {
      is_over_ = true;
      return;
    }
    if (incoming_.size() < sizeof head + head.size) return;
    incoming_.erase(0, sizeof head);
    text_ = head.ok != 0 ? plain_text(std::move(incoming_)) : nullptr;
    text_at_ = Clock::now();
    incoming_ = {};
    is_requesting_ = false;
    for (Client& client : clients_) {
      if (!client.is_requested || client.state != ClientState::kWaits) continue;
      // Clients that came after the request for this text get the next one: this text may be older than their request.
      text_ ? answer(client, 200, text_) : refuse(client, 503);
    }
  }

  const UniqueFd& listener_;
  const UniqueFd& channel_;
  std::list<Client> clients_;
  bool is_requesting_ = false;
  bool is_over_ = false;
  std::string incoming_;
  Text text_;
  Clock::time_point text_at_;
  Clock::time_point accept_from_;
};

}  // namespace

std::optional<HttpRequest> read_http_request(std::string_view bytes) {
  const std::size_t end = bytes.find(kEndOfHead);
  if (end == std::string_view::npos || end + kEndOfHead.size() > kLongestHttpHead)
    return bytes.size() >= kLongestHttpHead ? std::optional(HttpRequest{431}) : std::nullopt;
  return read_request_line(bytes.substr(0, bytes.find("\r\n")));
}

std::string http_head(int status, std::size_t body) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n"
      "Cache-Control: no-store\r\n{}Connection: close\r\n\r\n",
      status, phrase_of(status), body, status == 405 ? "Allow: GET\r\n" : "");
}

std::string http_body(int status) {
  return fmt::format("{} {}\n", status, phrase_of(status));
}

Admission admit(const std::vector<ServedClient>& clients, const std::string& peer) {
  const auto is_own = [&](const ServedClient& client) { return client.peer == peer; };
  const auto own = static_cast<std::size_t>(std::ranges::count_if(clients, is_own));
  const bool among_own = own >= kMostOfOnePeer;
  if (!among_own && clients.size() < kMostClients) return {.admitted = true, .closes = std::nullopt};
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < clients.size(); ++i) {
    // A client in kWaits has sent a valid request, so it is not closed to make room for a new client.
    if (clients[i].state == ClientState::kWaits || (among_own && !is_own(clients[i]))) continue;
    if (!first || clients[i].state > clients[*first].state) first = i;
  }
  return {.admitted = first.has_value(), .closes = first};
}

std::string peer_of(const sockaddr_storage& address) {
  constexpr std::size_t kNetwork = 8;
  if (address.ss_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, &address, sizeof four);
    return {reinterpret_cast<const char*>(&four.sin_addr), sizeof four.sin_addr};
  }
  if (address.ss_family != AF_INET6) return {};
  sockaddr_in6 six{};
  std::memcpy(&six, &address, sizeof six);
  // One host usually has a whole IPv6 /64, so all addresses of the /64 count as one peer.
  return {reinterpret_cast<const char*>(&six.sin6_addr), kNetwork};
}

Result<void> serve_http(const UniqueFd& listener, const UniqueFd& channel) {
  return HttpServer(listener, channel).run();
}

}  // namespace hook
