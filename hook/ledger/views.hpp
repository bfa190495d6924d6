// What stands in for /sys/class/infiniband* inside containers: one directory for each set of HCAs, whoever has them.
//
//   DIR/views/set-DIGEST/infiniband/mlx5_0 -> ...   view_name(); closed to writing, and mounted read-only
//   DIR/views/none/                                 the lower half of overlays
//   DIR/views/set-DIGEST@PID.START.N                what was not as it was made, and was replaced
//   DIR/views/@PID.START.N                          being made by that process
//
// A grant's user names its view from its booking on. Making and removing a view take the lock of its name, for which a
// maker holds no other lock, and bind() takes it with those of its keys: what is made was named before, and is not
// removed. Which views are named costs a look at every grant, so that only recover() removes. A view holds no HCA.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// As Ledger::make_view().
Result<std::vector<std::string>> make_view(const LedgerFiles& files, const std::vector<ViewEntry>& entries);

// Adds the views that its users name.
void add_views_of(const StoredGrant& grant, std::set<std::string>& named);
// Of these views, removes those that no user names. named: by grants that were read after the views were listed.
// Errors: one cannot be removed, a grant cannot be read.
Result<void> recover_views(const LedgerFiles& files, std::vector<std::string> views, std::set<std::string> named,
                           int timeout_ms);

}  // namespace hook
