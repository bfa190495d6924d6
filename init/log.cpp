#include "init/log.hpp"

#include <fmt/core.h>
#include <signal.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

namespace init {

void write_message(std::string_view line) {
  sigset_t broken_pipe, before;
  sigemptyset(&broken_pipe);
  sigaddset(&broken_pipe, SIGPIPE);
  // A SIGPIPE that was pending before this write was meant for the command, and must stay pending.
  sigset_t pending;
  sigpending(&pending);
  sigprocmask(SIG_BLOCK, &broken_pipe, &before);

  char newline = '\n';
  const std::array<iovec, 2> parts{iovec{const_cast<char*>(line.data()), line.size()}, iovec{&newline, 1}};
  const ssize_t written = ::writev(STDERR_FILENO, parts.data(), static_cast<int>(parts.size()));
  if (written < 0 && errno == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec now{};
    // Removes the SIGPIPE of this write, before the mask allows its delivery.
    sigtimedwait(&broken_pipe, nullptr, &now);
  }
  // SIG_UNBLOCK is used because glibc, with SIG_SETMASK, would remove its two internal signals from an inherited mask.
  if (sigismember(&before, SIGPIPE) == 0) sigprocmask(SIG_UNBLOCK, &broken_pipe, nullptr);
}

void Log::write(std::string_view severity, std::string_view message, std::string_view hint) const {
  std::string line;
  if (level_ == LogLevel::kJson) {
    nlohmann::ordered_json json{{"level", severity}, {"msg", message}};
    if (!hint.empty()) json["hint"] = hint;
    line = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  } else {
    const bool tagged = severity == "error" || severity == "warning";
    line = fmt::format("{}: {}{}{}{}{}", program_name, tagged ? severity : "", tagged ? ": " : "", message,
                       hint.empty() ? "" : "; remedy: ", hint);
  }
  write_message(line);
}

}  // namespace init
