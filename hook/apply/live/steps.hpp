// Plans the changes of a container that its runtime has created but not started: the changes that are possible with
// only a hook. The steps are values; only run_steps.hpp changes the container.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/oci/engine.hpp"
#include "hook/oci/state.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// A character device node below the container's root. bind: a bind mount of the node's device node, because a user
// namespace forbids mknod(2).
struct MakeNode {
  std::string path;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool bind = false;
  std::string source;  // path on the node; only with bind
  friend bool operator==(const MakeNode&, const MakeNode&) = default;
};

// A read-only bind mount of a directory of the node, if the destination exists in the container.
struct BindDirectory {
  std::string source;
  std::string destination;
  // Not empty: an overlay of these directories instead, "SOURCE:ANOTHER", which cannot be remounted writable.
  std::string layers = {};
  friend bool operator==(const BindDirectory&, const BindDirectory&) = default;
};

// Allows read and write, not mknod. One step serves all devices, because each step replaces the cgroup's program.
struct AllowDevices {
  std::vector<DeviceNumber> devices;
  friend bool operator==(const AllowDevices&, const AllowDevices&) = default;
};

// Sets limits in the container's cgroup.
struct LimitRdma {
  std::vector<PlannedRdmaLimit> limits;
  friend bool operator==(const LimitRdma&, const LimitRdma&) = default;
};

struct SetMemlock {
  std::uint64_t bytes = 0;  // UINT64_MAX: unlimited
  std::string note = {};    // a warning that is true only after the limit was set
  friend bool operator==(const SetMemlock&, const SetMemlock&) = default;
};

using Step = std::variant<AllowDevices, MakeNode, BindDirectory, LimitRdma, SetMemlock>;

struct LivePlan {
  std::vector<Step> steps;            // nodes, mounts, rdma limits, device rules, memlock
  std::vector<std::string> warnings;  // the changes that this way cannot make, and the way that can
};

struct LiveNode {
  std::string root = {};          // prefix of the node's /dev for bind sources (a file tree in tests, otherwise empty)
  Engine engine = Engine::kRunc;  // remedies name its options
  std::optional<Rlimit> memlock = {};  // present RLIMIT_MEMLOCK of the container's first process; nullopt: unknown
};

// Returns the steps and warnings for a plan. Pure. Errors: a device node with an unknown number.
Result<LivePlan> live_steps(const Plan& plan, const ContainerSpec& spec, const OciState& state, const LiveNode& around);

}  // namespace hook
