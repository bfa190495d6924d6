// rdma-runtime: an OCI runtime for containerd and Docker that adds RDMA devices to containers and executes runc or
// crun.
#include "shim/runtime/run.hpp"

int main(int, char** argv) {
  return shim::run(argv, hook::kLedgerPath, shim::node_settings);
}
