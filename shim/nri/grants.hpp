// Gives pods their rails and containers their HCAs, and takes them back: the hook's steps at NRI's requests.
#pragma once

#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/asking.hpp"
#include "shim/nri/grant_settings.hpp"
#include "shim/nri/wire/job.hpp"
#include "shim/nri/worker.hpp"

namespace shim {

class Grants {
 public:
  using Clock = std::chrono::steady_clock;

  // Both must outlive it.
  Grants(const GrantSettings& settings, const hook::Log& log);

  // config.json as it is now; the defaults where it cannot be read.
  hook::Config config();

  // Which engine's annotations these are. Starts the worker, so that the first container need not wait for it.
  void set_engine(hook::Engine engine);

  // At RunPodSandbox: what the pod's annotations ask, rails included, without waiting for carrier, gateways or GIDs.
  // Success also for pods that ask nothing or are in the node's network namespace. Errors: as the hook's createRuntime.
  fabric::Result<void> give_pod(const NriPod& pod, Clock::time_point deadline);
  // At CreateContainer. Nothing is asked: an empty adjustment, and the worker hears nothing of it.
  fabric::Result<ContainerAdjustment> give_container(const NriPod& pod, const NriContainer& container,
                                                     Clock::time_point deadline);
  // At StopContainer and RemoveContainer: what a container held alone is returned, its part in a pod's grant ends.
  fabric::Result<void> leave(const NriPod& pod, const NriContainer& container, Clock::time_point deadline);
  // At StopPodSandbox, while the network namespace is there.
  fabric::Result<void> return_pod(const NriPod& pod, Clock::time_point deadline);

  // Ids of the containers for which nothing but the runtime's word stands: of the node's network namespace, and bound
  // by no hook. Errors: the ledger's.
  fabric::Result<std::set<std::string>> unbound_containers() const;
  // What pods and containers left that are gone: as `rdma-hook recover`, and the grants of these unbound containers.
  fabric::Result<void> recover(const std::set<std::string>& gone, Clock::time_point deadline);

  // Asked for HCAs and has no grant: created while no plugin took part. Errors: as parse_request().
  fabric::Result<bool> lacks_grant(const NriPod& pod, const NriContainer& container);

 private:
  const fabric::Result<hook::Config>& read_config();
  fabric::Result<hook::Asking> understand(hook::ContainerSpec spec);
  fabric::Result<std::string> ask(const Job& job, Clock::time_point deadline) {
    return worker_.ask(job_bytes(job), deadline);
  }

  const GrantSettings& settings_;
  const hook::Log& log_;
  hook::Engine engine_ = hook::Engine::kContainerd;
  // config.json is parsed again when its text is another.
  std::vector<hook::ConfigText> texts_;
  std::optional<fabric::Result<hook::Config>> config_;
  // Began with this configuration: another one, another worker.
  Worker worker_;
};

}  // namespace shim
