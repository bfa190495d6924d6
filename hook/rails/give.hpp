// Gives a container, or its pod, the rails of its plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/timing.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/record/network.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

class IpamHelper;

struct RailsInput {
  const Plan& plan;
  const Config& config;
  const fabric::Inventory& inventory;
  const Ledger& ledger;
  const std::string& ledger_directory;
  std::string sys;  // "/sys", or a file tree's
  const Owner& owner;
  NetnsIdentity netns;  // of the container: path is how to find it again
  fabric::UniqueFd netns_fd;
  IpamHelper* ipam = nullptr;  // nullptr: no plugin can be run here
  PodIdentity pod = {};        // which plugins are told
  // No container of this grant has started yet: addresses may still move to other GID indices.
  bool before_first_start = false;
  // The runtime waits two seconds and no longer (NRI): no tests, no waiting for GIDs; rdma-init waits instead.
  bool hurried = false;
};

struct RailsReport {
  std::vector<std::string> warnings;
  std::string alignment;       // "aligned rails at GID index 7: rail1 5->7"; empty: nothing moved
  std::vector<NewNode> nodes;  // of RDMA devices that went inside: their numbers may be others now
};

// The plan without the rails that the grant has.
Plan without_given(const Plan& plan, const NetworkRecord& record);

// Rails that the grant has already are left as they are. What is about to be changed is in their record before it is;
// the caller undoes a failure by letting the ledger drop what the user booked (GrantEffects).
fabric::Result<RailsReport> give_rails(RailsInput input, Timing& timing);

}  // namespace hook
