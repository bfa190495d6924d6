// Selects the engine that install configures, and the way to configure it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/plan.hpp"

namespace hook {

struct Choice {
  FoundEngine engine;
  InstallWay way = InstallWay::kRuntime;
  std::vector<std::string> said;  // lines for the administrator: the engines of the node and the reason of the choice
};

// Returns the engine and the way to install. engine, way: the administrator's options, nullopt: select. Without `way`,
// NRI is preferred. Errors: EOPNOTSUPP, no engine is installed, or the selected one is not installed or has no such
// way; EINVAL, several engines are installed and `engine` is nullopt, or the version of the engine is unknown.
Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way);

// Returns the command that has the engine read its new configuration; empty: the engine reads it without a restart.
std::vector<std::string> restart_command(Engine engine, InstallWay way);

}  // namespace hook
