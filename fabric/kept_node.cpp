#include "fabric/kept_node.hpp"

#include <algorithm>

namespace fabric {
namespace {

// Limit of inventories that are kept, one for each set of options. The requests of a node need few sets.
constexpr std::size_t kMostKept = 8;
// The kernel reports a removal before it removes the files (device_del() in drivers/base/core.c, Linux 6.12). So an
// inventory that was read this soon after an event is not kept.
constexpr std::chrono::seconds kQuiet{1};
// Longest time for which an inventory is kept: no event reports a new rate of a port that stays ACTIVE.
constexpr std::chrono::minutes kOldest{10};

bool depends_on_addresses(const NodeReadOptions& options) {
  return options.facts.addresses || options.facts.own_gids;
}

bool can_be_kept(const NodeReadOptions& options, const Inventory& inventory) {
  // An inventory with GPUs is not kept, because no event reports a change of GPUs. One with GID tables is not kept
  // either: reading the tables again is most of the work.
  if (options.gpus || options.facts.gids) return false;
  return inventory.unread.empty() && !inventory.rdma_error && !inventory.net_error;
}

// Returns true if the node still has exactly these HCAs.
bool has_names(const std::string& root, const Inventory& inventory) {
  const auto has_name = [](const Hca& hca, const std::string& name) { return hca.name == name; };
  return std::ranges::equal(inventory.hcas, rdma_sysfs::Classes(root + "/sys").names(), has_name);
}

}  // namespace

// Takes the events before any kept inventory is used. An event that arrives later is taken by the next request, as a
// change right after a read would be.
bool KeptNode::take_events() {
  NetdevsOfInventory all;
  all.all = !last_;
  const auto add = [&](const NetdevsOfInventory& netdevs) {
    all.all = all.all || netdevs.all;
    all.indexes.insert(netdevs.indexes.begin(), netdevs.indexes.end());
    all.names.insert(netdevs.names.begin(), netdevs.names.end());
  };
  if (last_) add(*last_);
  for (const Kept& kept : kept_)
    add(kept.netdevs);
  if (survey_) add(survey_->netdevs);
  if (!events_.take(all)) return false;
  kept_.clear();
  survey_.reset();
  changed_at_ = now_();
  return true;
}

bool KeptNode::is_quiet() const {
  return !changed_at_ || read_at_ >= *changed_at_ + kQuiet;
}

Inventory KeptNode::read(const NodeReadOptions& options) {
  take_events();
  read_at_ = now_();
  if (!events_.receives_all()) return read_node(options);
  std::erase_if(kept_, [&](const Kept& kept) { return read_at_ - kept.read_at >= kOldest; });
  const auto found = std::ranges::find(kept_, options, &Kept::options);
  if (found != kept_.end()) {
    Inventory inventory = found->inventory;
    if (refresh_node(options, inventory, found->open)) return inventory;
    kept_.erase(found);
  }
  Inventory inventory = read_node(options);
  last_ = netdevs_of(inventory, depends_on_addresses(options));
  if (!is_quiet() || !can_be_kept(options, inventory)) return inventory;
  if (kept_.size() == kMostKept) kept_.erase(kept_.begin());
  kept_.push_back({options, inventory, *last_, read_at_});
  return inventory;
}

Inventory KeptNode::survey(const std::string& root, const HcaFacts& facts, bool gpus) {
  take_events();
  read_at_ = now_();
  if (!events_.receives_all()) return survey_node(root, facts, gpus);
  const bool is_kept =
      survey_ && survey_->root == root && survey_->facts == facts && !gpus && read_at_ - survey_->read_at < kOldest;
  if (is_kept && has_names(root, survey_->inventory)) return survey_->inventory;
  NodeReadOptions options;
  options.facts = facts;
  options.gpus = gpus;
  Inventory inventory = survey_node(root, facts, gpus);
  last_ = netdevs_of(inventory, depends_on_addresses(options));
  survey_.reset();
  if (is_quiet() && can_be_kept(options, inventory)) survey_ = Survey{root, facts, inventory, *last_, read_at_};
  return inventory;
}

}  // namespace fabric
