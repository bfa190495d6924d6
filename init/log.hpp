// Messages on stderr: data goes to stdout, everything said about it goes here.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace init {

enum class LogLevel { kQuiet, kInfo, kDebug, kJson };

std::optional<LogLevel> parse_log_level(std::string_view text);

// One line per message, one write(2) per line. quiet prints errors only; json prints one object per line.
class Log {
 public:
  explicit Log(LogLevel level) : level_(level) {}

  void error(std::string_view message, std::string_view hint = {}) const;
  void warning(std::string_view message, std::string_view hint = {}) const;
  void info(std::string_view message) const;
  void debug(std::string_view message) const;

 private:
  void write(std::string_view severity, std::string_view message, std::string_view hint) const;
  LogLevel level_;
};

}  // namespace init
