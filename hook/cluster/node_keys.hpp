// What a configuration that comes from a cluster may not say, and what of the node's own file stays. Pure.
//
// Whoever edits a ConfigMap decides which containers get which HCAs, and must not be root on the nodes by it, nor take
// a node off the network. These keys of config.json name programs that root executes, or directories and files that it
// trusts or writes to, or they move netdevs that the node itself uses:
//
//   runtime                   runtimes and a hook; whose annotations are trusted (engine); seccomp (allow_system_calls)
//   networks.NAME.ipam        which program root executes, and what that is told: host-local's dataDir and whereabouts'
//                             log_file are paths that it writes to
//   networks.NAME.ipam_dir    where that program is
//   networks.NAME.take_node_netdevs  moves the netdev of the node's default route, sshd or kubelet into a container
//   node_index, as a path     but for a file of /etc/rdma-init itself, where only root writes
//   node_index, as a number   no program, but every node would give the same addresses
//
// Of config.json's other keys none is a path or a program (tests/unit/hook_cluster_test.cpp goes through the schema).
#pragma once

#include <string>
#include <vector>

#include "hook/base/json/json_fwd.hpp"
#include "hook/config/config.hpp"

namespace hook {

// One problem for each such key in the text; none for a text that is no JSON object.
std::vector<ConfigProblem> node_keys_in(const ConfigText& text);

// The cluster's document, which has none of these keys, with those of the node's own: `runtime`, a `node_index` as
// above, `ipam`, `ipam_dir` and `take_node_netdevs` of each network; a network that the cluster's does not have stays
// whole if it has one of these.
Json with_node_keys(Json cluster, const Json& own);

}  // namespace hook
