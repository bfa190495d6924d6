#include "hook/plan/parts.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <set>
#include <utility>

#include "base/failure.hpp"
#include "base/text.hpp"
#include "fabric/provider_names.hpp"

namespace hook {
namespace {

using Part = fabric::Unread::Part;

constexpr std::uint32_t kMiscMajor = 10;  // major of misc devices such as rdma_cm; the minor is dynamic

// Parses "231:192"; nullopt: another form.
std::optional<std::pair<std::uint32_t, std::uint32_t>> device_number(std::string_view text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const auto major = base::parse_number<std::uint32_t>(text.substr(0, colon));
  const auto minor = base::parse_number<std::uint32_t>(text.substr(colon + 1));
  if (!major || !minor) return std::nullopt;
  return std::pair(*major, *minor);
}

std::string node_path(std::string_view node) {
  return fmt::format("/dev/infiniband/{}", node);
}

// Returns a device node below /dev/infiniband with the mode and owner of config.json; without numbers if `dev` is
// unknown.
PlannedNode node_at(const NodeOptions& options, std::string_view name, const std::optional<std::string>& dev) {
  PlannedNode node;
  node.path = node_path(name);
  node.mode = options.mode;
  node.uid = options.uid;
  node.gid = options.gid;
  if (const auto number = dev ? device_number(*dev) : std::nullopt) {
    node.major = number->first;
    node.minor = number->second;
  }
  return node;
}

PlannedNode uverbs_node(const NodeOptions& options, const fabric::Hca& hca) {
  PlannedNode node = node_at(options, fmt::format("uverbs{}", *hca.uverbs), hca.uverbs_dev);
  if (!node.major && *hca.uverbs < fabric::kUverbsFixed) {
    node.major = fabric::kUverbsMajor;
    node.minor = fabric::kUverbsFirstMinor + *hca.uverbs;
  }
  return node;
}

bool is_configured(const NodeOptions& options, const fabric::MadNode& node) {
  return (options.umad && node.name.starts_with("umad")) || (options.issm && node.name.starts_with("issm"));
}

// Returns whether the node has rdma_cm. For a snapshot without this fact, returns whether an HCA is accessible: such a
// node normally has rdma_cm.
bool has_rdma_cm(const fabric::Inventory& inventory) {
  if (inventory.rdma_cm) return *inventory.rdma_cm;
  return std::ranges::any_of(inventory.hcas, [](const fabric::Hca& hca) { return hca.is_accessible(); });
}

// Checks that the network's netdev can be made or moved. Errors: the child netdev does not fit the HCA's link layer, or
// the netdev cannot move.
Result<void> check_child(const NodeHca& node, const Terms& terms) {
  const std::string name = base::printable(node.name());
  if (terms.mode == Mode::kExclusive) {
    if (!node.enslaved) return {};
    const std::string master = base::printable(*node.netdev);
    return Error{fmt::format("`{}`: its netdev belongs to `{}` and cannot move", name, master), 0,
                 fmt::format("use mode shared, which adds a child of `{}`", master)};
  }
  const bool ipoib = terms.network->child == "ipoib";
  if (ipoib == node.is_infiniband()) return {};
  Error error =
      ipoib ? make_error("`{}`: its link layer is Ethernet, but ipoib requires InfiniBand", name)
            : make_error("`{}`: its link layer is InfiniBand, which does not support {}", name, terms.network->child);
  error.hint = fmt::format("write \"child\": \"{}\" in network `{}`", ipoib ? "macvlan" : "ipoib", terms.network->name);
  return error;
}

// Refuses a rail with an uncertain number. HCAs that "rails" of config.json does not list are numbered after the listed
// HCAs, first the HCAs in a pool. An HCA whose pool is unknown may precede any unlisted HCA. An HCA whose entry is
// unknown changes the numbers of those that follow it.
Result<void> check_rail(const PlanInput& input, const NodeHca& node) {
  constexpr const char* kHint = "list each HCA by name, in the order of their rails, in \"rails\" of config.json";
  if (node.entry) return {};
  const std::string name = base::printable(node.name());
  const auto check = [&](const NodeHca& other) -> Result<void> {
    const std::string uncertain = base::printable(other.name().empty() ? *other.hca->pci : other.name());
    if (other.pool_unread) {
      Error error = base::wrap(unknown_pool(other), fmt::format("the rail of `{}` depends on `{}`", name, uncertain));
      error.hint = kHint;
      return error;
    }
    if (other.entry_unknown.empty() || other.rail > node.rail) return {};
    const std::string what = &other == &node ? fmt::format("the rail of `{}` is not known", name)
                                             : fmt::format("the rail of `{}` depends on `{}`", name, uncertain);
    return Error{fmt::format("{}: {}", what, other.entry_unknown), 0, kHint};
  };
  for (const auto* hcas : {&input.among.node.hcas(), &input.among.node.away()})
    for (const NodeHca& other : *hcas)
      TRY_VOID(check(other));
  return {};
}

// Directories of a view that hold copies of the node's files.
constexpr const char* kLentFolder = "lib";
constexpr const char* kNeededFolder = "needed";
constexpr const char* kTopologyFolder = "topology";

// Replaces %d, as the kernel does for names such as "eth%d".
std::string numbered(std::string pattern, unsigned number) {
  const std::size_t at = pattern.find("%d");
  return at == std::string::npos ? pattern : pattern.replace(at, 2, std::to_string(number));
}

// Returns whether the container or its pod already has the HCA exclusively. The HCA's netdev then is in the container's
// network namespace.
bool has_moved(const PlanInput& input, const ChosenHca& unit) {
  const auto holding = input.holdings.find(unit.node->name());
  return unit.terms.mode == Mode::kExclusive && holding != input.holdings.end() && holding->second.own_units > 0;
}

// Returns true for a snapshot without netdevs. An inventory with class directories of sysfs is no snapshot: only a live
// node has them.
bool is_without_netdevs(const fabric::Inventory& inventory) {
  return inventory.netdevs.empty() && inventory.class_directories.empty();
}

// Adds the entries of one directory of the view: its links, and the abi_version that libibverbs reads.
void add_view_directory(const Config& config, const std::vector<const NodeHca*>& granted,
                        const fabric::ClassDirectory& directory, std::vector<ViewEntry>& view) {
  view.push_back({directory.name, "", ""});
  if (directory.abi_version) view.push_back({directory.name, "abi_version", "", *directory.abi_version + "\n"});
  const auto link = [&](std::string name, const std::optional<std::string>& target) {
    if (target) view.push_back({directory.name, std::move(name), *target});
  };
  for (const NodeHca* node : granted) {
    const fabric::Hca& hca = *node->hca;
    if (directory.name == "infiniband") link(hca.name, hca.class_link);
    if (directory.name == "infiniband_verbs") link(fmt::format("uverbs{}", *hca.uverbs), hca.verbs_link);
    if (directory.name != "infiniband_mad") continue;
    for (const fabric::MadNode& mad : hca.mad_nodes)
      if (is_configured(config.nodes, mad)) link(mad.name, mad.link);
  }
}

// An overlay without an upper directory stays read-only with any mount option (overlayfs.rst, "Multiple lower layers").
// Such an overlay needs two lower directories; the second is empty.
PlannedMount view_mount(const PlanInput& input, const std::string& view, const std::string& directory) {
  const std::string source = fmt::format("{}/{}/{}", input.view_directory, view, directory);
  const bool is_overlay = input.view_mount == ViewMount::kOverlay;
  const std::string layers = fmt::format("lowerdir={}:{}/{}", source, input.view_directory, view_name({}));
  return {.destination = "/sys/class/" + directory,
          .source = source,
          .type = is_overlay ? "overlay" : "bind",
          .options = {is_overlay ? layers : "bind", "ro", "nosuid", "nodev", "noexec"}};
}

// Adds the mounts of the directories with copies. The container can change no file.
void add_mounts_of_copies(const PlanInput& input, Plan& plan) {
  const auto add = [&](const char* folder, const char* destination, bool executes) {
    if (std::ranges::find(plan.view, folder, &ViewEntry::directory) == plan.view.end()) return;
    PlannedMount& mount = plan.mounts.emplace_back(view_mount(input, plan.view_name, folder));
    mount.destination = destination;
    if (executes) mount.options.pop_back();  // the last option is noexec
  };
  add(kLentFolder, fabric::kLentDirectory, true);
  add(kNeededFolder, fabric::kNeededDirectory, true);
  add(kTopologyFolder, fabric::kTopologyDirectory, false);
}

void add_copy(const char* folder, const fabric::LentFile& file, std::vector<ViewEntry>& view) {
  view.push_back({folder, file.name, "", file.identity, file.path});
}

// Adds the libraries for the granted HCAs. One file may be needed for several of them.
void add_lent(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan) {
  std::map<std::string, fabric::LentFile> files;
  std::set<std::string> providers;
  for (const NodeHca* node : granted)
    if (node->pool->lend_providers) providers.insert(fabric::provider_of(*node->hca));
  for (const std::string& provider : providers) {
    const auto known = input.lendable.find(provider);
    if (known == input.lendable.end()) continue;
    if (!known->second) {
      plan.warnings.push_back(base::with_remedy(known->second.error()));
      continue;
    }
    for (const fabric::LentFile& file : *known->second)
      files[file.name] = file;
  }
  for (const auto& [name, file] : files)
    add_copy(file.of_verbs ? kLentFolder : kNeededFolder, file, plan.view);
}

bool is_whole_node(const PlanInput& input, std::size_t granted) {
  // If the request names HCAs, or consists of device nodes in linux.devices, the inventory may lack other HCAs of
  // the node. Then its size does not prove that all HCAs of the node are granted.
  const bool partly_read = input.among.request.has_nodes_of_grant || named_hcas(input.among.request);
  return !partly_read && granted == input.among.inventory.hcas.size();
}

// Refuses a rail whose netdev the runtime moves (linux.netDevices), or that is not on the node. The runtime moves it
// before createRuntime (crun 1.22, runc 1.4), so the hook would not find it. input.variables: this call is before that.
Result<void> check_netdev(const PlanInput& input, const ChosenHca& unit) {
  const std::string name = base::printable(unit.node->name());
  const auto& netdev = unit.node->netdev;
  if (netdev && input.variables && input.moved_netdevs.contains(*netdev)) {
    return Error{fmt::format("`{}`: the runtime moves its netdev `{}` (linux.netDevices), so that it can be no rail of "
                             "network `{}`",
                             name, base::printable(*netdev), unit.terms.network->name),
                 0, "use mode hca, or leave the netdev out of linux.netDevices"};
  }
  if (netdev || is_without_netdevs(input.among.inventory)) return {};
  Error error{fmt::format("`{}`: its netdev is not in the node's network namespace", name), 0,
              "use mode hca, or move the netdev to the node's namespace"};
  if (!input.moved_netdevs.empty()) {
    const std::vector<std::string> moved(input.moved_netdevs.begin(), input.moved_netdevs.end());
    error.hint = fmt::format("use mode hca if the runtime has moved it: linux.netDevices has {}",
                             base::printable(base::join(moved, ", ")));
  }
  return error;
}

// Returns the lower of the two limits. A missing value is no limit.
std::optional<std::uint32_t> lower_one(const std::optional<std::uint32_t>& left,
                                       const std::optional<std::uint32_t>& right) {
  return left && right ? std::min(left, right) : left ? left : right;
}

}  // namespace

Result<void> was_read(const fabric::Inventory& inventory, Part part, std::optional<std::string_view> hca) {
  for (const fabric::Unread& unread : inventory.unread) {
    if (unread.part != part || (hca && !unread.hca.empty() && unread.hca != *hca)) continue;
    Error error = sys_error(unread.code, "cannot read `{}`", unread.path);
    error.reason = FailureReason::kDevices;
    if (unread.code == ESTALE) error.hint = "start the container again; an HCA was renamed meanwhile (`rdma dev set`)";
    return error;
  }
  return {};
}

Result<std::vector<PlannedNode>> planned_nodes(const NodeOptions& options, const fabric::Inventory& inventory,
                                               const std::vector<const NodeHca*>& granted) {
  std::vector<PlannedNode> nodes;
  nodes.reserve(granted.size() + 1);
  for (const NodeHca* node : granted) {
    TRY_VOID(was_read(inventory, Part::kNodes, node->name()));
    nodes.push_back(uverbs_node(options, *node->hca));
  }
  for (const NodeHca* node : granted) {
    for (const fabric::MadNode& mad : node->hca->mad_nodes)
      if (is_configured(options, mad)) nodes.push_back(node_at(options, mad.name, mad.dev));
  }
  if (options.rdma_cm) TRY_VOID(was_read(inventory, Part::kRdmaCm));
  if (options.rdma_cm && has_rdma_cm(inventory)) {
    nodes.push_back(node_at(options, "rdma_cm", inventory.rdma_cm_dev));
    if (!nodes.back().major) nodes.back().major = kMiscMajor;
  }
  return nodes;
}

RdmaLimits lower_of(const RdmaLimits& left, const RdmaLimits& right) {
  return {lower_one(left.handles, right.handles), lower_one(left.objects, right.objects)};
}

std::vector<PlannedRdmaLimit> planned_rdma_limits(const std::vector<PlannedHca>& held, const NodeMap& node,
                                                  const std::map<std::string, ClaimTerms>& claimed) {
  std::vector<PlannedRdmaLimit> planned;
  for (const PlannedHca& hca : held) {
    const NodeHca* const known = node.find(hca.name);
    // Limits apply only to granted HCAs, so an HCA that is only booked (held_only) gets no limit.
    if (hca.held_only || hca.mode == Mode::kExclusive || !known || !known->pool) continue;
    const auto claim = claimed.find(hca.name);
    const RdmaLimits of_claim = claim == claimed.end() ? RdmaLimits() : claim->second.limits;
    const RdmaLimits limits = lower_of(known->pool->rdma_limits, of_claim);
    if (is_limited(limits)) planned.push_back({hca.name, limits});
  }
  return planned;
}

Result<void> plan_netdevs(const PlanInput& input, const Chosen& chosen, Plan& plan) {
  unsigned number = 0;
  for (const ChosenHca& unit : chosen.units) {
    if (!unit.terms.network || unit.terms.mode == Mode::kHca) continue;
    if (input.host_network) {
      plan.warnings.push_back(
          fmt::format("network `{}`: the container is in the node's network namespace and gets only device nodes",
                      unit.terms.network->name));
      return {};
    }
    ++number;  // a moved netdev counts too, so that the names of the other netdevs do not change
    if (!unit.node->netdev && has_moved(input, unit)) continue;
    TRY_VOID(check_netdev(input, unit));
    TRY_VOID(check_child(*unit.node, unit.terms));
    TRY_VOID(check_rail(input, *unit.node));
    plan.netdevs.push_back({unit.node->netdev.value_or(""), numbered(input.among.config.netdev_names, number),
                            unit.terms.mode, unit.node->name(), unit.node->rail, unit.terms.network->name});
  }
  return {};
}

bool has_address(const PlanInput& input, const ChosenHca& unit) {
  const Network& network = *unit.terms.network;
  const auto is_for = [&](const AddressRange& range) { return range.is_for(unit.node->rail); };
  if (network.ipam || std::ranges::any_of(network.ranges, is_for)) return true;
  return unit.terms.mode == Mode::kExclusive && has_own_address(input.among.inventory, *unit.node);
}

bool has_own_address(const fabric::Inventory& inventory, const NodeHca& node) {
  if (is_without_netdevs(inventory)) return true;
  return std::ranges::any_of(inventory.netdevs, [&](const fabric::Netdev& netdev) {
    return netdev.name == node.netdev && std::ranges::any_of(netdev.addresses, [](const fabric::InterfaceAddress& own) {
             return !own.address.is_link_local();
           });
  });
}

bool has_topology(const PlanInput& input) {
  return input.view_mount != ViewMount::kLater && input.topology && *input.topology;
}

Result<void> plan_view(const PlanInput& input, const std::vector<const NodeHca*>& granted, Plan& plan) {
  const fabric::Inventory& inventory = input.among.inventory;
  if (input.view_mount == ViewMount::kLater) return {};
  std::vector<fabric::ClassDirectory> directories;
  // In an exclusive RDMA subsystem no view is needed: the kernel shows a container only its own RDMA devices in sysfs.
  if (input.among.config.sysfs_view && inventory.netns_mode != fabric::NetnsMode::kExclusive &&
      !is_whole_node(input, granted.size())) {
    for (const NodeHca* node : granted)
      TRY_VOID(was_read(inventory, Part::kView, node->name()));
    directories = inventory.class_directories;
    if (directories.empty()) directories = {{"infiniband"}, {"infiniband_verbs"}};  // a snapshot names no directories
  }
  for (const fabric::ClassDirectory& directory : directories)
    add_view_directory(input.among.config, granted, directory, plan.view);
  add_lent(input, granted, plan);
  if (has_topology(input)) add_copy(kTopologyFolder, **input.topology, plan.view);
  plan.view_name = view_name(plan.view);
  for (const fabric::ClassDirectory& directory : directories)
    plan.mounts.push_back(view_mount(input, plan.view_name, directory.name));
  add_mounts_of_copies(input, plan);
  return {};
}

void renumber(const fabric::Inventory& inventory, const std::vector<NewNode>& nodes, Plan& plan) {
  std::map<std::string, const NewNode*> changes;
  for (const NewNode& node : nodes) {
    const fabric::Hca* const hca = fabric::find_hca(inventory, node.hca);
    if (hca && hca->uverbs) changes[node_path(fmt::format("uverbs{}", *hca->uverbs))] = &node;
  }
  for (PlannedNode& planned : plan.nodes) {
    const auto found = changes.find(planned.path);
    const auto number = found == changes.end() ? std::nullopt : device_number(found->second->dev);
    if (!number) continue;
    planned.path = node_path(fmt::format("uverbs{}", found->second->uverbs));
    planned.major = number->first;
    planned.minor = number->second;
  }
}

}  // namespace hook
