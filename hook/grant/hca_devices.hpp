// What the ledger knows the HCAs by, so that one that was renamed is still its holder's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hook/ledger/book.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

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
