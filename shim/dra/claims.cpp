#include "shim/dra/claims.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "hook/config/values.hpp"
#include "shim/dra/json_path.hpp"

namespace shim {
namespace {

using base::Json;
using hook::ClaimDevice;

constexpr const char* kParametersVersion = "rdma-init.io/v1alpha1";
constexpr const char* kParametersKind = "HcaParameters";
// Limits of resource.k8s.io/v1 (Kubernetes 1.34 to 1.37). A claim has at most 32 requests, and a configuration for each
// of the claim and of its classes.
constexpr std::size_t kMostDevices = 32;
constexpr std::size_t kMostConsumers = 256;
constexpr std::size_t kMostConfigs = 64;
constexpr std::uint64_t kLargestRdmaLimit = INT32_MAX - 1;  // the largest one in config.json
constexpr std::size_t kMostUnits = 65535;                   // the largest limit of a pool in config.json
// The API server stores objects of at most 1.5 MiB.
constexpr base::JsonLimits kClaimLimits{.bytes = std::size_t{2} << 20, .depth = 64, .values = std::size_t{1} << 16};
constexpr std::size_t kShownValue = 64;  // bytes of a quotation

std::string quoted(const Json& value) {
  return base::shown(value.is_string() ? value.get_ref<const std::string&>() : base::to_text(value), kShownValue);
}

Error wrong(const std::string& where, const char* expected, const Json* value) {
  if (!value) return make_error("{} is missing: expected {}", where, expected);
  return make_error("{} is `{}`: expected {}", where, quoted(*value), expected);
}

// Returns a member that is a text for which `is_valid` returns true.
Result<std::string> text_in(const Json& object, const char* name, const std::string& where, const char* expected,
                            bool (*is_valid)(std::string_view)) {
  const Json* const value = base::member(object, name);
  const auto* const text = value ? value->get_ptr<const std::string*>() : nullptr;
  if (!text || !is_valid(*text)) return wrong(fmt::format("{}{}", where, name), expected, value);
  return *text;
}

// Returns a member that is a list; an empty list if it is missing or null.
Result<const Json*> list_in(const Json& object, const char* name, const std::string& where, std::size_t most) {
  static const Json kNone = Json::array();
  const Json* const value = base::member(object, name);
  if (!value || value->is_null()) return &kNone;
  if (!value->is_array()) return wrong(fmt::format("{}{}", where, name), "a list", value);
  if (value->size() > most)
    return make_error("{}{} has {} entries: expected at most {}", where, name, value->size(), most);
  return value;
}

// Reads a limit on top of an earlier one: the lower one counts, so that a claim cannot raise that of its class.
Result<void> read_limit(const std::string& name, const Json& value, const std::string& where,
                        hook::RdmaLimits& limits) {
  const bool is_objects = name == "hca_objects";
  if (!is_objects && name != "hca_handles")
    return make_error("{}{} is no limit: expected hca_objects or hca_handles", where,
                      base::printable(name, kShownValue));
  const auto* const number = value.get_ptr<const Json::number_unsigned_t*>();
  if (!number || *number == 0 || *number > kLargestRdmaLimit)
    return wrong(where + name, "a number from 1 to 2147483646", &value);
  auto& limit = is_objects ? limits.objects : limits.handles;
  limit = std::min(limit.value_or(UINT32_MAX), static_cast<std::uint32_t>(*number));
  return {};
}

Result<void> read_limits(const Json& value, const std::string& where, hook::RdmaLimits& limits) {
  if (!value.is_object()) return wrong(where, "an object", &value);
  for (const auto& [name, limit] : value.items())
    TRY_VOID(read_limit(name, limit, where + ".", limits));
  return {};
}

Result<void> read_parameter(const std::string& name, const Json& value, const std::string& where, ClaimDevice& device) {
  const auto* const text = value.get_ptr<const std::string*>();
  if (name == "apiVersion" || name == "kind") return {};
  if (name == "mode") {
    device.mode = text ? hook::parse_mode(*text) : std::nullopt;
    if (!device.mode) return wrong(where + name, "exclusive, shared, shared-multi or hca", &value);
    return {};
  }
  if (name == "network") {
    if (!text || !hook::is_config_name(*text))
      return wrong(where + name, "the name of a network of config.json", &value);
    device.network = *text;
    return {};
  }
  if (name == "limits") return read_limits(value, where + name, device.limits);
  return make_error("{}{} is no parameter: expected mode, network or limits", where,
                    base::printable(name, kShownValue));
}

// Reads parameters on top of earlier ones: a member that is missing keeps its value.
Result<void> read_parameters(const Json& json, const std::string& where, ClaimDevice& device) {
  if (!json.is_object()) return wrong(where, "an object", &json);
  const std::string inside = where + ".";
  for (const auto& [name, expected] : {std::pair("apiVersion", kParametersVersion), {"kind", kParametersKind}})
    if (text_of(json, {name}) != expected) return wrong(inside + name, expected, base::member(json, name));
  for (const auto& [name, value] : json.items())
    TRY_VOID(read_parameter(name, value, inside, device));
  return {};
}

Error refused_parameters(Error error) {
  error.reason = base::FailureReason::kRefused;
  error.hint = "correct the ResourceClaimTemplate or its DeviceClass, and delete the pod";
  return error;
}

// Returns the name of a request without that of its subrequest: "gpu-and-hca" for "gpu-and-hca/first".
std::string_view request_of(std::string_view name) {
  return name.substr(0, name.find('/'));
}

bool is_request(std::string_view text) {
  const auto [request, subrequest] = base::split_first(text, '/');
  return is_dns_label(request) && (text.size() == request.size() || is_dns_label(subrequest));
}

// Returns whether a configuration is for a request: its list names the request or subrequest, or is empty.
bool is_for_request(const Json& requests, const std::string& name) {
  if (requests.empty()) return true;
  return std::ranges::any_of(requests, [&](const Json& one) {
    const auto* const text = one.get_ptr<const std::string*>();
    return text && (*text == name || *text == request_of(name));
  });
}

// Reads the parameters for a request: those of its class, and on top of these those of the claim.
Result<void> read_parameters_for(const std::string& request, const Json& configs, ClaimDevice& device) {
  for (const char* source : {"FromClass", "FromClaim"}) {
    for (std::size_t at = 0; at < configs.size(); ++at) {
      const std::string where = fmt::format("status.allocation.devices.config[{}].", at);
      if (text_of(configs[at], {"opaque", "driver"}) != kDraDriver || text_of(configs[at], {"source"}) != source)
        continue;
      const Json& requests = *TRY(list_in(configs[at], "requests", where, kMostDevices));
      const Json* const own = find_at(configs[at], {"opaque", "parameters"});
      if (!own) return refused_parameters(wrong(where + "opaque.parameters", "an object", own));
      if (!is_for_request(requests, request)) continue;
      auto done = read_parameters(*own, where + "opaque.parameters", device);
      if (!done) return refused_parameters(std::move(done).error());
    }
  }
  return {};
}

// Parses a quantity of units. Kubernetes writes 1000 as "1k".
Result<unsigned> units_in(const Json& result, const std::string& where) {
  const Json* const value = find_at(result, {"consumedCapacity", "shares"});
  if (!value) return 1U;
  const auto* const text = value->get_ptr<const std::string*>();
  constexpr unsigned kThousand = 1000;
  const bool is_thousands = text && text->ends_with('k');
  const auto number = text ? base::parse_number<unsigned>(text->substr(0, text->size() - (is_thousands ? 1 : 0)))
                           : std::optional<unsigned>();
  const unsigned factor = is_thousands ? kThousand : 1;
  if (!number || *number == 0 || *number > kMostUnits / factor)
    return wrong(where + "consumedCapacity.shares", "a number from 1 to 65535", value);
  return *number * factor;
}

Result<bool> flag_in(const Json& object, const char* name, const std::string& where) {
  const Json* const value = base::member(object, name);
  if (!value || value->is_null()) return false;
  if (!value->is_boolean()) return wrong(where + name, "true or false", value);
  return value->get<bool>();
}

Result<ClaimDevice> read_device(const Json& result, const std::string& where, const Json& configs) {
  const auto request = TRY(text_in(result, "request", where, "the name of a request", is_request));
  ClaimDevice device;
  device.request = request_of(request);
  device.pool = TRY(text_in(result, "pool", where, "the name of a node", is_dns_subdomain));
  device.name = TRY(text_in(result, "device", where, "a DNS label", is_dns_label));
  if (const Json* const share = base::member(result, "shareID"); share && !share->is_null())
    device.share_id = TRY(text_in(result, "shareID", where, "a UID", is_uid));
  device.units = TRY(units_in(result, where));
  device.is_admin = TRY(flag_in(result, "adminAccess", where));
  TRY_VOID(read_parameters_for(request, configs, device));
  return device;
}

Result<std::vector<ClaimDevice>> read_devices(const Json& allocation) {
  const std::string where = "status.allocation.devices.";
  const Json& results = *TRY(list_in(allocation, "results", where, kMostDevices));
  const Json& configs = *TRY(list_in(allocation, "config", where, kMostConfigs));
  std::vector<ClaimDevice> devices;
  std::set<std::tuple<std::string, std::string, std::string, bool>> seen;
  for (std::size_t at = 0; at < results.size(); ++at) {
    if (text_of(results[at], {"driver"}) != kDraDriver) continue;
    const std::string place = fmt::format("{}results[{}]", where, at);
    auto device = TRY(read_device(results[at], place + ".", configs));
    if (!seen.emplace(device.pool, device.name, device.share_id, device.is_admin).second)
      return make_error("{} repeats an earlier entry: device {} of {}", place, device.name, device.pool);
    devices.push_back(std::move(device));
  }
  return devices;
}

Result<std::vector<std::string>> read_pods(const Json& status) {
  const Json& consumers = *TRY(list_in(status, "reservedFor", "status.", kMostConsumers));
  std::vector<std::string> pods;
  for (std::size_t at = 0; at < consumers.size(); ++at) {
    const Json* const group = base::member(consumers[at], "apiGroup");
    const bool is_core = !group || group->is_null() || *group == "";
    if (!is_core || text_of(consumers[at], {"resource"}) != "pods") continue;
    const std::string where = fmt::format("status.reservedFor[{}].", at);
    pods.push_back(TRY(text_in(consumers[at], "uid", where, "a UID", is_uid)));
  }
  return pods;
}

}  // namespace

Result<hook::ClaimOfNode> parse_claim(std::string_view text) {
  const Json json = TRY(base::parse_json(text, "the claim", kClaimLimits));
  if (text_of(json, {"apiVersion"}) != "resource.k8s.io/v1" || text_of(json, {"kind"}) != "ResourceClaim")
    return Error{"it is no ResourceClaim of resource.k8s.io/v1", 0, "use Kubernetes 1.34 or later"};
  const Json* const metadata = base::member(json, "metadata");
  if (!metadata || !metadata->is_object()) return wrong("metadata", "an object", metadata);
  hook::ClaimOfNode claim;
  claim.space = TRY(text_in(*metadata, "namespace", "metadata.", "the name of a namespace", is_dns_label));
  claim.name = TRY(text_in(*metadata, "name", "metadata.", "a DNS name", is_dns_subdomain));
  claim.uid = TRY(text_in(*metadata, "uid", "metadata.", "a UID", is_uid));
  const Json* const allocation = find_at(json, {"status", "allocation", "devices"});
  if (!allocation || !allocation->is_object())
    return make_error("claim {}/{} is not allocated: the scheduler has assigned no devices to it", claim.space,
                      claim.name);
  auto devices = read_devices(*allocation);
  if (!devices) return base::wrap(std::move(devices).error(), fmt::format("claim {}/{}", claim.space, claim.name));
  claim.devices = *std::move(devices);
  claim.pods = TRY(read_pods(json.at("status")));
  return claim;
}

Result<void> check_key(const hook::ClaimOfNode& claim, const ClaimKey& wanted) {
  if (ClaimKey{claim.space, claim.name, claim.uid} == wanted) return {};
  return make_error("claim {}/{} has the UID {}: the kubelet means the claim {}/{} with the UID {}, which was deleted",
                    claim.space, claim.name, claim.uid, base::printable(wanted.space), base::printable(wanted.name),
                    base::printable(wanted.uid));
}

Result<void> find_hcas(hook::ClaimOfNode& claim, const DeviceNames& names, std::string_view node) {
  for (ClaimDevice& device : claim.devices) {
    if (device.pool != node)
      return make_error("device {} of the claim is on node {}: this is node {}", device.name, device.pool,
                        base::printable(node));
    const auto found = std::ranges::find_if(names, [&](const auto& one) { return one.second == device.name; });
    if (found == names.end())
      return Error{fmt::format("this node has no device {} now", device.name), 0,
                   "compare the devices of `rdma-dra --slices` with those of the claim"};
    device.hca = found->first;
  }
  return {};
}

}  // namespace shim
