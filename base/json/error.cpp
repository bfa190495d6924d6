#include "base/json/error.hpp"

#include "base/json/json.hpp"

namespace base {

std::string error_text(const Error& error) {
  const Json json = {{"message", error.message},
                     {"code", error.code},
                     {"hint", error.hint},
                     {"reason", static_cast<unsigned>(error.reason)}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<Error> parse_error(std::string_view text) {
  const auto json = parse_json(text, "an error");
  if (!json) return std::nullopt;
  auto message = text_at(*json, "message");
  auto hint = text_at(*json, "hint");
  const auto reason = number_at(*json, "reason", static_cast<std::uint64_t>(FailureReason::kInternal));
  const Json* code = member(*json, "code");
  if (!message || !hint || !reason || !code || !code->is_number_integer()) return std::nullopt;
  return Error{std::move(message).value(), code->get<int>(), std::move(hint).value(),
               static_cast<FailureReason>(*reason)};
}

}  // namespace base
