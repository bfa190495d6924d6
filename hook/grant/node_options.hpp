// Command-line options that the node's programs share. The type `Options` of a program must have a member `node`
// (NodeSettings).
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>

#include "base/options.hpp"
#include "base/process/daemon_state.hpp"
#include "base/result.hpp"
#include "hook/grant/node.hpp"

namespace hook {

template <typename Options>
inline constexpr base::Option<Options> kConfigOption = {
    "config", "FILE", "use FILE in place of cluster/config.json, config.json and conf.d/*.json in /etc/rdma-init",
    [](Options& options, std::string_view value) {
      options.node.config = {std::string(value), "", true};
      return Result<void>();
    }};
template <typename Options>
inline constexpr base::Option<Options> kRootOption = {"root", "DIR", "the node's /sys, /dev and /proc are below DIR",
                                                      [](Options& options, std::string_view value) {
                                                        options.node.root = value;
                                                        return Result<void>();
                                                      }};
template <typename Options>
inline constexpr base::Option<Options> kLedgerOption = {
    "ledger", "DIR", "use the ledger DIR in place of /run/rdma-hook", [](Options& options, std::string_view value) {
      options.node.ledger = value;
      return Result<void>();
    }};
// --probe of long-running programs.
template <typename Options>
inline constexpr base::Option<Options> kProbeOption = {
    "probe", "", "print whether the running program is ready, and why not; exit code 0 ready, 1 not",
    [](Options& options, std::string_view) {
      options.probe = true;
      return Result<void>();
    }};
// --help and --version of programs without subcommands.
template <typename Options>
inline constexpr base::Option<Options> kHelpOption = {"help", "", "this text", [](Options& options, std::string_view) {
                                                        options.help = true;
                                                        return Result<void>();
                                                      }};
template <typename Options>
inline constexpr base::Option<Options> kVersionOption = {"version", "", "print the version",
                                                         [](Options& options, std::string_view) {
                                                           options.version = true;
                                                           return Result<void>();
                                                         }};

// Applies the arguments of a program without subcommands, up to --help or --version. Errors (EINVAL): those of
// apply_option().
template <typename Options>
Result<void> apply_options(std::span<const base::Option<Options>> table, std::span<char* const> arguments,
                           std::string_view program, Options& options) {
  for (std::size_t at = 0; at < arguments.size() && !options.help && !options.version; ++at) {
    const auto done = apply_option(table, arguments, at, options);
    if (!done) return Error{done.error().message, EINVAL, fmt::format("`{} --help` lists the options", program)};
  }
  return {};
}

// Runs a long-running program: logs an error of its settings, prints help, version or the state of the running program,
// or calls work(settings). Returns the exit code: 0; 1: work() returned false, or the running program is not ready; 2:
// usage.
template <typename Settings>
int run_daemon(const char* program, const base::Result<Settings>& settings, std::string (*help)(), auto work) {
  if (!settings) {
    base::Log::to_stderr(program).error(settings.error());
    return settings.error().code == EINVAL ? 2 : 1;
  }
  if (settings->help || settings->version) {
    std::fputs(settings->help ? help().c_str() : fmt::format("{} {}\n", program, RDMA_INIT_VERSION).c_str(), stdout);
    return 0;
  }
  if (settings->probe) return base::print_probe(program, base::probe_daemon(settings->node.ledger, program));
  return work(*settings) ? 0 : 1;
}

}  // namespace hook
