// The report of `rdma-init doctor`, and what it says beyond the choice of ports: memory registration, RDMA_CM, NCCL's
// bootstrap network. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"

namespace init {

enum class Verdict { kGood, kNote, kBad };  // kBad makes the container unfit

struct Check {
  std::string name;
  Verdict verdict = Verdict::kGood;
  std::string message;
  std::string remedy = {};
};

std::vector<Check> check_up(const fabric::Inventory& inventory, const Settings& settings, const Decision& decision);

// What is set already for libraries beside NCCL, whose values the decision itself checks: lists of devices that name
// what is not here or cannot be used, and GID indices of another namespace. A note for each wrong value.
std::vector<Check> check_other_values(const fabric::Inventory& inventory, const Settings& settings,
                                      const Policy& policy, const Decision& decision);

// True when nothing is kBad.
bool is_fit(const std::vector<Check>& checks);

// The netdev NCCL takes for its bootstrap, by its own rule (src/misc/socket.cc, 2.30.7); nullopt if none fits.
std::optional<std::string> bootstrap_netdev(const fabric::Inventory& inventory, const Settings& settings);

std::string doctor_text(const Decision& decision, const std::vector<Check>& checks);
std::string doctor_json(const Decision& decision, const std::vector<Check>& checks);

}  // namespace init
