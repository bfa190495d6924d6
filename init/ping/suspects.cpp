#include "init/ping/suspects.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace init::ping {
namespace {

void explain_problems(Evidence& evidence) {
  for (unsigned rail = 0; rail < evidence.rails(); ++rail) {
    for (Fault* fault : evidence.open_faults(rail)) {
      const bool is_first = evidence.end(fault->first, rail).has_problem;
      End& end = evidence.end(is_first ? fault->first : fault->second, rail);
      if (!end.has_problem) continue;
      ++end.explained;
      fault->is_explained = true;
    }
  }
}

// Returns true if each port reaches one peer at most, and the ports of a member reach different peers. A switch that
// splits the ranks in pairs would give all ports of a member the same peer.
bool has_direct_cables(const Evidence& evidence) {
  if (evidence.members() < 3 || evidence.rails() < 2) return false;
  bool differ = false;
  for (std::size_t member = 0; member < evidence.members(); ++member) {
    const End* before = nullptr;
    for (unsigned rail = 0; rail < evidence.rails(); ++rail) {
      const End& end = evidence.end(member, rail);
      if (end.good > 1 || evidence.rail_of(member, rail).infiniband) return false;
      if (end.good == 0) continue;
      differ |= before != nullptr && before->reached != end.reached;
      before = &end;
    }
    if (before == nullptr) return false;
  }
  return differ;
}

void suspect_cables(Evidence& evidence, std::vector<Suspect>& suspects) {
  Suspect cables{.sign = Suspect::Sign::kCables};
  for (unsigned rail = 0; rail < evidence.rails(); ++rail) {
    cables.rails.push_back(rail);
    for (Fault* fault : evidence.open_faults(rail))
      cables.explain(evidence, *fault);
  }
  if (cables.failed > 0) suspects.push_back(std::move(cables));
}

// Returns true if no test of this rail contradicts that the members reach no other member.
bool is_cut_off(const Evidence& evidence, const std::vector<std::size_t>& members, unsigned rail) {
  std::map<std::size_t, std::size_t> inside;
  for (const std::size_t member : members) {
    if (evidence.end(member, rail).good > 0) ++inside[evidence.group_of(member, rail)];
  }
  if (inside.empty()) return true;
  for (std::size_t member = 0; member < evidence.members(); ++member) {
    const auto group = inside.find(evidence.group_of(member, rail));
    if (group != inside.end() && !std::ranges::binary_search(members, member)) return false;
  }
  return true;
}

constexpr std::size_t kMostGroups = 64;  // more groups are not compared between the rails

// The same suspect on all rails is one. Rails without its failures count as well, unless a good test clears it there.
// The same value that differs is one on any rails.
class RailMerger {
 public:
  RailMerger(const Evidence& evidence, std::vector<Suspect> suspects)
      : evidence_(evidence), suspects_(std::move(suspects)) {}

  std::vector<Suspect> merge() {
    extend();
    std::map<Key, std::vector<std::size_t>> alike;
    for (std::size_t i = 0; i < suspects_.size(); ++i)
      alike[key_of(suspects_[i])].push_back(i);
    for (const auto& [key, at] : alike) {
      if (is_one(at)) merge_into_first(at);
    }
    std::erase_if(suspects_, [](const Suspect& suspect) { return suspect.rails.empty(); });
    return std::move(suspects_);
  }

 private:
  using Key =
      std::tuple<Suspect::Sign, std::vector<std::size_t>, std::vector<std::size_t>, bool, std::uint64_t, std::uint64_t>;
  static Key key_of(const Suspect& suspect) {
    return {suspect.sign, suspect.members, suspect.others, suspect.is_partial, suspect.value, suspect.usual};
  }

  static bool is_group(const Suspect& suspect) {
    return suspect.sign == Suspect::Sign::kTests && suspect.members.size() > 1 && suspect.others.empty();
  }
  static bool is_part(const Suspect& suspect, const std::vector<std::size_t>& members) {
    return suspect.sign == Suspect::Sign::kTests && !suspect.members.empty() && suspect.others.empty() &&
           !suspect.is_partial && suspect.members.size() < members.size() &&
           std::ranges::includes(members, suspect.members);
  }

  // A group of one rail that a second fault divides on another rail is the same group there.
  void extend() {
    std::set<std::vector<std::size_t>> groups;
    for (const Suspect& suspect : suspects_) {
      if (is_group(suspect)) groups.insert(suspect.members);
    }
    if (groups.size() > kMostGroups) return;
    for (const std::vector<std::size_t>& members : groups) {
      for (unsigned rail = 0; rail < evidence_.rails(); ++rail)
        extend(members, rail);
    }
  }

  void extend(const std::vector<std::size_t>& members, unsigned rail) {
    Suspect* largest = nullptr;
    std::size_t found = 0;
    for (Suspect& suspect : suspects_) {
      if (suspect.rails != std::vector<unsigned>{rail} || !is_part(suspect, members)) continue;
      found += suspect.members.size();
      if (largest == nullptr || suspect.members.size() > largest->members.size()) largest = &suspect;
    }
    if (largest != nullptr && found >= members.size() && is_cut_off(evidence_, members, rail))
      largest->members = members;
  }

  bool is_one(const std::vector<std::size_t>& at) const {
    const Suspect& first = suspects_[at.front()];
    if (at.size() < 2) return false;
    // The same wrong value on several rails has one origin.
    if (first.sign != Suspect::Sign::kTests || at.size() == evidence_.rails()) return true;
    if (first.is_partial || first.members.empty() || !first.others.empty()) return false;
    std::vector<bool> has(evidence_.rails());
    for (const std::size_t one : at)
      has[suspects_[one].rails.front()] = true;
    for (unsigned rail = 0; rail < evidence_.rails(); ++rail) {
      if (!has[rail] && !is_cut_off(evidence_, first.members, rail)) return false;
    }
    return true;
  }

  void merge_into_first(const std::vector<std::size_t>& at) {
    Suspect& first = suspects_[at.front()];
    for (std::size_t i = 1; i < at.size(); ++i) {
      Suspect& other = suspects_[at[i]];
      first.failed += other.failed;
      if (first.example == nullptr || (other.example != nullptr && other.example->layer < first.example->layer))
        first.example = other.example;
      first.rails.push_back(other.rails.front());
      other.rails.clear();
    }
    if (first.sign != Suspect::Sign::kTests) return;
    first.rails.clear();
    for (unsigned rail = 0; rail < evidence_.rails(); ++rail)
      first.rails.push_back(rail);
  }

  const Evidence& evidence_;
  std::vector<Suspect> suspects_;
};

}  // namespace

void Suspect::explain(Evidence& evidence, Fault& fault) {
  fault.is_explained = true;
  ++failed;
  if (example == nullptr || fault.layer < example->layer) example = &fault;
  if (!others.empty()) return;
  for (const std::size_t member : {fault.first, fault.second}) {
    if (members.empty() || std::ranges::binary_search(members, member))
      evidence.end(member, fault.rail).has_cause = true;
  }
}

std::vector<Suspect> find_suspects(Evidence& evidence) {
  std::vector<Suspect> suspects;
  explain_problems(evidence);
  if (has_direct_cables(evidence)) suspect_cables(evidence, suspects);
  for (unsigned rail = 0; rail < evidence.rails(); ++rail) {
    suspect_unequal(evidence, rail, suspects);
    suspect_groups(evidence, rail, suspects);
    suspect_links(evidence, rail, suspects);
  }
  if (evidence.rails() == 1) return suspects;
  return RailMerger(evidence, std::move(suspects)).merge();
}

}  // namespace init::ping
