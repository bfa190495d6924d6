// Any tree of sysfs files, some of them hostile: a partial read must lead to the same decision as a full read.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "arbitrary.hpp"
#include "fabric/port_use.hpp"
#include "fabric/read_inventory.hpp"
#include "fabric/snapshot.hpp"
#include "invariants.hpp"
#include "require.hpp"
#include "tree.hpp"

namespace {

// Makes the directory in memory if possible, because an input has about a hundred files.
std::string make_root() {
  std::error_code error;
  const bool shared_memory = std::filesystem::is_directory("/dev/shm", error) && ::access("/dev/shm", W_OK) == 0;
  const auto parent = shared_memory ? std::filesystem::path("/dev/shm") : std::filesystem::temp_directory_path();
  std::string name = (parent / "rdma-init-fuzz.XXXXXX").string();
  fuzz::require(::mkdtemp(name.data()) != nullptr, "a directory for the trees", name);
  return name;
}

const std::string& root() {
  // Never destroyed: the exit handler needs it.
  static const auto& name = *new std::string(make_root());
  static const int registered = std::atexit([] {
    std::error_code ignored;
    std::filesystem::remove_all(root(), ignored);
  });
  fuzz::require(registered == 0, "an exit handler");
  return name;
}

// Returns true if two slots of a table have the same GID of type RoCE v2, as if two netdevs had one address. A partial
// read finds one of the slots.
bool has_twins(const fabric::Port& port) {
  return std::any_of(port.gids.begin(), port.gids.end(), [&](const fabric::GidEntry& entry) {
    const auto is_twin = [&](const fabric::GidEntry& other) { return other.is_v2() && other.gid == entry.gid; };
    return std::count_if(port.gids.begin(), port.gids.end(), is_twin) > 1;
  });
}

// Returns true if a GID is also the address of a netdev that is not above the port's own netdev. A file tree does not
// show the stack of netdevs. The owner of the GID is then unknown, and a full read can change the decision.
bool is_ambiguous(const fabric::Inventory& inventory) {
  for (const fabric::Hca& hca : inventory.hcas) {
    for (const fabric::Port& port : hca.ports) {
      if (has_twins(port)) return true;
      const fabric::Netdev* own = port.netdev ? fabric::find_netdev(inventory, *port.netdev) : nullptr;
      if (!own) continue;
      for (const fabric::GidEntry& entry : port.gids) {
        for (const fabric::Netdev& netdev : inventory.netdevs) {
          const bool has_it = std::any_of(netdev.addresses.begin(), netdev.addresses.end(),
                                          [&](const auto& address) { return address.address == entry.gid; });
          if (has_it && !fabric::is_stacked_on(inventory.netdevs, netdev, *own)) return true;
        }
      }
    }
  }
  return false;
}

// Returns true if a table cannot be opened or does not name its netdevs: the reader does not read it to the end.
bool has_closed_table(const fabric::Inventory& inventory) {
  const auto lacks_ndev = [](const fabric::GidEntry& entry) { return !entry.ndev; };
  for (const fabric::Hca& hca : inventory.hcas) {
    for (const fabric::Port& port : hca.ports) {
      if (port.gids_error && !port.gids_complete) return true;
      if (std::any_of(port.gids.begin(), port.gids.end(), lacks_ndev)) return true;
    }
  }
  return false;
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const init::Policy policy = fuzz::arbitrary_policy(data);
  const init::Settings settings = fuzz::arbitrary_settings(data);
  fuzz::write_tree(data, fuzz::arbitrary_inventory(data), root() + "/tree");
  const std::string tree = root() + "/tree";

  fabric::Inventory some = fabric::read_inventory({tree, false});
  init::Decision little = fuzz::decide_checked(some, settings, policy);
  const auto with_models = [&] {
    fabric::read_models(tree, some);
    return fuzz::decide_checked(some, settings, policy);
  };
  if (little.needs_models || policy.hcas) little = with_models();
  if (little.needs_skipped) {
    some = fabric::read_inventory({tree, false, fabric::GidTables::kFromFirst});
    little = with_models();
    fuzz::require(!little.needs_skipped, "no slot is skipped", fabric::write_snapshot(some));
  }
  if (little.needs_full) {
    some = fabric::read_inventory({tree, false, fabric::GidTables::kWhole});
    little = with_models();
    fuzz::require(!little.needs_full || has_closed_table(some), "whole tables are enough",
                  fabric::write_snapshot(some));
  }
  const fabric::Inventory all = fabric::read_inventory({tree, true});
  const init::Decision much = fuzz::decide_checked(all, settings, policy);
  if (is_ambiguous(all)) return;
  fuzz::require(little.env == much.env, "reading little leads to the same variables as reading all",
                fabric::write_snapshot(all));
  fuzz::require(little.status == much.status, "reading little leads to the same status as reading all");
}
