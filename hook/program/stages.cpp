#include "hook/program/stages.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "hook/apply/live/live_steps.hpp"
#include "hook/apply/live/own_cgroup.hpp"
#include "hook/apply/live/run_steps.hpp"
#include "hook/base/failure.hpp"
#include "hook/base/json/json.hpp"
#include "hook/oci/oci_state.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr int kStdinTimeoutMs = 10000;

// The messages of this call are about that container from here on.
Result<OciState> read_state(Call& call) {
  const std::string text = TRY(read_state_text(STDIN_FILENO, kStdinTimeoutMs));
  OciState state = TRY(parse_oci_state(text));
  call.container = state.id;
  call.log.set_container(state.id);
  return state;
}

Result<Asking> understand_bundle(const OciState& state, const Result<Config>& config, Engine engine) {
  const std::string text = TRY(read_bundle_config(state.bundle));
  return understand(text, config, engine);
}

// What is not found out costs no container its start: its grant then ends with its init.
std::optional<CgroupIdentity> noted_cgroup(const ContainerSpec& spec, const Call& call, const LiveContainer& live) {
  auto own = own_cgroup(spec, live.init.pid);
  if (own) return *std::move(own);
  call.log.warning(own.error().message);
  return std::nullopt;
}

Result<void> apply_live(const Plan& plan, const ContainerSpec& spec, const LiveContainer& live, Call& call) {
  if (plan.hcas.empty()) return {};
  const LivePlan steps = TRY(live_steps(plan, spec, live.state, call.node.root));
  call.log.warnings(steps.warnings);
  call.log.warnings(TRY(run_steps(live, steps.steps)));
  call.timing.step("container");
  return {};
}

// Its own grant first, for which no bundle is needed. In a pod the grant is the namespace's, which the bundle names;
// when that is gone by now, the grant goes when the namespace does.
Result<void> leave(const Ledger& ledger, const OciState& state) {
  const Owner own = container_owner(state.id, state.bundle);
  TRY_VOID(ledger.leave(own, own.key));
  const auto text = state.bundle.empty() ? Result<std::string>(fabric::Error{}) : read_bundle_config(state.bundle);
  const auto config = text ? parse_json(*text, "config.json") : Result<Json>(fabric::Error{});
  const auto spec = config ? read_container_spec(*config) : Result<ContainerSpec>(fabric::Error{});
  return spec ? ledger.leave(TRY(owner_of(*spec, own)), own.key) : Result<void>();
}

// The pod's grant, or its own: under the token with which it was booked, or bound by createRuntime since.
Result<bool> has_grant(const Ledger& ledger, const ContainerSpec& spec, const OciState& state) {
  std::vector<std::string> keys = {TRY(owner_of(spec, container_owner(state.id, state.bundle))).key};
  const auto token = spec.annotations.find(kGrantAnnotation);
  if (token != spec.annotations.end()) keys.push_back(token_owner(token->second).key);
  for (const std::string& key : keys) {
    const auto grant = TRY(ledger.find(key));
    const auto is_this = [&](const GrantUser& user) { return user.id == state.id; };
    if (grant && std::any_of(grant->users.begin(), grant->users.end(), is_this)) return true;
  }
  return false;
}

}  // namespace

Result<void> create_runtime(Call& call, const Result<Config>& config) {
  const OciState state = TRY(read_state(call));
  const Asking asking = TRY(understand_bundle(state, config, call.node.engine));
  call.log.warnings(asking.warnings);
  if (!asking.request) return {};
  // Before anything is booked: the grant is this process's, whatever becomes of its number.
  const LiveContainer live = TRY(pin_container(state, asking.spec));
  const auto open = TRY(OpenLedger::open(call));
  const Owner own = container_owner(state.id, state.bundle);
  const Grantee who{TRY(owner_of(asking.spec, own)),
                    {own.key, state.id, live.init, state.bundle, noted_cgroup(asking.spec, call, live)}};
  const std::string netns = who.owner.netns ? who.owner.netns->path : fmt::format("/proc/{}/ns/net", live.init.pid);
  const Way way{.event = "granted", .network = {netns}, .binds_token = true, .apply = [&](const Plan& plan) {
                  return about(FailureReason::kDevices, apply_live(plan, asking.spec, live, call));
                }};
  return grant(open, asking, who, way, call);
}

Result<void> verify(Call& call, const Result<Config>& config) {
  const OciState state = TRY(read_state(call));
  const Asking asking = TRY(understand_bundle(state, config, call.node.engine));
  if (!asking.request || asking.request->wish.kind == Wish::Kind::kNone) return {};
  const auto open = TRY(OpenLedger::open(call));
  if (TRY(about(FailureReason::kLedger, has_grant(open.ledger, asking.spec, state)))) return {};
  return fabric::Error{
      fmt::format("the container asked for RDMA devices ({}) and nothing was granted", asking.request->wish.source), 0,
      "rdma-nri did not take part: is it running and connected (`journalctl -t rdma-nri`)? Create the "
      "container anew then",
      FailureReason::kRefused};
}

Result<void> poststop(Call& call) {
  const OciState state = TRY(read_state(call));
  const auto open = TRY(OpenLedger::open(call));
  call.timing.step("read");
  open.returns->begin_poststop(state.id, call.timing);
  auto left = about(FailureReason::kLedger, leave(open.ledger, state));
  open.returns->end_poststop();
  if (left) open.repair(call.log);
  open.returns->report(call.log, call.outcome);
  return left;
}

}  // namespace hook
