// Finds HCAs that moved into a pod's network namespace, and the device of each HCA, by which the ledger recognises the
// HCA after a rename.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/book.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/request/request.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct NodeSettings;

// Returns whether the owner has a network namespace and a record of rails. Errors: those of add_own_hcas().
base::Result<bool> has_rails(const std::string& ledger_directory, const Owner& owner);

// The next two functions find the HCAs and netdevs that moved into the pod's network namespace. The node no longer
// shows them, but the next container of the pod, or one that starts again, needs them.
//
// Adds the HCAs that moved with the owner's rails, read in its network namespace. (Linux before 5.2 cannot read HCAs
// there: they stay unknown.) Gives the ports of these HCAs, and ports from which only the netdev moved, the name that
// the netdev has on the node, because pools in the administrator's config.json select by this name. Adds the addresses
// that the netdevs brought along. Costs one system call if there are no rails. Errors: the record cannot be read, or
// the namespace is gone.
base::Result<void> add_own_hcas(const std::string& ledger_directory, const Owner& owner, const std::string& root,
                                fabric::Inventory& inventory);

// Adds HCAs that another component (dranet, rdma-cni) moved into the owner's network namespace. Finds them by the
// uverbs nodes that this component added to the container. On the node, /sys/class/infiniband_verbs/uverbsN/ibdev still
// names such an HCA (Linux 7.3, tested). Errors: the namespace cannot be read; the HCAs inside then stay unknown.
base::Result<void> add_granted_hcas(const Request& request, const Owner& owner, const std::string& root,
                                    fabric::Inventory& inventory);

// Adds to Inventory::away the HCAs that grants hold exclusively and the inventory does not show: with an exclusive RDMA
// subsystem, and for software HCAs whose netdev has moved, they are in the network namespace of a container. Call it
// after the functions above, because an HCA of the inventory is not away. Adds none to a snapshot. If the
// ledger's entry of an HCA cannot be read, its name is empty. ledger: the node's open ledger; nullptr: it is opened for
// the call. Errors: those of Ledger::once_held().
base::Result<void> note_away_hcas(const NodeSettings& node, const Ledger* ledger, fabric::Inventory& inventory);

// Returns the PCI address of a device of the ledger: "0000.3b.00.0" is 0000:3b:00.0; nullopt: it is no PCI function.
std::optional<std::string> pci_of_device(std::string device);

struct KnownDevices {
  // A device has one of two forms, which both survive a rename of the HCA:
  // - "0000.3b.00.0": the PCI function or auxiliary device of the HCA. The function stays the same when the driver is
  // bound again or the HCA moves to another network namespace, which changes the number of the HCA's uverbs node.
  // - "guid.5054.00ff.fe12.3456": the node GUID of a software HCA, which has no device. The GUID stays the same if the
  // HCA is made again on its netdev. Software HCAs with one GUID, as rxe and siw on one netdev, count as one HCA.
  // An HCA of a snapshot, or of a file tree without links or GUIDs, has no entry and is booked under its name.
  HcaDevices devices;
  std::map<std::string, std::string> unknown;  // HCA -> why its device is unknown; such an HCA counts as held

  // Returns the name under which the ledger books the HCA: its device, or its name if it has none. nullptr: its device
  // is unknown.
  const std::string* booked_under(const std::string& name) const;
};

// Returns the device (see KnownDevices) of each HCA of `names`. Reads HCAs that the inventory lacks from /sys, such as
// virtual functions of an HCA that was requested by name. root: prefix of the node's /sys.
KnownDevices devices_of(const std::vector<std::string>& names, const fabric::Inventory& inventory,
                        const std::string& root);
// Adds the device of one HCA of the inventory. An HCA without a link is booked under its name.
void add_device(const fabric::Hca& hca, const fabric::Inventory& inventory, KnownDevices& known);

// Returns the booked HCA of /dev/infiniband/uverbsN; nullptr: none, or the link of the node cannot be read. It is found
// by its device, because it may have been renamed since it was booked. A software HCA, and one of a file tree without
// links, is found by its name.
const PlannedHca* find_by_node(const std::vector<PlannedHca>& booked, const std::string& root, unsigned number);

// Returns the booked HCAs with a present name in `names`, each under its present name. An HCA may have been renamed
// since it was booked.
std::vector<PlannedHca> named_by_now(const std::vector<PlannedHca>& booked, const std::vector<std::string>& names,
                                     const fabric::Inventory& inventory, const std::string& root);

}  // namespace hook
