// The node that grants are about: where it is found, and what is read of it.
#pragma once

#include <cerrno>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "fabric/command_line.hpp"
#include "fabric/hca_facts.hpp"
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

// --config, --root and --ledger of the node's programs, whose Options have a `node`.
template <typename Options>
inline constexpr fabric::Option<Options> kConfigOption = {
    "config", "FILE", "in place of /etc/rdma-init: cluster/config.json, config.json and conf.d/*.json",
    [](Options& options, std::string_view value) {
      options.node.config = {std::string(value), "", true};
      return fabric::Result<void>();
    }};
template <typename Options>
inline constexpr fabric::Option<Options> kRootOption = {"root", "DIR", "the node's /sys, /dev and /proc are below DIR",
                                                        [](Options& options, std::string_view value) {
                                                          options.node.root = value;
                                                          return fabric::Result<void>();
                                                        }};
template <typename Options>
inline constexpr fabric::Option<Options> kLedgerOption = {"ledger", "DIR", "in place of /run/rdma-hook",
                                                          [](Options& options, std::string_view value) {
                                                            options.node.ledger = value;
                                                            return fabric::Result<void>();
                                                          }};
// --help and --version of programs that do one thing.
template <typename Options>
inline constexpr fabric::Option<Options> kHelpOption = {"help", "", "this text",
                                                        [](Options& options, std::string_view) {
                                                          options.help = true;
                                                          return fabric::Result<void>();
                                                        }};
template <typename Options>
inline constexpr fabric::Option<Options> kVersionOption = {"version", "", "print the version",
                                                           [](Options& options, std::string_view) {
                                                             options.version = true;
                                                             return fabric::Result<void>();
                                                           }};

// Applies the options of such a program, as far as --help or --version. Errors (EINVAL): as apply_option().
template <typename Options>
fabric::Result<void> apply_options(std::span<const fabric::Option<Options>> table, std::span<char* const> arguments,
                                   std::string_view program, Options& options) {
  for (std::size_t at = 0; at < arguments.size() && !options.help && !options.version; ++at) {
    const bool is_help = std::string_view(arguments[at]) == "-h";
    const auto done = is_help ? kHelpOption<Options>.apply(options, "") : apply_option(table, arguments, at, options);
    if (!done)
      return fabric::Error{done.error().message, EINVAL, fmt::format("`{} --help` lists the options", program)};
  }
  return {};
}

// The node as far as the request, which is there, depends on it. variables: the container's can still be given, so it
// counts which ports it can use.
// Errors: those of a snapshot, that it could not be read which HCAs there are, and those of uses_host_network().
fabric::Result<fabric::Inventory> read_node_for(const Asking& asking, const NodeSettings& node, bool variables);

// All of its HCAs: these facts and what pools select by.
fabric::Result<fabric::Inventory> read_whole_node(const Config& config, const NodeSettings& node,
                                                  const fabric::HcaFacts& facts = {});

}  // namespace hook
