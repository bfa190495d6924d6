// The location of the node's files, and functions that read the node's HCAs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "fabric/rdma_sysfs.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/engine.hpp"

namespace fabric {
class KeptNode;
struct Inventory;
struct NodeReadOptions;
}  // namespace fabric

namespace hook {

struct NodeSettings {
  ConfigPaths config;
  std::string root;                     // prefix of the node's /sys, /dev and /proc
  std::optional<std::string> snapshot;  // replaces the live node
  std::string ledger = kLedgerPath;
  Engine engine = Engine::kRunc;         // the calling engine
  bool engine_is_named = true;           // false: `engine` is the default for an unknown caller (hook/oci/caller.hpp)
  bool is_installed = false;             // doctor: the caller states that rdma-init is installed
  std::optional<Rlimit> engine_memlock;  // RLIMIT_MEMLOCK of the engine, which containers inherit; nullopt: unknown
  // Reads the node for a process that stays; nullptr: each request reads the node whole.
  fabric::KeptNode* kept = nullptr;
  // Opens the ledger for a process that stays; nullptr: each call opens it.
  KeptLedger* kept_ledger = nullptr;
};

// Returns the path of the ledger: below the root, unless the caller named another one.
std::string ledger_path(const NodeSettings& node);

// Checks a root that the caller named; an empty root is this node. Errors: it is no directory, or this user cannot
// enter it. Below such a root each look-up would find nothing, and the node would seem to have no HCA.
base::Result<void> check_root(const std::string& root);

// Reads the part of the node that the request needs. requesting: must have a request. variables: the caller can still
// set the container's environment variables, which state the number of usable ports, so the ports are read too. Errors:
// the snapshot or the list of HCAs cannot be read; those of uses_host_network().
base::Result<fabric::Inventory> read_node_for(const ContainerRequest& requesting, const NodeSettings& node,
                                              bool variables);

// Returns the HCAs of the uverbs nodes in Request::given; nullopt: a node belongs to no HCA, or its path and its number
// name different HCAs.
std::optional<std::vector<std::string>> hcas_of_granted_nodes(const Request& request, const std::string& root);

// Returns the options by which read_node_for() reads these HCAs; nullopt: all HCAs. Errors: those of
// uses_host_network().
base::Result<fabric::NodeReadOptions> options_for(const ContainerRequest& requesting, const NodeSettings& node,
                                                  bool variables, std::optional<std::vector<std::string>> names);
// Reads the HCAs that `options` name, and takes the other HCAs of the node from `survey`, an inventory with fewer facts
// (fabric::survey_node()). `survey` then has no HCAs, because a copy of hundreds of HCAs would take longer than the
// read. A name that no longer exists is left out. Errors: those of read_node_for(); `survey` then still has its HCAs.
base::Result<fabric::Inventory> read_some(const NodeSettings& node, fabric::NodeReadOptions options,
                                          fabric::Inventory& survey);

// Reads all HCAs, with `facts` and the facts by which pools select. Errors: the snapshot cannot be read.
base::Result<fabric::Inventory> read_whole_node(const Config& config, const NodeSettings& node,
                                                const fabric::HcaFacts& facts = {});

}  // namespace hook
