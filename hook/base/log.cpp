#include "hook/base/log.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "fabric/text.hpp"

namespace hook {
namespace {

constexpr int kDaemonFacility = 3 << 3;
constexpr std::size_t kLongestLine = 2000;  // a state or an image may have put anything into a message

// Whether someone reads what is written there, at once.
bool has_reader(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return false;
  return S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || ::isatty(fd) == 1;
}

fabric::UniqueFd connect_syslog() {
  fabric::UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "/dev/log");
  if (!socket.ok() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  return socket;
}

// A pipe that poll(2) calls writable takes PIPE_BUF bytes at once (pipe(7)), and a line is shorter.
void write_at_once(int fd, std::string_view line) {
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const auto written = ::write(fd, line.data(), line.size());
}

}  // namespace

Log Log::of_stage() {
  Log log;
  log.syslog_ = connect_syslog();
  log.to_stderr_ = has_reader(STDERR_FILENO);
  return log;
}

Log Log::to_syslog(std::string_view program) {
  Log log;
  log.syslog_ = connect_syslog();
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

void Log::debug(std::string_view message) const {
  if (!message.empty()) write(Severity::kDebug, message);
}

void Log::write(Severity severity, std::string_view message) const {
  std::string text = severity == Severity::kError ? "error: " : severity == Severity::kWarning ? "warning: " : "";
  if (!container_.empty()) text += "container `" + container_ + "`: ";
  text += fabric::one_line(message.substr(0, kLongestLine));
  if (to_stderr_ && severity != Severity::kDebug) {
    // A runtime that closed its end, or a full pipe, must not keep the container from starting.
    write_at_once(STDERR_FILENO, program_ + ": " + text + "\n");
  }
  if (!syslog_.ok()) return;
  const std::string record =
      fmt::format("<{}>{}[{}]: {}", kDaemonFacility | static_cast<int>(severity), program_, ::getpid(), text);
  [[maybe_unused]] const auto sent = ::send(syslog_.get(), record.data(), record.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace hook
