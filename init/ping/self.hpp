// One rank before it meets other ranks: its place in the job, and the choice of its NCCL.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "init/log.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/nccl_choice.hpp"
#include "init/ping/options.hpp"
#include "init/ping/ranks.hpp"

namespace init::ping {

struct Self {
  Place place;
  Join join;
  NcclChoice choice;
  std::string bootstrap;  // netdev of NCCL's bootstrap; empty: none
  std::vector<fabric::Netdev> netdevs;
};

// Returns the variables that this version of NCCL reads: NCCL_CONF_FILE is unknown before 2.23.
std::vector<const char*> read_by(const nccl::Version& version, const char* const* environment);

// Reads this container as rdma-init does. The options of rdma-init in the environment are for its own decision, except
// the version of NCCL.
base::Result<Self> read_self(const Options& options, char* const* environment, const Log& log);

// Returns where rank 0 listens: the address of the meeting point, if this container has it. Otherwise it is the
// one on the netdev of NCCL's bootstrap: the name may belong to a Kubernetes service, or get its DNS entry later.
base::Result<SocketAddress> listening_address(const Self& self, const Log& log);

}  // namespace init::ping
