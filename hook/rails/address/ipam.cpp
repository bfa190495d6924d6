#include "hook/rails/address/ipam.hpp"

#include <algorithm>

#include "base/text.hpp"

namespace hook {
namespace {

using fabric::Address;

constexpr std::size_t kLongestQuote = 300;
constexpr unsigned kIpv4Bits = 96;

// Returns the text of a member; an empty text if it is missing, null or no string.
std::string text_member(const Json& object, const char* name) {
  const auto member = object.find(name);
  return member != object.end() && member->is_string() ? member->get<std::string>() : std::string();
}

// Returns the list of a member; an empty list if it is missing, null or no list. Go writes an empty list as null.
const Json& list_of(const Json& object, const char* name) {
  static const Json kNone = Json::array();
  const auto member = object.find(name);
  return member != object.end() && member->is_array() ? *member : kNone;
}

// Parses an address with its prefix, such as "10.1.0.2/24". The '/' is checked here, because parse_cidr() also accepts
// an address without prefix.
std::optional<RailAddress> parse_prefixed(std::string_view text) {
  const auto cidr = fabric::parse_cidr(text);
  if (!cidr || text.find('/') == std::string_view::npos) return std::nullopt;
  const unsigned offset = cidr->base.is_ipv4() ? kIpv4Bits : 0;
  if (cidr->prefix < offset) return std::nullopt;
  return RailAddress{cidr->base, cidr->prefix - offset, {}};
}

Result<std::optional<Address>> parse_gateway(const std::string& text, const Address& of) {
  if (text.empty()) return std::optional<Address>();
  const auto gateway = fabric::parse_address(text);
  if (gateway && gateway->family() == of.family()) return gateway;
  return make_error("`{}` is no gateway of {}", quote_output(text), fabric::to_string(of));
}

Result<RailAddress> parse_ip(const Json& entry) {
  if (!entry.is_object()) return make_error("a member of `ips` is no object");
  const std::string text = text_member(entry, "address");
  auto address = parse_prefixed(text);
  if (!address) return make_error("`{}` is no address with a prefix", quote_output(text));
  address->gateway = TRY(parse_gateway(text_member(entry, "gateway"), address->address));
  return *address;
}

Result<IpamResult::Route> parse_route(const Json& entry) {
  if (!entry.is_object()) return make_error("a member of `routes` is no object");
  const std::string text = text_member(entry, "dst");
  const auto destination = parse_prefixed(text);
  if (!destination) return make_error("`{}` is no destination of a route", quote_output(text));
  const auto gateway = TRY(parse_gateway(text_member(entry, "gw"), destination->address));
  // The bits after the prefix are cleared, because the kernel refuses a destination that has such bits.
  return IpamResult::Route{fabric::masked(destination->address, destination->prefix), destination->prefix, gateway};
}

// Returns the text of a plugin's error object, such as "no addresses left; 10.1.0.1-10.1.0.2 (CNI error 11)".
std::string cni_error(const Json& object) {
  std::string message = quote_output(text_member(object, "msg"));
  const std::string details = quote_output(text_member(object, "details"));
  if (!details.empty()) message += message.empty() ? details : "; " + details;
  const auto code = object.find("code");
  return fmt::format("{} (CNI error {})", message,
                     code->is_number_integer() ? quote_output(code->dump()) : "without number");
}

// An error object of the CNI specification has "code" and no "ips".
bool is_cni_error(const Json& json) {
  return json.is_object() && json.contains("code") && !json.contains("ips");
}

constexpr std::string_view kBegin = "IgnoreUnknown=1";
constexpr std::size_t kLongestPodName = 253;  // the length of a DNS subdomain, the longest kind of pod name

struct CniArg {
  std::string_view name;
  std::string PodIdentity::*value;
};
constexpr CniArg kArgs[] = {{"K8S_POD_NAMESPACE", &PodIdentity::pod_namespace},
                            {"K8S_POD_NAME", &PodIdentity::pod_name},
                            {"K8S_POD_INFRA_CONTAINER_ID", &PodIdentity::sandbox_id},
                            {"K8S_POD_UID", &PodIdentity::pod_uid}};

bool is_letter_or_digit(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Returns whether the text is a name in Kubernetes. Such a name has no ';' or '=', with which a name could add another
// argument to CNI_ARGS.
bool is_kubernetes_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestPodName && is_letter_or_digit(text[0]) &&
         std::ranges::all_of(text, [](char c) { return is_letter_or_digit(c) || c == '-' || c == '.'; });
}

}  // namespace

std::string quote_output(std::string_view text) {
  const std::string_view trimmed = base::trim(text);
  return base::printable(trimmed.substr(0, kLongestQuote)) + (trimmed.size() > kLongestQuote ? "..." : "");
}

std::optional<std::string> cni_error_of(std::string_view text) {
  JsonFault fault;
  const auto json = try_parse_json(text, {.bytes = kMostOutput}, fault);
  return json && is_cni_error(*json) ? std::optional(cni_error(*json)) : std::nullopt;
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
  // An IPAM plugin gets the configuration of the CNI plugin that calls it, so "type" is the name of that CNI plugin.
  const Json config = {{"cniVersion", "1.0.0"}, {"name", call.network}, {"type", "rdma-hook"}, {"ipam", call.ipam}};
  return config.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string cni_args(const PodIdentity& pod) {
  std::string args;
  for (const CniArg& arg : kArgs) {
    const std::string& value = pod.*arg.value;
    if (is_kubernetes_name(value)) args += fmt::format(";{}={}", arg.name, value);
  }
  return args.empty() ? args : std::string(kBegin) + args;
}

bool is_cni_args(std::string_view text) {
  const auto parts = base::split(text, ';');
  if (parts.size() < 2 || parts[0] != kBegin) return false;
  // Each argument occurs at most once, in the order of kArgs, because cni_args() writes them so.
  auto next = std::begin(kArgs);
  return std::all_of(parts.begin() + 1, parts.end(), [&](std::string_view part) {
    const std::size_t equals = part.find('=');
    if (equals == std::string_view::npos) return false;
    next = std::find_if(next, std::end(kArgs), [&](const CniArg& arg) { return arg.name == part.substr(0, equals); });
    if (next == std::end(kArgs)) return false;
    ++next;
    return is_kubernetes_name(part.substr(equals + 1));
  });
}

}  // namespace hook
