// Messages on stderr. Data is written to stdout, and all messages to stderr.
#pragma once

#include <string_view>

namespace init {

// The name of this program, at the start of each message. main() of another program than rdma-init sets it.
inline std::string_view program_name = "rdma-init";

// Writes one line to stderr and adds the newline. A closed or broken stderr is no error and raises no SIGPIPE: a log
// reader that has ended must not block the start of the command.
void write_message(std::string_view line);

enum class LogLevel { kQuiet, kInfo, kDebug, kJson };

// Writes one line per message with one system call. kQuiet writes errors only; kJson writes one object per line.
class Log {
 public:
  explicit Log(LogLevel level) : level_(level) {}

  void error(std::string_view message, std::string_view hint = {}) const { write("error", message, hint); }
  void warning(std::string_view message, std::string_view hint = {}) const {
    if (level_ != LogLevel::kQuiet) write("warning", message, hint);
  }
  void info(std::string_view message) const {
    if (level_ != LogLevel::kQuiet) write("info", message, {});
  }
  void debug(std::string_view message) const {
    if (level_ == LogLevel::kDebug || level_ == LogLevel::kJson) write("debug", message, {});
  }

 private:
  void write(std::string_view severity, std::string_view message, std::string_view hint) const;
  LogLevel level_;
};

}  // namespace init
