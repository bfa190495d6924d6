// The Kubernetes distributions k3s, RKE2 and microk8s. At each start they generate the configuration of their
// containerd from a template, so install cannot change it: the administrator adds lines to the template or to a
// drop-in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

struct Distribution {
  std::string name;  // "k3s": the word in --engine and in the record
  std::string file;  // the node's file to which the administrator adds `lines`
  std::string lines;
  std::string unit;        // the systemd unit that runs containerd; empty: microk8s, a snap
  std::string restart;     // command that restarts the distribution, which then generates its configuration again
  bool is_added = false;   // `file` has the path of rdma-runtime
  bool is_in_use = false;  // the generated configuration has the path of rdma-runtime, or imports `file`, which has it
};

// Returns the names of the distributions.
std::vector<std::string_view> distribution_names();

// Returns whether `name` is the name of a distribution.
bool is_distribution(std::string_view name);

// Returns the distribution of the node. programs: directory of rdma-runtime. name: nullopt: any distribution.
// Returns nullopt if the distribution is not installed.
std::optional<Distribution> find_distribution(const std::string& root, const std::optional<std::string>& name,
                                              const std::string& programs);

}  // namespace hook
