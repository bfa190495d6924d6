// k3s, RKE2 and microk8s: they write the configuration of their containerd from a template, at each start.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hook {

struct Distribution {
  std::string name;  // "k3s", as --engine and the record have it
  std::string file;  // the file of the node that has to get the lines
  std::string lines;
  std::string restart;     // the command that restarts it; it then writes the configuration of containerd again
  bool is_added = false;   // `file` names rdma-runtime
  bool is_in_use = false;  // the configuration of containerd names rdma-runtime, or imports `file`, which names it
};

// Returns whether `name` is the name of a distribution.
bool is_distribution(std::string_view name);

// Returns the distribution of the node, with the lines for rdma-runtime in `programs`. name: nullopt: any of them.
// Returns nullopt if it is not installed.
std::optional<Distribution> find_distribution(const std::string& root, const std::optional<std::string>& name,
                                              const std::string& programs);

}  // namespace hook
