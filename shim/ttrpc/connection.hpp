// One connection to a runtime: a ttrpc server on the plugin's logical connection and a ttrpc client on the runtime's,
// both served by one loop in one thread, because the runtime may ask before it has answered (Configure comes before the
// answer to RegisterPlugin at times).
//
// Memory: a read buffer of 16 KiB, an output buffer that is kept up to 64 KiB, and room for one incoming message per
// logical connection (ReservedBuffer). Nothing grows with the number of requests.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fabric/unique_fd.hpp"
#include "shim/result.hpp"
#include "shim/ttrpc/frames.hpp"
#include "shim/ttrpc/rpc.hpp"

namespace shim {

// Connects to a stream socket, e.g. /var/run/nri/nri.sock. The runtime makes it anew each time it starts. Errors carry
// errno: ENOENT and ECONNREFUSED say that it does not run.
Result<fabric::UniqueFd> connect_socket(const std::string& path);

// The socket that a runtime hands to a plugin it launches. number: the value of NRI_PLUGIN_SOCKET. Errors: not the
// number of an open stream socket.
Result<fabric::UniqueFd> launched_socket(std::string_view number);

// Room for the longest message, for as long as the process lives, that costs memory only while such a message is in it:
// a private mapping whose pages are given back. The heap would keep what it once had to grow to.
class ReservedBuffer {
 public:
  // Errors: no address space, or a node that refuses to overcommit.
  static Result<ReservedBuffer> reserve(std::size_t size);

  ReservedBuffer(ReservedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ReservedBuffer& operator=(ReservedBuffer&&) = delete;
  ~ReservedBuffer();

  std::span<char> bytes() const { return bytes_; }

  // Gives the pages back of which the first used bytes were written, but for the first few, which the usual messages
  // need again. What the buffer holds is lost.
  void release(std::size_t used);

 private:
  explicit ReservedBuffer(std::span<char> bytes) : bytes_(bytes) {}

  std::span<char> bytes_;
};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Answers a request of the runtime: the payload of the response, at most 4 MiB. Its views live until it returns. An
  // error is sent as a status (status_of_errno() of its code, status_message()), which makes a container's creation
  // fail; the connection goes on. It must not call() or serve().
  using Handler = std::function<Result<std::string>(const Request& request)>;

  enum class Ended {
    kPeer,      // the runtime closed the connection between two messages
    kStopped,   // stop_fd became readable
    kDeadline,  // until has come
  };

  // Owns the socket. Errors: no memory for messages.
  static Result<std::unique_ptr<Connection>> open(fabric::UniqueFd socket, Handler handler);

  // Sends a request to the runtime and returns the payload of its answer; meanwhile the runtime's requests are served.
  // Errors: a status of the runtime (code: errno_of_status()), no answer within timeout (ETIMEDOUT; a late one is
  // dropped, the connection can be used further), a payload beyond 4 MiB (EMSGSIZE), a connection that ended
  // (ECONNRESET) or that serve() would have failed on.
  Result<std::string> call(std::string_view service, std::string_view method, std::string_view payload,
                           std::chrono::milliseconds timeout);

  // Serves the runtime's requests. stop_fd: a descriptor to watch, such as a signalfd, or -1; it is not read from.
  // Signals alone do not end it. Errors: bytes that are not NRI's protocol, the end of the connection in the middle of
  // a message, a runtime that does not read its answers, a socket's error. The connection is of no use afterwards.
  Result<Ended> serve(int stop_fd = -1, std::optional<Clock::time_point> until = std::nullopt);

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  // One logical connection's incoming messages.
  struct Inbox {
    explicit Inbox(ReservedBuffer reserved) : buffer(std::move(reserved)), decoder(buffer.bytes()) {}
    ReservedBuffer buffer;
    MessageDecoder decoder;
  };
  struct PendingCall {
    std::uint32_t stream = 0;
    std::optional<Result<std::string>> answer;
  };

  Connection(fabric::UniqueFd socket, Handler handler, ReservedBuffer plugin, ReservedBuffer runtime)
      : socket_(std::move(socket)),
        handler_(std::move(handler)),
        requests_(std::move(plugin)),
        answers_(std::move(runtime)) {}

  Result<std::optional<Ended>> round(int stop_fd, std::optional<Clock::time_point> until);
  Result<std::optional<Ended>> receive();
  Result<Ended> end_of_input();
  Result<void> take(std::string_view bytes);
  Result<void> take_piece(const MuxPiece& piece);
  Result<void> take_answer(const Message& message);
  Result<void> serve_request(const Message& message);
  Result<std::string> handle(const Message& message);
  Result<void> respond(std::uint32_t stream, const Result<std::string>& answer);
  Result<void> send_message(std::uint32_t connection, MessageType type, std::uint32_t stream);
  Result<void> flush();
  Result<void> check_usable() const;

  fabric::UniqueFd socket_;
  Handler handler_;
  MuxDecoder mux_;
  Inbox requests_;
  Inbox answers_;
  std::uint32_t last_request_ = 0;  // stream of the runtime's last request
  std::uint32_t next_call_ = 1;     // stream of our next request
  std::optional<PendingCall> pending_;
  bool handling_ = false;
  bool closed_ = false;        // the runtime has closed its end
  std::optional<Error> lost_;  // why the connection is of no use any more
  std::string data_;           // of the message that is sent
  std::string out_;            // its frames
  std::array<char, 16384> input_{};
};

}  // namespace shim
