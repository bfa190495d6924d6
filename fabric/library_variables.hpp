// The variables of communication libraries that a site may set: in the files of env.d, and in "env" of config.json.
// Pure.
#pragma once

#include <map>
#include <string>
#include <string_view>

namespace fabric {

// Returns true for names of library variables: NCCL_*, UCX_*, NVSHMEM_*, ...
bool is_library_variable(std::string_view name);

// Returns true for names that a site's administrator may set for all trainers: variables of the libraries, but not
// RDMA_INIT_*, PATH or LD_*.
bool is_policy_variable(std::string_view name);

// Returns true for names that a cluster's ConfigMap may set: numbers that reach the wire. All other names need a file
// of the node, because some of them load or write files, such as NCCL_NET_PLUGIN, and would run code in each
// container.
bool is_wire_variable(std::string_view name);

// The variable with which the node gives its site's values to rdma-init: "NAME=value;NAME=value". The values are not
// set as variables, because a variable would precede a user's value in nccl.conf.
inline constexpr const char* kSiteName = "RDMA_INIT_SITE";

// The variable with which the node gives rail and plane of a container's HCAs: "NAME=RAIL" or "NAME=RAIL.PLANE", joined
// by commas.
inline constexpr const char* kRailsName = "RDMA_INIT_RAILS";

// Returns true for variables that state facts of the node: the node's value replaces one of the image or the pod.
inline bool is_node_variable(std::string_view name) {
  return name == kSiteName || name == kRailsName;
}

// Returns true if kSiteName can hold the value: 1 to 255 printable ASCII characters without a semicolon.
bool is_site_value(std::string_view value);

// Returns the text of kSiteName.
std::string site_text(const std::map<std::string, std::string>& values);

}  // namespace fabric
