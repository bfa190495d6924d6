// The node that grants are about: where it is found, and what is read of it.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "fabric/rdma_sysfs.hpp"
#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/asking.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/engine.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct NodeSettings {
  ConfigPaths config;
  std::string root;                     // prefix of the node's /sys, /dev and /proc
  std::optional<std::string> snapshot;  // in place of the live node
  std::string ledger = kLedgerPath;
  Engine engine = Engine::kRunc;         // who calls
  bool engine_is_named = true;           // false: `engine` where the container itself tells none (hook/oci/caller.hpp)
  std::optional<Rlimit> engine_memlock;  // RLIMIT_MEMLOCK of the engine, which containers inherit; nullopt: not known
};

// The node as far as the request, which is there, depends on it. variables: the container's can still be given, so it
// counts which ports it can use.
// Errors: those of a snapshot, that it could not be read which HCAs there are, and those of uses_host_network().
fabric::Result<fabric::Inventory> read_node_for(const Asking& asking, const NodeSettings& node, bool variables);

// All of its HCAs: these facts and what pools select by.
fabric::Result<fabric::Inventory> read_whole_node(const Config& config, const NodeSettings& node,
                                                  const fabric::HcaFacts& facts = {});

}  // namespace hook
