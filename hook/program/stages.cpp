#include "hook/program/stages.hpp"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "hook/apply/edit_spec.hpp"
#include "hook/apply/live/live_steps.hpp"
#include "hook/apply/live/run_steps.hpp"
#include "hook/grant/booking.hpp"
#include "hook/grant/decide.hpp"
#include "hook/grant/give_network.hpp"
#include "hook/grant/grant_steps.hpp"
#include "hook/grant/own_hcas.hpp"
#include "hook/grant/returns.hpp"
#include "hook/oci/oci_state.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr int kStdinTimeoutMs = 10000;

Result<OciState> read_state() {
  const std::string text = TRY(read_state_text(STDIN_FILENO, kStdinTimeoutMs));
  return parse_oci_state(text);
}

// What the spec mounts already (rdma-runtime, the user) is left alone.
void leave_out_mounted(const ContainerSpec& spec, Plan& plan) {
  std::erase_if(plan.mounts, [&](const PlannedMount& mount) {
    const auto& mounted = spec.mount_destinations;
    return std::find(mounted.begin(), mounted.end(), mount.destination) != mounted.end();
  });
}

// The grant that rdma-runtime or rdma-nri booked becomes this container's.
Result<void> bind_token(const ContainerSpec& spec, const Ledger& ledger, const Owner& owner, const GrantUser& user) {
  const auto token = spec.annotations.find(kGrantAnnotation);
  if (token == spec.annotations.end()) return {};
  (void)TRY(ledger.bind(token->second, owner, user));  // none of ours: nothing to bind
  return {};
}

Result<void> apply(const Container& container, const LiveContainer& live, const Plan& plan, Call& call) {
  call.phase = FailureReason::kDevices;
  const LivePlan steps = TRY(live_steps(plan, container.spec, live.state, call.options.root));
  call.log.warnings(steps.warnings);
  call.log.warnings(TRY(run_steps(live, steps.steps)));
  call.timing.step("container");
  return {};
}

Result<void> give(const Container& container, const LiveContainer& live, const std::shared_ptr<const Returns>& returns,
                  Call& call) {
  const Options& options = call.options;
  call.phase = FailureReason::kLedger;
  const auto ledger = TRY(Ledger::open(options.ledger, returns));
  call.timing.step("read");
  repair(ledger, call.log);
  call.timing.step("repair");
  const Owner owner = owner_of(container.spec, container_owner(live.state.id, live.state.bundle));
  const GrantUser user{container_owner(live.state.id, live.state.bundle).key, live.state.id, live.init};
  auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
  TRY_VOID(add_own_hcas(options.ledger, owner, options.root, inventory));
  call.timing.step("read");

  Booking booking(ledger, owner, user.key, returns->rails(), call.log);
  TRY_VOID(bind_token(container.spec, ledger, owner, user));
  Plan plan = TRY(decide_and_book(container, inventory, ledger, owner, user, call));
  if (plan.hcas.empty()) return booking.finish();
  leave_out_mounted(container.spec, plan);
  call.phase = FailureReason::kNetwork;
  const std::string netns = owner.netns ? owner.netns->path : fmt::format("/proc/{}/ns/net", live.init.pid);
  TRY_VOID(give_network(container, {.user = user.key, .netns_path = netns}, inventory, ledger, owner, call, plan));
  call.phase = FailureReason::kLedger;
  if (!plan.mounts.empty()) TRY_VOID(ledger.make_view(user.key, plan.view));
  call.timing.step("view");
  TRY_VOID(apply(container, live, plan, call));
  call.phase = FailureReason::kLedger;
  TRY_VOID(booking.finish());
  call.timing.step("ledger");
  note_grant(booking.had_before() ? "kept" : "granted", container, owner, plan, call);
  return {};
}

// In a pod the grant is the namespace's. The bundle may be gone by now; then that is noticed when the namespace is.
Result<void> leave(const Ledger& ledger, const OciState& state) {
  const Owner own = container_owner(state.id, state.bundle);
  TRY_VOID(ledger.leave(own, own.key));
  const auto text = state.bundle.empty() ? Result<std::string>(fabric::Error{}) : read_bundle_config(state.bundle);
  const auto config = text ? parse_json(*text, "config.json") : Result<Json>(fabric::Error{});
  const auto spec = config ? read_container_spec(*config) : Result<ContainerSpec>(fabric::Error{});
  return spec ? ledger.leave(owner_of(*spec, own), own.key) : Result<void>();
}

}  // namespace

Result<void> create_runtime(Call& call) {
  const OciState state = TRY(read_state());
  call.container = state.id;
  call.log.set_container(state.id);
  const std::string text = TRY(read_bundle_config(state.bundle));
  const Container container = TRY(understand(text, call));
  call.log.warnings(container.asked.warnings);
  if (!container.asked.request) return {};
  const LiveContainer live = TRY(pin_container(state, container.spec));
  const auto returns = std::make_shared<Returns>(call.options.ledger, call.ipam);
  auto given = give(container, live, returns, call);
  returns->report(call.log, call.counts);
  return given;
}

Result<void> verify(Call& call) {
  const OciState state = TRY(read_state());
  call.container = state.id;
  call.log.set_container(state.id);
  const std::string text = TRY(read_bundle_config(state.bundle));
  const Container container = TRY(understand(text, call));
  if (!container.asked.request || container.asked.request->wish.kind == Wish::Kind::kNone) return {};
  call.phase = FailureReason::kLedger;
  const auto ledger = TRY(Ledger::open(call.options.ledger));
  // The pod's, or its own: under the token with which it was booked, or bound by createRuntime since.
  std::vector<std::string> keys = {owner_of(container.spec, container_owner(state.id, state.bundle)).key};
  const auto token = container.spec.annotations.find(kGrantAnnotation);
  if (token != container.spec.annotations.end()) keys.push_back(token_owner(token->second).key);
  for (const std::string& key : keys) {
    const auto grant = TRY(ledger.find(key));
    const auto is_this = [&](const GrantUser& user) { return user.id == state.id; };
    if (grant && std::any_of(grant->users.begin(), grant->users.end(), is_this)) return {};
  }
  call.phase = FailureReason::kRefused;
  return fabric::Error{fmt::format("the container asked for RDMA devices ({}) and nothing was granted",
                                   container.asked.request->wish.source),
                       0,
                       "rdma-nri did not take part: is it running and connected (`journalctl -t rdma-nri`)? Create the "
                       "container anew then"};
}

Result<void> poststop(Call& call) {
  const OciState state = TRY(read_state());
  call.container = state.id;
  call.log.set_container(state.id);
  call.phase = FailureReason::kLedger;
  const auto returns = std::make_shared<Returns>(call.options.ledger, call.ipam);
  const auto ledger = TRY(Ledger::open(call.options.ledger, returns));
  call.timing.step("read");
  returns->begin_poststop(state.id, call.timing);
  auto left = leave(ledger, state);
  returns->end_poststop();
  returns->report(call.log, call.counts);
  if (returns->failed()) call.phase = FailureReason::kNetwork;
  TRY_VOID(std::move(left));
  repair(ledger, call.log);
  returns->report(call.log, call.counts);
  return {};
}

}  // namespace hook
