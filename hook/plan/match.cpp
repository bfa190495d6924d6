#include "hook/plan/match.hpp"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "base/text.hpp"
#include "base/warnings.hpp"
#include "hook/plan/order.hpp"
#include "hook/request/parsers.hpp"

namespace hook {
namespace {

using fabric::Selector;

using Hcas = std::vector<const NodeHca*>;

// Returns whether the selector can name several HCAs. A rail of "rails" can have several: planes, or VFs of one PF.
bool has_glob(const Selector& selector, const Hcas& found) {
  return selector.pattern.find('*') != std::string::npos ||
         (selector.kind == Selector::Kind::kRail && found.size() > 1);
}

// Returns the HCAs that the selector matches, none for `gpu`.
Hcas taken_by(const Selector& selector, const Hcas& hcas) {
  const auto takes = [&](const NodeHca* node) {
    if (selector.kind == Selector::Kind::kIndex) return node->number == selector.number;
    if (selector.kind == Selector::Kind::kRail) return node->rail == selector.number;
    const auto& ports = node->hca->ports;
    // A driver may report no ports; its HCA still matches by name.
    if (ports.empty()) return fabric::selects(selector, *node->hca, fabric::Port{}, node->netdevs);
    return std::ranges::any_of(
        ports, [&](const fabric::Port& port) { return fabric::selects(selector, *node->hca, port, node->netdevs); });
  };
  Hcas taken;
  std::ranges::copy_if(hcas, std::back_inserter(taken), takes);
  return taken;
}

constexpr Word<Selector::Kind> kPrefixes[] = {
    {"netdev:", Selector::Kind::kNetdev}, {"pci:", Selector::Kind::kPci}, {"guid:", Selector::Kind::kGuid}};

std::string as_written(const Selector& selector) {
  std::string text = std::string(to_word(kPrefixes, selector.kind)) + selector.pattern;
  return selector.port ? text + fmt::format(":{}", *selector.port) : text;
}

// Returns the remedy for a number that no rail of the node has.
std::string rails_remedy(const NodeMap& node) {
  std::set<unsigned> numbers;
  for (const NodeHca& hca : node.hcas())
    numbers.insert(hca.rail);
  std::vector<std::string> rails;
  rails.reserve(numbers.size());
  for (const unsigned number : numbers)
    rails.push_back(fmt::format("rail:{}", number));
  return "select one of the node's rails: " + some_of(rails);
}

std::string skipped(std::string_view hca, std::string_view why) {
  return fmt::format("`{}` is skipped: {}", base::printable(hca), why);
}

std::string dev_of(const SpecDevice& device) {
  return fmt::format("{}:{}", device.major, device.minor);
}

// Returns the device number of the HCA's uverbs node; nullopt: the HCA has no node, or its node has a
// dynamic number that the snapshot lacks.
std::optional<std::string> dev_of(const fabric::Hca& hca) {
  if (!hca.uverbs || hca.uverbs_dev || *hca.uverbs >= fabric::kUverbsFixed) return hca.uverbs_dev;
  return fmt::format("{}:{}", fabric::kUverbsMajor, fabric::kUverbsFirstMinor + *hca.uverbs);
}

// Returns the HCA with the uverbs node that the path of `device` names, nullptr if there is none.
const NodeHca* hca_named(const NodeMap& node, const SpecDevice& device) {
  const auto named = fabric::uverbs_number(device.path);
  const auto found =
      std::ranges::find_if(node.hcas(), [&](const NodeHca& one) { return named && one.hca->uverbs == named; });
  return found == node.hcas().end() ? nullptr : &*found;
}

// Returns the HCA that this device node opens, nullptr if there is none. The device number decides. The name of the
// node decides only if the number of the HCA is unknown.
const NodeHca* hca_opened_by(const NodeMap& node, const SpecDevice& device) {
  const std::string dev = dev_of(device);
  const NodeHca* named = hca_named(node, device);
  if (named && dev_of(*named->hca).value_or(dev) == dev) return named;
  const auto found = std::ranges::find_if(node.hcas(), [&](const NodeHca& one) {
    const auto own = dev_of(*one.hca);
    return own ? *own == dev : device.uverbs() && one.hca->uverbs == device.uverbs();
  });
  return found == node.hcas().end() ? nullptr : &*found;
}

// Returns the HCA of a device node, nullptr if there is none. Errors: the path of `device` names the uverbs node of one
// HCA, but its number belongs to another HCA or to none. Programs find the node by its name and would open the wrong
// device.
Result<const NodeHca*> hca_of(const NodeMap& node, const SpecDevice& device) {
  const NodeHca* opened = hca_opened_by(node, device);
  const NodeHca* named = hca_named(node, device);
  if (opened && (opened == named || !fabric::uverbs_number(device.path))) return opened;
  if (!named) return nullptr;
  const std::string path = base::printable(device.path);
  return Error{fmt::format("`{}` in linux.devices has device number {}, but on this node it has {}", path,
                           dev_of(device), dev_of(*named->hca).value_or("another")),
               0, "pass the device node under its own name"};
}

// Returns the pool of the request's network; nullopt: any pool. An unknown network is refused later, with its name
// (terms_for()).
std::optional<std::string> pool_of(const Request& request, const Config& config) {
  const auto network = request.network ? config.networks.find(*request.network) : config.networks.end();
  return network == config.networks.end() ? std::nullopt : network->second.pool;
}

bool is_allowed(const NodeHca& hca, const std::optional<std::string>& pool) {
  return hca.pool && (!pool || hca.pool->name == *pool);
}

// The match of one request. shortlist: see Candidates.
class Matching {
 public:
  Matching(const fabric::Inventory& inventory, const NodeMap& node, const Request& request, const Config& config,
           const std::vector<std::string>* shortlist)
      : inventory_(inventory),
        node_(node),
        request_(request),
        source_(request.selection.source),
        pool_(pool_of(request, config)),
        shortlist_(shortlist) {}

  Result<Matched> run() {
    if (request_.selection.kind == HcaSelection::Kind::kNone) return std::move(matched_);
    TRY_VOID(match_selection());
    for (const HcaSelection& by : request_.narrowed_by)
      TRY_VOID(narrow(by));
    return std::move(matched_);
  }

 private:
  Error no_such_hca(const Selector& selector) const {
    const auto names = node_.names();
    return Error{fmt::format("{}: no HCA matches `{}`", source_, base::printable(as_written(selector))), 0,
                 names.empty()                            ? "load the node's RDMA driver; it has no HCA"
                 : selector.kind == Selector::Kind::kRail ? rails_remedy(node_)
                                                          : "select one of the node's HCAs: " + some_of(names),
                 FailureReason::kNoHca};
  }

  // Returns the refusal of an HCA that exists but is in no pool, in an unknown pool, or not in the network's pool.
  Error not_allowed(const NodeHca& node) const {
    if (node.pool_unread)
      return base::wrap(unknown_pool(node), fmt::format("{}: `{}`", source_, base::printable(node.name())));
    Error error = node.pool ? make_error("{}: `{}` is in pool `{}`, but the network uses pool `{}`", source_,
                                         base::printable(node.name()), node.pool->name, *pool_)
                            : make_error("{}: `{}` is in no pool", source_, base::printable(node.name()));
    error.hint = "select an HCA of a pool, or change \"pools\" in config.json";
    return error;
  }

  // Returns the refusal of an HCA that the container cannot use; nullopt: it can.
  std::optional<Error> obstacle_of(const NodeHca& node) const {
    if (!is_allowed(node, pool_)) return not_allowed(node);
    if (node.hca->uverbs) return std::nullopt;
    return Error{fmt::format("{}: `{}` has no uverbs node", source_, base::printable(node.name())), 0,
                 "run `modprobe ib_uverbs`"};
  }

  // Returns the HCAs that this request may use and a container can open. Warns of an HCA without a device node or with
  // an unknown pool.
  Hcas usable(const Hcas& hcas) {
    Hcas usable;
    for (const NodeHca* node : hcas) {
      if (node->pool_unread) {
        add_once(pool_warning(*node), matched_.warnings);
      } else if (is_allowed(*node, pool_) && node->hca->uverbs) {
        usable.push_back(node);
      }
    }
    for (const NodeHca* node : hcas)
      if (is_allowed(*node, pool_) && !node->hca->uverbs) add_once(no_node_warning(node->name()), matched_.warnings);
    return usable;
  }

  // Returns the HCAs of the shortlist, if there is one, otherwise all, in the order of rails.
  Hcas listed() const {
    Hcas hcas = node_.by_rail();
    if (!shortlist_) return hcas;
    std::erase_if(
        hcas, [&](const NodeHca* node) { return std::ranges::find(*shortlist_, node->name()) == shortlist_->end(); });
    return hcas;
  }

  // Returns the HCAs of the device nodes in linux.devices. A node without an HCA causes only a warning: another plugin
  // can have moved the HCA of the node to a network namespace where it cannot be read. Errors: those of hca_of().
  Result<Hcas> hcas_of_nodes() {
    Hcas found;
    for (const SpecDevice& device : request_.granted_nodes) {
      if (const NodeHca* hca = TRY(hca_of(node_, device))) {
        found.push_back(hca);
        continue;
      }
      add_once(fmt::format("`{}` in linux.devices belongs to no HCA of this node and is not changed; it is stale if a "
                           "driver was reloaded since (`rdma-hook devices` lists the nodes)",
                           base::printable(device.path)),
               matched_.warnings);
    }
    return in_order(found, request_);
  }

  // Returns the nearest of these HCAs for each GPU of the container.
  Result<std::vector<MatchedGroup>> near_gpus(const Hcas& hcas, std::string_view source) const {
    auto gpus = container_gpus(inventory_, request_);
    if (!gpus) return base::wrap(std::move(gpus).error(), source);
    std::vector<MatchedGroup> groups;
    for (const fabric::Gpu* gpu : *gpus)
      groups.push_back({nearest(hcas, *gpu), true});
    return groups;
  }

  // Matches one selector of the request. A glob skips HCAs that are not usable, but at least one must be usable.
  Result<void> match_selector(const Selector& selector) {
    if (selector.kind == Selector::Kind::kGpu) {
      const Hcas hcas = usable(node_.by_rail());
      if (hcas.empty()) return make_error("{}: the node has no HCA for containers", source_);
      auto groups = TRY(near_gpus(hcas, source_));
      std::ranges::move(groups, std::back_inserter(matched_.groups));
      return {};
    }
    const Hcas found = taken_by(selector, node_.by_rail());
    if (found.empty()) return no_such_hca(selector);
    // A selector without a glob fails if one of its HCAs is not usable. Otherwise the container would silently get
    // fewer HCAs than it names.
    if (!has_glob(selector, found)) {
      for (const NodeHca* node : found)
        if (auto obstacle = obstacle_of(*node)) return *std::move(obstacle);
    }
    MatchedGroup group{usable(found), false};
    if (group.hcas.empty()) return *obstacle_of(*found.front());
    matched_.groups.push_back(std::move(group));
    return {};
  }

  // Returns the HCAs of `hcas` that the list selects. Unknown names match none.
  Result<Hcas> filter(const HcaSelection& selection, const Hcas& hcas) const {
    std::vector<bool> hit(node_.hcas().size(), false);
    for (const Selector& selector : selection.selectors.selectors) {
      const bool gpu = selector.kind == Selector::Kind::kGpu && !hcas.empty();
      const auto groups =
          gpu ? TRY(near_gpus(hcas, selection.source)) : std::vector<MatchedGroup>{{taken_by(selector, hcas)}};
      for (const MatchedGroup& group : groups)
        for (const NodeHca* node : group.hcas)
          hit[node->index] = true;
    }
    Hcas left;
    std::ranges::copy_if(hcas, std::back_inserter(left),
                         [&](const NodeHca* node) { return hit[node->index] != selection.selectors.exclude; });
    return left;
  }

  Result<void> match_nodes() {
    Hcas granted = TRY(hcas_of_nodes());
    for (const NodeHca* node : granted) {
      if (node->pool_unread || (node->pool && !is_allowed(*node, pool_))) return not_allowed(*node);
      if (!node->pool)
        matched_.warnings.push_back(
            fmt::format("`{}` is in no pool: its device node is not changed", base::printable(node->name())));
    }
    std::erase_if(granted, [](const NodeHca* node) { return !node->pool; });
    if (!granted.empty()) matched_.groups.push_back({std::move(granted), false});
    return {};
  }

  Result<void> match_selection() {
    const HcaSelection& selection = request_.selection;
    if (request_.has_nodes_of_grant) return match_nodes();
    if (selection.kind == HcaSelection::Kind::kList && !selection.selectors.exclude) {
      for (const Selector& selector : selection.selectors.selectors)
        TRY_VOID(match_selector(selector));
      return {};
    }
    Hcas hcas = usable(listed());
    if (selection.kind == HcaSelection::Kind::kList) hcas = TRY(filter(selection, hcas));
    if (selection.kind == HcaSelection::Kind::kCount) matched_.count = selection.count;
    if (hcas.empty()) {
      Error error = make_error("{}: the node has no HCA for containers", source_);
      const auto names = node_.names();
      error.hint = names.empty() ? "load the node's RDMA driver" : "add one of its HCAs to a pool: " + some_of(names);
      if (names.empty()) error.reason = FailureReason::kNoHca;
      return error;
    }
    matched_.groups.push_back({std::move(hcas), false});
    return {};
  }

  Result<void> narrow(const HcaSelection& by) {
    if (by.kind == HcaSelection::Kind::kCount) {
      matched_.at_most = std::min(matched_.at_most.value_or(by.count), by.count);
      return {};
    }
    if (by.kind != HcaSelection::Kind::kList) return {};
    // Narrowing never adds an HCA: it only filters the HCAs that are already selected.
    const Hcas before = matched_.hcas();
    const Hcas left = TRY(filter(by, before));
    if (left.empty())
      return Error{fmt::format("{}: selects none of the container's HCAs", by.source), 0,
                   fmt::format("select from {} (by {})", some_of(names_of(before)), source_)};
    matched_.is_narrowed = matched_.is_narrowed || left.size() < before.size();
    std::vector<bool> stays(node_.hcas().size(), false);
    for (const NodeHca* node : left)
      stays[node->index] = true;
    for (MatchedGroup& group : matched_.groups)
      std::erase_if(group.hcas, [&](const NodeHca* node) { return !stays[node->index]; });
    std::erase_if(matched_.groups, [](const MatchedGroup& group) { return group.hcas.empty(); });
    return {};
  }

  const fabric::Inventory& inventory_;
  const NodeMap& node_;
  const Request& request_;
  const std::string& source_;
  const std::optional<std::string> pool_;
  const std::vector<std::string>* const shortlist_;
  Matched matched_;
};

// Returns the HCAs that the container can open by device nodes in linux.devices. Skips nodes without an HCA.
Hcas granted_hcas(const NodeMap& node, const Request& request) {
  Hcas found;
  for (const SpecDevice& device : request.granted_nodes)
    if (const NodeHca* hca = hca_opened_by(node, device)) found.push_back(hca);
  return in_order(found, request);
}

}  // namespace

std::vector<const NodeHca*> Matched::hcas() const {
  Hcas all;
  std::set<const NodeHca*> seen;
  for (const MatchedGroup& group : groups) {
    for (const NodeHca* node : group.hcas)
      if (seen.insert(node).second) all.push_back(node);
  }
  return all;
}

bool may_be(Mode mode, const Request& request, const Config& config) {
  const auto is_claimed_in = [&](const auto& claim) { return claim.second.mode == mode; };
  if (std::ranges::any_of(request.claimed, is_claimed_in)) return true;
  if (request.mode) return request.mode == mode;
  const auto network_is = [&](const auto& entry) { return entry.second.mode == mode; };
  const auto pool_is = [&](const Pool& pool) { return !pool.modes.empty() && pool.modes.front() == mode; };
  return std::ranges::any_of(config.networks, network_is) || std::ranges::any_of(config.pools, pool_is);
}

std::vector<std::string> vfs_of(const NodeHca& node, const fabric::Inventory& inventory) {
  std::vector<std::string> names = node.hca->vfs;
  for (const fabric::Hca& other : inventory.hcas) {
    const bool is_vf = node.hca->pci && other.physfn == node.hca->pci;
    if (is_vf && std::ranges::find(names, other.name) == names.end()) names.push_back(other.name);
  }
  return names;
}

std::vector<std::string> pfs_of(const NodeHca& node, const fabric::Inventory& inventory) {
  if (!node.hca->is_pf_hidden) return node.hca->pfs;
  std::vector<std::string> names;  // the PF's HCAs are in the inventory only if they moved to the requesting container
  for (const fabric::Hca& other : inventory.hcas)
    if (node.hca->physfn && other.pci == node.hca->physfn) names.push_back(other.name);
  return names;
}

std::string no_node_warning(std::string_view hca) {
  return skipped(hca, "it has no uverbs node");
}

std::string pool_warning(const NodeHca& node) {
  return skipped(node.name(), unknown_pool(node).message);
}

std::vector<const NodeHca*> countable(const NodeMap& node, const Request& request, const Config& config) {
  Hcas hcas = node.by_rail();
  const auto pool = pool_of(request, config);
  std::erase_if(hcas, [&](const NodeHca* hca) { return !is_allowed(*hca, pool); });
  return hcas;
}

Candidates::Candidates(const fabric::Inventory& all, const Request& asked, const Config& admin,
                       const std::vector<std::string>* shortlist)
    : inventory(all),
      request(asked),
      config(admin),
      node(all, admin),
      matched(Matching(all, node, asked, admin, shortlist).run()),
      granted(granted_hcas(node, asked)) {}

std::vector<std::string> Candidates::names() const {
  if (!matched) return {};
  const Hcas hcas = matched->hcas();
  std::vector<std::string> names = names_of(hcas);
  std::set<std::string> seen(names.begin(), names.end());
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  };
  for (const NodeHca* hca : granted)
    add(hca->name());
  for (const Hcas& all : {hcas, granted}) {
    for (const NodeHca* hca : all) {
      for (const std::string& pf : pfs_of(*hca, inventory))
        add(pf);
    }
  }
  // The VFs of a requested HCA are booked only if the HCA is exclusive, so they are locked only then. Containers that
  // start at the same time wait for each lock that they share.
  if (!may_be(Mode::kExclusive, request, config)) return names;
  for (const NodeHca* hca : hcas) {
    for (const std::string& vf : vfs_of(*hca, inventory))
      add(vf);
  }
  return names;
}

}  // namespace hook
