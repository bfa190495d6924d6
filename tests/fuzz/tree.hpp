// An inventory as files in the layout of a container's sysfs, with some hostile files.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <string>

#include "fabric/inventory.hpp"

namespace fuzz {

// Writes sys/, dev/ and addrs.txt below root, which is emptied first.
void write_tree(FuzzedDataProvider& data, const fabric::Inventory& inventory, const std::string& root);

}  // namespace fuzz
