// Which engine of the node install sets up, and by which way.
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
  std::vector<std::string> said;  // what was found, and why this was chosen
};

// engine, way: what the administrator asks for. Errors: no such engine, or several where none is named.
Result<Choice> choose_engine(const std::string& root, std::optional<Engine> engine, std::optional<InstallWay> way);

// k3s, RKE2 and microk8s make their containerd's configuration from a template of their own: what to put into it.
// nullopt: the node has none of them.
std::optional<std::string> template_of_distribution(const std::string& root, const std::string& programs);

// The command after which the engine has its new configuration; empty: it needs none.
std::vector<std::string> restart_command(Engine engine, InstallWay way);

}  // namespace hook
