#include "shim/dra/slices.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/json/json.hpp"
#include "base/text.hpp"
#include "base/text_digest.hpp"
#include "hook/config/values.hpp"
#include "hook/plan/choose.hpp"
#include "shim/kubelet/hca_problem.hpp"

namespace shim {
namespace {

using base::Json;
using hook::NodeHca;

constexpr std::size_t kLongestValue = 64;  // bytes of a string attribute (Kubernetes 1.34 to 1.37)
constexpr std::size_t kDevicesOfSlice = 128;
constexpr std::size_t kDevicesOfTaintedSlice = 64;
constexpr std::size_t kShortDigest = 8;  // hex digits
constexpr const char* kPciPrefix = "pci-";

// The attributes of a device. A fact that is unknown, or that the API server would refuse, has no attribute.
class Attributes {
 public:
  void text(const char* name, const std::optional<std::string>& value) {
    if (value && !value->empty() && value->size() <= kLongestValue && base::is_utf8(*value))
      json_[name] = Json{{"string", *value}};
  }
  void number(const char* name, std::optional<std::int64_t> value) {
    if (value && *value >= 0) json_[name] = Json{{"int", *value}};
  }
  void flag(const char* name, bool value) { json_[name] = Json{{"bool", value}}; }
  Json take() { return std::move(json_); }

 private:
  Json json_ = Json::object();
};

// Returns the first component of a device's path below /sys/devices if it is a PCI root: "pci0000:80". Kubernetes' own
// helper computes `resource.kubernetes.io/pcieRoot` so, from the same link.
std::optional<std::string> pcie_root(const fabric::Hca& hca) {
  constexpr std::string_view kDevices = "/devices/";
  const std::string_view link = hca.class_link ? *hca.class_link : std::string_view();
  const std::size_t at = link.find(kDevices);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view rest = link.substr(at + kDevices.size());
  const std::string_view root = rest.substr(0, rest.find('/'));
  return root.starts_with("pci") ? std::optional(std::string(root)) : std::nullopt;
}

std::optional<std::string> standard_id(const std::optional<std::string>& id) {
  return id ? hook::pci_id(*id) : std::nullopt;
}

void add_place(const fabric::Hca& hca, Attributes& attributes) {
  attributes.text("resource.kubernetes.io/pcieRoot", pcie_root(hca));
  attributes.text("resource.kubernetes.io/pciBusID", hca.pci);
  attributes.number("resource.kubernetes.io/numaNode", hca.numa_node);
}

// Adds the attributes of dranet by which its users' claims select HCAs.
void add_dranet(const NodeHca& node, Attributes& attributes) {
  attributes.flag("dra.net/rdma", true);
  attributes.text("dra.net/rdmaDevice", node.name());
  attributes.text("dra.net/ifName", node.netdev);
  attributes.text("dra.net/pciAddress", node.hca->pci);
  attributes.number("dra.net/numaNode", node.hca->numa_node);
  attributes.flag("dra.net/isSriovVf", node.hca->physfn.has_value());
}

std::int64_t rate_of(const fabric::Hca& hca) {
  double rate = 0;
  for (const fabric::Port& port : hca.ports)
    rate = std::max(rate, port.rate_gbps());
  return static_cast<std::int64_t>(rate);
}

// At most 24 attributes: with the capacity, a device may have 32.
Json attributes_of(const NodeHca& node, hook::Mode mode) {
  const fabric::Hca& hca = *node.hca;
  const std::int64_t rate = rate_of(hca);
  Attributes attributes;
  attributes.text("rdmaDevice", hca.name);
  attributes.text("pool", node.pool->name);
  attributes.text("mode", std::string(to_string(mode)));
  attributes.number("rail", node.rail);
  if (node.entry && node.entry->plane) attributes.number("plane", *node.entry->plane);
  if (!hca.ports.empty()) attributes.text("linkLayer", node.is_infiniband() ? "infiniband" : "ethernet");
  if (rate > 0) attributes.number("rateGbps", rate);
  attributes.text("netdev", node.netdev);
  attributes.text("driver", hca.driver);
  attributes.text("vendor", standard_id(hca.vendor));
  attributes.text("deviceID", standard_id(hca.device_id));
  attributes.text("guid", hca.node_guid);
  attributes.flag("virtual", hca.physfn.has_value());
  attributes.text("pf", hca.physfn);
  attributes.flag("software", hca.is_software());
  add_place(hca, attributes);
  add_dranet(node, attributes);
  return attributes.take();
}

// The units of a shared HCA that claims can use: child netdevs in mode shared-multi, else containers.
struct Units {
  std::optional<unsigned> most;  // nullopt: any number
  std::string problem;           // why there is none now, as a predicate of the HCA; empty: there is one
};

Units units_of(const NodeHca& node, const hook::Terms& terms, const HcaHold& hold) {
  Units units{terms.limit, {}};
  const auto gids = gids_of_children(node, terms);
  if (gids) units.most = std::min(units.most.value_or(UINT32_MAX), gids->slots / gids->per_child);
  if (!units.most) return units;
  const unsigned others = hold.foreign.others;
  const unsigned left = *units.most - std::min(*units.most, others);
  // The claims' own units have their GIDs already. Further units need free slots in the GID table.
  const unsigned fitting = gids ? std::min(left, hold.units - std::min(hold.units, others) + gids->children()) : left;
  if (fitting == 0)
    units.problem =
        left == 0 ? fmt::format("has {} of {} units in use without a claim", others, *units.most) : gids->text();
  if (fitting > 0) units.most = fitting;
  return units;
}

// Returns a number as Kubernetes stores it. The API server would change another form of it, and a member that comes
// back changed counts as dropped.
std::string quantity(unsigned number) {
  constexpr unsigned kThousand = 1000;
  return number > 0 && number % kThousand == 0 ? fmt::format("{}k", number / kThousand) : std::to_string(number);
}

// Adds that several claims can have the device. A claim gets one unit, and in mode shared-multi as many as it requests.
void add_sharing(const hook::Terms& terms, const Units& units, Json& device) {
  device["allowMultipleAllocations"] = true;
  if (!units.most) return;
  Json policy{{"default", "1"}};
  if (terms.mode == hook::Mode::kSharedMulti) {
    policy["validRange"] = Json{{"min", "1"}};
    // The API server refuses a step if min + step is more than the capacity.
    if (*units.most > 1) policy["validRange"]["step"] = "1";
  } else {
    policy["validValues"] = Json::array({"1"});
  }
  device["capacity"]["shares"] = Json{{"value", quantity(std::max(*units.most, 1U))}};
  device["capacity"]["shares"]["requestPolicy"] = std::move(policy);
}

// Returns a label that begins like `label` and has a digest of the text.
std::string with_digest(const std::string& label, const std::string& text) {
  const std::string digest = base::text_digest(text).substr(0, kShortDigest);
  const std::string name = label.substr(0, kLongestLabel - kShortDigest - 1) + "-" + digest;
  return is_dns_label(name) ? name : "hca-" + digest;
}

// Returns a name that the API server accepts. A text that the name does not show exactly is followed by its digest.
std::string label_of(const std::string& text, const std::string& prefix) {
  std::string label = prefix;
  bool is_exact = true;
  for (const char c : text) {
    const bool stays = is_uid({&c, 1});
    is_exact = is_exact && (stays || c == '.' || c == ':' || c == '_');
    label += stays ? c : '-';
  }
  return is_exact && is_dns_label(label) ? label : with_digest(label, text);
}

// Returns the name for a device of the ledger, or for the PCI address or name of an HCA of a snapshot.
std::string name_of(const fabric::Hca& hca, const hook::HcaDevices& devices) {
  const auto known = devices.find(hca.name);
  if (known == devices.end()) return hca.pci ? label_of(*hca.pci, kPciPrefix) : label_of(hca.name, "");
  // The ledger writes "0000.3b.00.0" for the PCI function 0000:3b:00.0.
  const bool is_function = base::split(known->second, '.').size() == 4 && !known->second.starts_with("guid.");
  return label_of(known->second, is_function ? kPciPrefix : "");
}

// Publishes the HCAs of a node one by one.
class Publisher {
 public:
  Publisher(const hook::PlanInput& input, const DeviceNames& names, const HcaHolds& holds, const SliceCluster& cluster)
      : input_(input), names_(names), holds_(holds), cluster_(cluster) {}

  void add(const NodeHca& node) {
    if (node.pool_unread) return leave_out(node, ": " + hook::unknown_pool(node).message);
    if (!node.pool) return;
    const auto terms = hook::terms_for(node, input_.among.request, input_.among.config);
    if (!terms) return leave_out(node, ": " + terms.error().message);
    const bool is_shared = terms->mode != hook::Mode::kExclusive;
    if (is_shared && !cluster_.keeps_all())
      return leave_out(node,
                       fmt::format(": mode {} of its pool needs Kubernetes 1.{}; remedy: list mode exclusive first "
                                   "in \"modes\", or keep the device plugin for this pool",
                                   to_string(terms->mode), kFirstSharingMinor));
    add(node, *terms, is_shared ? units_of(node, *terms, hold_of(holds_, node.name())) : Units());
  }
  // Leaves an HCA out. why: text behind "is left out".
  void leave_out(const NodeHca& node, const std::string& why) {
    published_.warnings.push_back(fmt::format("{} is left out{}", base::printable(node.name()), why));
    ++published_.left_out;
  }
  PublishedDevices take() { return std::move(published_); }

 private:
  void add(const NodeHca& node, const hook::Terms& terms, const Units& units) {
    HcaProblem problem = problem_of(node, terms, nodes_of_hca(node, input_.among), input_);
    if (problem.text.empty() && !units.problem.empty()) problem = {units.problem, false, kHeldProblem};
    if (!problem.text.empty() && !cluster_.keeps_all())
      return leave_out(node, fmt::format(", because it {}", problem.text));
    Json device{{"name", names_.at(node.name())}, {"attributes", attributes_of(node, terms.mode)}};
    if (terms.mode != hook::Mode::kExclusive) add_sharing(terms, units, device);
    if (!problem.text.empty()) {
      published_.warnings.push_back(fmt::format("{} {}: it has a taint", base::printable(node.name()), problem.text));
      device["taints"] =
          Json::array({Json{{"key", fmt::format("{}/{}", kDraDriver, problem.kind)}, {"effect", "NoSchedule"}}});
    }
    auto name = device["name"].get<std::string>();
    const bool is_held = std::string_view(problem.kind) == kHeldProblem;
    published_.devices.push_back({std::move(name), node.name(), std::move(device), std::move(problem.text), is_held});
  }
  const hook::PlanInput& input_;
  const DeviceNames& names_;
  const HcaHolds& holds_;
  const SliceCluster& cluster_;
  PublishedDevices published_;
};

std::string slice_name(std::size_t number, const std::string& node) {
  constexpr std::size_t kDigits = 5;  // the scheduler of Kubernetes 1.36 takes slices in the order of their names
  std::string start = fmt::format("{:0{}}-{}-", number, kDigits, kDraDriver);
  return start + (start.size() + node.size() <= kLongestSubdomain ? node : base::text_digest(node));
}

}  // namespace

DeviceNames device_names(const fabric::Inventory& inventory, const hook::HcaDevices& devices) {
  std::vector<const fabric::Hca*> hcas;
  for (const fabric::Hca& hca : inventory.hcas)
    hcas.push_back(&hca);
  std::ranges::sort(hcas, base::natural_less, &fabric::Hca::name);
  DeviceNames names;
  std::set<std::string> taken;
  for (const fabric::Hca* hca : hcas) {
    std::string name = name_of(*hca, devices);
    // Two HCAs of one function, or with one GUID: a second device of one name would make the whole pool invalid.
    if (taken.contains(name)) name = with_digest(name, name + "/" + hca->name);
    taken.insert(name);
    names.emplace(hca->name, std::move(name));
  }
  return names;
}

PublishedDevices published_devices(const fabric::Inventory& inventory, const hook::Config& config,
                                   const DeviceNames& names, const HcaHolds& holds, const SliceCluster& cluster) {
  // An empty request is used, so that each HCA's pool alone determines its mode, network and limit.
  const hook::Request nothing;
  const hook::Candidates among(inventory, nothing, config);
  const hook::Holdings foreign = foreign_holdings(holds);
  const hook::PlanInput input{.among = among, .holdings = foreign, .view_directory = {}};
  const auto other_kinds = hook::other_kinds_of(among.node);
  Publisher publisher(input, names, holds, cluster);
  for (const NodeHca* node : among.node.by_rail())
    if (std::ranges::find(other_kinds, node) == other_kinds.end()) publisher.add(*node);
  for (const NodeHca* node : other_kinds)
    publisher.leave_out(*node,
                        fmt::format(": its rate or link layer differs from most HCAs of pool {}", node->pool->name));
  PublishedDevices published = publisher.take();
  const auto& hcas = among.node.by_rail();
  if (hcas.empty())
    published.warnings.emplace_back(
        "this node has no HCA; remedy: `rdma-hook doctor` reports whether an RDMA driver is missing");
  else if (std::ranges::none_of(hcas, [](const NodeHca* node) { return node->pool || node->pool_unread; }))
    published.warnings.emplace_back(
        "no HCA of this node is in a pool of config.json; remedy: `rdma-hook devices` shows the pool of each HCA");
  return published;
}

std::string published_text(std::size_t devices, std::size_t left_out, const std::string& node) {
  std::string text = fmt::format("{} devices in slices of node {}", devices, node);
  if (devices == 0 && left_out > 0)
    text += fmt::format("; {} {} left out: see the log", left_out, left_out == 1 ? "HCA is" : "HCAs are");
  return text;
}

std::vector<Json> resource_slices(const std::vector<PublishedDevice>& devices, const SliceCluster& cluster) {
  const std::size_t size = cluster.keeps_all() ? kDevicesOfTaintedSlice : kDevicesOfSlice;
  const std::size_t count = std::max<std::size_t>((devices.size() + size - 1) / size, 1);
  std::vector<Json> slices;
  for (std::size_t number = 0; number < count; ++number) {
    Json metadata{{"name", slice_name(number, cluster.node)}};
    if (!cluster.node_uid.empty())
      metadata["ownerReferences"] = Json::array({Json{{"apiVersion", "v1"},
                                                      {"kind", "Node"},
                                                      {"name", cluster.node},
                                                      {"uid", cluster.node_uid},
                                                      {"controller", true}}});
    Json listed = Json::array();
    for (std::size_t at = number * size; at < std::min(devices.size(), (number + 1) * size); ++at)
      listed.push_back(devices[at].json);
    Json pool{{"name", cluster.node}, {"generation", 1}, {"resourceSliceCount", count}};
    Json spec{{"driver", kDraDriver}, {"nodeName", cluster.node}, {"pool", std::move(pool)}};
    spec["devices"] = std::move(listed);
    slices.push_back(Json{{"apiVersion", "resource.k8s.io/v1"}, {"kind", "ResourceSlice"}});
    slices.back()["metadata"] = std::move(metadata);
    slices.back()["spec"] = std::move(spec);
  }
  return slices;
}

}  // namespace shim
