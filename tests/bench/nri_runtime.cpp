#include "nri_runtime.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "shim/ttrpc/rpc.hpp"
#include "shim/ttrpc/wire_fields.hpp"

namespace bench {
namespace {

using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;
using Clock = std::chrono::steady_clock;

constexpr const char* kPluginService = "nri.pkg.api.v1alpha1.Plugin";
constexpr int kPatienceMs = 30'000;
// What the reader of either end offers at first (multiplex conn.Read): Go sends as much, then the rest.
constexpr std::size_t kFirstFrame = 4096;

Result<void> wait_for(int fd) {
  pollfd wait{fd, POLLIN, 0};
  const int ready = ::poll(&wait, 1, kPatienceMs);
  if (ready < 0) return sys_error(errno, "wait for the plugin");
  if (ready == 0) return make_error("the plugin says nothing for {} s", kPatienceMs / 1000);
  return {};
}

}  // namespace

Result<NriRuntime> NriRuntime::listen(const std::string& path) {
  UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (!socket.ok() || path.size() >= sizeof address.sun_path) return make_error("cannot make a socket at `{}`", path);
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 1) != 0) {
    return sys_error(errno, "listen at `{}`", path);
  }
  return NriRuntime(std::move(socket));
}

Result<void> NriRuntime::welcome() {
  TRY_VOID(wait_for(listening_.get()));
  socket_ = UniqueFd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket_.ok()) return sys_error(errno, "accept the plugin");
  TRY(read_until(0));
  std::string configure;
  shim::append_bytes_field(configure, 2, "containerd");
  shim::append_bytes_field(configure, 3, "v2.0.0");
  TRY(ask("Configure", configure));
  TRY(ask("Synchronize", {}));
  return {};
}

Result<Answer> NriRuntime::ask(std::string_view method, std::string_view payload) {
  std::string data;
  shim::append_request(data, {kPluginService, method, payload, 2'000'000'000});
  const std::uint32_t stream = std::exchange(stream_, stream_ + 2);
  const auto began = Clock::now();
  TRY_VOID(send(shim::kPluginConnection, {stream, shim::MessageType::kRequest, 0, 0, data}));
  const std::string answer = TRY(read_until(stream));
  const double seconds = std::chrono::duration<double>(Clock::now() - began).count();
  const auto response = TRY(shim::parse_response(answer));
  if (response.code != shim::StatusCode::kOk) return make_error("{}: {}", method, response.message);
  return Answer{std::string(response.payload), seconds};
}

Result<void> NriRuntime::send(std::uint32_t connection, const shim::Message& message) {
  shim::Message announced = message;
  announced.length = static_cast<std::uint32_t>(message.data.size());
  std::string bytes;
  shim::append_message_header(bytes, announced);
  bytes += message.data;
  std::string frames;
  const std::string_view all = bytes;
  for (const std::string_view piece : {all.substr(0, kFirstFrame), all.substr(std::min(kFirstFrame, all.size()))}) {
    if (piece.empty()) continue;
    shim::append_mux_header(frames, connection, piece.size());
    frames += piece;
  }
  for (std::string_view rest = frames; !rest.empty();) {
    const ssize_t sent = ::send(socket_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return sys_error(errno, "send to the plugin");
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

Result<std::string> NriRuntime::read_until(std::uint32_t stream) {
  std::array<char, 65536> input;
  for (;;) {
    if (stream == 0 && registered_) return std::string();
    TRY_VOID(wait_for(socket_.get()));
    const ssize_t count = ::read(socket_.get(), input.data(), input.size());
    if (count < 0) return sys_error(errno, "read from the plugin");
    if (count == 0) return make_error("the plugin has closed the connection");
    std::string_view bytes(input.data(), static_cast<std::size_t>(count));
    std::optional<std::string> answer;
    while (auto piece = TRY(mux_.next(bytes))) {
      const bool is_answer = piece->connection == shim::kPluginConnection;
      while (auto message = TRY((is_answer ? answers_ : requests_).next(piece->bytes))) {
        if (!is_answer) {
          TRY_VOID(serve(*message));
        } else if (message->stream == stream) {
          answer = std::string(message->data);
        }
      }
    }
    if (answer) return *std::move(answer);
  }
}

// RegisterPlugin, or UpdateContainers: an empty answer suits both.
Result<void> NriRuntime::serve(const shim::Message& message) {
  registered_ = true;
  return send(shim::kRuntimeConnection, {message.stream, shim::MessageType::kResponse, 0, 0, {}});
}

}  // namespace bench
