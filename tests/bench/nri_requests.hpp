// What a runtime says of a training pod and its container, as long as it is on a GPU node.
#pragma once

#include <string>

namespace bench {

// devices: its wish, in an annotation; empty: it asks for nothing. netns: the path of its network namespace; empty: it
// is in the node's.
struct Pod {
  std::string devices;
  std::string netns;
};

enum class PodEvent : unsigned { kRun = 1, kStop = 2 };
// The payload of StateChange, by which runtimes before NRI 0.12.0 tell of pods.
std::string pod_change(PodEvent event, const Pod& pod);
// The payload of CreateContainer, or of StopContainer, for the container of this number.
std::string container_request(unsigned number, const Pod& pod);

}  // namespace bench
