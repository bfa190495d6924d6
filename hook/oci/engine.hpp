// The engine that runs the hook. Whether a container's annotations may request HCAs depends on the engine. Therefore
// the engine is never taken from annotations, but from the hook's arguments and from paths that the engine chooses
// (caller.hpp).
#pragma once

#include <optional>
#include <string_view>

#include "base/words.hpp"

namespace hook {

enum class Engine { kRunc, kDocker, kPodman, kCrio, kContainerd };

inline constexpr Word<Engine> kEngineWords[] = {{"runc", Engine::kRunc},
                                                {"docker", Engine::kDocker},
                                                {"podman", Engine::kPodman},
                                                {"crio", Engine::kCrio},
                                                {"containerd", Engine::kContainerd}};

inline std::optional<Engine> parse_engine(std::string_view text) {
  return from_word(kEngineWords, text);
}
inline std::string_view to_string(Engine engine) {
  return to_word(kEngineWords, engine);
}

// Returns true if only the operator that starts a container with this engine writes its annotations. Podman adds the
// annotations of the image's manifest (tested with 4.3.1), and in Kubernetes the pod's author writes them.
inline bool annotations_are_the_operators(Engine engine) {
  return engine == Engine::kRunc || engine == Engine::kDocker;
}

}  // namespace hook
