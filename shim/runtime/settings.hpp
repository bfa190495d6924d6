// Configuration of rdma-runtime.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"
#include "shim/runtime/hooks.hpp"

namespace shim {

struct Settings : hook::RuntimeOptions {
  hook::NodeSettings node = {};
  Result<hook::Config> admin = hook::Config();  // content of node.config; its member "runtime" has the RuntimeOptions
};
// Reads the node's configuration. If it cannot be read, `admin` has the error and all other members keep their
// defaults.
Settings node_settings();
using ReadSettings = std::function<Settings()>;

// Returns the command line of rdma-hook: the configured path, else the program beside this one, else
// /usr/local/bin/rdma-hook. Its options pass on the paths of configuration, root and ledger that are not the defaults.
// Errors: the program does not exist.
Result<HookCommand> hook_command(const Settings& settings, hook::Engine engine);

}  // namespace shim
