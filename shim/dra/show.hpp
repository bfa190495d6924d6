// The settings of rdma-dra, and its command that changes nothing: it shows the slices that the driver publishes for
// this node.
#pragma once

#include <string>

#include "base/log.hpp"
#include "base/result.hpp"
#include "hook/grant/node.hpp"
#include "shim/dra/slices.hpp"

namespace shim {

struct DraSettings {
  bool help = false;
  bool version = false;
  bool probe = false;
  bool slices = false;
  SliceCluster cluster;         // an empty node: NODE_NAME, else the name of this host
  bool minor_is_named = false;  // cluster.minor is the value of --kubernetes
  hook::NodeSettings node;
  // The next three are for the driver.
  std::string kubelet = "/var/lib/kubelet";  // the kubelet's directory
  std::string api;                           // IP:PORT; empty: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT
  std::string credential = "/var/run/secrets/kubernetes.io/serviceaccount";  // directory of token and ca.crt
};

// Sets the name of the node, unless the caller named it. The kubelet names a node after its host, in lower case.
// Errors: the name is not valid.
Result<void> name_node(std::string& node);

// Prints the ResourceSlices of the node as a List, and logs a warning for each HCA that is left out or has a taint.
// Changes nothing. Errors: the name of the node is not valid; the configuration, the ledger or the HCAs cannot be read.
Result<void> show_slices(DraSettings settings, const base::Log& log);

}  // namespace shim
