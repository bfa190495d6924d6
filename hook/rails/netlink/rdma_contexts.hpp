// Contexts that are open on RDMA devices, by RDMA netlink: fill_res_info() and res_get_common_dumpit() of
// drivers/infiniband/core/nldev.c, Linux 6.12.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/netlink.hpp"
#include "fabric/result.hpp"

namespace hook {

// One RDMA device and the number of user contexts on it. The kernel has no contexts of its own.
struct RdmaUse {
  std::uint32_t index = 0;  // as RdmaDevice has it
  std::string name;
  std::uint64_t contexts = 0;
  friend bool operator==(const RdmaUse&, const RdmaUse&) = default;
};

// Lists the devices that this network namespace sees, with four system calls for up to 64 devices. Returns nullopt if
// this kernel has no RDMA netlink, or none that counts contexts (before Linux 4.17).
fabric::Result<std::optional<std::vector<RdmaUse>>> rdma_use();

struct RdmaContext {
  std::uint32_t id = 0;          // unique on its device, and not used again soon
  std::vector<pid_t> processes;  // as known in this PID namespace, ascending; empty: none is known
  friend bool operator==(const RdmaContext&, const RdmaContext&) = default;
};

// The contexts of one device. A context names the process that opened it, until that process ends. PDs, QPs and MRs
// name those that made them. Before Linux 5.14 contexts cannot be listed: they are numbered from 0, and each gets all
// processes of the device.
fabric::Result<std::vector<RdmaContext>> rdma_contexts(const RdmaUse& device);

// Collects the entries of the tables. Pure.
class RdmaContextTable {
 public:
  void add_context(const fabric::netlink::Attributes& entry);
  void add_domain(const fabric::netlink::Attributes& entry);     // a PD
  void add_in_domain(const fabric::netlink::Attributes& entry);  // a QP or MR: after all PDs
  std::vector<RdmaContext> take() &&;
  // For a kernel that does not list contexts: so many, numbered from 0, each with all processes.
  std::vector<RdmaContext> number(std::uint64_t count) &&;

 private:
  void add(std::optional<std::uint32_t> context, const fabric::netlink::Attributes& entry);
  std::map<std::uint32_t, std::vector<pid_t>> contexts_;
  std::map<std::uint32_t, std::uint32_t> domains_;  // context by PD
  std::vector<pid_t> all_;
};

// What one message of the kernel says of a device; nullopt: it is of another kind. Pure.
std::optional<RdmaUse> parse_rdma_use(const fabric::netlink::Attributes& device);

}  // namespace hook
