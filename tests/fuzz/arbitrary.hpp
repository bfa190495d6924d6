// Inventories, settings and policies made from a fuzzer's bytes: plausible enough to get far into the decision, with
// hostile values in between.
#pragma once

#include <fuzzer/FuzzedDataProvider.h>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/settings.hpp"

namespace fuzz {

// Mostly one of a few addresses, so that equal addresses occur in several places; sometimes any address.
fabric::Address arbitrary_address(FuzzedDataProvider& data);
std::string arbitrary_text(FuzzedDataProvider& data);
// Ascending, distinct indices.
std::vector<fabric::GidEntry> arbitrary_gids(FuzzedDataProvider& data);
fabric::Port arbitrary_port(FuzzedDataProvider& data, unsigned number);
// An inventory that the snapshot format can hold. HCAs have distinct names.
fabric::Inventory arbitrary_inventory(FuzzedDataProvider& data);
init::Settings arbitrary_settings(FuzzedDataProvider& data);
init::Policy arbitrary_policy(FuzzedDataProvider& data);
init::nccl::Version arbitrary_version(FuzzedDataProvider& data);

}  // namespace fuzz
