// Gives a container, or its pod, the rails of its plan.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"
#include "hook/base/timing.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/align/align.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rails.hpp"
#include "hook/rails/probe/probe.hpp"
#include "hook/rails/record/network.hpp"

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

// Whether a netdev of the plan moves.
bool moves_any(const Plan& plan);
// The plan without the rails that the grant has.
Plan without_given(const Plan& plan, const NetworkRecord& record);

// Rails that the grant has already are left as they are. What is about to be changed is in their record before it is;
// the caller undoes a failure by letting the ledger drop what the user booked (GrantEffects).
Result<RailsReport> give_rails(RailsInput input, Timing& timing);

// The GIDs of a container's rails: waiting for the kernel to make them, and bringing them to one index.

// sysfs: a descriptor of /sys, or of a detached mount of it. Reads slots from 0 on until the v2 GID of each wanted
// address was seen and at least `at_least` slots were read, or the table ends; without wanted addresses, exactly
// at_least slots. The reading is no snapshot: the kernel may change the table meanwhile.
// Errors name the file below sysfs: a name that is no HCA's, no such HCA or port (ENOENT), an attribute that cannot be
// read (ENODEV while the device is unplugged) or holds no GID.
Result<GidTable> read_gid_table(int sysfs, const std::string& hca, unsigned port,
                                const std::vector<fabric::Address>& wanted, unsigned at_least);

struct GidRail {
  PlacedRail placed;
  const fabric::Hca* hca = nullptr;
  fabric::Address address;  // whose GID counts
  RailConfig config;        // with the routes and rules that hang on the address
};

struct GidOptions {
  bool align = true;  // as far as the rails' networks want it; else indices are only looked up
  bool wait = true;   // for GIDs that are not there yet
  std::string sys;    // "/sys", or a file tree's
};

struct SettledGids {
  std::map<std::string, unsigned> indices;  // by the rail's name inside
  std::string alignment;                    // what moved, for people; empty: nothing
  std::vector<std::string> warnings;        // rails without a GID; rails that could not be aligned
};

// InfiniBand rails have one GID each and are left out. Aligns under the locks of the HCAs, because two who count the
// same free slots would be in each other's way. Errors: an address could not be put back; not that rails disagree.
Result<SettledGids> settle_rail_gids(const Ledger& ledger, NetworkNamespace& inside, const std::vector<GidRail>& rails,
                                     const GidOptions& options);

}  // namespace hook
