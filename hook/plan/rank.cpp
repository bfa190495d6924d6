#include "hook/plan/rank.hpp"

#include <algorithm>
#include <utility>

namespace hook {
namespace {

using Hcas = std::vector<const NodeHca*>;

class Ranking {
 public:
  Ranking(const RankInput& input, std::size_t count)
      : input_(input), count_(count), gpus_(gpus_to_be_near(input.inventory, input.request)) {}

  // Takes HCAs of one tier (choose.cpp), by nearness to the container's GPUs.
  void take(const Hcas& tier) {
    take(tier, missing(), [&](const NodeHca& node) { return looks_free(node); });
    if (missing() > 0 && !held_.empty()) is_sure_ = false;
    held_.clear();
  }

  // Takes HCAs of the tiers that other calls choose from too: ACTIVE ones first.
  void take_common(const Hcas& hcas) {
    if (missing() == 0) return;
    const std::size_t window = std::min<std::size_t>(hcas.size(), std::size_t{1} << std::min(input_.losses, 16U));
    std::set<const NodeHca*> inactive;
    take(hcas, window - 1 + missing(), [&](const NodeHca& node) {
      if (!looks_free(node)) return false;
      if (is_active(node)) return true;
      inactive.insert(&node);
      return false;
    });
    Hcas rest;
    std::ranges::copy_if(hcas, std::back_inserter(rest), [&](const NodeHca* node) { return inactive.contains(node); });
    if (missing() == 0) return;
    is_sure_ = is_sure_ && std::ranges::none_of(held_, [&](const NodeHca* held) { return is_active(*held); });
    take(rest, window - 1 + missing(), [](const NodeHca&) { return true; });
  }

  // Returns false if an HCA that is better than a taken one looked held.
  bool is_sure() const { return is_sure_; }

  std::size_t missing() const { return count_ - std::min(count_, names_.size()); }
  std::vector<std::string> names() && { return std::move(names_); }

 private:
  // Takes the HCAs that are still missing from the first `most` accepted ones.
  void take(const Hcas& hcas, std::size_t most, const std::function<bool(const NodeHca&)>& accept) {
    const Hcas found = first_near(hcas, gpus_, most, accept);
    const std::size_t taken = std::min(found.size(), missing());
    const std::size_t first = input_.turn % (found.size() - taken + 1);
    for (std::size_t i = first; i < first + taken; ++i) {
      names_.push_back(found[i]->name());
      const auto is_better = [&](const NodeHca* held) {
        return is_nearer(*held, *found[i], gpus_) && is_active(*held) == is_active(*found[i]);
      };
      is_sure_ = is_sure_ && std::ranges::none_of(held_, is_better);
    }
  }

  bool is_active(const NodeHca& node) const { return input_.is_active(node.name()); }

  bool looks_free(const NodeHca& node) {
    const auto terms = terms_for(node, input_.request, input_.config);
    if (!terms) return false;
    if (input_.own.contains(node.name())) return true;
    const bool is_free = has_place(*terms, input_.holding(node.name(), bounds_for(*terms).most));
    if (!is_free) held_.push_back(&node);
    return is_free;
  }

  const RankInput& input_;
  std::size_t count_;
  std::vector<const fabric::Gpu*> gpus_;
  std::vector<std::string> names_;
  Hcas held_;  // candidates of the present tiers that look held
  bool is_sure_ = true;
};

}  // namespace

std::optional<unsigned> count_of(const Request& request) {
  if (request.selection.kind != HcaSelection::Kind::kCount || request.has_nodes_of_grant) return std::nullopt;
  unsigned count = request.selection.count;
  for (const HcaSelection& by : request.narrowed_by) {
    if (by.kind != HcaSelection::Kind::kCount) return std::nullopt;
    count = std::min(count, by.count);
  }
  return count;
}

std::optional<std::vector<std::string>> rank(const RankInput& input) {
  const auto count = count_of(input.request);
  // Planes can need another choice than the first free HCAs (order.hpp).
  if (!count || *count == 0 || has_planes(input.config.rails)) return std::nullopt;
  Hcas own;
  Hcas granted;
  Hcas common;
  for (const NodeHca* hca : countable(input.node, input.request, input.config)) {
    const auto held = input.own.find(hca->name());
    if (input.lost.contains(hca->name())) continue;
    if (held != input.own.end() && held->second > 0) {
      own.push_back(hca);
    } else if (std::ranges::find(input.granted, hca->name()) != input.granted.end()) {
      granted.push_back(hca);
    } else {
      common.push_back(hca);
    }
  }
  Ranking ranking(input, *count);
  ranking.take(own);
  ranking.take(granted);
  ranking.take_common(common);
  if (ranking.missing() > 0 || !ranking.is_sure()) return std::nullopt;
  return std::move(ranking).names();
}

}  // namespace hook
