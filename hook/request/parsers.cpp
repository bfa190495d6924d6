// The sources of requests, in their order.
#include "hook/request/parsers.hpp"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "fabric/inventory.hpp"

namespace hook {

Result<std::optional<SourcedText>> find_annotation(const ContainerSpec& spec, const std::string& key) {
  const auto found = spec.annotations.find(key);
  if (found == spec.annotations.end()) return std::optional<SourcedText>();
  SourcedText text{found->second, "annotation " + base::printable(key)};
  TRY_VOID(check_size(text.text, text.source));
  return std::optional(std::move(text));
}

std::string some_of(const std::vector<std::string>& names, std::size_t most) {
  std::vector<std::string> shown = names;
  for (std::string& name : shown)
    name = base::printable(name);
  return base::join_first(shown, most);
}

namespace {

constexpr std::string_view kOwnPrefix = "rdma-init.io/";
constexpr std::string_view kOwnDevices = "rdma-init.io/devices";
constexpr std::string_view kOwnMode = "rdma-init.io/mode";
constexpr std::string_view kOwnNetwork = "rdma-init.io/network";

bool is_own_key(std::string_view key) {
  return key == kOwnDevices || key == kOwnMode || key == kOwnNetwork || key == kGrantAnnotation ||
         (key.starts_with(kOwnDevices) && key.substr(kOwnDevices.size()).starts_with('.'));
}

// Returns a warning about unknown keys. One warning is enough, because an image may have any number of such keys.
std::optional<std::string> unknown_own_keys(const ContainerSpec& spec) {
  for (auto it = spec.annotations.lower_bound(std::string(kOwnPrefix));
       it != spec.annotations.end() && it->first.starts_with(kOwnPrefix); ++it) {
    if (is_own_key(it->first)) continue;
    return fmt::format("ignoring unknown annotation `{}`: known are {}, {} and {}",
                       base::printable(std::string_view(it->first).substr(0, 128)), kOwnDevices, kOwnMode, kOwnNetwork);
  }
  return std::nullopt;
}

Result<std::optional<HcaSelection>> own_devices(const ContainerSpec& spec, std::string_view container_name) {
  std::optional<SourcedText> found;
  if (!container_name.empty()) found = TRY(find_annotation(spec, fmt::format("{}.{}", kOwnDevices, container_name)));
  if (!found) found = TRY(find_annotation(spec, std::string(kOwnDevices)));
  if (!found) return std::optional<HcaSelection>();
  return std::optional<HcaSelection>(TRY(parse_selection(found->text, found->source)));
}

}  // namespace

Result<RequestParts> own_annotations(const ContainerSpec& spec, std::string_view container_name) {
  RequestParts parts;
  parts.selection = TRY(own_devices(spec, container_name));
  parts.mode = TRY(find_annotation(spec, std::string(kOwnMode)));
  parts.network = TRY(find_annotation(spec, std::string(kOwnNetwork)));
  if (auto warning = unknown_own_keys(spec)) parts.warnings.push_back(*std::move(warning));
  return parts;
}

namespace {

// k8s.volcengine.com/pod-networks: a JSON list with one {"cniConf": {"name": "rdma"}} for each NIC.
constexpr const char* kVolcengineKey = "k8s.volcengine.com/pod-networks";
constexpr int kVolcengineDepth = 16;

// Returns the name of an entry's CNI configuration; nullopt: it has none, and belongs to another component.
std::optional<std::string> cni_name(const Json& entry) {
  const auto cni = entry.find("cniConf");
  if (cni == entry.end() || !cni->is_object()) return std::nullopt;
  const auto name = cni->find("name");
  if (name == cni->end() || !name->is_string()) return std::nullopt;
  return name->get<std::string>();
}

constexpr const char* kVolcengineRdma = "rdma";

// Chooses the network for "rdma" if config.json has no network of this name.
void set_unnamed_network(const std::string& source, const Config& config, RequestParts& parts) {
  const bool pools_have_network =
      std::ranges::any_of(config.pools, [](const Pool& pool) { return pool.network.has_value(); });
  if (!pools_have_network && config.networks.size() == 1) {
    parts.network = SourcedText{config.networks.begin()->first, source};
  } else {
    parts.network_of_pool = source;
  }
}

Error malformed(std::string_view source, std::string_view what) {
  return Error{fmt::format("{}: {}", source, what), 0, R"(list one {"cniConf": {"name": "rdma"}} for each NIC)"};
}

}  // namespace

Result<RequestParts> volcengine_annotation(const ContainerSpec& spec, const Config& config) {
  RequestParts parts;
  const auto found = TRY(find_annotation(spec, kVolcengineKey));
  if (!found) return parts;
  auto parsed = parse_json(found->text, found->source, {kMaxValueBytes, kVolcengineDepth});
  if (!parsed) return malformed(found->source, "invalid JSON: " + parsed.error().message);
  if (!parsed->is_array()) return malformed(found->source, "expected a list");
  if (parsed->size() > kMaxListEntries)
    return make_error("{}: a list of {} entries, at most {} are allowed", found->source, parsed->size(),
                      kMaxListEntries);
  unsigned count = 0;
  for (const Json& entry : *parsed) {
    if (!entry.is_object()) return malformed(found->source, "expected objects in the list");
    // Entries with other names are the pod's other NICs, which another component adds.
    const auto name = cni_name(entry);
    const bool is_network = name && config.networks.contains(*name);
    if (!is_network && name != kVolcengineRdma) continue;
    ++count;
    if (!is_network) continue;
    if (parts.network && parts.network->text != *name)
      return make_error("{}: names the networks `{}` and `{}`, but a container gets only one", found->source,
                        base::printable(parts.network->text), base::printable(*name));
    parts.network = SourcedText{*name, found->source};
  }
  if (count == 0) return parts;
  if (count > kMaxCount)
    return make_error("{}: requests {} NICs, at most {} are allowed", found->source, count, kMaxCount);
  if (!parts.network) set_unnamed_network(found->source, config, parts);
  parts.selection = HcaSelection{.kind = HcaSelection::Kind::kCount, .count = count, .source = found->source};
  parts.nics = count;
  return parts;
}

namespace {

// cni.spidernet.io/*-resource-inject: the common name of the webhook's network configurations, here a network of
// config.json. The webhook excludes the namespaces of podResourceInject.namespacesExclude. If namespacesInclude is set,
// the webhook accepts only its namespaces. This code does the same.
constexpr const char* kSpiderpoolKeys[] = {"cni.spidernet.io/rdma-resource-inject",
                                           "cni.spidernet.io/network-resource-inject"};

bool matches(const std::vector<std::string>& globs, std::string_view name) {
  return std::ranges::any_of(globs, [&](const std::string& glob) { return base::glob_match(glob, name); });
}

bool takes_namespace(const Config& config, std::string_view name) {
  if (matches(config.namespaces_exclude, name)) return false;
  return config.namespaces_include.empty() || matches(config.namespaces_include, name);
}

}  // namespace

Result<RequestParts> spiderpool_annotations(const ContainerSpec& spec, const Config& config,
                                            std::string_view pod_namespace) {
  RequestParts parts;
  if (!takes_namespace(config, pod_namespace)) return parts;
  for (const char* key : kSpiderpoolKeys) {
    auto found = TRY(find_annotation(spec, key));
    if (!found || found->text.empty()) continue;
    if (!config.networks.empty()) {
      parts.network = *std::move(found);
      return parts;
    }
    parts.network_of_pool = found->source;
    parts.selection = HcaSelection{.kind = HcaSelection::Kind::kAll, .source = found->source};
    return parts;
  }
  return parts;
}

namespace {

// Returns true for the prefix followed by 1 to 9 digits.
bool is_numbered(std::string_view path, std::string_view prefix) {
  return path.starts_with(prefix) && path.size() > prefix.size() && path.size() <= prefix.size() + 9 &&
         std::all_of(path.begin() + static_cast<std::ptrdiff_t>(prefix.size()), path.end(),
                     [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::vector<SpecDevice> granted_uverbs_nodes(const ContainerSpec& spec) {
  std::vector<SpecDevice> granted;
  std::set<std::tuple<std::string, std::int64_t, std::int64_t>> seen;
  std::set<std::pair<std::int64_t, std::int64_t>> numbers;
  std::vector<const SpecDevice*> elsewhere;
  for (const SpecDevice& device : spec.devices) {
    if (device.type != 'c') continue;
    // A node under another path counts by its number, so that a rename in the container does not hide it.
    if (!device.path.starts_with('/') || !fabric::uverbs_number(device.path)) {
      if (device.uverbs()) elsewhere.push_back(&device);
      continue;
    }
    if (!seen.emplace(device.path, device.major, device.minor).second) continue;
    numbers.emplace(device.major, device.minor);
    granted.push_back(device);
  }
  // Nodes under another path follow after the loop, because a node with a usual path comes first even if it is listed
  // later.
  for (const SpecDevice* device : elsewhere)
    if (numbers.emplace(device->major, device->minor).second) granted.push_back(*device);
  return granted;
}

std::vector<std::string> granted_gpu_nodes(const ContainerSpec& spec) {
  std::vector<std::string> nodes;
  for (const SpecDevice& device : spec.devices) {
    if (device.type == 'c' && (is_numbered(device.path, "/dev/nvidia") || is_numbered(device.path, "/dev/dri/card") ||
                               is_numbered(device.path, "/dev/dri/renderD"))) {
      nodes.push_back(device.path);
    }
  }
  return nodes;
}

std::vector<std::string> gpu_uuids(std::string_view value) {
  std::vector<std::string> uuids;
  std::set<std::string> seen;
  for (const std::string_view entry : base::split(value, ',')) {
    std::string_view gpu = base::trim(entry);
    if (gpu.starts_with("MIG-GPU-")) gpu.remove_prefix(std::string_view("MIG-").size());
    auto uuid = fabric::gpu_uuid(gpu.substr(0, gpu.find('/')));
    if (uuid && seen.insert(*uuid).second) uuids.push_back(*std::move(uuid));
  }
  return uuids;
}

Result<std::vector<std::string>> pcidevice_order(const ContainerSpec& spec) {
  std::vector<std::string> order;
  for (const std::string& entry : spec.env) {
    const std::size_t equals = entry.find('=');
    if (equals == std::string::npos || !entry.starts_with("PCIDEVICE_")) continue;
    const std::string_view name = std::string_view(entry).substr(0, equals);
    // sriov-network-device-plugin sets each variable also with the suffix _INFO.
    if (name.ends_with("_INFO")) continue;
    const std::string source = "variable " + base::printable(name.substr(0, 128));
    const std::string_view value = std::string_view(entry).substr(equals + 1);
    TRY_VOID(check_size(value, source));
    for (const std::string_view item : base::split(value, ',')) {
      if (!base::trim(item).empty()) order.emplace_back(base::trim(item));
      if (order.size() > kMaxListEntries) return make_error("{}: a list of over {} entries", source, kMaxListEntries);
    }
  }
  return order;
}

namespace {

// Parses the format of enroot: all, none, void, or indices of the node's HCAs. NVIDIA's (NGC) images set
// MELLANOX_VISIBLE_DEVICES=all. By default the variable must not request, because every container of such an image
// would get HCAs.
Result<HcaSelection> parse_indices(std::string_view text, std::string source) {
  HcaSelection selection{.kind = HcaSelection::Kind::kList, .source = std::move(source)};
  selection.selectors.text = text;
  const auto entries = base::split(text, ',');
  if (entries.size() > kMaxListEntries)
    return make_error("{}: a list of {} entries, at most {} are allowed", selection.source, entries.size(),
                      kMaxListEntries);
  for (const std::string_view raw : entries) {
    const std::string_view entry = base::trim(raw);
    const auto index = base::parse_number<unsigned>(entry);
    if (!index) {
      return Error{fmt::format("{}: `{}` is not an index", selection.source, base::printable(entry.substr(0, 128))), 0,
                   "use all, none, void, or indices from 0 of the node's HCAs: 0,1"};
    }
    selection.selectors.selectors.push_back(
        {fabric::Selector::Kind::kIndex, fmt::format("index:{}", *index), std::nullopt, *index});
  }
  return selection;
}

}  // namespace

Result<std::optional<HcaSelection>> visible_devices(const ContainerSpec& spec) {
  for (const char* name : {"RDMA_VISIBLE_DEVICES", "MELLANOX_VISIBLE_DEVICES"}) {
    const auto value = find_env(spec, name);
    if (!value) continue;
    const std::string source = std::string("variable ") + name;
    TRY_VOID(check_size(*value, source));
    const std::string_view text = base::trim(*value);
    if (text.empty()) continue;
    if (text == "none" || text == "void") return std::optional(HcaSelection{.source = source});
    if (text == "all") return std::optional(HcaSelection{.kind = HcaSelection::Kind::kAll, .source = source});
    return std::optional(TRY(parse_indices(text, source)));
  }
  return std::optional<HcaSelection>();
}

}  // namespace hook
