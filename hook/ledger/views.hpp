// The views that replace /sys/class/infiniband* inside containers: one directory for each set of HCAs, shared by all
// containers with that set.
//
//   DIR/views/set-DIGEST/infiniband/mlx5_0 -> ...   view_name(); closed to writing, and mounted read-only
//   DIR/views/none/                                 the lower half of overlays
//   DIR/views/set-DIGEST@PID.START.N                a changed view that process PID has replaced
//   DIR/views/@PID.START.N                          a view that process PID is making
//
// The record of a user names its view from the booking on. A view is made and removed under the lock of its name. The
// maker holds no other lock, and bind() takes the lock of the view together with those of the keys. So a new view
// already has a user, and is not removed. Only recover() removes views, because it needs to read every grant to find
// their users. A view holds no HCA.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// Makes a view, as Ledger::make_view().
Result<std::vector<std::string>> make_view(const LedgerFiles& files, const std::vector<ViewEntry>& entries);

// Adds the views of the grant's users to `named`.
void add_views_of(const StoredGrant& grant, std::set<std::string>& named);
// Removes the views in this list that no user names. named: views of grants that were read after the list was made.
// Errors: a view cannot be removed, a grant cannot be read.
Result<void> recover_views(const LedgerFiles& files, std::vector<std::string> views, std::set<std::string> named,
                           int timeout_ms);

}  // namespace hook
