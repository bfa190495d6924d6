// Limits of RDMA objects by the kernel's cgroup controller `rdma` (Documentation/admin-guide/cgroup-v2.rst, "RDMA";
// cgroup-v1/rdma.rst). The file rdma.max has one line per RDMA device: "mlx5_0 hca_handle=2 hca_object=2000". One write
// sets one device.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/process/cgroup.hpp"
#include "base/result.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// The cgroup hierarchy of the rdma controller. kNone: the kernel lacks the controller, or it is disabled. kUnsafe: a
// limit would corrupt kernel memory. Before Linux 7.3 a cgroup with a limit and without RDMA objects is freed while the
// RDMA device still lists its limit (rdmacg_css_offline(), kernel/cgroup/rdma.c). The kernel writes into the freed
// memory when the device is unregistered, at the latest when its driver is unloaded. Tested: 6.12.117 panics, 7.3.4
// does not.
enum class RdmaController { kNone, kUnsafe, kV1, kV2 };
// Returns the cgroup hierarchy that has the rdma controller. Returns kUnsafe also if the kernel's release cannot be
// parsed. root: prefix of the node's /sys and /proc. Errors: /sys/fs/cgroup cannot be read.
Result<RdmaController> rdma_controller(const std::string& root);
// The reason why limits cannot be set, and its remedy.
struct NoLimits {
  std::string why;
  std::string remedy;
};
// Returns why the controller cannot set limits, and the remedy; nullopt: it can. Pure.
std::optional<NoLimits> no_limits(RdmaController controller);

// Returns the limits of a device in a text of rdma.max, without limits if the device is missing. The kernel writes
// "max" for no limit.
RdmaLimits limits_in(std::string_view rdma_max, std::string_view device);
// Returns the line to write to rdma.max to set this limit.
std::string rdma_max_line(const PlannedRdmaLimit& limit);

// If the node's kernel cannot set RDMA limits, removes them from the plan and adds a warning. root: prefix of the
// node's /sys and /proc. Errors: those of rdma_controller().
Result<void> leave_out_rdma_limits(const std::string& root, Plan& plan);

// Returns the line to write to rdma.max to lower the limits of a device to `limit`; nullopt: they are low enough.
// rdma_max: the present text of that file. Pure.
std::optional<std::string> lowering_line(std::string_view rdma_max, const PlannedRdmaLimit& limit);

// Lowers the limits of one cgroup; a limit that is lower already stays. Returns warnings: the cgroup has no rdma.max,
// or the caller may not write it. Errors: the RDMA device is gone; the file cannot be opened, read or written for
// another reason.
Result<std::vector<std::string>> limit_rdma_in(const Cgroup& cgroup, const std::vector<PlannedRdmaLimit>& limits);

// Lowers the limits in the cgroup of a container's first process. A container that shares the caller's cgroup gets a
// warning and no limit: the limit would also apply to the engine and its other containers.
Result<std::vector<std::string>> limit_rdma(pid_t init, const std::vector<PlannedRdmaLimit>& limits);

}  // namespace hook
