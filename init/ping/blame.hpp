// Decides which end of each failed test is to blame: a rail of a member, a rail of all members, or neither. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "init/ping/outcome.hpp"

namespace init::ping {

// A failed test, with its culprit.
struct Fault {
  std::size_t first = 0;
  std::size_t second = 0;
  unsigned rail = 0;
  Layer layer = Layer::kGood;
  Side proven = Side::kUnknown;
  const std::string* detail = nullptr;  // a text of the outcome; nullptr: there is none
  enum class Owner : std::uint8_t { kFirst, kSecond, kRail, kLink };
  Owner owner = Owner::kLink;
};

// One rail of one member.
struct End {
  std::size_t good = 0;
  std::size_t failed = 0;
  std::size_t untested = 0;
  std::size_t certain = 0;  // failed tests with peers that have good tests
  std::size_t open = 0;     // failed tests with peers that are not to blame
  std::size_t order = 0;    // position among the ends that are to blame for their failed tests; 0: not to blame
  bool has_cause = false;
};

struct Blame {
  std::vector<Fault> faults;
  std::vector<End> ends;      // the end of member M and rail R has the index M * rails + R
  std::vector<bool> is_dead;  // for each rail: whether it failed between all members
  std::size_t untested = 0;   // tests without a result that no culprit explains
  std::size_t tests = 0;
};

// outcome: at least two members with outcome.rails rails each. Members and rails with a problem are to blame.
Blame find_blame(const Outcome& outcome);

}  // namespace init::ping
