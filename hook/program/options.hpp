// The command line of rdma-hook: one command and its options.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

enum class Command {
  kCreateRuntime,  // and prestart, its older name
  kPoststop,
  kVerify,
  kPlan,
  kDevices,
  kRecover,
  kMetrics,
  kCheckConfig,
  kCdiGenerate,
  kHelp,
  kVersion,
};

struct Options {
  Command command = Command::kHelp;
  Engine engine = Engine::kRunc;
  ConfigPaths config;
  std::optional<std::string> snapshot;  // in place of the live node
  std::string root;                     // prefix of the node's /sys, /dev and /proc
  std::string ledger = kLedgerPath;
  std::optional<std::string> bundle;
  // cdi generate; nullopt: standard output, the default kind, this program.
  std::optional<std::string> out;
  std::optional<std::string> kind;
  std::optional<std::string> hook;
  bool json = false;
};

// Errors: an unknown command or option (code EINVAL), and for a stage of the runtime specification at which nothing can
// be given, that createRuntime is the one (code ENOTSUP).
fabric::Result<Options> parse_options(std::span<char* const> arguments);

extern const char* const kHelp;

}  // namespace hook
