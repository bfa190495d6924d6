#include "base/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/unix_socket.hpp"

namespace base {
namespace {

constexpr int kDaemonFacility = 3 << 3;
constexpr std::size_t kLongestLine = 2000;  // bytes; a message may quote long text of a container's state or image

// Returns true for a pipe or terminal, because a program or person reads it now. Returns false for a stderr that crun
// opened at the path in an image's annotation: it may be a FIFO, a terminal or the pipe of another process. crun opens
// it with O_APPEND (1.21, open_hooks_output()); a pipe or terminal that a caller passes does not have this flag.
bool has_reader(int fd, mode_t mode) {
  const int flags = ::fcntl(fd, F_GETFL);
  return (S_ISFIFO(mode) || ::isatty(fd) == 1) && (flags < 0 || (flags & O_APPEND) == 0);
}

// Opens the file of a descriptor again, with O_NONBLOCK. If O_NONBLOCK were set on the descriptor itself, it would
// apply to all processes that share the open file. Returns no descriptor if the file belongs to another user.
UniqueFd open_without_waiting(int fd) {
  const std::string path = fmt::format("/proc/self/fd/{}", fd);
  return UniqueFd(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

UniqueFd connect_syslog() {
  UniqueFd socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto address = *unix_address("/dev/log");
  if (!socket.ok() || ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return {};
  return socket;
}

// Writes only if this cannot block: a pipe that poll(2) reports as writable accepts PIPE_BUF bytes at once (pipe(7)).
void write_at_once(int fd, std::string_view line) {
  pollfd ready{fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0) return;
  [[maybe_unused]] const auto written = ::write(fd, line.data(), std::min<std::size_t>(line.size(), PIPE_BUF));
}

constexpr std::size_t kLongestValue = 128;
constexpr std::size_t kLongestList = 512;

// Returns false for a character that needs quotes: a blank, `=`, `\`, a character that is not printable ASCII, or one
// that a shell interprets.
bool needs_no_quotes(char c) {
  return c > ' ' && c < 0x7f && c != '=' && c != '\\' && !is_obeyed_by_shell(c);
}

std::string quoted_if_needed(std::string_view value) {
  if (!value.empty() && std::ranges::all_of(value, needs_no_quotes)) return std::string(value);
  std::string quoted;
  for (const char c : Json(std::string(value)).dump(-1, ' ', true, Json::error_handler_t::replace))
    quoted += c != '"' && is_obeyed_by_shell(c) ? fmt::format("\\u{:04x}", c) : std::string(1, c);
  return quoted;
}

}  // namespace

Log Log::of_stage() {
  Log log;
  log.syslog_ = connect_syslog();
  log.warns_once_ = true;
  struct stat info {};
  log.stderr_ = Stderr::kNone;
  if (::fstat(STDERR_FILENO, &info) != 0) return log;
  if (S_ISSOCK(info.st_mode)) log.stderr_ = Stderr::kSocket;
  if (S_ISFIFO(info.st_mode)) log.stderr_ = Stderr::kPipe;
  // The sandbox forbids the ioctl(2) of isatty(3), so only a pipe is opened at the first message.
  if (S_ISCHR(info.st_mode)) log.open_stderr(info.st_mode);
  return log;
}

void Log::open_stderr(mode_t mode) const {
  stderr_ = Stderr::kNone;
  if (!has_reader(STDERR_FILENO, mode)) return;
  own_ = open_without_waiting(STDERR_FILENO);
  stderr_ = own_.ok() ? Stderr::kOwn : Stderr::kPolled;
}

Log Log::to_syslog(std::string_view program) {
  Log log;
  log.syslog_ = connect_syslog();
  log.program_ = program;
  log.warns_once_ = true;
  log.stderr_ = Stderr::kNone;
  return log;
}

Log Log::to_stderr(std::string_view program) {
  Log log;
  log.program_ = program;
  return log;
}

void Log::set_container(std::string_view id) {
  container_ = printable(id);
  own_text_ = {};
}

void Log::set_own_text(std::string_view text) {
  own_text_ = text;
}

void Log::hold() {
  holds_ = true;
}

void Log::write_held() {
  holds_ = false;
  for (const auto& [severity, text] : std::exchange(held_, {}))
    put(severity, text);
}

void Log::error(const Error& error) const {
  write(Severity::kError, with_remedy(error));
}

void Log::warning(std::string_view message) const {
  if (warns_once_) {
    if (std::ranges::find(warned_, message) != warned_.end()) return;
    warned_.emplace_back(message);
  }
  write(Severity::kWarning, message);
}

void Log::warnings(const std::vector<std::string>& messages) const {
  for (const std::string& message : messages)
    warning(message);
}

void Log::info(std::string_view message) const {
  write(Severity::kInfo, message);
}

void Log::note(const Note& note) const {
  if (!note.text.empty()) write(note.for_all ? Severity::kInfo : Severity::kDebug, note.text);
}

// A failed or blocked write must not stop the container's start: the runtime may have closed its end of the pipe, or
// may not read from it.
void Log::write_line(std::string_view line) const {
  if (stderr_ == Stderr::kPipe) open_stderr(S_IFIFO);
  switch (stderr_) {
    case Stderr::kNone:
    case Stderr::kPipe:
      return;
    case Stderr::kPolled:
      return write_at_once(STDERR_FILENO, line);
    case Stderr::kOwn: {
      [[maybe_unused]] const auto written = ::write(own_.get(), line.data(), line.size());
      return;
    }
    case Stderr::kSocket: {
      [[maybe_unused]] const auto sent = ::send(STDERR_FILENO, line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      return;
    }
  }
}

void Log::write(Severity severity, std::string_view message) const {
  std::string text = severity == Severity::kError ? "error: " : severity == Severity::kWarning ? "warning: " : "";
  if (!container_.empty()) text += "container `" + container_ + "`: ";
  text += one_line(message.substr(0, kLongestLine));
  if (holds_ && severity >= Severity::kInfo) {
    held_.emplace_back(severity, std::move(text));
  } else {
    put(severity, text);
  }
}

void Log::put(Severity severity, const std::string& text) const {
  if (severity != Severity::kDebug) write_line(program_ + ": " + text + "\n");
  if (syslog_.ok()) {
    const std::string record =
        fmt::format("<{}>{}[{}]: {}", kDaemonFacility | static_cast<int>(severity), program_, ::getpid(), text);
    if (::send(syslog_.get(), record.data(), record.size(), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return;
  }
  if (severity != Severity::kError || own_text_.empty() || stderr_ != Stderr::kNone) return;
  if ((::fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) != 0) return;
  write_at_once(STDERR_FILENO,
                fmt::format("{}: error: {}, and neither syslog nor a pipe takes the reason; remedy: add `2>&1 | cat`\n",
                            program_, own_text_));
}

EventLine& EventLine::put(std::string_view key, std::string_view value) {
  if (text_.size() + key.size() + value.size() + 2 > kLongest) {
    ++left_out_;
    return *this;
  }
  text_ += ' ';
  text_ += key;
  text_ += '=';
  text_ += value;
  return *this;
}

EventLine& EventLine::add(std::string_view key, std::string_view value) {
  if (value.size() <= kLongestValue) return put(key, quoted_if_needed(value));
  return put(key, quoted_if_needed(std::string(value.substr(0, kLongestValue)) + "..."));
}

EventLine& EventLine::add(std::string_view key, std::uint64_t value) {
  return put(key, fmt::format_int(value).c_str());
}

EventLine& EventLine::add(std::string_view key, const std::vector<std::string>& values) {
  if (values.empty()) return *this;
  std::string list;
  std::size_t taken = 0;
  for (; taken < values.size() && (taken == 0 || list.size() + values[taken].size() < kLongestList); ++taken) {
    if (taken > 0) list += ',';
    list += std::string_view(values[taken]).substr(0, kLongestList);
  }
  if (taken < values.size()) list += fmt::format(",+{}", values.size() - taken);
  return put(key, quoted_if_needed(list));
}

std::string EventLine::text() const {
  return left_out_ == 0 ? text_ : fmt::format("{} left_out={}", text_, left_out_);
}

}  // namespace base
