// Gives and takes back: what rdma-nri's worker does.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "hook/base/log.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/call.hpp"
#include "hook/rails/address/ipam.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/nri/worker.hpp"
#include "shim/result.hpp"

namespace shim {

// What the plugin has its worker do, as bytes: a request as it came, or what is left of containers that are gone.
std::string job_of(const NriRequest& request);
// pods: of containers whose grant does not name theirs.
std::string recover_job(const std::set<std::string>& gone, const std::map<std::string, std::string>& pods);

class GrantWorker {
 public:
  // config has been read by the plugin; with another one there is another worker. Errors: an IPAM helper that is needed
  // cannot be started.
  static Result<GrantWorker> begin(hook::NodeSettings node, Result<hook::Config> config, hook::Log log);

  // job: of the two above. At CreateContainer: what the container asks, the answer create_response()'s. At
  // RunPodSandbox: the pod's, rails included, without waiting for carrier, gateways or GIDs. At StopContainer and
  // RemoveContainer what a container held alone is returned, its part in a pod's grant ends; at StopPodSandbox and
  // RemovePodSandbox the pod's grant is returned. recover_job(): as `rdma-hook recover`, and the grants of these
  // containers for which nothing but the runtime's word stands; pods are noted. Errors: as the hook's createRuntime,
  // the ledger's.
  Worker::Answer run(std::string_view job);

 private:
  using TakeBack = std::function<Result<void>(const hook::Ledger&)>;

  GrantWorker(hook::NodeSettings node, Result<hook::Config> config, hook::Log log)
      : node_(std::move(node)), config_(std::move(config)), log_(std::move(log)) {}

  Worker::Answer give(const NriRequest& request);
  Worker::Answer take_back(hook::Releaser by, const TakeBack& steps);
  hook::IpamHelper* helper() { return ipam_ ? &*ipam_ : nullptr; }

  hook::NodeSettings node_;
  Result<hook::Config> config_;
  hook::Log log_;
  std::optional<hook::IpamHelper> ipam_;
};

}  // namespace shim
