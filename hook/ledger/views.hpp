// The views that replace /sys/class/infiniband* inside containers with one set of HCAs.
//
//   DIR/views/set-DIGEST/infiniband/mlx5_0 -> ...   view_name(); closed to writing, and mounted read-only
//   DIR/views/lent-DIGEST/lib/libmlx5.so.1          a view with copies of the node's files: links to DIR/copies
//   DIR/views/set-DIGEST/checked -> ...             not mounted: change times of the view when it was last checked
//   DIR/views/none/                                 empty: an overlay without an upper layer needs two lower ones
//   DIR/views/set-DIGEST@PID.START.N                a changed view, which process PID has replaced by a correct one
//   DIR/views/@PID.START.N                          a view that process PID is making
//
// The record of a user names its view before the view is made, so a view that is being made already has a user, and
// recover() keeps it. While a maker copies files, it also holds the lock of DIR/copies, and then takes no other lock.
// bind() takes the lock of the view together with those of the keys.
// A removal must read every grant to find the users of a view. So views are removed by recover(), and by a maker that
// finds many. A view with copies, which take memory, is also removed when its last user leaves it. A view does not
// reserve its HCAs; only a grant does.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/ledger/files.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {

// Makes a view, with the contract of Ledger::make_view().
Result<std::vector<std::string>> make_view(const LedgerFiles& files, const std::string& name,
                                           const std::vector<ViewEntry>& entries);

// Adds the views of the grant's users to `named`.
void add_views_of(const StoredGrant& grant, std::set<std::string>& named);
// Removes the views of `directory` in this list that no user names, and then the copies that no view has. named: the
// views that grants name; the caller made the list before it read the grants. timeout_ms: longest wait for a view's
// lock. Errors: a view cannot be removed, a grant cannot be read.
Result<void> recover_views(const LedgerFiles& files, const LedgerDirectory& directory, std::vector<std::string> views,
                           std::set<std::string> named, int timeout_ms);

// Removes the entries of DIR/checked whose view no longer exists. timeout_ms: longest wait for the lock of one view.
// Best effort: a failure leaves the entry to the next call.
void remove_old_checks(const LedgerFiles& files, int timeout_ms);

// Removes views, with the contract of Ledger::remove_left_views().
void remove_left_views(const LedgerFiles& files);

}  // namespace hook
