// The worker's side of rdma-nri: gives and takes back, with few system calls.
#pragma once

#include <optional>
#include <string_view>

#include "fabric/result.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/node.hpp"
#include "hook/oci/engine.hpp"
#include "hook/rails/address/ipam_helper.hpp"
#include "shim/nri/grant_settings.hpp"
#include "shim/nri/wire/job.hpp"
#include "shim/nri/worker.hpp"

namespace shim {

class JobRunner {
 public:
  // Called after hook::isolate(). config has been read by the parent, and this process ends when it is another.
  static fabric::Result<JobRunner> begin(const GrantSettings& settings, fabric::Result<hook::Config> config,
                                         hook::Engine engine);

  // A job's bytes; kGiveContainer answers an adjustment's, the others nothing.
  Worker::Answer run(std::string_view bytes);

 private:
  JobRunner(hook::NodeSettings node, fabric::Result<hook::Config> config, hook::Log log)
      : node_(std::move(node)), config_(std::move(config)), log_(std::move(log)) {}

  Worker::Answer give(const Job& job);
  Worker::Answer take_back(const Job& job);
  hook::IpamHelper* helper() { return ipam_ ? &*ipam_ : nullptr; }

  hook::NodeSettings node_;
  fabric::Result<hook::Config> config_;
  hook::Log log_;
  std::optional<hook::IpamHelper> ipam_;
};

}  // namespace shim
