#include "init/log.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "init/exec.hpp"

namespace init {

void Log::write(std::string_view severity, std::string_view message, std::string_view hint) const {
  std::string line;
  if (level_ == LogLevel::kJson) {
    nlohmann::ordered_json json{{"level", severity}, {"msg", message}};
    if (!hint.empty()) json["hint"] = hint;
    line = json.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
  } else {
    const bool tagged = severity == "error" || severity == "warning";
    line = fmt::format("rdma-init: {}{}{}{}{}", tagged ? severity : "", tagged ? ": " : "", message,
                       hint.empty() ? "" : "; remedy: ", hint);
  }
  write_message(line);
}

}  // namespace init
