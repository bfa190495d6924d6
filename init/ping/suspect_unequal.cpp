#include <algorithm>
#include <map>
#include <utility>

#include "init/ping/suspects.hpp"

namespace init::ping {
namespace {

using Sign = Suspect::Sign;

constexpr std::uint64_t kFullMember = 0x8000;  // bit of a P_Key: a limited member reaches full members only

// Returns the value of the rail that must fit those of its peers, 0 if it is not known.
std::uint64_t value_of(Sign sign, const Rail& rail) {
  const bool has_gid = !rail.gid.is_zero();
  if (sign == Sign::kMtu) return rail.mtu;
  if (sign == Sign::kPkey) return rail.infiniband ? rail.pkey : 0;
  if (sign == Sign::kFamily) return rail.infiniband || !has_gid ? 0 : rail.gid.is_ipv4() ? 4 : 6;
  std::uint64_t prefix = 0;
  for (std::size_t byte = 0; byte < 8; ++byte)
    prefix = prefix << 8 | rail.gid.bytes[byte];
  return rail.infiniband && has_gid ? prefix : 0;
}

class Comparison {
 public:
  Comparison(Evidence& evidence, unsigned rail, Sign sign) : evidence_(evidence), rail_(rail), sign_(sign) {
    for (std::size_t member = 0; member < evidence_.members(); ++member) {
      const bool has_problem = evidence_.end(member, rail_).has_problem;
      values_.push_back(has_problem ? 0 : value_of(sign_, evidence_.rail_of(member, rail_)));
      if (values_.back() != 0) ++counts_[values_.back()];
    }
  }

  void find(std::vector<Suspect>& suspects) {
    if (counts_.empty()) return;
    choose_usual();
    const bool is_alike = counts_.size() == 1 && fit(usual_, usual_);
    if (is_alike || !is_consistent()) return;
    std::map<std::uint64_t, Suspect> odd;
    for (const auto& [value, count] : counts_) {
      if (value != usual_ || !fit(usual_, usual_))
        odd[value] = {.sign = sign_, .rails = {rail_}, .value = value, .usual = usual_, .count = counts_[usual_]};
    }
    for (std::size_t member = 0; member < values_.size(); ++member) {
      const auto found = odd.find(values_[member]);
      if (found != odd.end()) found->second.members.push_back(member);
    }
    explain(odd);
    // The test connects with the smaller MTU, as some versions of NCCL do not: without a failure it is a cause as well.
    for (auto& [value, suspect] : odd) {
      if (suspect.failed > 0 || sign_ == Sign::kMtu) suspects.push_back(std::move(suspect));
    }
  }

 private:
  bool fit(std::uint64_t one, std::uint64_t other) const {
    if (one == 0 || other == 0) return true;
    if (sign_ != Sign::kPkey) return one == other;
    return ((one ^ other) & ~kFullMember) == 0 && ((one | other) & kFullMember) != 0;
  }

  // The value of most members; if two have as many, the larger MTU or the value of the lowest rank.
  void choose_usual() {
    std::size_t most = 0;
    for (const std::uint64_t value : values_) {
      if (value == 0) continue;
      const std::size_t count = counts_[value];
      if (count < most || (count == most && (sign_ != Sign::kMtu || value <= usual_))) continue;
      most = count;
      usual_ = value;
    }
  }

  // Values that do not fit explain nothing if members with them reach each other.
  bool is_consistent() const {
    if (sign_ == Sign::kMtu) return true;
    std::map<std::size_t, std::uint64_t> of_group;
    for (std::size_t member = 0; member < values_.size(); ++member) {
      if (values_[member] == 0) continue;
      const std::uint64_t key = sign_ == Sign::kPkey ? values_[member] | kFullMember : values_[member];
      const auto [at, is_new] = of_group.emplace(evidence_.group_of(member, rail_), key);
      if (!is_new && at->second != key) return false;
    }
    return true;
  }

  void explain(std::map<std::uint64_t, Suspect>& odd) {
    for (Fault* fault : evidence_.open_faults(rail_)) {
      const bool is_other_layer = sign_ == Sign::kMtu && fault->layer != Layer::kMtu;
      if (is_other_layer || fit(values_[fault->first], values_[fault->second])) continue;
      const auto first = odd.find(values_[fault->first]);
      const auto second = odd.find(values_[fault->second]);
      const bool takes_first =
          second == odd.end() || (first != odd.end() && first->second.members.size() <= second->second.members.size());
      (takes_first ? first : second)->second.explain(evidence_, *fault);
    }
  }

  Evidence& evidence_;
  unsigned rail_;
  Sign sign_;
  std::vector<std::uint64_t> values_;  // value of each member; 0: not known
  std::map<std::uint64_t, std::size_t> counts_;
  std::uint64_t usual_ = 0;
};

}  // namespace

void suspect_unequal(Evidence& evidence, unsigned rail, std::vector<Suspect>& suspects) {
  for (const Sign sign : {Sign::kPkey, Sign::kSubnet, Sign::kFamily, Sign::kMtu})
    Comparison(evidence, rail, sign).find(suspects);
}

}  // namespace init::ping
