// From a container's config.json to a booked plan: what the ways and `plan` have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/base/json/json.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"
#include "hook/program/options.hpp"
#include "hook/request/request.hpp"

namespace hook {

// A container as its engine describes it, and what it asks for.
struct Container {
  Json config;
  ContainerSpec spec;
  Config admin;
  Asked asked;
};

// The bundle's config.json of at most 16 MiB. Errors name it.
fabric::Result<std::string> read_bundle_config(const std::string& bundle);
// Parses it, reads the administrator's configuration, and finds out what is asked.
fabric::Result<Container> understand(const std::string& config_text, const Options& options);
// The same of what else says what the container is (NRI): its `config` is null. admin: the administrator's
// configuration; that it cannot be read is an error only where somebody asks.
fabric::Result<Container> understand_spec(ContainerSpec spec, fabric::Result<Config> admin, Engine engine);

// The node as far as this request depends on it: --snapshot, or read from --root or the machine.
fabric::Result<fabric::Inventory> read_node_for(const Request& request, const Config& config, const Options& options);

// All of it, as `rdma-hook devices` shows it.
fabric::Result<fabric::Inventory> read_whole_node(const Config& config, const Options& options);

// Whose grant it is: the pod's when the network namespace is joined by path and is not the node's own; else
// `otherwise`.
Owner owner_of(const ContainerSpec& spec, Owner otherwise);
// No network namespace of its own, or the node's by path.
bool uses_host_network(const ContainerSpec& spec);

// Decides under the HCAs' locks. book: also writes it into the ledger, pending. ledger: nullptr: nobody holds anything.
fabric::Result<Plan> decide(const Container& container, const fabric::Inventory& inventory, const Ledger* ledger,
                            const Owner& owner, const GrantUser& user, bool book);

}  // namespace hook
