// What the tests of rails on InfiniBand have in common: rails of the model's node (hook_infiniband_node.hpp), the
// program's way in and out with sockets of that node, a process that is killed at it.
#pragma once

#include <cstdint>
#include <functional>

#include "hook/rails/rail_links.hpp"
#include "unit/hook_infiniband_node.hpp"

namespace hook {

using Steps = std::vector<std::string>;

constexpr std::uint32_t kGroup = 0x40000007;
constexpr std::uint64_t kNodeGuid = 0x0011223344550001;  // what the container's VF gets
constexpr std::uint64_t kPortGuid = 0x0011223344550002;

// Rails named net1 inside, described as the node is now: VF 3 with its netdev, its RDMA device and GUIDs; the physical
// function; a child of the physical function's netdev with pkey 0x8001 and an MTU of its own.
RailRecord vf_rail();
RailRecord pf_rail();
RailRecord child_rail();

fabric::Result<int> place(const RailRecord& rail, std::uint32_t group = kGroup);
enum class Namespace { kAlive, kGone };
// Without waiting; a warning fails the test.
fabric::Result<void> put_back(const RailRecord& rail, Namespace netns = Namespace::kAlive);

// The function runs in a process that is killed instead of making its change number count + 1. False: it did not get
// as far as `count`.
bool is_killed_after(test_support::InfinibandNode& kernel, int count, const std::function<void()>& function);

}  // namespace hook

#define EXPECT_DONE(expression)                                             \
  do {                                                                      \
    const auto expected_ = (expression);                                    \
    EXPECT_TRUE(expected_) << (expected_ ? "" : expected_.error().message); \
  } while (false)
