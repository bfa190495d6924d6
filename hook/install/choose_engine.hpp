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

// Returns the engine and the way to install. NRI is preferred. Errors: `engine` is not installed; several engines are
// installed and `engine` is nullopt; the engine does not support the way; the version of the engine is unknown.
// engine, way: the administrator's options; nullopt: this function selects them.
Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way);

// Returns the text that the administrator has to add to the containerd template of k3s, RKE2 or microk8s. These
// distributions write containerd's configuration at each start. Returns nullopt if the node has none of them.
std::optional<std::string> template_of_distribution(const std::string& root, const std::string& programs);

// Returns the command that makes the engine read its new configuration. Returns an empty list if the engine reads it
// without a restart.
std::vector<std::string> restart_command(Engine engine, InstallWay way);

}  // namespace hook
