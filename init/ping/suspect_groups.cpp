#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "init/ping/suspects.hpp"

namespace init::ping {
namespace {

// From this number on, objects on one rail are more likely one object whose ranks are not neighbours.
constexpr std::size_t kMostObjects = 4;

// Members that good tests connect on this rail; a member without a good test is a piece of its own.
struct Piece {
  std::vector<std::size_t> members;
  std::size_t failed = 0;         // tests with other pieces that are not explained
  bool failed_with_most = false;  // one of the failures is with the largest piece
  bool is_proven = false;         // the piece has one member, which has proven that it is the cause
  bool is_blamed = false;
};

// Pieces that are one object: none of their tests with other members is good.
struct Object {
  std::vector<std::size_t> pieces;
  bool is_single = true;    // no two members of the group reach each other
  bool is_divided = false;  // tests between its pieces failed
};

class Groups {
 public:
  Groups(Evidence& evidence, unsigned rail) : evidence_(evidence), rail_(rail), faults_(evidence.open_faults(rail)) {}

  void find(std::vector<Suspect>& suspects) {
    if (faults_.empty()) return;
    make_pieces();
    count_faults();
    if (!most_) return find_silent(suspects);
    for (std::size_t at = 0; at < pieces_.size(); ++at) {
      if (at != *most_) pieces_[at].is_blamed = is_certain(pieces_[at]);
    }
    blame_uncertain();
    add(suspects);
  }

 private:
  void make_pieces() {
    piece_of_.assign(evidence_.members(), 0);
    std::map<std::size_t, std::size_t> of_group;
    for (std::size_t member = 0; member < evidence_.members(); ++member) {
      const auto [at, is_new] = of_group.emplace(evidence_.group_of(member, rail_), pieces_.size());
      if (is_new) pieces_.emplace_back();
      pieces_[at->second].members.push_back(member);
      piece_of_[member] = at->second;
    }
    const auto size = [](const Piece& piece) { return piece.members.size(); };
    const auto largest = std::ranges::max_element(pieces_, {}, size);
    if (largest->members.size() > 1) most_ = static_cast<std::size_t>(largest - pieces_.begin());
  }

  void count_faults() {
    for (const Fault* fault : faults_) {
      const std::size_t one = piece_of_[fault->first];
      const std::size_t other = piece_of_[fault->second];
      if (fault->proven != Side::kUnknown) {
        const std::size_t member = fault->proven_member();
        pieces_[piece_of_[member]].is_proven |= evidence_.end(member, rail_).good == 0;
      }
      if (one == other) continue;
      ++pieces_[one].failed;
      ++pieces_[other].failed;
      pieces_[one].failed_with_most |= most_ == other;
      pieces_[other].failed_with_most |= most_ == one;
    }
  }

  // One failure of an end may be that of a link.
  bool is_certain(const Piece& piece) const {
    const bool is_end = piece.members.size() == 1;
    const std::size_t failed = is_end ? evidence_.end(piece.members.front(), rail_).failed : piece.failed;
    return piece.is_proven || (piece.failed_with_most && failed > 1);
  }

  // Blames pieces for failures among themselves, the one with the most failures first.
  void blame_uncertain() {
    std::map<std::size_t, std::vector<std::size_t>> open;
    for (const Fault* fault : faults_) {
      const std::size_t one = piece_of_[fault->first];
      const std::size_t other = piece_of_[fault->second];
      if (one == other || is_settled(one) || is_settled(other)) continue;
      open[one].push_back(other);
      open[other].push_back(one);
    }
    std::map<std::size_t, std::size_t> counts;
    std::priority_queue<std::pair<std::size_t, std::size_t>> queue;
    for (const auto& [piece, others] : open)
      queue.emplace(counts[piece] = others.size(), piece);
    while (!queue.empty() && queue.top().first > 1) {
      const auto [count, piece] = queue.top();
      queue.pop();
      if (count != counts[piece]) continue;
      pieces_[piece].is_blamed = true;
      counts[piece] = 0;
      for (const std::size_t other : open[piece]) {
        if (counts[other] > 0) queue.emplace(--counts[other], other);
      }
    }
  }
  bool is_settled(std::size_t piece) const { return piece == most_ || pieces_[piece].is_blamed; }

  // Without any good test: the end that took part in all of them, otherwise the rail of all members.
  void find_silent(std::vector<Suspect>& suspects) {
    for (Piece& piece : pieces_)
      piece.is_blamed = piece.is_proven;
    add(suspects);
    faults_ = evidence_.open_faults(rail_);
    if (faults_.size() < 2) return;
    std::map<std::size_t, std::size_t> counts;
    for (const Fault* fault : faults_) {
      ++counts[fault->first];
      ++counts[fault->second];
    }
    const auto most = std::ranges::max_element(counts, {}, [](const auto& entry) { return entry.second; });
    Suspect suspect{.rails = {rail_}};
    if (most->second == faults_.size()) suspect.members = {most->first};
    for (Fault* fault : faults_)
      suspect.explain(evidence_, *fault);
    suspects.push_back(std::move(suspect));
  }

  // Adds the blamed pieces as suspects.
  void add(std::vector<Suspect>& suspects) {
    find_conflicts();
    join_neighbours();
    if (objects_.size() - joined_ >= kMostObjects) join_all();
    std::vector<std::optional<std::size_t>> suspect_of(pieces_.size());
    for (const Object& object : objects_) {
      if (object.pieces.empty()) continue;
      Suspect suspect{.rails = {rail_}};
      for (const std::size_t piece : object.pieces) {
        suspect_of[piece] = suspects.size();
        const std::vector<std::size_t>& members = pieces_[piece].members;
        suspect.members.insert(suspect.members.end(), members.begin(), members.end());
      }
      std::ranges::sort(suspect.members);
      fill_gaps(suspect.members);
      suspects.push_back(std::move(suspect));
    }
    for (Fault* fault : faults_) {
      const std::size_t one = piece_of_[fault->first];
      const std::size_t other = piece_of_[fault->second];
      if (one == other || (!suspect_of[one] && !suspect_of[other])) continue;
      const bool takes_second = !suspect_of[one] || (suspect_of[other] && fault->proven == Side::kSecond);
      suspects[*suspect_of[takes_second ? other : one]].explain(evidence_, *fault);
    }
  }

  // A broken member between the members of an object belongs to the object as well.
  void fill_gaps(std::vector<std::size_t>& members) const {
    const auto is_cut_off = [&](std::size_t member) { return pieces_[piece_of_[member]].is_blamed; };
    std::vector<std::size_t> filled;
    for (const std::size_t member : members) {
      std::size_t gap = filled.empty() ? member : filled.back() + 1;
      while (gap < member && is_cut_off(gap))
        ++gap;
      const bool is_filled = gap == member;
      for (gap = filled.empty() ? member : filled.back() + 1; is_filled && gap < member; ++gap)
        filled.push_back(gap);
      filled.push_back(member);
    }
    members = std::move(filled);
  }

  void find_conflicts() {
    for (const Fault* fault : faults_) {
      const std::size_t one = piece_of_[fault->first];
      const std::size_t other = piece_of_[fault->second];
      if (one == other || !pieces_[one].is_blamed || !pieces_[other].is_blamed) continue;
      conflicts_.emplace(one, other);
      conflicts_.emplace(other, one);
    }
  }

  bool conflict(std::size_t into, const Object& from) const {
    for (const std::size_t piece : from.pieces) {
      for (auto at = conflicts_.lower_bound({piece, 0}); at != conflicts_.end() && at->first == piece; ++at) {
        if (object_of_[at->second] == into) return true;
      }
    }
    return false;
  }

  // Joins two objects if one fault explains both: a switch without any contact, or one that only its own members reach.
  bool join(std::size_t into, std::size_t from) {
    Object& one = objects_[into];
    Object& other = objects_[from];
    const bool are_single = one.is_single && other.is_single;
    const bool is_divided = one.is_divided || other.is_divided || conflict(into, other);
    if (!are_single && is_divided) return false;
    one.is_divided = is_divided;
    one.is_single = are_single;
    one.pieces.insert(one.pieces.end(), other.pieces.begin(), other.pieces.end());
    for (const std::size_t piece : other.pieces)
      object_of_[piece] = into;
    other.pieces.clear();
    ++joined_;
    return true;
  }

  // Ranks that follow each other share switches.
  void join_neighbours() {
    object_of_.assign(pieces_.size(), 0);
    for (std::size_t at = 0; at < pieces_.size(); ++at) {
      if (!pieces_[at].is_blamed) continue;
      object_of_[at] = objects_.size();
      objects_.push_back({{at}, pieces_[at].members.size() == 1});
    }
    std::size_t before = pieces_.size();  // none
    for (std::size_t member = 0; member < evidence_.members(); ++member) {
      const End& end = evidence_.end(member, rail_);
      if (end.has_problem || end.good + end.failed == 0) continue;
      const std::size_t piece = piece_of_[member];
      if (!pieces_[piece].is_blamed) {
        before = pieces_.size();
        continue;
      }
      if (before != pieces_.size() && object_of_[before] != object_of_[piece])
        join(object_of_[before], object_of_[piece]);
      before = piece;
    }
  }

  void join_all() {
    for (std::size_t into = 0; into < objects_.size(); ++into) {
      for (std::size_t from = into + 1; from < objects_.size(); ++from) {
        if (!objects_[into].pieces.empty() && !objects_[from].pieces.empty()) join(into, from);
      }
    }
  }

  Evidence& evidence_;
  unsigned rail_;
  std::vector<Fault*> faults_;
  std::vector<Piece> pieces_;
  std::vector<std::size_t> piece_of_;                        // number of the piece, by member
  std::optional<std::size_t> most_;                          // the largest piece, if it has good tests
  std::set<std::pair<std::size_t, std::size_t>> conflicts_;  // blamed pieces with failures between them
  std::vector<Object> objects_;
  std::vector<std::size_t> object_of_;  // number of the object, by blamed piece
  std::size_t joined_ = 0;
};

}  // namespace

void suspect_groups(Evidence& evidence, unsigned rail, std::vector<Suspect>& suspects) {
  Groups(evidence, rail).find(suspects);
}

}  // namespace init::ping
