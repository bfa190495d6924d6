// `rdma-hook devices`: the node's HCAs and who holds them. Pure.
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

// Who holds which HCA, noted grant by grant, so that not all grants are in memory at once. For JSON all holders, each
// once however many HCAs it has; for people the first few of each HCA, and of the others sums.
class DeviceHolders {
 public:
  explicit DeviceHolders(bool all) : all_(all) {}
  // Whether add() wants what the grant's rails are.
  bool shows(const Grant& grant) const;
  void add(const Grant& grant, std::optional<NetworkRecord> network);

  struct Holder {
    std::string key;
    std::string label;
    std::int64_t since = 0;
    bool gone = false;
    std::vector<std::string> containers;
    std::optional<NetworkRecord> network;  // without what the node's netdevs were
  };
  struct Hold {
    std::size_t holder = 0;  // in holders()
    Mode mode = Mode::kHca;
    unsigned units = 1;
  };
  struct OfHca {
    std::vector<Hold> shown;
    // Of the others:
    std::map<Mode, std::uint64_t> more_units;
    std::size_t more = 0;
    std::size_t more_gone = 0;
  };
  const std::vector<Holder>& holders() const { return holders_; }
  const std::map<std::string, OfHca>& hcas() const { return hcas_; }
  std::size_t grants() const { return grants_; }

 private:
  bool has_room(const std::string& hca) const;
  bool all_;
  std::size_t grants_ = 0;
  std::vector<Holder> holders_;
  std::map<std::string, OfHca> hcas_;
};

using WriteText = std::function<void(const std::string& text)>;

// {"hcas": [{"name", "pool", "rail", "pci", "numa_node", "driver", "physfn", "netdev", "node", "device",
//            "ports": [{"port", "state", "link_layer", "rate"}],
//            "holders": [{"grant", "holder", "mode", "units", "containers", "since", "netns",
//              "rails": [{"name", "rail", "kind", "host", "addresses", "gid_index"}], "gone"}]}],
//  "grants": n}; an HCA that is in a container's namespace and not on the node has "name", "away": true, "holders".
// Written piece by piece.
void write_devices_json(const fabric::Inventory& inventory, const Config& config, const DeviceHolders& holders,
                        const WriteText& write);
// A table for people, one line per HCA, below it one per holder and one per rail, or one for many holders.
void write_devices_text(const fabric::Inventory& inventory, const Config& config, const DeviceHolders& holders,
                        const WriteText& write);

}  // namespace hook
