// What the ledger knows the HCAs by, so that one that was renamed is still its holder's.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "hook/ledger/ledger_book.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

struct KnownDevices {
  // "0000.3b.00.0": the PCI function or auxiliary device that the HCA is of. It stays when the HCA is renamed, and when
  // its driver is bound anew or it moves to another network namespace, which give its node another number. Left out,
  // for they go by their names: software HCAs, which are of no device, and those of a snapshot or of a file tree
  // without links.
  HcaDevices devices;
  std::map<std::string, std::string> unknown;  // by HCA, why; anybody may hold them
};

// Those that the inventory does not tell (virtual functions of an HCA that was asked for by name) are read. root:
// prefix of the node's /sys.
KnownDevices devices_of(const std::vector<std::string>& names, const fabric::Inventory& inventory,
                        const std::string& root);

}  // namespace hook
