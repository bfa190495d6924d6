// Selects the engine that install configures, and the way to configure it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/admin/install/plan.hpp"

namespace hook {

struct Choice {
  FoundEngine engine;
  InstallWay way = InstallWay::kRuntime;
  std::vector<std::string> messages;  // lines for the administrator: the engines of the node and why this choice
};

// Returns the engine and the way to install.
// engine, way: the administrator's options; nullopt: this function selects, and prefers way NRI if the engine has NRI.
// Without `engine`, Docker and containerd count as one engine, because Docker starts its own containerd.
// Errors: EOPNOTSUPP, no engine is installed, `engine` is not installed, or `way` is NRI and containerd is older than
// 1.7; EINVAL, several engines are installed and `engine` is nullopt, or the version of the engine is unknown.
Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way);

// Returns the command that makes the engine read its new configuration; empty: the engine reads it without a command.
std::vector<std::string> restart_command(Engine engine, InstallWay way);

}  // namespace hook
