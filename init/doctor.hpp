// The report of `rdma-init doctor`, and its checks that do not concern the choice of ports: memory registration,
// RDMA_CM, NCCL's bootstrap network, RoCE LAG, and values of other libraries. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"

namespace init {

// Returns the checks of the decision with its warnings and remarks, of memory registration, of the bootstrap network,
// of RDMA_CM, of RoCE LAG, and of two HCAs with one address.
std::vector<Check> check_up(const fabric::Inventory& inventory, const Settings& settings, const Decision& decision);

// Checks the providers of active ports. A provider that libibverbs rejects is bad if the decision would use its port
// otherwise: no port is used, or the port is as fast as a used one and no list excludes it. Returns no check if the
// decision itself has this cause.
std::vector<Check> check_providers(const fabric::Inventory& inventory, const Settings& settings, const Policy& policy,
                                   const Decision& decision);

// Checks values that are set for libraries other than NCCL; the decision itself checks NCCL's. Wrong values are lists
// with a device that is missing or unusable, GID indices of another network namespace, a netdev for Gloo that does not
// exist, IBGDA of NVSHMEM without an HCA that it can drive, and settings that break over the used link layer. Returns a
// check for each wrong value.
std::vector<Check> check_other_values(const fabric::Inventory& inventory, const Settings& settings,
                                      const Policy& policy, const Decision& decision);

// Returns true if NVSHMEM_IB_ENABLE_IBGDA is set to a value that NVSHMEM reads as true.
bool uses_ibgda(const Settings& settings);

// Checks the HCAs: an HCA beside EFA that cannot be opened, a VF without GUID, several functions of one physical port,
// and HCAs on which UCX has no RC transport.
std::vector<Check> check_hcas(const fabric::Inventory& inventory, const Policy& policy, const Decision& decision);

// Returns true if no check is kBad.
bool is_fit(const std::vector<Check>& checks);

// Returns the report as text, the checks in the order of attention. all: with checks that found no fault, every port
// and the variables. Otherwise notes are printed only while the text has few lines, and ports only if rails are
// missing. Lines have at most 80 columns; longer are only lines with one word, and lines with a variable. A remedy of
// several ports appears once.
std::string doctor_text(const Decision& decision, const std::vector<Check>& checks, bool all = true);
std::string doctor_json(const Decision& decision, const std::vector<Check>& checks);

}  // namespace init
