// The tests of an outcome, seen from each end: failures, and the groups of members that reach each other. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

// A failed test.
struct Fault {
  std::size_t first = 0;
  std::size_t second = 0;
  unsigned rail = 0;
  Layer layer = Layer::kGood;
  Side proven = Side::kUnknown;
  const std::string* detail = nullptr;  // detail of the failure, in the outcome; nullptr: none
  bool is_explained = false;

  // Returns the end that has proven that the cause is its own. Call it only if there is one.
  std::size_t proven_member() const { return proven == Side::kFirst ? first : second; }
};

// One rail of one member.
struct End {
  std::size_t good = 0;
  std::size_t failed = 0;
  std::size_t untested = 0;
  std::size_t explained = 0;  // failed tests that the problem of this end explains
  std::size_t reached = 0;    // a peer with a good test, if there is one
  bool has_problem = false;   // the rail or its member has one
  bool has_cause = false;
};

class Evidence {
 public:
  // outcome: at least two members with outcome.rails rails each; it must outlive the object.
  explicit Evidence(const Outcome& outcome);

  std::size_t members() const { return outcome_.members.size(); }
  unsigned rails() const { return outcome_.rails; }
  const Rail& rail_of(std::size_t member, unsigned rail) const { return outcome_.members[member].rails[rail]; }
  End& end(std::size_t member, unsigned rail) { return ends_[member * rails() + rail]; }
  const End& end(std::size_t member, unsigned rail) const { return ends_[member * rails() + rail]; }
  // Returns the failed tests of a rail that are not explained.
  std::vector<Fault*> open_faults(unsigned rail);
  // Returns the same number for all members that good tests connect, directly or through other members.
  std::size_t group_of(std::size_t member, unsigned rail) const;
  bool is_good(std::size_t one, std::size_t other, unsigned rail) const;
  // Returns the number of tests without a result at whose ends there is no cause.
  std::size_t count_untested() const;

 private:
  void read_failures();
  void read_cells();
  void add_fault(const Fault& fault);

  const Outcome& outcome_;
  std::vector<End> ends_;
  std::vector<std::vector<Fault>> faults_;   // the failed tests by rail
  std::vector<std::size_t> reported_;        // cells of Outcome::failures, ascending
  mutable std::vector<std::uint32_t> next_;  // by end: the next end of the same group; the last end has itself
};

}  // namespace init::ping
