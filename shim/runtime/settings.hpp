// Configuration of rdma-runtime, and the type of its grant function.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/process/identity.hpp"
#include "base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/grant.hpp"
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
// Errors: no such program.
Result<HookCommand> hook_command(const Settings& settings, hook::Engine engine);

// hook::grant_in_spec(), or a substitute in tests.
using GrantInSpec =
    std::function<Result<void>(hook::ContainerRequest& requesting, const base::ProcessIdentity& requester,
                               hook::Call& call, const hook::Publish& publish)>;

}  // namespace shim
