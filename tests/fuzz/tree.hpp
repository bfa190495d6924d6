// An inventory as files, the way a container would see it in sysfs, with some of the files made hostile.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include <string>

#include "fabric/inventory.hpp"

namespace fuzz {

// Writes sys/, dev/ and addrs.txt below root, which is emptied first.
void write_tree(FuzzedDataProvider& data, const fabric::Inventory& inventory, const std::string& root);

}  // namespace fuzz
