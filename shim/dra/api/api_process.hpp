// The process of rdma-dra that talks to the API server. It has its own user, no capabilities and no access to files:
// the driver sends it the token, the CA and the wanted slices, and it returns claims as text. An attacker that controls
// it has only the rights of the service account.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "shim/dra/api/tls_stream.hpp"

namespace shim {

struct ApiProcessSettings {
  ApiAddress address;
  std::string node;    // name of the Node object
  unsigned minor = 0;  // version of Kubernetes, 1.MINOR; 0: that of the API server
};

// Gives up the rights of the calling process, publishes slices and reads claims until the driver closes the channel,
// and then ends the process. channel: socket of the driver (ApiMessage in FrameSocket). parent: PID of the driver.
// Errors: the rights cannot be given up.
Result<void> run_api_process(const ApiProcessSettings& settings, base::UniqueFd channel, pid_t parent);

}  // namespace shim
