// Jobs of rdma-nri's worker: grants HCAs to pods and containers, and releases them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "base/log.hpp"
#include "base/result.hpp"
#include "fabric/kept_node.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/call.hpp"
#include "hook/grant/container_request.hpp"
#include "hook/rails/address/ipam.hpp"
#include "shim/nri/wire/messages.hpp"
#include "shim/nri/worker.hpp"

namespace shim {

// Returns the job for a request of the runtime. The job has the event, the ids and the container's name.
// requesting: the result of understand_spec(); if the event releases HCAs, only its `spec` is set.
std::string job_of(const NriRequest& request, const hook::ContainerRequest& requesting);
// Returns the job that releases the grants of the containers in `ended`, and recovers the ledger. pods: pod id by
// container id, to be recorded in grants that lack their users' pod ids.
std::string recover_job(const std::set<std::string>& ended, const std::map<std::string, std::string>& pods);

// Returns the job that releases the grants with these keys, if their network namespaces have ended. Reads no other
// grant.
std::string ended_job(const std::set<std::string>& keys);

class GrantWorker {
 public:
  // Prepares a worker with the configuration that the plugin has read. A new configuration needs a new worker. Errors:
  // a required IPAM helper cannot be started.
  static Result<GrantWorker> begin(hook::NodeSettings node, Result<hook::Config> config, base::Log log);

  // Runs a job of job_of(), recover_job() or ended_job(). Errors: those of the hook's createRuntime and of the ledger.
  // CreateContainer: grants the requested HCAs. Its answer is the result of create_response(); other answers are empty.
  // RunPodSandbox: grants the HCAs that the pod requests, with rails, without waiting for carrier, gateways or GIDs.
  // StopContainer, RemoveContainer: releases the container's own grant, or removes the container from the pod's grant.
  // StopPodSandbox, RemovePodSandbox: releases the pod's grant.
  // recover_job(): does what `rdma-hook recover` does. Also releases the unbound grants (is_unbound()) of the
  // containers in `ended`, and records the pod ids in `pods`.
  // ended_job(): releases each of the grants that is stale.
  // The answer's afterwards() writes the log, except warnings and errors, so that the runtime does not wait for it.
  Worker::Answer run(std::string_view job);

 private:
  using ReleaseSteps = std::function<Result<void>(const hook::Ledger&)>;

  GrantWorker(hook::NodeSettings node, Result<hook::Config> config, base::Log log);

  Worker::Answer serve(std::string_view job);
  Worker::Answer allocate(const NriRequest& request, hook::ContainerRequest requesting);
  Worker::Answer release_by(hook::Releaser by, const ReleaseSteps& steps);
  hook::IpamHelper* helper() { return ipam_ ? &*ipam_ : nullptr; }

  hook::NodeSettings node_;
  Result<hook::Config> config_;
  base::Log log_;
  std::optional<hook::IpamHelper> ipam_;
  std::unique_ptr<fabric::KeptNode> kept_;
  std::unique_ptr<hook::KeptLedger> kept_ledger_;
};

}  // namespace shim
