// A stand-in for a trainer: uses the verbs like NCCL's IB transport with its variables, and prints the results.
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "init/nccl_rules.hpp"
#include "rc_endpoint.hpp"
#include "twin.hpp"

namespace trainer {
namespace {

using namespace fabric;
namespace nccl = init::nccl;

struct Options {
  std::string listen_port;   // --listen
  std::string connect_host;  // --connect HOST:PORT
  std::string connect_port;
  bool rts_only = false;
  bool help = false;
  std::size_t memory = 64U << 20U;
  std::uint32_t message = 64U << 10U;
  std::uint32_t rounds = 64;
  int timeout = 60;
};

constexpr const char* kUsage = R"(Usage: verbs_trainer (--listen PORT | --connect HOST:PORT | --rts-only) [options]

Opens each HCA port that NCCL_IB_HCA selects, uses the GID at NCCL_IB_GID_INDEX (or chooses one like NCCL), registers memory,
and brings an RC queue pair to RTS: towards its twin, with which it then exchanges messages both ways at once, or with
--rts-only and no twin, towards itself. Prints one line per port. Exit code: 0 every port works, 1 a port fails, 2 usage.

  --listen PORT        wait for the twin on this TCP port
  --connect HOST:PORT  connect to the twin that listens there (numeric IPv4 address)
  --rts-only           stop at RTS: send nothing
  --mr BYTES           memory to register per port (default 64 MiB)
  --size BYTES         size of a message (default 64 KiB)
  --rounds N           messages each way (default 64)
  --timeout SECONDS    limit of a wait for the twin or a completion (default 60)
)";

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

// Returns an error for a wrong command line.
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

struct SelectedPort {
  std::shared_ptr<ibv_context> context;
  std::string name;  // device:port
  std::uint8_t port = 1;
  bool ethernet = false;
  int gid_table_length = 0;
};

std::string value_of(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

void add_ports(const std::shared_ptr<ibv_context>& context, const nccl::HcaList& list,
               std::vector<SelectedPort>& ports) {
  ibv_device_attr device{};
  if (ibv_query_device(context.get(), &device) != 0) return;
  const std::string name = ibv_get_device_name(context->device);
  for (unsigned number = 1; number <= device.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    const auto index = static_cast<std::uint8_t>(number);
    // NCCL ignores ports that are not active, without a message.
    if (ibv_query_port(context.get(), index, &port) != 0 || port.state != IBV_PORT_ACTIVE) continue;
    if (!list.matches(name, number)) continue;
    ports.push_back({context, fmt::format("{}:{}", name, number), index, port.link_layer == IBV_LINK_LAYER_ETHERNET,
                     port.gid_tbl_len});
  }
}

Result<std::vector<SelectedPort>> open_ports(const std::string& filter) {
  const nccl::HcaList list = nccl::parse_hca_list(filter);
  int count = 0;
  const std::unique_ptr<ibv_device*, decltype(&ibv_free_device_list)> devices(ibv_get_device_list(&count),
                                                                              ibv_free_device_list);
  if (!devices) return sys_error(errno, "ibv_get_device_list");
  std::vector<SelectedPort> ports;
  for (int i = 0; i < count; ++i) {
    ibv_device* device = devices.get()[i];
    const std::shared_ptr<ibv_context> context(ibv_open_device(device), [](ibv_context* open) {
      if (open != nullptr) ibv_close_device(open);
    });
    if (!context) {
      fmt::print(stderr, "verbs_trainer: `{}` cannot be opened, ignoring\n", ibv_get_device_name(device));
      continue;
    }
    add_ports(context, list, ports);
  }
  if (ports.empty()) return make_error("NCCL_IB_HCA `{}` selects no active port of {} devices", filter, count);
  return ports;
}

Result<void> exchange_messages(RcEndpoint& endpoint, Twin& twin, std::uint32_t rounds) {
  TRY_VOID(endpoint.post_receive(0));
  TRY(twin.exchange("ready", "to receive"));
  for (std::uint32_t round = 0; round < rounds; ++round) {
    // The receive of the next round is posted before the twin can end this round, so that each message finds a receive.
    if (round + 1 < rounds) TRY_VOID(endpoint.post_receive(round + 1));
    TRY_VOID(endpoint.post_send(round));
    TRY_VOID(endpoint.wait_for_round(round));
    TRY_VOID(endpoint.check_received(round));
  }
  // Neither side ends while its twin still waits for an acknowledgement.
  TRY(twin.exchange("done", std::to_string(rounds)));
  return {};
}

// Returns the index that NCCL uses by its variables.
int gid_index_of(const SelectedPort& port) {
  const int index = nccl::parse_index(value_of("NCCL_IB_GID_INDEX"));
  // On InfiniBand newer NCCL ignores the index; the first GID is always there.
  if (index >= 0 || !port.ethernet) return port.ethernet ? index : 0;
  const auto rules = nccl::parse_gid_rules(value_of("NCCL_IB_ADDR_FAMILY"), value_of("NCCL_IB_ADDR_RANGE"),
                                           value_of("NCCL_IB_ROCE_VERSION_NUM"));
  const auto choice = nccl::choose_gid(read_gid_table(*port.context, port.port, port.gid_table_length), rules);
  return static_cast<int>(choice.index.value_or(0));
}

// Returns the line of a port.
Result<std::string> try_port(const SelectedPort& port, const Options& options, std::optional<Twin>& twin) {
  const RcEndpoint::Settings settings{port.port, gid_index_of(port), options.memory, options.message, options.timeout};
  const auto endpoint = TRY(RcEndpoint::create(*port.context, settings));
  const auto& own = endpoint->address();
  std::string line = fmt::format("gid {} {} RoCE v{}, {} bytes registered", settings.gid_index, gid_text(own.gid),
                                 endpoint->roce_version(), options.memory);
  const EndpointAddress other = twin ? TRY(twin->exchange_address(own)) : own;
  TRY_VOID(endpoint->to_rts(other));
  line += fmt::format(", RTS towards {}", gid_text(other.gid));
  if (options.rts_only) {
    if (twin) TRY(twin->exchange("done", "at RTS"));
    return line;
  }
  TRY_VOID(exchange_messages(*endpoint, *twin, options.rounds));
  return line + fmt::format(", {} messages of {} bytes each way", options.rounds, options.message);
}

Result<std::optional<Twin>> find_twin(const Options& options) {
  if (!options.listen_port.empty()) return std::optional<Twin>(TRY(Twin::listen(options.listen_port, options.timeout)));
  if (options.connect_port.empty()) return std::optional<Twin>();
  return std::optional<Twin>(TRY(Twin::connect(options.connect_host, options.connect_port, options.timeout)));
}

Result<bool> train(const Options& options) {
  const std::string filter = value_of("NCCL_IB_HCA");
  const auto ports = TRY(open_ports(filter));
  fmt::print("NCCL_IB_HCA={} NCCL_IB_GID_INDEX={} selects {} port(s)\n", filter, value_of("NCCL_IB_GID_INDEX"),
             ports.size());
  auto twin = TRY(find_twin(options));
  if (twin) {
    const auto theirs = TRY(twin->exchange("ports", std::to_string(ports.size())));
    if (theirs != std::to_string(ports.size()))
      return make_error("this side has {} ports and the twin has {}", ports.size(), theirs);
  }
  bool all = true;
  for (const auto& port : ports) {
    auto outcome = try_port(port, options, twin);
    all = all && outcome.has_value();
    if (outcome) {
      fmt::print("{}: {}\n", port.name, *outcome);
    } else {
      fmt::print("{}: FAILED: {}{}{}\n", port.name, outcome.error().message, outcome.error().hint.empty() ? "" : "; ",
                 outcome.error().hint);
    }
    std::fflush(stdout);
    // After an error the two sides are no longer at the same step.
    if (!all && twin) break;
  }
  return all;
}

int main_of(std::span<char*> arguments) {
  const auto options = parse_options(arguments);
  if (!options) {
    fmt::print(stderr, "verbs_trainer: {}\n{}", options.error().message, kUsage);
    return 2;
  }
  if (options->help) {
    fmt::print("{}", kUsage);
    return 0;
  }
  const auto all = train(*options);
  if (!all.has_value()) {
    fmt::print(stderr, "verbs_trainer: error: {}\n", all.error().message);
    return 1;
  }
  return *all ? 0 : 1;
}

}  // namespace
}  // namespace trainer

int main(int argc, char** argv) {
  return trainer::main_of(std::span(argv, static_cast<std::size_t>(argc)).subspan(1));
}
