// The CDI files of the node, by which the runtime knows what a CDI device is.
#pragma once

#include <set>
#include <string>

namespace shim {

// Names of the devices of kind rdma-init.io/hca that *.json files in /etc/cdi and /var/run/cdi describe, where every
// runtime looks. root: stands before both directories. Of a file that cannot be read or parsed there are none: the
// runtimes ignore it as well.
std::set<std::string> described_cdi_devices(const std::string& root);

}  // namespace shim
