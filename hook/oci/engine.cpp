#include "hook/oci/engine.hpp"

namespace hook {

std::optional<Engine> parse_engine(std::string_view text) {
  for (const Engine engine : {Engine::kRunc, Engine::kDocker, Engine::kPodman, Engine::kCrio, Engine::kContainerd}) {
    if (text == to_string(engine)) return engine;
  }
  return std::nullopt;
}

std::string_view to_string(Engine engine) {
  switch (engine) {
    case Engine::kRunc:
      return "runc";
    case Engine::kDocker:
      return "docker";
    case Engine::kPodman:
      return "podman";
    case Engine::kCrio:
      return "crio";
    case Engine::kContainerd:
      break;
  }
  return "containerd";
}

bool annotations_are_the_operators(Engine engine) {
  return engine == Engine::kRunc || engine == Engine::kDocker;
}

}  // namespace hook
