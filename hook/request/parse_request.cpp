#include "hook/request/request.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "base/warnings.hpp"
#include "hook/request/parsers.hpp"

namespace hook {
namespace {

bool may_request(const Config& config, Engine engine, const PodIdentity& pod) {
  if (annotations_are_the_operators(engine)) return true;
  return std::ranges::any_of(config.annotations_may_request,
                             [&](const std::string& glob) { return base::glob_match(glob, pod.pod_namespace); });
}

bool is_read(const Config& config, std::string_view prefix) {
  return std::ranges::find(config.trusted_annotations, prefix) != config.trusted_annotations.end();
}

Result<RequestParts> other_vendors(const ContainerSpec& spec, const Config& config, const PodIdentity& pod) {
  RequestParts parts;
  if (is_read(config, kVolcengineAnnotations)) parts = TRY(volcengine_annotation(spec, config));
  if (!parts.asks() && is_read(config, kSpiderpoolAnnotations))
    parts = TRY(spiderpool_annotations(spec, config, pod.pod_namespace));
  return parts;
}

// Returns the request in the annotations. Selection and network are looked up separately, each in the first annotations
// that have it: the own ones, then those of other vendors. Only the own annotations have a mode.
Result<RequestParts> first_request(const ContainerSpec& spec, const Config& config, const PodIdentity& pod,
                                   bool trusted) {
  RequestParts own;
  if (is_read(config, kOwnAnnotations)) own = TRY(own_annotations(spec, pod.container_name));
  // The own annotations are complete, so other vendors' annotations, and errors in them, have no effect.
  if (own.selection && (own.network || own.selection->kind == HcaSelection::Kind::kNone)) return own;
  auto other = other_vendors(spec, config, pod);
  if (!other) {
    if (trusted && !own.selection) return other;
    // Another controller may use the other vendor's annotation. An invalid one must therefore not stop a pod that
    // requests by its own annotations, or that may not request.
    own.warnings.push_back(fmt::format("{}; it is ignored", other.error().message));
    return own;
  }
  if (!own.selection) {
    own.selection = std::move(other->selection);
    own.nics = other->nics;
  } else if (other->network && !config.networks.contains(other->network->text)) {
    own.warnings.push_back(fmt::format("ignoring {}: config.json has no network `{}`", other->network->source,
                                       base::printable(std::string_view(other->network->text).substr(0, 128))));
    other->network.reset();
  }
  if (!own.network) {
    own.network = std::move(other->network);
    own.network_of_pool = std::move(other->network_of_pool);
  }
  return own;
}

std::string engine_and_namespace(Engine engine, const PodIdentity& pod) {
  if (pod.pod_namespace.empty()) return std::string(to_string(engine));
  return fmt::format("{} in namespace `{}`", to_string(engine), base::printable(pod.pod_namespace));
}

std::string ignored_text(std::string_view source, std::string_view what, Engine engine, const PodIdentity& pod) {
  return fmt::format("ignoring {}: with {} it may not {}; remedy: add {} to \"annotations_may_request\" in config.json",
                     source, engine_and_namespace(engine, pod), what,
                     pod.pod_namespace.empty() ? "`*`" : "the namespace");
}

Result<void> set_mode_and_network(const RequestParts& parts, const Config& config, Request& request) {
  if (parts.mode) {
    request.mode = parse_mode(base::trim(parts.mode->text));
    if (!request.mode) {
      return Error{fmt::format("{}: `{}` is not a mode", parts.mode->source,
                               base::printable(std::string_view(parts.mode->text).substr(0, 128))),
                   0, "use exclusive, shared, shared-multi or hca"};
    }
  }
  request.network_of_pool = parts.network_of_pool;
  if (!parts.network) return {};
  request.network = base::trim(parts.network->text);
  if (config.networks.contains(*request.network)) return {};
  std::vector<std::string> names;
  for (const auto& [name, network] : config.networks)
    names.push_back(name);
  return Error{fmt::format("{}: there is no network `{}`", parts.network->source,
                           base::printable(std::string_view(*request.network).substr(0, 128))),
               0,
               names.empty() ? "add \"networks\" with this network to /etc/rdma-init/config.json; it has none"
                             : "request one of the networks of config.json: " + some_of(names)};
}

// Returns warnings of annotations that may not request. Mode and network change the container's devices, so they are
// ignored too.
std::vector<std::string> ignored_annotations(const RequestParts& parts, bool granted, Engine engine,
                                             const PodIdentity& pod) {
  if (parts.selection && !granted && parts.selection->kind != HcaSelection::Kind::kNone)
    return {ignored_text(parts.selection->source, "request HCAs", engine, pod)};
  std::vector<std::string> warnings;
  if (parts.mode) warnings.push_back(ignored_text(parts.mode->source, "choose a mode", engine, pod));
  const std::string& network = parts.network ? parts.network->source : parts.network_of_pool;
  if (!network.empty()) warnings.push_back(ignored_text(network, "choose a network", engine, pod));
  return warnings;
}

Result<void> check_nics(const RequestParts& parts, std::size_t nodes) {
  if (!parts.nics || nodes == 0 || *parts.nics == nodes) return {};
  return Error{fmt::format("{}: names {} NICs, but the container has {} uverbs {}", parts.selection->source,
                           *parts.nics, nodes, nodes == 1 ? "node" : "nodes"),
               0, "list as many entries as the pod requests from the device plugin"};
}

HcaSelection all_hcas(std::string source) {
  return {.kind = HcaSelection::Kind::kAll, .source = std::move(source)};
}

// Checks the device numbers. The kernel keeps only the lowest bits of a larger number (new_decode_dev(), Linux 6.12).
// So mknod(2) of 4327:192 makes 231:192, which later checks of the number would not find.
Result<void> check_numbers(const std::vector<SpecDevice>& devices) {
  constexpr std::int64_t kMajors = std::int64_t{1} << 12;
  constexpr std::int64_t kMinors = std::int64_t{1} << 20;
  for (const SpecDevice& device : devices) {
    if (device.type == 'p' ||
        (device.major >= 0 && device.major < kMajors && device.minor >= 0 && device.minor < kMinors))
      continue;
    return make_error("linux.devices: `{}` has {}:{}, which is not a device number", base::printable(device.path),
                      device.major, device.minor);
  }
  return {};
}

// Makes the note about a privileged container. If a device plugin added some of the nodes, Kubernetes reserved these
// HCAs for the pod, and the ledger does not know this. The log then has the note as info, otherwise as debug.
Note note_of_all_devices(std::size_t nodes, const ContainerSpec& spec) {
  Note note{fmt::format("the container may use all devices: its {} uverbs nodes are no request", nodes)};
  const auto is_plugins = [](const std::string& entry) { return entry.starts_with("PCIDEVICE_"); };
  const auto variable = std::ranges::find_if(spec.env, is_plugins);
  if (variable == spec.env.end()) return note;
  note.for_all = true;
  const std::string name = base::printable(std::string_view(*variable).substr(0, 128).substr(0, variable->find('=')));
  note.text +=
      fmt::format(", nor are those of {}: other containers can get the same HCAs; request them by annotation", name);
  return note;
}

enum class RequestedBy { kNobody, kContainer, kDefault, kVariable };

// Sets the selection of the first source, in the order of request.hpp, that is present and may request. Returns
// kNobody if there is none. parts: nullptr if annotations may not request. has_all: the container is privileged and has
// the nodes without a request, like kube-proxy and CNI agents.
Result<RequestedBy> settle_selection(const RequestParts* parts, bool has_all, const ContainerSpec& spec,
                                     const Config& config, Request& request) {
  if (parts && parts->selection && (!parts->nics || request.granted_nodes.empty())) {
    request.selection = *parts->selection;
  } else if (!request.granted_nodes.empty()) {
    request.selection = all_hcas("/dev/infiniband/uverbs* of the container");
    request.has_nodes_of_grant = true;
  } else if (parts && parts->network) {
    request.selection = all_hcas(parts->network->source);
  } else if (config.default_devices && !has_all) {
    request.selection = TRY(parse_selection(*config.default_devices, "default_devices of config.json"));
    return RequestedBy::kDefault;
  } else if (config.env_may_request && !has_all) {
    auto visible = TRY(visible_devices(spec));
    if (!visible) return RequestedBy::kNobody;
    request.selection = *std::move(visible);
    return RequestedBy::kVariable;
  } else {
    return RequestedBy::kNobody;
  }
  return RequestedBy::kContainer;
}

// Reads NVIDIA_VISIBLE_DEVICES, which an image can set. The variable may request HCAs or stop the container only if
// config.json lets variables request. Otherwise its UUIDs only narrow the GPUs of device nodes, and the choice among
// HCAs that another source requests.
Result<void> read_gpu_variable(const ContainerSpec& spec, const Config& config, RequestedBy by, ParsedRequest& asked) {
  Request& request = *asked.request;
  if (by == RequestedBy::kDefault && request.gpu_nodes.empty() && !config.env_may_request) return {};
  auto value = find_env(spec, "NVIDIA_VISIBLE_DEVICES");
  if (!value) return {};
  auto fits = check_size(*value, "variable NVIDIA_VISIBLE_DEVICES");
  if (!fits && config.env_may_request) return fits;
  if (fits) {
    request.gpu_uuids = gpu_uuids(*value);
  } else {
    asked.warnings.push_back(fmt::format("{}; it is ignored", fits.error().message));
  }
  if (config.env_may_request) request.gpu_hint = std::move(value);
  return {};
}

bool is_none(const HcaSelection& selection) {
  return selection.kind == HcaSelection::Kind::kNone;
}

// Collects the sources that narrow the selection. A source that selects all HCAs narrows nothing. Such a source is left
// out, so that named_hcas() can still return names. A source that selects none decides.
Result<void> narrow(const RequestParts& parts, bool trusted, const ContainerSpec& spec, RequestedBy by,
                    Request& request) {
  // Narrows nothing if device nodes exist: check_nics() has compared their number with the annotation's NICs.
  if (!trusted && parts.selection && (!parts.nics || request.granted_nodes.empty()))
    request.narrowed_by.push_back(*parts.selection);
  if (by != RequestedBy::kVariable)  // the variable does not narrow its own request
    if (auto visible = TRY(visible_devices(spec))) request.narrowed_by.push_back(*std::move(visible));
  if (std::ranges::any_of(request.narrowed_by, is_none)) request.selection.kind = HcaSelection::Kind::kNone;
  std::erase_if(request.narrowed_by,
                [](const HcaSelection& selection) { return selection.kind == HcaSelection::Kind::kAll; });
  return {};
}

}  // namespace

Result<ParsedRequest> parse_request(const ContainerSpec& spec, const Config& config, Engine engine) {
  ParsedRequest asked;
  const PodIdentity pod = pod_identity(spec, engine);
  // containerd copies the pod's annotations to the sandbox too, which runs only the pause container.
  if (pod.is_sandbox) return asked;

  TRY_VOID(check_numbers(spec.devices));
  Request request;
  request.granted_nodes = granted_uverbs_nodes(spec);
  const bool has_all = spec.may_use_all_devices && !request.granted_nodes.empty();
  if (has_all) {
    asked.note = note_of_all_devices(request.granted_nodes.size(), spec);
    request.granted_nodes.clear();
  }
  const bool trusted = may_request(config, engine, pod);
  RequestParts parts = TRY(first_request(spec, config, pod, trusted));
  asked.warnings = std::move(parts.warnings);
  // Without networks in config.json, the component that added the nodes (a device plugin) also adds the netdevs.
  if (config.networks.empty() && !request.granted_nodes.empty()) parts.network_of_pool.clear();
  TRY_VOID(check_nics(parts, request.granted_nodes.size()));
  if (trusted) TRY_VOID(set_mode_and_network(parts, config, request));

  const RequestedBy by = TRY(settle_selection(trusted ? &parts : nullptr, has_all, spec, config, request));
  if (!trusted) append(ignored_annotations(parts, by != RequestedBy::kNobody, engine, pod), asked.warnings);
  asked.pod_note = pod_note(asked.warnings);  // later warnings are about variables
  if (by == RequestedBy::kNobody) return asked;
  TRY_VOID(check_pod_namespace(spec, engine));

  TRY_VOID(narrow(parts, trusted, spec, by, request));
  // The HCAs of the container's nodes are booked even without a request for HCAs, so that no other container gets them
  // exclusively.
  if (is_none(request.selection) && request.granted_nodes.empty()) return asked;
  request.order = TRY(pcidevice_order(spec));
  request.gpu_nodes = granted_gpu_nodes(spec);
  asked.request = std::move(request);
  TRY_VOID(read_gpu_variable(spec, config, by, asked));
  return asked;
}

std::string pod_note(const std::vector<std::string>& warnings) {
  if (warnings.empty()) return {};
  const std::string more =
      warnings.size() == 1 ? "" : fmt::format(", and {} more in the log of the node", warnings.size() - 1);
  // Quotes and semicolons are replaced, because printable() would make them unreadable.
  std::string text = warnings.front();
  std::erase_if(text, [](char c) { return c == '`' || c == '"'; });
  std::ranges::replace(text, ';', ',');
  return base::printable(text, kLongestPodNote - more.size()) + more;
}

bool names_network(const Request& request) {
  const auto has_network = [](const auto& claim) { return claim.second.network.has_value(); };
  return request.network || std::ranges::any_of(request.claimed, has_network);
}

std::optional<std::vector<std::string>> named_hcas(const Request& request) {
  // A source that narrows may select by index, which needs the order of all HCAs, so the inventory must have them all.
  return request.narrowed_by.empty() ? named_hcas(request.selection) : std::nullopt;
}

std::optional<std::vector<std::string>> named_hcas(const HcaSelection& selection) {
  if (selection.kind != HcaSelection::Kind::kList || selection.selectors.exclude) return std::nullopt;
  std::vector<std::string> names;
  for (const fabric::Selector& selector : selection.selectors.selectors) {
    if (selector.kind != fabric::Selector::Kind::kName || selector.pattern.find('*') != std::string::npos)
      return std::nullopt;
    names.push_back(selector.pattern);
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace hook
