// The kernel's controller `rdma` (Documentation/admin-guide/cgroup-v2.rst, "RDMA"; cgroup-v1/rdma.rst), whose file
// rdma.max has a line for each RDMA device: "mlx5_0 hca_handle=2 hca_object=2000". One write sets one device.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/process/cgroup.hpp"
#include "hook/base/result.hpp"
#include "hook/plan/plan.hpp"

namespace hook {

// In which hierarchy the controller is. kNone: the kernel lacks it, or it is turned off. kUnsafe: a limit would damage
// the kernel's memory. Before Linux 7.3 a cgroup with a limit and without RDMA objects is freed while the RDMA device
// still lists its limit (rdmacg_css_offline(), kernel/cgroup/rdma.c): the kernel writes into freed memory when the
// device is unregistered, at the latest when its driver is unloaded. Tried: 6.12.117 panics, 7.3.4 does not.
enum class RdmaController { kNone, kUnsafe, kV1, kV2 };
// root: prefix of the node's /sys and /proc. A kernel whose release cannot be read is kUnsafe. Errors: /sys/fs/cgroup
// could not be looked at.
Result<RdmaController> rdma_controller(const std::string& root);
// Why the controller sets no limits, and what to do; nullopt: it sets them. Pure.
struct NoLimits {
  std::string why;
  std::string remedy;
};
std::optional<NoLimits> no_limits(RdmaController controller);

// Each value is the lower one of both; a missing one is no limit.
RdmaLimits lower_of(const RdmaLimits& left, const RdmaLimits& right);

// What a text of rdma.max says of a device; no limits if it does not name the device. The kernel writes "max" for none.
RdmaLimits limits_in(std::string_view rdma_max, std::string_view device);
// The text that sets the limit.
std::string rdma_max_line(const PlannedRdmaLimit& limit);

// Takes the limits out of a plan where the node's kernel cannot set them, with a warning.
Result<void> leave_out_rdma_limits(const std::string& root, Plan& plan);

// Limits of a container's HCAs, written into rdma.max of its cgroup.

// The text that lowers what rdma.max says to the limit; nullopt: it is as low already. Pure.
std::optional<std::string> lowering_line(std::string_view rdma_max, const PlannedRdmaLimit& limit);

// Lowers the limits of one group; what is lower already stays. directory: of the group. Returns warnings: the group has
// no rdma.max, or the caller may not write it. Errors: the device is gone, other failures of the file.
Result<std::vector<std::string>> limit_rdma_in(const Cgroup& cgroup, const std::vector<PlannedRdmaLimit>& limits);

// The same in the cgroup of a container's first process. A container that shares the caller's cgroup gets no limit but
// a warning, because that would limit the engine and its other containers.
Result<std::vector<std::string>> limit_rdma(pid_t init, const std::vector<PlannedRdmaLimit>& limits);

}  // namespace hook
