#include "options.hpp"

#include <charconv>
#include <limits>
#include <string_view>

namespace trainer {

using fabric::make_error;
using fabric::Result;

const char* const kUsage = R"(Usage: verbs_trainer (--listen PORT | --connect HOST:PORT | --rts-only) [options]

Opens each HCA port that NCCL_IB_HCA selects, takes the GID at NCCL_IB_GID_INDEX (or chooses one as NCCL does), registers
memory, and brings an RC queue pair to RTS: towards its twin, with which it then exchanges messages both ways at once, or
with --rts-only and no twin, towards itself. Prints one line per port. Exit code: 0 every port works, 1 one does not, 2 usage.

  --listen PORT        wait for the twin on this TCP port
  --connect HOST:PORT  connect to the twin that listens there (numeric IPv4 address)
  --rts-only           stop at RTS: send nothing
  --mr BYTES           memory to register per port (default 64 MiB)
  --size BYTES         size of a message (default 64 KiB)
  --rounds N           messages each way (default 64)
  --timeout SECONDS    give up on a twin or a completion after that long (default 60)
)";

namespace {

template <typename T>
Result<T> parse_number(std::string_view option, std::string_view text) {
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || value <= T{})
    return make_error("{}: `{}` is not a positive number", option, text);
  return value;
}

Result<void> take_value(Options& options, std::string_view option, std::string_view value) {
  if (option == "--listen") {
    options.listen_port = value;
  } else if (option == "--connect") {
    const auto colon = value.rfind(':');
    if (colon == std::string_view::npos) return make_error("--connect: `{}` is not HOST:PORT", value);
    options.connect_host = value.substr(0, colon);
    options.connect_port = value.substr(colon + 1);
  } else if (option == "--mr") {
    options.memory = TRY(parse_number<std::size_t>(option, value));
  } else if (option == "--size") {
    options.message = TRY(parse_number<std::uint32_t>(option, value));
  } else if (option == "--rounds") {
    options.rounds = TRY(parse_number<std::uint32_t>(option, value));
  } else if (option == "--timeout") {
    options.timeout = TRY(parse_number<int>(option, value));
    // poll(2) counts milliseconds in an int.
    if (options.timeout > std::numeric_limits<int>::max() / 1000)
      return make_error("--timeout: `{}` is too long", value);
  } else {
    return make_error("unknown option `{}`", option);
  }
  return {};
}

}  // namespace

Result<Options> parse_options(std::span<char*> arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view option = arguments[i];
    if (option == "--rts-only") {
      options.rts_only = true;
    } else if (option == "--help") {
      options.help = true;
      return options;
    } else if (i + 1 == arguments.size()) {
      return make_error("unknown option or no value: `{}`", option);
    } else {
      TRY_VOID(take_value(options, option, arguments[++i]));
    }
  }
  const bool listens = !options.listen_port.empty();
  const bool connects = !options.connect_port.empty();
  if (listens && connects) return make_error("--listen and --connect exclude each other");
  if (!listens && !connects && !options.rts_only) return make_error("one of --listen, --connect, --rts-only is needed");
  // Two each way, because a twin may be a round ahead.
  if (options.memory / 4 < options.message) return make_error("--mr must hold four messages of --size");
  return options;
}

}  // namespace trainer
