// Steps that giving a live container its HCAs and writing them into config.json have in common.
#pragma once

#include <string>
#include <string_view>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/grant/decide.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/program/stages.hpp"

namespace hook {

// As understand() of decide.hpp; what went wrong is the call's phase.
fabric::Result<Container> understand(const std::string& text, Call& call);

// What others left half-way is put right; that it cannot be is no reason to fail this container.
void repair(const Ledger& ledger, const Log& log);

// Decides under the locks and books. Warnings go to the log; why it was refused is the call's phase.
fabric::Result<Plan> decide_and_book(const Container& container, const fabric::Inventory& inventory,
                                     const Ledger& ledger, const Owner& owner, const GrantUser& user, Call& call);

// The log's line, and the count. event: "granted"; "kept", by a call that found everything there (prestart and
// createRuntime both); "booked", of rdma-runtime, which is counted when the container has come. The rails are those
// that the container finds, whoever of its pod brought them.
void note_grant(std::string_view event, const Container& container, const Owner& owner, const Plan& plan, Call& call);

}  // namespace hook
