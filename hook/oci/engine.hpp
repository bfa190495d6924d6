// Which engine runs the hook. It comes from the arguments of the hook's entry, which the node's administrator wrote,
// never from the container: whose annotations may ask for an HCA depends on it.
#pragma once

#include <optional>
#include <string_view>

#include "hook/base/words.hpp"

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

// Whether the operator who starts a container with this engine also writes its annotations. Podman merges those of the
// image's manifest (tried with 4.3.1), and in Kubernetes the author of a pod writes them.
inline bool annotations_are_the_operators(Engine engine) {
  return engine == Engine::kRunc || engine == Engine::kDocker;
}

}  // namespace hook
