// What the administrator says about rdma-runtime, and how it comes to a grant.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "hook/base/process/identity.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/grant.hpp"
#include "shim/result.hpp"
#include "shim/runtime/hooks.hpp"

namespace shim {

struct Settings : hook::RuntimeOptions {
  hook::NodeSettings node = {};
  Result<hook::Config> admin = hook::Config();  // what node.config says; its "runtime" is this
};
// "runtime" of config.json. When that cannot be read, `admin` says why, and the rest is as without it.
Settings node_settings();
using ReadSettings = std::function<Settings()>;

// rdma-hook of the settings, else the one beside this program, else /usr/local/bin/rdma-hook; with the options that
// make it see what rdma-runtime saw. Error: it is not there.
Result<HookCommand> hook_command(const Settings& settings, hook::Engine engine);

// hook::grant_in_spec(), or what stands for it in a test.
using GrantInSpec = std::function<Result<void>(hook::Asking& asking, const hook::ProcessIdentity& requester,
                                               hook::Call& call, const hook::Publish& publish)>;

}  // namespace shim
