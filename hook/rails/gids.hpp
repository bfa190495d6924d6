// The GIDs of a container's rails: waiting for the kernel to make them, and bringing them to one index.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/align/align.hpp"
#include "hook/rails/netlink/netlink.hpp"
#include "hook/rails/plan/rails.hpp"
#include "hook/rails/probe/probe.hpp"

namespace fabric {
struct Hca;
}

namespace hook {

// A port's GID table, as far as aligning needs it.

// sysfs: a descriptor of /sys, or of a detached mount of it. Reads slots from 0 on until the v2 GID of each wanted
// address was seen and at least `at_least` slots were read, or the table ends; without wanted addresses, exactly
// at_least slots. The reading is no snapshot: the kernel may change the table meanwhile.
// Errors name the file below sysfs: a name that is no HCA's, no such HCA or port (ENOENT), an attribute that cannot be
// read (ENODEV while the device is unplugged) or holds no GID.
fabric::Result<GidTable> read_gid_table(int sysfs, const std::string& hca, unsigned port,
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
fabric::Result<SettledGids> settle_rail_gids(const Ledger& ledger, NetworkNamespace& inside,
                                             const std::vector<GidRail>& rails, const GidOptions& options);

}  // namespace hook
