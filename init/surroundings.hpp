// Checks other properties of a container that affect a trainer on its HCAs: shared memory, open files, the RDMA cgroup,
// seccomp, GPUDirect, data direct devices, IMEX channels, IBGDA, mlx5's global traffic class. read_surroundings() reads
// them; the rest is pure. An unreadable property is unknown and yields no finding.
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

// The limits of rdma.max for one device: the lowest of its cgroup and all cgroups above. nullopt: no limit.
struct RdmaLimit {
  std::optional<std::uint64_t> handles;
  std::optional<std::uint64_t> objects;
};

struct Surroundings {
  std::optional<std::uint64_t> shared_memory;  // bytes of /dev/shm; 0: no limit
  std::optional<std::uint64_t> open_files;     // soft RLIMIT_NOFILE; RLIM_INFINITY: no limit
  std::optional<std::uint64_t> open_files_hard;
  std::map<std::string, RdmaLimit> rdma_limits;
  std::vector<std::string> refused;  // system calls of libibverbs that seccomp refuses
  bool nvidia = false;               // NVIDIA's driver is loaded on the node
  bool peer_memory = false;          // the module nvidia_peermem is loaded, or a module by one of its older names
  bool open_module = false;          // NVIDIA's driver is its open kernel module
  std::string kernel;                // "6.1.0-18-amd64"
  std::size_t data_direct = 0;       // data direct devices of ConnectX-8
  bool multi_node_nvlink = false;    // a GPU here can be in an NVLink domain of several nodes
  std::optional<bool> imex_channel;  // a channel is in /dev/nvidia-caps-imex-channels
  std::optional<bool> peer_mapping;  // NVIDIA's driver has the option PeerMappingOverride=1
  std::optional<bool> gdrdrv;        // /dev/gdrdrv (GDRCopy) exists
  // The global traffic classes, "236", by HCA (fabric/port_faults.hpp).
  Variables traffic_classes;
};

// Reads the surroundings. root: prefix of a file tree, empty for this machine; with a root, properties without a file
// are unknown.
Surroundings read_surroundings(const std::string& root);

// Adds lines of the form "mlx5_0 hca_handle=2 hca_object=max". The lower of two limits is kept.
void add_rdma_max(std::string_view text, std::map<std::string, RdmaLimit>& limits);

// Returns the findings about the surroundings.
std::vector<Check> check_surroundings(const fabric::Inventory& inventory, const Settings& settings,
                                      const Decision& decision, const Surroundings& surroundings);

}  // namespace init
