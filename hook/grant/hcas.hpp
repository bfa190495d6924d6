// HCAs as a grant needs them: those that are in the pod's network namespace, and what the ledger knows each by, so that
// one that was renamed is still its holder's.
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

// What a pod has already, for its next container or one that starts again: HCAs and netdevs that moved into the pod's
// network namespace are not on the node any more, whoever moved them.
//
// Adds to the node's inventory the HCAs that the owner's rails took along, read in its network namespace (a kernel
// before 5.2 cannot: they stay unknown), and gives their ports, and those of HCAs whose netdev alone moved, the names
// that the netdevs had on the node, by which config.json's pools may choose, and the addresses that these brought
// along. No rails: nothing, for one system call. Errors: the record cannot be read, the namespace is gone.
fabric::Result<void> add_own_hcas(const std::string& ledger_directory, const Owner& owner, const std::string& root,
                                  fabric::Inventory& inventory);

// Adds the HCAs whose uverbs nodes the container was given by another (dranet, rdma-cni) which moved them into the
// owner's network namespace before: /sys/class/infiniband_verbs/uverbsN/ibdev of the node still names them (Linux 7.3,
// tried). Errors: the namespace cannot be read; those HCAs stay unknown then.
fabric::Result<void> add_given_hcas(const Request& request, const Owner& owner, const std::string& root,
                                    fabric::Inventory& inventory);

struct KnownDevices {
  // Either stays when the HCA is renamed:
  // - "0000.3b.00.0": the PCI function or auxiliary device of the HCA. It also stays when its driver is bound anew or
  // it
  //   moves to another network namespace, which give its node another number.
  // - "guid.5054.00ff.fe12.3456": the node GUID of a software HCA, which has no device. It also stays when the HCA is
  //   made anew on its netdev. Software HCAs of one GUID, as rxe and siw on one netdev, are held as one.
  // HCAs that are left out go by their names: those of a snapshot, and those of a file tree without links or GUIDs.
  HcaDevices devices;
  std::map<std::string, std::string> unknown;  // by HCA, why; anybody may hold them
};

// Those that the inventory does not tell (virtual functions of an HCA that was asked for by name) are read. root:
// prefix of the node's /sys.
KnownDevices devices_of(const std::vector<std::string>& names, const fabric::Inventory& inventory,
                        const std::string& root);

// What was booked of the HCAs with these names, as it is called by now.
std::vector<PlannedHca> named_by_now(const std::vector<PlannedHca>& booked, const std::vector<std::string>& names,
                                     const fabric::Inventory& inventory, const std::string& root);

}  // namespace hook
