// Finds the rank of this process, the number of ranks, the meeting point and the token of the job: from the command
// line, or from variables of Slurm, Open MPI, PMIx, PyTorch and Kubernetes. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace init::ping {

inline constexpr unsigned kMostRanks = 65'536;
// The TCP port of the meeting point, if nothing names one. UDP 4791 is RoCE v2.
inline constexpr std::uint16_t kMeetingPort = 4792;
inline constexpr std::size_t kLongestToken = 128;

struct Place {
  unsigned rank = 0;
  unsigned size = 1;
  std::string host;  // host of rank 0: a name or a numeric address; may be empty only if size is 1
  std::uint16_t port = kMeetingPort;
  std::string token;   // keeps ranks of other jobs out; a secret only if RDMA_PING_TOKEN is one
  std::string source;  // where rank and size come from, for messages: "SLURM_PROCID and SLURM_NTASKS"
};

// passed_rank, passed_size, passed_master: the values of the command line; passed_master is HOST, HOST:PORT or
// [IPV6]:PORT.
// Rank and size: --rank and --size, else the variables of the innermost launcher:
//  - torchrun (TORCHELASTIC_RUN_ID is set): RANK, WORLD_SIZE
//  - mpirun (OMPI_COMM_WORLD_RANK is set): RANK, OMPI_COMM_WORLD_RANK, PMIX_RANK; WORLD_SIZE, OMPI_COMM_WORLD_SIZE
//  - Kubeflow (PET_NNODES is a number): PET_NODE_RANK, PET_NNODES
//  - otherwise: RANK, SLURM_PROCID, PMIX_RANK, JOB_COMPLETION_INDEX; WORLD_SIZE, SLURM_NTASKS
// Meeting point: --master, else MASTER_ADDR and MASTER_PORT, else the first host of SLURM_STEP_NODELIST or
// SLURM_JOB_NODELIST. Token: RDMA_PING_TOKEN, else the size and the ids of the job (SLURM_JOB_ID, SLURM_STEP_ID,
// PMIX_NAMESPACE, OMPI_MCA_ess_base_jobid, TORCHELASTIC_RUN_ID).
// Errors: two variables of the innermost launcher that contradict each other (the message names both), a value that is
// not a number, a rank that is not below the size, a missing rank, size or meeting point. Each error names the option
// or variable that helps.
base::Result<Place> find_place(std::optional<unsigned> passed_rank, std::optional<unsigned> passed_size,
                               const std::optional<std::string>& passed_master, const char* const* environment);

// Returns the first host of a list of Slurm: "node[3-5,9]" is "node3". Returns an empty text for a malformed list.
std::string first_host(std::string_view list);

}  // namespace init::ping
