// Plans how the hook changes a container that its runtime has created but not started. The steps are values; only the
// functions of run_steps.hpp change the container.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"
#include "hook/apply/adjustment.hpp"
#include "hook/oci/engine.hpp"
#include "hook/oci/state.hpp"

namespace hook {

// A character device node below the container's root. bind: mount the node's own device node there, because mknod(2) is
// forbidden in a user namespace.
struct MakeNode {
  std::string path;
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool bind = false;
  std::string source;  // path of the device node on the node; only with bind
  friend bool operator==(const MakeNode&, const MakeNode&) = default;
};

// A read-only bind mount of a directory of the node. For lent libraries (fabric::kLentDirectory, kNeededDirectory) the
// destination is made if it does not exist, files can be executed, and a failure is a warning; otherwise nothing
// happens without the destination.
struct BindDirectory {
  std::string source;
  std::string destination;
  // "SOURCE:ANOTHER": an overlay of these directories is mounted instead; empty: a bind mount. Unlike a bind mount, an
  // overlay without an upper directory cannot be remounted writable.
  std::string layers = {};
  bool lent = false;
  friend bool operator==(const BindDirectory&, const BindDirectory&) = default;
};

// Allows processes to read and write the devices, not to make them (mknod). One step serves all devices, because each
// step replaces the BPF program of the cgroup.
struct AllowDevices {
  std::vector<DeviceNumber> devices;
  friend bool operator==(const AllowDevices&, const AllowDevices&) = default;
};

// Sets limits of RDMA objects in the container's cgroup.
struct LimitRdma {
  std::vector<PlannedRdmaLimit> limits;
  friend bool operator==(const LimitRdma&, const LimitRdma&) = default;
};

struct SetMemlock {
  std::uint64_t bytes = 0;  // UINT64_MAX: unlimited
  std::string note = {};    // warning to print after the limit was set; empty: there is none
  friend bool operator==(const SetMemlock&, const SetMemlock&) = default;
};

using Step = std::variant<AllowDevices, MakeNode, BindDirectory, LimitRdma, SetMemlock>;

struct LivePlan {
  std::vector<Step> steps;            // nodes, mounts, rdma limits, device rules, memlock
  std::vector<std::string> warnings;  // the changes that createRuntime cannot make, and the way that can
};

struct LiveNode {
  std::string root = {};          // prefix of the node's /dev for bind sources (a file tree in tests, otherwise empty)
  Engine engine = Engine::kRunc;  // the engine whose options the remedies name
  std::optional<Rlimit> memlock = {};  // present RLIMIT_MEMLOCK of the container's first process; nullopt: unknown
};

// Returns the steps and warnings for an adjustment. The steps include the nodes that config.json lists, because the
// step of a node checks the file that is there, and config.json may lack its device rule. Pure. Errors: a device node
// with an unknown number.
Result<LivePlan> live_steps(const Adjustment& adjustment, const ContainerSpec& spec, const OciState& state,
                            const LiveNode& around);

}  // namespace hook
