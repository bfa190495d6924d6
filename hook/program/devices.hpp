// `rdma-hook devices`: the node's HCAs and the owners of their grants. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "hook/config/config.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/rails/record/network.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// The owners of each HCA, added grant by grant, so that not all grants are in memory at once. For JSON it keeps every
// owner once, even if the owner has several HCAs. For text it keeps the first owners of each HCA and only sums for the
// remaining owners.
class DeviceOwners {
 public:
  explicit DeviceOwners(bool all) : all_(all) {}
  // Returns whether add() needs the grant's network record.
  bool shows(const Grant& grant) const;
  void add(const Grant& grant, std::optional<NetworkRecord> network);

  struct GrantOwner {
    std::string key;
    std::string label;
    std::int64_t since = 0;
    bool stale = false;
    std::vector<std::string> containers;
    std::optional<NetworkRecord> network;  // the owner's rails, without the saved settings of the node's netdevs
  };
  struct Hold {
    std::size_t owner = 0;  // the owner's index in owners()
    Mode mode = Mode::kHca;
    unsigned units = 1;
    std::string claim = {};  // the UID of the claim through which the owner uses the HCA; empty: the owner holds it
  };
  struct OfHca {
    std::vector<Hold> shown;
    // Counts of the owners of this HCA that are not in `shown`, and of their units by mode.
    std::map<Mode, std::uint64_t> more_units;
    std::size_t more = 0;
    std::size_t more_stale = 0;
  };
  const std::vector<GrantOwner>& owners() const { return owners_; }
  const std::map<std::string, OfHca>& hcas() const { return hcas_; }
  std::size_t grants() const { return grants_; }

 private:
  bool has_room(const std::string& hca) const;
  bool all_;
  std::size_t grants_ = 0;
  std::vector<GrantOwner> owners_;
  std::map<std::string, OfHca> hcas_;
};

// Returns seconds since 1970 as a time in UTC, "2030-01-31T12:00:00Z", so that the output does not depend on the node's
// time zone; "?" for a time that has no year.
std::string time_text(std::int64_t since);

using WriteText = std::function<void(const std::string& text)>;

// Writes a JSON document piece by piece:
// {"hcas": [{"name", "pool", "rail", "pci", "numa_node", "driver", "physfn", "netdev", "node", "device",
//            "ports": [{"port", "state", "link_layer", "rate"}],
//            "holders": [{"grant", "holder", "mode", "units", "containers", "since", "netns",
//              "rails": [{"name", "rail", "kind", "host", "addresses", "gid_index"}], "gone"}]}],
//  "grants": n}
// A holder that uses the HCA through a claim also has the claim's UID, "claim".
// An HCA in a container's namespace has only "name", "away": true and "holders".
void write_devices_json(const fabric::Inventory& inventory, const Config& config, const DeviceOwners& owners,
                        const WriteText& write);
// Writes a table of 80 columns with one row per HCA. Below a row is a line for each owner and rail of the HCA; one line
// sums up further owners. Cuts a cell that is longer than a line.
void write_devices_text(const fabric::Inventory& inventory, const Config& config, const DeviceOwners& owners,
                        const WriteText& write);

}  // namespace hook
