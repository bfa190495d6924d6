// Applies a plan to a container that its runtime has made but not started: what is still possible when only a hook is
// configured. The steps are values; run_steps.hpp is the only code that touches the container.
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

// A character device node below the container's root. bind: of the node's own one, where a user namespace forbids
// mknod.
struct MakeNode {
  std::string path;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool bind = false;
  std::string source;  // bind: path on the node
  friend bool operator==(const MakeNode&, const MakeNode&) = default;
};

// A read-only bind of a directory of the node, when the destination exists in the container.
struct BindDirectory {
  std::string source;
  std::string destination;
  // Not empty: an overlay of these directories instead, "SOURCE:ANOTHER", which nobody can make writable.
  std::string layers = {};
  friend bool operator==(const BindDirectory&, const BindDirectory&) = default;
};

// rw, not m, for all of them at once: one program replaced, not one per device.
struct AllowDevices {
  std::vector<DeviceNumber> devices;
  friend bool operator==(const AllowDevices&, const AllowDevices&) = default;
};

// In the container's cgroup.
struct LimitRdma {
  std::vector<PlannedRdmaLimit> limits;
  friend bool operator==(const LimitRdma&, const LimitRdma&) = default;
};

struct SetMemlock {
  std::uint64_t bytes = 0;  // UINT64_MAX: unlimited
  std::string note = {};    // a warning that is true once the limit is set
  friend bool operator==(const SetMemlock&, const SetMemlock&) = default;
};

using Step = std::variant<AllowDevices, MakeNode, BindDirectory, LimitRdma, SetMemlock>;

struct LivePlan {
  std::vector<Step> steps;            // nodes, mounts, rdma limits, device rules, memlock
  std::vector<std::string> warnings;  // what this way cannot give, and the way that can
};

struct LiveNode {
  std::string root = {};               // prefix of the node's /dev for bind sources (a file tree in tests; else empty)
  Engine engine = Engine::kRunc;       // in whose words remedies are
  std::optional<Rlimit> memlock = {};  // RLIMIT_MEMLOCK of the container's first process now; nullopt: not known
};

// Pure. Errors: a node whose number is not known.
Result<LivePlan> live_steps(const Plan& plan, const ContainerSpec& spec, const OciState& state, const LiveNode& around);

}  // namespace hook
