// Finds the HCAs of a container and decides. A request with a count usually needs few of the node's HCAs, so it is
// decided in some attempts:
//   1. Rank the candidates by the ledger's index, without locks, and choose as many as the request counts (rank.hpp).
//   2. Read the chosen HCAs completely, and lock only them and the HCAs of their PFs and VFs, by device, as all calls.
//   3. Check their grants again under the locks. If another call was faster, release the locks and rank again.
// If the ranking finds too few free HCAs, or after the last attempt, the decision is made among all candidates under
// all their locks. So a request is refused only by a decision among all: the ranking can miss a free HCA, for example
// one with a stale grant, which is released only under the lock of its HCA. Every other request is decided among all of
// its candidates at once.
#pragma once

#include <functional>

#include "base/result.hpp"
#include "hook/grant/foresee.hpp"

namespace hook {

// Limits of the attempts. An attempt fails because another call was faster, or because a chosen HCA cannot be allocated
// in a way that only reading it shows, for example a PF with a VF in a virtual machine.
inline constexpr unsigned kMostConflicts = 8;
inline constexpr std::size_t kMostLost = 32;  // most HCAs that the attempts of one call may lose

// Books the plan while its HCAs are locked. Errors: ESTALE, the owner's grant changed since the ranking
// (LockedHcas::expect_own()): the search goes on.
using BookFound = std::function<Result<void>(ForeseenPlan& found)>;

// Finds the plan of a container and books it. bound: a grant that was booked for this container before its creation: if
// its HCAs suffice (foresee_bound()), nothing is booked; nullptr: none. Locks: returns without locks. Errors: those of
// read_node_for(), add_moved_hcas(), foresee() and `book`.
Result<ForeseenPlan> find_plan(const ForeseeInput& input, const Grant* bound, const BookFound& book);

}  // namespace hook
