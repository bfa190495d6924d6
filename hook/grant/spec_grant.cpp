#include "hook/grant/spec_grant.hpp"

#include <utility>

#include "hook/apply/edit_spec.hpp"
#include "hook/grant/booking.hpp"
#include "hook/grant/grant_steps.hpp"
#include "hook/grant/own_hcas.hpp"

namespace hook {
namespace {

using fabric::Result;

Result<void> book(const OpenLedger& open, const Container& container, const SpecUser& who, std::string_view event,
                  Call& call, const std::function<Result<void>(SpecBooking&)>& write_down) {
  const Options& options = call.options;
  const Ledger& ledger = open.ledger;
  call.phase = FailureReason::kLedger;
  call.timing.step("read");
  repair(ledger, call.log);
  call.timing.step("repair");
  auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
  TRY_VOID(add_own_hcas(options.ledger, who.owner, options.root, inventory));
  call.timing.step("read");

  Booking booking(ledger, who.owner, who.user.key, open.returns->rails(), call.log);
  Plan plan = TRY(decide_and_book(container, inventory, ledger, who.owner, who.user, call));
  call.phase = FailureReason::kLedger;
  if (!plan.mounts.empty()) TRY_VOID(ledger.make_view(who.user.key, plan.view));
  call.timing.step("view");
  SpecBooking booked{container, who, ledger, inventory, plan};
  TRY_VOID(write_down(booked));
  call.timing.step("edit");
  call.phase = FailureReason::kLedger;
  TRY_VOID(booking.finish());
  call.timing.step("ledger");
  if (!plan.hcas.empty()) note_grant(booking.had_before() ? "kept" : event, container, who.owner, plan, call);
  return {};
}

}  // namespace

Result<SpecUser> new_spec_user(const ContainerSpec& spec, std::string label,
                               const std::optional<ProcessIdentity>& requester) {
  std::string token = TRY(new_token());
  const Owner owner = token_owner(token);
  return SpecUser{std::move(token), owner_of(spec, owner), {owner.key, std::move(label), requester}};
}

Result<OpenLedger> OpenLedger::open(Call& call, Returns::Caller caller) {
  call.phase = FailureReason::kLedger;
  auto returns = std::make_shared<const Returns>(call.options.ledger, call.ipam, caller);
  auto ledger = TRY(Ledger::open(call.options.ledger, returns));
  return OpenLedger{std::move(returns), std::move(ledger)};
}

Result<void> book_and_write_down(const OpenLedger& open, const Container& container, const SpecUser& who,
                                 std::string_view event, Call& call,
                                 const std::function<Result<void>(SpecBooking&)>& write_down) {
  auto booked = book(open, container, who, event, call, write_down);
  open.returns->report(call.log, call.counts);
  return booked;
}

Result<void> book_for_spec(Container& container, const ProcessIdentity& requester, Call& call, const Publish& publish) {
  const SpecUser who = TRY(new_spec_user(container.spec, call.container, requester));
  const auto open = TRY(OpenLedger::open(call));
  return book_and_write_down(open, container, who, "booked", call, [&](SpecBooking& booked) -> Result<void> {
    call.phase = FailureReason::kInternal;
    TRY_VOID(edit_spec(booked.plan, who.token, container.config));
    call.phase = FailureReason::kState;
    return publish({booked.plan, who.token}, container.config);
  });
}

}  // namespace hook
