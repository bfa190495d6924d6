#include "hook/program/stages.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "base/json/json.hpp"
#include "base/process/identity.hpp"
#include "fabric/inventory.hpp"
#include "hook/apply/live/own_cgroup.hpp"
#include "hook/apply/live/run_steps.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/grant/claims_of.hpp"
#include "hook/grant/granted_nodes.hpp"
#include "hook/grant/hcas.hpp"
#include "hook/oci/state.hpp"
#include "hook/plan/match.hpp"
#include "hook/plan/parts.hpp"

namespace hook {
namespace {

// A runtime writes the state at once. Without this limit, a broken runtime would block the hook and the container for
// ever.
constexpr int kStdinTimeoutMs = 10000;
constexpr std::chrono::seconds kTimeOfThreads(2);  // the threads of a killed process end within milliseconds

// Reads the state from stdin and sets the container in the call, so that all later messages name it.
Result<OciState> read_state(Call& call) {
  const auto text = read_state_text(STDIN_FILENO, kStdinTimeoutMs);
  auto parsed = text ? parse_oci_state(*text) : Result<OciState>(text.error());
  if (!parsed) {
    call.log.set_own_text("stdin has no state of a container");
    parsed.error().hint =
        "let an OCI runtime start this command as a hook; `rdma-hook plan` shows what a container gets";
  }
  OciState state = TRY(std::move(parsed));
  call.container = state.id;
  call.bundle = state.bundle;
  call.log.set_container(state.id);
  return state;
}

Result<ContainerRequest> understand_bundle(const OciState& state, const Result<Config>& config,
                                           const NodeSettings& node) {
  const std::string text = TRY(read_bundle_config(state.bundle));
  return understand(text, config, {node.engine, node.engine_is_named, state.bundle}, node.root);
}

// Returns the container's cgroup. If the cgroup cannot be read, logs a warning and returns nullopt, because that must
// not fail the start. A grant without a cgroup is stale as soon as the container's init has ended.
std::optional<CgroupIdentity> noted_cgroup(const ContainerSpec& spec, const Call& call, const LiveContainer& live) {
  auto own = own_cgroup(spec, live.init.pid);
  if (own) return *std::move(own);
  call.log.warning(own.error().message);
  return std::nullopt;
}

// Returns whether the user of the grant is this container. The program that made the grant may have recorded another
// path of the same bundle.
bool is_user(const GrantUser& user, const OciState& state) {
  if (user.key == container_owner(state.id, state.bundle).key) return true;
  // The path of a bundle can contain links or differ by mount namespace, so device and inode are compared.
  if (user.id != state.id || user.bundle.empty()) return false;
  const auto same = is_same_directory(user.bundle, state.bundle);
  return same.has_value() && *same;
}

// Releases the container's own grant and its part of its pod's grant. Users that have not ended stay, and are added to
// `staying`.
Result<void> leave_if_ended(const Ledger& ledger, const OciState& state, std::vector<GrantUser>& staying) {
  const Owner own = container_owner(state.id, state.bundle);
  auto left = ledger.leave(own, own.key);
  Ledger::Unread unread;
  for (const Grant& grant : TRY(ledger.find_by_id(state.id, &unread))) {
    for (const GrantUser& user : grant.users) {
      bool passed_over = false;
      if (is_user(user, state)) keep_first(left, ledger.leave(grant.owner, user.key, &passed_over));
      if (passed_over) staying.push_back(user);
    }
  }
  // A grant that cannot be read could be this container's, so it is an error. An error in `left` is returned first.
  return left && !unread.empty() ? unread.front() : left;
}

// Releases the container's grants. The OCI state does not name the runtime's state directory, so a container of another
// runtime can have the same id and bundle. Therefore only users that have ended are removed. runc calls poststop as
// soon as the first thread of the container's init is a zombie, so the other threads get time to end.
Result<void> leave(const Ledger& ledger, const OciState& state, const Log& log) {
  std::vector<GrantUser> staying;
  auto left = leave_if_ended(ledger, state, staying);
  const auto ends = [](const GrantUser& user) {
    return user.process && base::last_threads_end_within(*user.process, kTimeOfThreads);
  };
  if (std::ranges::any_of(staying, ends)) {
    staying.clear();
    left = leave_if_ended(ledger, state, staying);
  }
  if (!staying.empty())
    log.info(
        "a container of this id and bundle has not ended and keeps its HCAs: this poststop is for another container or "
        "a killed runtime; `rdma-hook recover` releases these HCAs after the container ends");
  return left;
}

// Returns the grants of the container: its own, its pod's, and a grant that rdma-nri made. Users that rdma-nri recorded
// have no bundle, because NRI does not report it, so their id alone identifies them.
Result<std::vector<Grant>> grants_of(const Ledger& ledger, const OciState& state) {
  auto grants = TRY(ledger.find_by_id(state.id));
  std::erase_if(grants, [&](const Grant& grant) {
    return std::ranges::none_of(grant.users, [&](const GrantUser& user) {
      return is_user(user, state) || (user.id == state.id && user.bundle.empty());
    });
  });
  return grants;
}

// Checks the container's device nodes against its grants (check_granted_nodes()). Sets the RDMA limits too: when
// rdma-nri runs, the container has no cgroup yet.
Result<void> verify_grants(const OciState& state, const ContainerRequest& requesting, const std::vector<Grant>& grants,
                           Call& call) {
  auto inventory = TRY(read_node_for(requesting, call.node, false));
  // HCAs of a grant can have moved to the container's network namespace, so they are added to the inventory.
  std::vector<PlannedHca> booked;
  for (const Grant& grant : grants) {
    TRY_VOID(add_own_hcas(call.node.ledger, grant.owner, call.node.root, inventory));
    booked.insert(booked.end(), grant.hcas.begin(), grant.hcas.end());
  }
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory.hcas)
    names.push_back(hca.name);
  // HCAs can have been renamed since rdma-nri granted them.
  const auto granted = named_by_now(booked, names, inventory, call.node.root);
  TRY_VOID(check_granted_nodes(requesting, granted, inventory));
  const auto limits = planned_rdma_limits(granted, NodeMap(inventory, requesting.admin), requesting.request->claimed);
  if (!limits.empty()) call.log.warnings(TRY(about(FailureReason::kDevices, limit_rdma(state.pid, limits))));
  return {};
}

// Returns whether the container's device nodes belong to no HCA of a pool: rdma-nri then ignores the container.
Result<bool> has_nothing_to_grant(const OciState& state, const ContainerRequest& requesting, Call& call) {
  if (!requesting.request->has_nodes_of_grant) return false;
  auto inventory = TRY(read_node_for(requesting, call.node, false));
  const Owner owner = TRY(owner_of(requesting.spec, container_owner(state.id, state.bundle)));
  if (const auto added = add_granted_hcas(*requesting.request, owner, call.node.root, inventory); !added)
    call.log.warning(added.error().message);
  const Candidates among(inventory, *requesting.request, requesting.admin);
  return among.matched && among.matched->hcas().empty();
}

}  // namespace

Result<void> create_runtime(Call& call, const Result<Config>& config) {
  const OciState state = TRY(read_state(call));
  const ContainerRequest requesting = TRY(understand_bundle(state, config, call.node));
  call.log.warnings(requesting.warnings);
  call.log.note(requesting.note);
  if (!requesting.request) return {};
  // The process is identified before the grant is made: the grant then belongs to this process even if its PID is
  // reused.
  const LiveContainer live = TRY(pin_container(state, requesting.spec));
  (void)TRY(OpenLedger::keep(call));
  const Grantee who = TRY(grantee_of(requesting.spec,
                                     {.key = {},
                                      .id = state.id,
                                      .process = live.init,
                                      .bundle = state.bundle,
                                      .cgroup = noted_cgroup(requesting.spec, call, live)},
                                     state.bundle));
  // If the container joins no pod's network namespace, the namespace of its init process gets the rails.
  const std::string netns = who.owner.netns ? who.owner.netns->path : fmt::format("/proc/{}/ns/net", live.init.pid);
  const auto booking =
      TRY(grant(requesting, who, {.event = "granted", .netns_path = netns, .binds_token = true}, call));
  if (booking->adjustment != Adjustment()) {
    call.log.warnings(TRY(about(FailureReason::kDevices, apply_live(booking->adjustment, requesting.spec, live,
                                                                    requesting.caller.engine, call.node.root))));
    call.timing.step("container");
  }
  return booking->finish();
}

Result<void> verify(Call& call, const Result<Config>& config) {
  const OciState state = TRY(read_state(call));
  ContainerRequest requesting = TRY(understand_bundle(state, config, call.node));
  const auto requests = [&] {
    return requesting.request && requesting.request->selection.kind != HcaSelection::Kind::kNone;
  };
  if (!requests()) return {};
  const auto open = TRY(OpenLedger::open(call));
  // The nodes of a claim for monitoring request no HCA.
  Owner owner;
  join_claims(TRY(about(FailureReason::kLedger, claims_of(requesting, open.ledger, call.node.root))), call.node.root,
              owner, *requesting.request);
  if (!requests()) return {};
  const auto grants = TRY(about(FailureReason::kLedger, grants_of(open.ledger, state)));
  if (!grants.empty()) return verify_grants(state, requesting, grants, call);
  // The container has no grant: either rdma-nri ignored it, because nothing is to be granted, or rdma-nri did not
  // receive it.
  if (TRY(has_nothing_to_grant(state, requesting, call))) return {};
  return Error{fmt::format("the container requested RDMA devices ({}), but no HCA was granted",
                           requesting.request->selection.source),
               0,
               "check that rdma-nri runs and is connected (`journalctl -t rdma-nri`), then create the "
               "container again",
               FailureReason::kRefused};
}

Result<void> poststop(Call& call) {
  const OciState state = TRY(read_state(call));
  const OpenLedger& open = *TRY(OpenLedger::keep(call));
  call.timing.step("read");
  auto left = about(FailureReason::kLedger, leave(open.ledger, state, call.log));
  open.report(Releaser::kPoststop, call);
  call.timing.step("return");
  // The repair comes last, because it must not delay the release of this container's HCAs.
  if (left) open.repair(call.log);
  open.report(Releaser::kOther, call);
  return left;
}

}  // namespace hook
