// The ports that NCCL uses in this container, and how it connects their queue pairs: from the environment and the
// configuration files alone, so that a choice of NCCL itself is tested as it is. Pure.
// Source: NVIDIA/nccl src/transport/net_ib, 2.30.7.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/nccl_rules.hpp"
#include "init/ping/outcome.hpp"
#include "init/settings.hpp"

namespace init::ping {

// How NCCL connects a queue pair.
struct Connecting {
  std::uint8_t traffic_class = 0;  // value of NCCL_IB_TC
  std::uint8_t service_level = 0;  // value of NCCL_IB_SL
  std::uint16_t pkey_index = 0;    // value of NCCL_IB_PKEY
  std::uint8_t timeout = 20;       // NCCL_IB_TIMEOUT: 4.096 us * 2^timeout
  std::uint8_t retries = 7;        // value of NCCL_IB_RETRY_CNT
};

struct NcclChoice {
  std::vector<Rail> rails;  // the ports that NCCL uses, at most nccl::max_ports()
  std::vector<std::string>
      doubts;  // for each rail: why its GID may carry no traffic, empty if nothing speaks against it
  std::vector<std::string> unused;  // the other ports, one line each with the reason
  Connecting connecting;
};

// Returns the choice of this version of NCCL. inventory: with complete GID tables and all netdevs. settings: read_by()
// the version.
NcclChoice nccl_choice(const fabric::Inventory& inventory, const Settings& settings, const nccl::Version& version);

}  // namespace init::ping
