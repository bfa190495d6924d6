// k3s, RKE2 and microk8s: they write the configuration of their containerd from a template, at each start.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace hook {

struct Distribution {
  std::string name;  // "k3s": the word in --engine and in the record
  std::string file;  // the node's file to which the administrator adds `lines`
  std::string lines;
  std::string restart;     // restarts the distribution, which then writes containerd's configuration again
  bool is_added = false;   // `file` names rdma-runtime
  bool is_in_use = false;  // the configuration of containerd names rdma-runtime, or imports `file`, which names it
};

// Returns whether `name` is the name of a distribution.
bool is_distribution(std::string_view name);

// Returns the distribution of the node, with the lines for rdma-runtime in `programs`. name: nullopt: any distribution.
// Returns nullopt if the distribution is not installed.
std::optional<Distribution> find_distribution(const std::string& root, const std::optional<std::string>& name,
                                              const std::string& programs);

}  // namespace hook
