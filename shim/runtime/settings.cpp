#include "shim/runtime/settings.hpp"

#include <unistd.h>

#include <cerrno>
#include <climits>

#include "base/file.hpp"
#include "base/text.hpp"
#include "hook/config/read_config.hpp"

namespace shim {
namespace {

constexpr const char* kInstalledHook = "/usr/local/bin/rdma-hook";

std::string hook_beside_us() {
  // The path comes from /proc/self/exe, because the engine chooses argv[0].
  const auto own = base::read_link(AT_FDCWD, "/proc/self/exe");
  if (!own || own->size() == PATH_MAX) return {};
  return own->substr(0, own->rfind('/') + 1) + "rdma-hook";
}

bool is_executable(const std::string& path) {
  return path.starts_with('/') && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

Settings node_settings() {
  Settings settings;
  settings.admin = hook::read_config(settings.node.config);
  if (settings.admin) static_cast<hook::RuntimeOptions&>(settings) = settings.admin->runtime;
  return settings;
}

Result<HookCommand> hook_command(const Settings& settings, hook::Engine engine) {
  HookCommand command{settings.hook, engine, {}};
  if (command.path.empty()) command.path = hook_beside_us();
  if (settings.hook.empty() && !is_executable(command.path)) command.path = kInstalledHook;
  if (!is_executable(command.path))
    return Error{fmt::format("no program `{}` to run as the container's hook", base::printable(command.path)), ENOENT,
                 "install rdma-hook beside rdma-runtime"};
  const Settings usual;
  const auto pass = [&](const char* name, const std::string& value, const std::string& otherwise) {
    if (value != otherwise) command.options.insert(command.options.end(), {name, value});
  };
  // The hook's command line becomes part of each container's config.json, so defaults are left out.
  pass("--config", settings.node.config.file, usual.node.config.file);
  pass("--root", settings.node.root, usual.node.root);
  pass("--ledger", settings.node.ledger, usual.node.ledger);
  return command;
}

}  // namespace shim
