#include "hook/rails/address/ipam.hpp"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "fabric/text.hpp"
#include "hook/rails/address/ipam_helper.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Error;
using fabric::make_error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr int kSlackMs = 2000;  // beyond the plugins' own time, for starting and killing them

Result<void> send_calls(int channel, const std::vector<IpamCall>& calls, int timeout_ms) {
  Json request = {{"timeout_ms", timeout_ms}, {"calls", Json::array()}};
  for (const IpamCall& call : calls)
    request["calls"].push_back(to_json(call));
  return send_frame(channel, request.dump(-1, ' ', false, Json::error_handler_t::replace));
}

Result<PluginEnd> receive_end(int channel, int timeout_ms) {
  const std::string text = TRY(receive_frame(channel, timeout_ms));
  const Json json = TRY(parse_json(text, "answer", {.bytes = kLargestFrame}));
  try {
    return end_from_json(json);
  } catch (const std::exception& error) {
    return fabric::make_error("{}", error.what());
  }
}

constexpr std::size_t kLongestQuote = 300;
constexpr unsigned kIpv4Offset = 96;

std::string shown(std::string_view text) {
  const std::string_view trimmed = fabric::trim(text);
  return fabric::printable(trimmed.substr(0, kLongestQuote)) + (trimmed.size() > kLongestQuote ? "..." : "");
}

// Empty: missing, null, or no string.
std::string text_of(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

// Empty: missing, null (as Go writes an empty list), or no list.
const Json& list_of(const Json& object, const char* name) {
  static const Json kNone = Json::array();
  const auto member = object.find(name);
  return member != object.end() && member->is_array() ? *member : kNone;
}

struct Prefixed {
  Address address;
  unsigned prefix = 0;  // of its own family
};

// "10.1.0.2/24": here the prefix has to be there.
std::optional<Prefixed> parse_prefixed(std::string_view text) {
  const auto cidr = fabric::parse_cidr(text);
  if (!cidr || text.find('/') == std::string_view::npos) return std::nullopt;
  const unsigned offset = cidr->base.is_ipv4() ? kIpv4Offset : 0;
  if (cidr->prefix < offset) return std::nullopt;
  return Prefixed{cidr->base, cidr->prefix - offset};
}

Result<std::optional<Address>> parse_gateway(const std::string& text, const Address& of) {
  if (text.empty()) return std::optional<Address>();
  const auto gateway = fabric::parse_address(text);
  if (gateway && gateway->family() == of.family()) return gateway;
  return make_error("`{}` is no gateway of {}", shown(text), fabric::to_string(of));
}

Result<RailAddress> parse_ip(const Json& entry) {
  if (!entry.is_object()) return make_error("a member of `ips` is no object");
  const std::string text = text_of(entry, "address");
  const auto address = parse_prefixed(text);
  if (!address) return make_error("`{}` is no address with a prefix", shown(text));
  const auto gateway = TRY(parse_gateway(text_of(entry, "gateway"), address->address));
  return RailAddress{address->address, address->prefix, gateway};
}

Result<IpamResult::Route> parse_route(const Json& entry) {
  if (!entry.is_object()) return make_error("a member of `routes` is no object");
  const std::string text = text_of(entry, "dst");
  const auto destination = parse_prefixed(text);
  if (!destination) return make_error("`{}` is no destination of a route", shown(text));
  const auto gateway = TRY(parse_gateway(text_of(entry, "gw"), destination->address));
  // The kernel refuses a route whose destination has bits beyond its prefix.
  return IpamResult::Route{fabric::masked(destination->address, destination->prefix), destination->prefix, gateway};
}

// "no addresses left; 10.1.0.1-10.1.0.2 (CNI error 11)".
std::string cni_error(const Json& object) {
  std::string message = shown(text_of(object, "msg"));
  const std::string details = shown(text_of(object, "details"));
  if (!details.empty()) message += message.empty() ? details : "; " + details;
  const auto code = object.find("code");
  return fmt::format("{} (CNI error {})", message, code->is_number_integer() ? shown(code->dump()) : "without number");
}

bool is_cni_error(const Json& json) {
  return json.is_object() && json.contains("code") && !json.contains("ips");
}

// What the plugin said last, if it is an error as the specification wants it; else how it ended.
std::string cause_of(const PluginEnd& end) {
  JsonFault fault;
  const auto json = try_parse_json(end.out, {.bytes = kMostOutput}, fault);
  std::string cause = json && is_cni_error(*json) ? cni_error(*json)
                      : WIFSIGNALED(end.status)   ? fmt::format("signal {}", WTERMSIG(end.status))
                                                  : fmt::format("exit status {}", WEXITSTATUS(end.status));
  if ((!json || !is_cni_error(*json)) && !fabric::trim(end.out).empty()) cause += ": " + shown(end.out);
  return cause;
}

Error plugin_error(const IpamCall& call, const PluginEnd& end, std::string cause) {
  const char* verb = call.command == IpamCall::Command::kAdd ? "get an address" : "give an address back";
  if (!fabric::trim(end.err).empty()) cause += "; it wrote: " + shown(end.err);
  return Error{.message = fmt::format("cannot {} for `{}` by IPAM plugin `{}`: {}", verb,
                                      fabric::printable(call.ifname), fabric::printable(call.plugin), cause),
               .code = end.code,
               .hint = end.hint};
}

// What a plugin's end means for the caller.
Result<IpamResult> to_result(const IpamCall& call, const PluginEnd& end) {
  if (!end.refusal.empty()) return plugin_error(call, end, end.refusal);
  if (!WIFEXITED(end.status) || WEXITSTATUS(end.status) != 0) return plugin_error(call, end, cause_of(end));
  if (call.command == IpamCall::Command::kDel) return IpamResult();
  auto result = parse_ipam_result(end.out);
  if (!result) return plugin_error(call, end, result.error().message);
  return result;
}

}  // namespace

IpamHelper::IpamHelper(pid_t pid, UniqueFd channel) : pid_(pid), channel_(std::move(channel)) {}

IpamHelper::IpamHelper(IpamHelper&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), channel_(std::move(other.channel_)) {}

IpamHelper& IpamHelper::operator=(IpamHelper&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(channel_, other.channel_);
  return *this;
}

// No kill(2): the hook's filter has none. The helper sees the end of the channel whatever it does.
IpamHelper::~IpamHelper() {
  channel_.reset();
  while (pid_ > 0 && ::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

Result<IpamHelper> IpamHelper::start(const std::vector<IpamProgram>& programs) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    return sys_error(errno, "cannot make a pair of sockets for the helper of IPAM plugins");
  }
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return sys_error(errno, "cannot fork the helper for IPAM plugins");
  if (child == 0) serve_ipam(theirs.get(), parent, programs);
  return IpamHelper(child, std::move(ours));
}

Result<std::optional<IpamHelper>> IpamHelper::start_if_any(const std::vector<IpamProgram>& programs) {
  if (programs.empty()) return std::optional<IpamHelper>();
  return std::optional<IpamHelper>(TRY(start(programs)));
}

std::vector<Result<IpamResult>> IpamHelper::run(const std::vector<IpamCall>& calls, int timeout_ms) {
  std::vector<Result<IpamResult>> results;
  if (calls.empty()) return results;
  const auto sent =
      channel_.ok() ? send_calls(channel_.get(), calls, timeout_ms) : Result<void>(sys_error(EPIPE, "it has ended"));
  const long deadline = monotonic_ms() + timeout_ms + kSlackMs;
  std::optional<Error> broken;
  if (!sent) broken = sent.error();
  for (const IpamCall& call : calls) {
    const long left = std::max(0L, deadline - monotonic_ms());
    auto end = broken ? Result<PluginEnd>(*broken) : receive_end(channel_.get(), static_cast<int>(left));
    if (end) {
      results.push_back(to_result(call, *end));
      continue;
    }
    broken = end.error();
    channel_.reset();  // what still came would answer another question
    results.push_back(fabric::wrap(*broken, fmt::format("cannot run IPAM plugin `{}`: its helper", call.plugin)));
  }
  return results;
}

Result<IpamResult> parse_ipam_result(std::string_view text) {
  const Json json = TRY(parse_json(text, "its result", {.bytes = kMostOutput}));
  if (!json.is_object()) return make_error("its result is no JSON object");
  if (is_cni_error(json)) return Error{.message = cni_error(json)};
  IpamResult result;
  for (const Json& entry : list_of(json, "ips"))
    result.addresses.push_back(TRY(parse_ip(entry)));
  if (result.addresses.empty()) return make_error("its result has no address");
  for (const Json& entry : list_of(json, "routes"))
    result.routes.push_back(TRY(parse_route(entry)));
  return result;
}

std::string ipam_config(const IpamCall& call) {
  // As the plugin that delegates would pass its own configuration on: the type is that of who asks.
  const Json config = {{"cniVersion", "1.0.0"}, {"name", call.network}, {"type", "rdma-hook"}, {"ipam", call.ipam}};
  return config.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace hook
