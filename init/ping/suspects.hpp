// Explains failed tests by few objects: a rail of one member or of several, a rail of all members, or the link between
// members. Each failed test has one explanation, and no object is named that a good test clears. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "init/ping/evidence.hpp"

namespace init::ping {

// The object behind failed tests.
struct Suspect {
  // The evidence: the results of tests, a value of the rail that differs between the members, or direct cables.
  enum class Sign : std::uint8_t { kTests, kMtu, kPkey, kFamily, kSubnet, kCables };
  Sign sign = Sign::kTests;
  std::vector<std::size_t> members = {};  // ascending; empty: all
  std::vector<std::size_t> others = {};   // ascending: members that these do not reach; empty: any other member
  bool is_partial = false;                // the object has good tests as well
  std::vector<unsigned> rails = {};       // numbers of rails, ascending
  std::uint64_t value = 0;                // what the sign has at these members
  std::uint64_t usual = 0;                // what the sign has at `count` members
  std::size_t count = 0;
  std::size_t failed = 0;          // number of failed tests that the suspect explains
  const Fault* example = nullptr;  // the first of these failures, with the lowest layer

  void explain(Evidence& evidence, Fault& fault);
};

// Returns the suspects without those for which a member or a rail has reported a problem. evidence: the failed tests of
// the returned suspects are explained, and their ends have a cause. It must outlive the suspects.
std::vector<Suspect> find_suspects(Evidence& evidence);

// The steps of find_suspects(), for one rail each.
// Values that must be equal and are not: P_Key, family and subnet of the GID, and active MTU.
void suspect_unequal(Evidence& evidence, unsigned rail, std::vector<Suspect>& suspects);
// Members that no good test connects with most members.
void suspect_groups(Evidence& evidence, unsigned rail, std::vector<Suspect>& suspects);
// Failures between members that other tests connect.
void suspect_links(Evidence& evidence, unsigned rail, std::vector<Suspect>& suspects);

}  // namespace init::ping
