// What else of a container decides whether a trainer runs well on its HCAs: shared memory, open files, the RDMA cgroup,
// seccomp, GPUDirect. What was found comes from read_surroundings(); the rest is pure. What could not be read is not
// known, and no finding.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/doctor.hpp"

namespace init {

// The rdma.max of one device, the least of the cgroups above; nullopt: no limit.
struct RdmaLimit {
  std::optional<std::uint64_t> handles;
  std::optional<std::uint64_t> objects;
};

struct Surroundings {
  std::optional<std::uint64_t> shared_memory;  // bytes of /dev/shm; 0: no limit
  std::optional<std::uint64_t> open_files;     // RLIMIT_NOFILE, soft; RLIM_INFINITY: no limit
  std::optional<std::uint64_t> open_files_hard;
  std::map<std::string, RdmaLimit> rdma_limits;
  std::vector<std::string> refused;  // system calls of verbs that seccomp refuses
  bool nvidia = false;               // NVIDIA's driver is loaded on the node
  bool peer_memory = false;          // nvidia_peermem or its older names
  bool open_module = false;          // NVIDIA's open kernel module
  std::string kernel;                // "6.1.0-18-amd64"
};

// root: empty for this machine; below one, what has no file is not known.
Surroundings read_surroundings(const std::string& root);

// Adds "mlx5_0 hca_handle=2 hca_object=max" lines; where both have a limit the lower stands.
void add_rdma_max(std::string_view text, std::map<std::string, RdmaLimit>& limits);

std::vector<Check> check_surroundings(const fabric::Inventory& inventory, const Decision& decision,
                                      const Surroundings& surroundings);

}  // namespace init
