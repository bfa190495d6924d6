#include "init/format_env.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/text.hpp"

namespace init {
namespace {

using Json = nlohmann::ordered_json;

// Returns true if no reader of a dotenv file interprets the text. Some readers keep quotes, so a plain value has none.
bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) {
    return std::isalnum(c) != 0 || std::string_view("_-.,:/=+@^").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

Json port_json(const PortReport& port) {
  // A whole rate is an integer: 400, not 400.0.
  const auto whole = static_cast<std::int64_t>(port.rate_gbps);
  Json json{{"device", port.device},
            {"port", port.port},
            {"used", port.used},
            {"gid_index", port.gid_index ? Json(*port.gid_index) : Json()},
            {"gid", port.gid ? Json(to_gid_string(*port.gid)) : Json()},
            {"rate_gbps", static_cast<double>(whole) == port.rate_gbps ? Json(whole) : Json(port.rate_gbps)},
            {"link_layer", port.link_layer},
            {"reason", port.reason}};
  if (!port.used) json["cause"] = port.cause;
  if (port.rail) json["rail"] = port.rail->rail;
  if (port.rail && port.rail->plane) json["plane"] = *port.rail->plane;
  return json;
}

}  // namespace

std::string shell_quote(std::string_view text) {
  std::string quoted = "'";
  for (const char& c : text)
    // Single quotes protect every character except themselves: '\'' closes, adds one and opens again.
    quoted += c == '\'' ? std::string_view("'\\''") : std::string_view(&c, 1);
  return quoted + "'";
}

std::string format_sh(const Decision& decision) {
  std::string text;
  for (const auto& [name, value] : decision.env)
    text += fmt::format("export {}={}\n", name, shell_quote(value));
  return text;
}

base::Result<std::string> format_dotenv(const Decision& decision) {
  std::string text;
  for (const auto& [name, value] : decision.env) {
    if (value.find_first_of("\r\n") != std::string::npos) {
      return base::make_error("{}: `{}` has a line break, which dotenv cannot hold; use --format sh", name,
                              base::printable(value));
    }
    text += fmt::format("{}={}\n", name, is_plain(value) ? value : shell_quote(value));
  }
  return text;
}

Json decision_json(const Decision& decision) {
  Json json;
  json["status"] = status_name(decision.status);
  // An empty object must not become null.
  json["env"] = Json::object();
  for (const auto& [name, value] : decision.env)
    json["env"][name] = value;
  json["kept"] = Json::object();
  for (const auto& [name, value] : decision.kept) {
    json["kept"][name] = {
        {"value", value.value}, {"source", value.source}, {"problem", value.problem ? Json(*value.problem) : Json()}};
  }
  json["ports"] = Json::array();
  for (const PortReport& port : decision.ports)
    json["ports"].push_back(port_json(port));
  json["warnings"] = Json::array();
  for (const Check& warning : decision.warnings)
    json["warnings"].push_back(line_of(warning));
  return json;
}

std::string dump_json(const Json& json) {
  // ensure_ascii also escapes C1 and bidirectional controls, which a terminal would interpret.
  return json.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
}

std::string format_json(const Decision& decision) {
  return dump_json(decision_json(decision));
}

}  // namespace init
