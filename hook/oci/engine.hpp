// Which engine runs the hook. It comes from the arguments of the hook's entry, which the node's administrator wrote,
// never from the container: whose annotations may ask for an HCA depends on it.
#pragma once

#include <optional>
#include <string_view>

namespace hook {

enum class Engine { kRunc, kDocker, kPodman, kCrio, kContainerd };

// "runc", "docker", "podman", "crio", "containerd"; nullopt for anything else.
std::optional<Engine> parse_engine(std::string_view text);
std::string_view to_string(Engine engine);

// Whether whoever starts a container with it also writes its annotations. Podman merges those of the image's manifest
// (tried with 4.3.1), and in Kubernetes the author of a pod writes them.
bool annotations_are_the_operators(Engine engine);

}  // namespace hook
