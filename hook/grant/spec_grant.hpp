// A grant that is made before the container is created: rdma-runtime's and rdma-nri's.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"
#include "hook/base/json/json.hpp"
#include "hook/base/process/process_identity.hpp"
#include "hook/grant/decide.hpp"
#include "hook/grant/returns.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/plan/plan.hpp"
#include "hook/program/stages.hpp"

namespace hook {

// For whom is booked. The token is the annotation by which createRuntime finds what was booked.
struct SpecUser {
  std::string token;
  Owner owner;
  GrantUser user;  // the token; with the process, if any, for which it is held until createRuntime binds it
};
// With a new token. label: the container's id.
fabric::Result<SpecUser> new_spec_user(const ContainerSpec& spec, std::string label,
                                       const std::optional<ProcessIdentity>& requester);

// What is booked, for as long as it is being written down.
struct SpecBooking {
  const Container& container;
  const SpecUser& who;
  const Ledger& ledger;
  const fabric::Inventory& inventory;
  Plan& plan;
};
// A ledger that is open for one call, and what is returned to the node on the way.
struct OpenLedger {
  std::shared_ptr<const Returns> returns;
  Ledger ledger;
  static fabric::Result<OpenLedger> open(Call& call, Returns::Caller caller = Returns::Caller::kOther);
};

// Decides, books, and has it written down: when that fails, what was booked is free again. container.asked.request:
// there is one. event: as note_grant() has it, for the log. Errors: as make_plan(), the ledger's, add_own_hcas()'s,
// write_down's.
fabric::Result<void> book_and_write_down(const OpenLedger& open, const Container& container, const SpecUser& who,
                                         std::string_view event, Call& call,
                                         const std::function<fabric::Result<void>(SpecBooking&)>& write_down);

struct SpecGrant {
  Plan plan;
  std::string token;
};
// Puts the edited config.json where the engine, or the runtime, reads it.
using Publish = std::function<fabric::Result<void>(const SpecGrant& grant, Json& config)>;

// book_and_write_down(), into container.config (edit_spec()), which is then published. What is booked is the
// requester's until createRuntime binds it, and free again when the requester is gone and nothing was bound.
fabric::Result<void> book_for_spec(Container& container, const ProcessIdentity& requester, Call& call,
                                   const Publish& publish);

}  // namespace hook
