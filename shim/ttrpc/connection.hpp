// One connection to a runtime: a ttrpc server on the plugin's logical connection, and a ttrpc client on the runtime's
// logical connection. One loop in one thread serves both, because the runtime may send a request before it answers the
// plugin's request: Configure may come before the answer to RegisterPlugin.
//
// Memory: a read buffer of 16 KiB, an output buffer that is kept up to 64 KiB, and space for one incoming message per
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

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "shim/ttrpc/frames.hpp"
#include "shim/ttrpc/rpc.hpp"

namespace shim {

// Connects to a stream socket, for example /var/run/nri/nri.sock. The runtime creates it again at each start. Errors:
// with errno; ENOENT and ECONNREFUSED mean that the runtime is not running.
Result<base::UniqueFd> connect_socket(const std::string& path);

// Takes over the socket that a runtime passes to a plugin it starts. number: value of NRI_PLUGIN_SOCKET. Errors: the
// number is not that of an open stream socket.
Result<base::UniqueFd> launched_socket(std::string_view number);

// Buffer for the longest message. Its address space is reserved for the whole life of the connection, but it uses
// memory only while it holds a message: release() returns its pages to the kernel. A buffer on the heap would keep the
// memory of the longest message.
class ReservedBuffer {
 public:
  // Errors: no address space is left, or the node's kernel refuses to overcommit memory.
  static Result<ReservedBuffer> reserve(std::size_t size);

  ReservedBuffer(ReservedBuffer&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ReservedBuffer& operator=(ReservedBuffer&&) = delete;
  ~ReservedBuffer();

  std::span<char> bytes() const { return bytes_; }

  // Call when the content is no longer needed. used: number of bytes that were written. Returns the written pages to
  // the kernel, except the first 64 KiB, which most messages need again.
  void release(std::size_t used);

 private:
  explicit ReservedBuffer(std::span<char> bytes) : bytes_(bytes) {}

  std::span<char> bytes_;
};

class Connection {
 public:
  using Clock = std::chrono::steady_clock;

  // Answers a request of the runtime with the payload of the response, at most 4 MiB. The views in the request are
  // valid until the handler returns. An error is sent as a status (status_of_errno(), status_message()), which makes
  // the creation of a container fail; the connection stays usable. The handler must not use call() or serve().
  using Handler = std::function<Result<std::string>(const Request& request)>;

  enum class Ended {
    kPeer,      // the runtime closed the connection between two messages
    kStopped,   // stop_fd became readable
    kDeadline,  // `until` has passed
  };

  // Takes the socket. Errors: the memory for messages cannot be reserved.
  static Result<std::unique_ptr<Connection>> open(base::UniqueFd socket, Handler handler);

  // Sends a request to the runtime and returns the payload of its answer. Serves the runtime's requests meanwhile.
  // Errors: a status of the runtime (code: errno_of_status()); ETIMEDOUT, the runtime does not answer within timeout (a
  // late answer is dropped, and the connection stays usable); EMSGSIZE, a payload of more than 4 MiB; ECONNRESET, the
  // connection ended; errors of serve().
  Result<std::string> call(std::string_view service, std::string_view method, std::string_view payload,
                           std::chrono::milliseconds timeout);

  // Serves the runtime's requests. stop_fd: a descriptor that ends the call when it is readable, such as a signalfd;
  // the call does not read it; -1: none. until: deadline; nullopt: none. Signals do not end the call. Errors: the bytes
  // are not NRI's protocol; the connection ended in the middle of a message; the runtime does not read answers; a
  // socket error. The connection is unusable after an error.
  Result<Ended> serve(int stop_fd = -1, std::optional<Clock::time_point> until = std::nullopt);

  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

 private:
  // Incoming messages of one logical connection.
  struct Inbox {
    explicit Inbox(ReservedBuffer reserved) : buffer(std::move(reserved)), decoder(buffer.bytes()) {}
    ReservedBuffer buffer;
    MessageDecoder decoder;
  };
  struct PendingCall {
    std::uint32_t stream = 0;
    std::optional<Result<std::string>> answer;
  };

  Connection(base::UniqueFd socket, Handler handler, ReservedBuffer plugin, ReservedBuffer runtime)
      : socket_(std::move(socket)),
        handler_(std::move(handler)),
        requests_(std::move(plugin)),
        answers_(std::move(runtime)) {}

  Result<std::optional<Ended>> round(int stop_fd, std::optional<Clock::time_point> until);
  Result<std::optional<Ended>> receive();
  Result<Ended> end_of_input();
  Result<void> take_piece(const MuxPiece& piece);
  Result<void> take_answer(const Message& message);
  Result<void> serve_request(const Message& message);
  Result<std::string> handle(const Message& message);
  Result<void> respond(std::uint32_t stream, const Result<std::string>& answer);
  Result<void> send_message(std::uint32_t connection, MessageType type, std::uint32_t stream);
  Result<void> flush();
  Result<void> check_usable() const;

  base::UniqueFd socket_;
  Handler handler_;
  MuxDecoder mux_;
  Inbox requests_;
  Inbox answers_;
  std::uint32_t last_request_ = 0;  // stream of the runtime's last request
  std::uint32_t next_call_ = 1;     // stream of the plugin's next request
  std::optional<PendingCall> pending_;
  bool handling_ = false;
  bool closed_ = false;        // the runtime has closed its end
  std::optional<Error> lost_;  // why the connection is unusable
  std::string data_;           // data of the message to send
  std::string out_;            // frames of that message
  std::array<char, 16384> input_{};
};

}  // namespace shim
