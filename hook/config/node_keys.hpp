// The keys of a node's own files that the cluster's file must not have.
//
// Who edits a ConfigMap decides which containers get which HCAs, and must not become root on the nodes by it, nor
// disconnect them. These keys of config.json name programs that root executes, directories and files that it trusts or
// writes to, or take the node off the network:
//
//   runtime                   runtimes and a hook; whose annotations are trusted (engine); seccomp (allow_system_calls)
//   networks.NAME.ipam        which program root executes, and its input: host-local's dataDir and whereabouts'
//                             log_file are paths that it writes to
//   networks.NAME.ipam_dir    the directory of that program
//   networks.NAME.take_node_netdevs  moves the netdev of the node's default route, sshd or kubelet into a container
//   node_index, as a path     except a file of /etc/rdma-init itself, where only root writes
//   node_index, as a number   no program, but every node would give the same addresses
//
// None of config.json's other keys is a path or a program (tests/unit/cluster/cluster_test.cpp goes through the
// schema).
#pragma once

#include "hook/config/reader.hpp"

namespace hook {

// Notes an error for each such key of the text. Returns true if there is one.
bool refuse_node_keys(ConfigReader& reader);

}  // namespace hook
