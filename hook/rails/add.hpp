// Adds the rails of a plan to a container's or pod's network namespace.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "base/unique_fd.hpp"
#include "fabric/address.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"
#include "hook/rails/align/align.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/plan_rails.hpp"
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
  std::string sys;  // "/sys", or the sys directory of a file tree
  const Owner& owner;
  NetnsIdentity netns;  // the namespace that gets the rails; later calls open the namespace by its path
  base::UniqueFd netns_fd;
  IpamHelper* ipam = nullptr;  // executes IPAM plugins; nullptr: they cannot be executed
  PodIdentity pod = {};        // passed to IPAM plugins in CNI_ARGS
  // Whether no container of this grant has started yet. Only then may GIDs move to other indices.
  bool before_first_start = false;
  // Whether the runtime waits only two seconds (NRI). Then add_rails() makes no tests and does not wait for GIDs;
  // rdma-init waits for them.
  bool hurried = false;
};

struct RailsReport {
  std::vector<std::string> warnings;
  std::string alignment;  // "aligned rails at GID index 7: rail1 5->7"; empty: all GIDs stay
  // The device nodes of RDMA devices that moved or were made again: their device numbers can have changed.
  std::vector<NewNode> nodes;
};

// Returns true if the plan moves a netdev.
bool moves_any(const Plan& plan);
// Returns the plan without the netdevs of HCAs that already have a rail in the record.
Plan without_existing(const Plan& plan, const NetworkRecord& record);

// Adds the rails of the plan to the container's namespace, except rails that the grant already has. Writes the record
// of the rails before the first change, so that a later call can roll back every step.
// After an error the caller must release the HCAs of this user in the ledger. The release restores the rails
// (GrantEffects).
Result<RailsReport> add_rails(RailsInput input, Timing& timing);

// Functions for the GIDs of a container's rails.

// Reads the GID table of a port from slot 0 on. Stops when it has the v2 GID of each wanted address and at least
// `at_least` slots, or at the end of the table. The kernel can change the table between two reads.
// sysfs: a descriptor of /sys, or of a detached mount of it.
// Errors: the name of the HCA is invalid. All other errors name the file below sysfs: there is no such HCA or port
// (ENOENT); a GID cannot be read (ENODEV while the device is unplugged); the file of a GID has no GID.
Result<GidTable> read_gid_table(int sysfs, const std::string& hca, unsigned port,
                                const std::vector<fabric::Address>& wanted, unsigned at_least);

struct GidRail {
  PlacedRail placed;
  const fabric::Hca* hca = nullptr;
  fabric::Address address;  // the address whose GID NCCL uses
  RailConfig config;        // addresses, routes and rules, also those that depend on the address
};

struct GidOptions {
  bool align = true;  // true: aligns if all networks of the rails have align_gids; false: only reads the indices
  bool wait = true;   // waits for GIDs that the kernel has not made yet
  std::string sys;    // "/sys", or the sys directory of a file tree
};

struct SettledGids {
  std::map<std::string, unsigned> indices;  // GID index by the name of the rail's netdev in the container
  std::string alignment;                    // text about the GIDs that moved; empty: all stay
  std::vector<std::string> warnings;        // rails without a GID; rails that could not be aligned
};

// Waits for the GIDs of the rails. If the options and networks permit it, aligns the first rail of each HCA to one
// index. Skips InfiniBand rails, because each has only one GID.
// Locks: takes the locks of the HCAs while it aligns, because two processes that plan with the same free slots would
// disturb each other.
// Errors: the locks of the HCAs cannot be taken. Rails that cannot be aligned, and addresses that could not be
// restored, are only a warning.
Result<SettledGids> settle_rail_gids(const Ledger& ledger, NetworkNamespace& inside, const std::vector<GidRail>& rails,
                                     const GidOptions& options);

}  // namespace hook
