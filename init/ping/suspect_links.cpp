#include <algorithm>
#include <map>
#include <queue>
#include <utility>

#include "init/ping/suspects.hpp"

namespace init::ping {
namespace {

constexpr std::size_t kFewest = 3;     // failures of one end that are more likely its own than those of links
constexpr std::size_t kMostLinks = 8;  // causes on one rail; more have no common object but the rail

constexpr std::size_t kMostJoined = 64;

using Members = std::vector<std::size_t>;

// Two sets of members, ascending, whose tests with each other failed.
struct Block {
  Members sides[2];
};

class Links {
 public:
  Links(Evidence& evidence, unsigned rail) : evidence_(evidence), rail_(rail), faults_(evidence.open_faults(rail)) {}

  std::vector<Suspect> find() {
    explain_proven();
    explain_blocks();
    const std::size_t blocks = suspects_.size();
    std::vector<Suspect> scattered = explain_scattered();
    if (scattered.size() > kMostLinks) {
      Suspect all{.is_partial = true, .rails = {rail_}};
      for (Fault* fault : faults_)
        all.explain(evidence_, *fault);
      scattered.assign(1, std::move(all));
    } else {
      for (Suspect& suspect : scattered)
        explain(suspect);
    }
    suspects_.insert(suspects_.begin() + static_cast<std::ptrdiff_t>(blocks),
                     std::make_move_iterator(scattered.begin()), std::make_move_iterator(scattered.end()));
    return std::move(suspects_);
  }

 private:
  void keep_open() {
    std::erase_if(faults_, [](const Fault* fault) { return fault->is_explained; });
  }

  void explain_proven() {
    std::map<std::size_t, Suspect> of_end;
    for (Fault* fault : faults_) {
      if (fault->proven == Side::kUnknown) continue;
      const std::size_t member = fault->proven_member();
      Suspect& suspect = of_end[member];
      suspect.members = {member};
      suspect.rails = {rail_};
      suspect.is_partial = evidence_.end(member, rail_).good > 0;
      suspect.explain(evidence_, *fault);
    }
    for (auto& [member, suspect] : of_end)
      suspects_.push_back(std::move(suspect));
    keep_open();
  }

  // Two sets of members that do not reach each other, while all of them reach further members.
  void explain_blocks() {
    peers_.assign(evidence_.members(), {});
    for (const Fault* fault : faults_) {
      peers_[fault->first].push_back(fault->second);
      peers_[fault->second].push_back(fault->first);
    }
    std::vector<Block> blocks;
    std::vector<std::uint8_t> side(evidence_.members());
    for (std::size_t member = 0; member < evidence_.members(); ++member) {
      if (side[member] == 0 && !peers_[member].empty()) add_block(member, side, blocks);
    }
    if (blocks.size() <= kMostJoined) join_neighbours(blocks);
    for (Block& block : blocks) {
      if (std::min(block.sides[0].size(), block.sides[1].size()) > 1) explain(block);
    }
    keep_open();
  }

  // Adds the members that failures connect with `start`, if they are of two sides without a good test between them.
  void add_block(std::size_t start, std::vector<std::uint8_t>& side, std::vector<Block>& blocks) const {
    Block block;
    bool has_sides = true;
    Members found{start};
    side[start] = 1;
    for (std::size_t at = 0; at < found.size(); ++at) {
      const std::size_t member = found[at];
      block.sides[side[member] - 1].push_back(member);
      for (const std::size_t peer : peers_[member]) {
        has_sides = has_sides && side[peer] != side[member];
        if (side[peer] != 0) continue;
        side[peer] = static_cast<std::uint8_t>(3 - side[member]);
        found.push_back(peer);
      }
    }
    if (!has_sides || reach(block.sides[0], block.sides[1])) return;
    for (Members& one : block.sides)
      std::ranges::sort(one);
    blocks.push_back(std::move(block));
  }

  // With few tests, the failures between two switches fall apart into several blocks of neighbours.
  void join_neighbours(std::vector<Block>& blocks) const {
    for (std::size_t into = 0; into < blocks.size(); ++into) {
      for (std::size_t from = into + 1; from < blocks.size();) {
        Block joined = blocks[into];
        if (!join(joined, blocks[from])) {
          ++from;
          continue;
        }
        blocks[into] = std::move(joined);
        blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(from));
        from = into + 1;
      }
    }
  }

  bool join(Block& into, Block from) const {
    const auto are_neighbours = [](const Members& one, const Members& other) {
      return one.front() <= other.back() + 2 && other.front() <= one.back() + 2;
    };
    if (!are_neighbours(into.sides[0], from.sides[0])) std::swap(from.sides[0], from.sides[1]);
    for (const int side : {0, 1}) {
      Members& all = into.sides[side];
      if (!are_neighbours(all, from.sides[side])) return false;
      all.insert(all.end(), from.sides[side].begin(), from.sides[side].end());
      std::ranges::sort(all);
    }
    return !reach(into.sides[0], into.sides[1]);
  }

  // Members without any good test between those of a side belong to it as well.
  void fill_gaps(Members& side) const {
    Members filled;
    for (const std::size_t member : side) {
      const std::size_t start = filled.empty() ? member : filled.back() + 1;
      std::size_t gap = start;
      while (gap < member && evidence_.end(gap, rail_).good == 0)
        ++gap;
      if (gap < member) filled.push_back(member);
      for (gap = gap < member ? member + 1 : start; gap <= member; ++gap)
        filled.push_back(gap);
    }
    side = std::move(filled);
  }

  void explain(Block& block) {
    if (block.sides[0].size() > block.sides[1].size()) std::swap(block.sides[0], block.sides[1]);
    for (Members& side : block.sides)
      fill_gaps(side);
    Suspect suspect{.members = std::move(block.sides[0]), .others = std::move(block.sides[1]), .rails = {rail_}};
    const auto is_in = [](const Members& members, std::size_t one) { return std::ranges::binary_search(members, one); };
    for (Fault* fault : faults_) {
      if (is_in(suspect.members, fault->first) || is_in(suspect.members, fault->second))
        suspect.explain(evidence_, *fault);
    }
    suspects_.push_back(std::move(suspect));
  }

  bool reach(const Members& these, const Members& those) const {
    for (const std::size_t one : these) {
      for (const std::size_t other : those) {
        if (one == other || evidence_.is_good(one, other, rail_)) return true;
      }
    }
    return false;
  }

  // Returns ends with several failures, the one with the most first, and then links: the fewest objects.
  std::vector<Suspect> explain_scattered() const {
    std::map<std::size_t, Members> open;
    for (const Fault* fault : faults_) {
      open[fault->first].push_back(fault->second);
      open[fault->second].push_back(fault->first);
    }
    std::map<std::size_t, std::size_t> counts;
    std::priority_queue<std::pair<std::size_t, std::size_t>> queue;
    for (const auto& [member, peers] : open)
      queue.emplace(counts[member] = peers.size(), member);
    std::vector<Suspect> found;
    while (!queue.empty() && queue.top().first >= kFewest) {
      const auto [count, member] = queue.top();
      queue.pop();
      if (count != counts[member]) continue;
      counts[member] = 0;
      found.push_back({.members = {member}, .is_partial = true, .rails = {rail_}});
      for (const std::size_t peer : open[member]) {
        if (counts[peer] > 0) queue.emplace(--counts[peer], peer);
      }
    }
    for (const Fault* fault : faults_) {
      if (counts[fault->first] > 0 && counts[fault->second] > 0)
        found.push_back({.members = {fault->first}, .others = {fault->second}, .rails = {rail_}});
    }
    return found;
  }

  void explain(Suspect& suspect) {
    for (Fault* fault : faults_) {
      if (fault->is_explained) continue;
      const std::size_t member = suspect.members.front();
      const bool is_of_end = suspect.others.empty() && (fault->first == member || fault->second == member);
      const bool is_link = !suspect.others.empty() && fault->first == member && fault->second == suspect.others.front();
      if (is_of_end || is_link) suspect.explain(evidence_, *fault);
    }
  }

  Evidence& evidence_;
  unsigned rail_;
  std::vector<Fault*> faults_;
  std::vector<Members> peers_;  // for each member: the members with which its tests failed
  std::vector<Suspect> suspects_;
};

}  // namespace

void suspect_links(Evidence& evidence, unsigned rail, std::vector<Suspect>& suspects) {
  for (Suspect& suspect : Links(evidence, rail).find())
    suspects.push_back(std::move(suspect));
}

}  // namespace init::ping
