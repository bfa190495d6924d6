// The options of the node's programs: "--name=value", or "--name" and the value after it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/text.hpp"

namespace hook {

struct OptionValue {
  std::string_view name;  // "--name"
  std::string value;
};

// The one at arguments[at]; `at` moves to its value if that is an argument of its own. Errors: usage_error(message) of
// what is no option or lacks its value.
template <typename UsageError>
fabric::Result<OptionValue> take_option(std::span<char* const> arguments, std::size_t& at, UsageError usage_error) {
  const std::string_view argument = arguments[at];
  if (!argument.starts_with("--"))
    return usage_error(fmt::format("unexpected argument `{}`", fabric::printable(argument)));
  if (const std::size_t equals = argument.find('='); equals != std::string_view::npos)
    return OptionValue{argument.substr(0, equals), std::string(argument.substr(equals + 1))};
  if (at + 1 < arguments.size()) return OptionValue{argument, arguments[++at]};
  return usage_error(fmt::format("`{}` needs a value", fabric::printable(argument)));
}

}  // namespace hook
