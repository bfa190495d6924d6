// Selects the engine that install configures, and the way.
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
  std::vector<std::string> said;  // lines for the administrator: the engines found, and the reason of the choice
};

// Returns the engine and the way to install. engine, way: the administrator's options, nullopt: select. Without `way`,
// NRI is preferred. Errors: the engine is not installed; several engines are, and `engine` is nullopt; the engine has
// no such way; its version is unknown.
Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way);

// Returns the text that the administrator has to merge into the containerd template of k3s, RKE2 or microk8s, which
// write containerd's configuration at each start. Returns nullopt if the node has none of them.
std::optional<std::string> template_of_distribution(const std::string& root, const std::string& programs);

// Returns the command that has the engine read its new configuration; empty: the engine reads it without a restart.
std::vector<std::string> restart_command(Engine engine, InstallWay way);

}  // namespace hook
