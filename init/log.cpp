#include "init/log.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "init/exec.hpp"

namespace init {

std::optional<LogLevel> parse_log_level(std::string_view text) {
  if (text == "quiet") return LogLevel::kQuiet;
  if (text == "info") return LogLevel::kInfo;
  if (text == "debug") return LogLevel::kDebug;
  if (text == "json") return LogLevel::kJson;
  return std::nullopt;
}

void Log::error(std::string_view message, std::string_view hint) const {
  write("error", message, hint);
}

void Log::warning(std::string_view message, std::string_view hint) const {
  if (level_ != LogLevel::kQuiet) write("warning", message, hint);
}

void Log::info(std::string_view message) const {
  if (level_ != LogLevel::kQuiet) write("info", message, {});
}

void Log::debug(std::string_view message) const {
  if (level_ == LogLevel::kDebug || level_ == LogLevel::kJson) write("debug", message, {});
}

void Log::write(std::string_view severity, std::string_view message, std::string_view hint) const {
  std::string line;
  if (level_ == LogLevel::kJson) {
    nlohmann::ordered_json json{{"level", severity}, {"msg", message}};
    if (!hint.empty()) json["hint"] = hint;
    line = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  } else {
    const bool tagged = severity == "error" || severity == "warning";
    line = fmt::format("rdma-init: {}{}{}{}{}", tagged ? severity : "", tagged ? ": " : "", message,
                       hint.empty() ? "" : "; remedy: ", hint);
  }
  write_message(line);
}

}  // namespace init
