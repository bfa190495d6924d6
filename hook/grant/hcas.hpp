// HCAs in the form that grants need: those in the pod's network namespace, and the device of each HCA, by which the
// ledger still finds its owner after a rename.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/ledger/book.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/request/request.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

// The next two functions find the HCAs and netdevs that moved into the pod's network namespace. The node no longer
// shows them, but the next container of the pod, or one that starts again, needs them.
//
// Adds the HCAs that moved with the owner's rails, read in its network namespace. (A kernel before 5.2 cannot read them
// there: they stay unknown.) Sets the netdev names of their ports, and of ports from which only the netdev moved, to
// the names on the node, because pools in the administrator's config.json select by these. Adds the addresses that the
// netdevs brought along. Costs one system call if there are no rails. Errors: the record cannot be read, or the
// namespace is gone.
fabric::Result<void> add_own_hcas(const std::string& ledger_directory, const Owner& owner, const std::string& root,
                                  fabric::Inventory& inventory);

// Adds the HCAs of uverbs nodes that another component (dranet, rdma-cni) added to the container after it moved the
// HCAs into the owner's network namespace. On the node, /sys/class/infiniband_verbs/uverbsN/ibdev still names them
// (Linux 7.3, tested). Errors: the namespace cannot be read; the HCAs inside then stay unknown.
fabric::Result<void> add_granted_hcas(const Request& request, const Owner& owner, const std::string& root,
                                      fabric::Inventory& inventory);

struct KnownDevices {
  // A device has one of two forms, which both survive a rename of the HCA:
  // - "0000.3b.00.0": the PCI function or auxiliary device of the HCA. It survives a new bind of the driver and a move
  //   to another network namespace, which both change the number of the node.
  // - "guid.5054.00ff.fe12.3456": the node GUID of a software HCA, which has no device. It survives if the HCA is made
  //   again on its netdev. Software HCAs with one GUID, as rxe and siw on one netdev, are held as one.
  // HCAs without an entry are booked under their names: those of a snapshot, and those of a file tree without links or
  // GUIDs.
  HcaDevices devices;
  std::map<std::string, std::string> unknown;  // HCA -> cause; any owner may hold it
};

// Returns the device of each HCA. Reads the HCAs that the inventory lacks, such as virtual functions of an HCA that was
// requested by name. root: prefix of the node's /sys.
KnownDevices devices_of(const std::vector<std::string>& names, const fabric::Inventory& inventory,
                        const std::string& root);

// Returns the booked HCAs that now have one of these names, each with its current name.
std::vector<PlannedHca> named_by_now(const std::vector<PlannedHca>& booked, const std::vector<std::string>& names,
                                     const fabric::Inventory& inventory, const std::string& root);

}  // namespace hook
