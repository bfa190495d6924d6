#include "hook/base/log.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "fabric/text.hpp"

namespace hook {
namespace {

constexpr int kDaemonFacility = 3 << 3;
constexpr std::size_t kLongestLine = 2000;  // a state or an image may have put anything into a message

}  // namespace

Log Log::with_syslog() {
  Log log;
  fabric::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "/dev/log");
  if (socket.ok() && ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    log.syslog_ = std::move(socket);
  }
  return log;
}

Log Log::to_syslog(std::string_view program) {
  Log log = with_syslog();
  log.program_ = program;
  log.to_stderr_ = false;
  return log;
}

Log Log::to_stderr(std::string_view program) {
  Log log;
  log.program_ = program;
  return log;
}

void Log::set_container(std::string_view id) {
  container_ = fabric::printable(id);
}

void Log::error(const fabric::Error& error) const {
  write(Severity::kError, error.hint.empty() ? error.message : error.message + "; remedy: " + error.hint);
}

void Log::warning(std::string_view message) const {
  write(Severity::kWarning, message);
}

void Log::warnings(const std::vector<std::string>& messages) const {
  for (const std::string& message : messages)
    warning(message);
}

void Log::info(std::string_view message) const {
  write(Severity::kInfo, message);
}

void Log::write(Severity severity, std::string_view message) const {
  std::string text = severity == Severity::kError ? "error: " : severity == Severity::kWarning ? "warning: " : "";
  if (!container_.empty()) text += "container `" + container_ + "`: ";
  text += fabric::one_line(message.substr(0, kLongestLine));
  if (to_stderr_) {
    const std::string line = program_ + ": " + text + "\n";
    // A runtime that closed its end, or a full pipe, must not keep the container from starting.
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
  }
  if (!syslog_.ok()) return;
  const std::string record =
      fmt::format("<{}>{}[{}]: {}", kDaemonFacility | static_cast<int>(severity), program_, ::getpid(), text);
  [[maybe_unused]] const auto sent = ::send(syslog_.get(), record.data(), record.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace hook
