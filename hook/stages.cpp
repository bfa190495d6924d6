#include "hook/stages.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <utility>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/booking.hpp"
#include "hook/decide.hpp"
#include "hook/give_network.hpp"
#include "hook/live/live_steps.hpp"
#include "hook/live/run_steps.hpp"
#include "hook/metrics/events.hpp"
#include "hook/metrics/returns.hpp"
#include "hook/oci/edit_spec.hpp"
#include "hook/oci/oci_state.hpp"
#include "hook/own_hcas.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr int kStdinTimeoutMs = 10000;

Result<OciState> read_state() {
  const std::string text = TRY(read_state_text(STDIN_FILENO, kStdinTimeoutMs));
  return parse_oci_state(text);
}

// For people, in front of the line for programs; that has all of them.
std::string some_names(const Plan& plan) {
  constexpr std::size_t kShown = 3;
  std::vector<std::string> names;
  for (const PlannedHca& hca : plan.hcas)
    names.push_back(hca.name);
  const std::size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  return fabric::join(names, ", ") + (more > 0 ? fmt::format(" and {} more", more) : "");
}

// What the spec mounts already (precreate, rdma-runtime, the user) is left alone.
void leave_out_mounted(const ContainerSpec& spec, Plan& plan) {
  std::erase_if(plan.mounts, [&](const PlannedMount& mount) {
    const auto& mounted = spec.mount_destinations;
    return std::find(mounted.begin(), mounted.end(), mount.destination) != mounted.end();
  });
}

// What others left half-way is no reason to fail this container.
void repair(const Ledger& ledger, const Log& log) {
  if (const auto repaired = ledger.repair_pending(); !repaired) log.warning(repaired.error().message);
}

// event: "granted"; "kept", by a call that found everything there (prestart and createRuntime both); "booked", of
// precreate, which is counted when the container has come. The rails are those that the container finds, whoever of its
// pod brought them.
void note_grant(std::string_view event, const Container& container, const Owner& owner, const Plan& plan, Call& call) {
  const auto rails = plan.netdevs.empty() ? std::nullopt : read_rails_of(call.options.ledger, owner.key);
  const Granted granted{.container = call.container,
                        .owner = owner,
                        .engine = call.options.engine,
                        .hcas = plan.hcas,
                        .source = container.asked.request->wish.source,
                        .rails = rails,
                        .timing = call.timing};
  call.log.info(
      fmt::format("{} {}: {}", event == "booked" ? event : "given", some_names(plan), granted_line(event, granted)));
  if (event != "granted") return;
  const std::string engine(to_string(call.options.engine));
  call.counts.push_back({kGrantsTotal, {{"engine", engine}, {"mode", std::string(mode_of(plan.hcas))}}});
}

// The grant that precreate or rdma-runtime booked becomes this container's.
Result<void> bind_token(const ContainerSpec& spec, const Ledger& ledger, const Owner& owner, const GrantUser& user) {
  const auto token = spec.annotations.find(kGrantAnnotation);
  if (token == spec.annotations.end()) return {};
  (void)TRY(ledger.bind(token->second, owner, user));  // none of ours: nothing to bind
  return {};
}

// Of refusals only: whether the node has no such HCA, or has it and others do.
FailureReason why_refused(const Container& container, const fabric::Inventory& inventory, const Owner& owner,
                          const GrantUser& user) {
  const auto named = named_hcas(*container.asked.request).value_or(std::vector<std::string>());
  const auto is_here = [&](const std::string& name) { return find_hca(inventory, name) != nullptr; };
  if (inventory.hcas.empty() || !std::all_of(named.begin(), named.end(), is_here)) return FailureReason::kNoHca;
  return decide(container, inventory, nullptr, owner, user, false) ? FailureReason::kBusy : FailureReason::kRefused;
}

Result<Plan> decide_and_book(const Container& container, const fabric::Inventory& inventory, const Ledger& ledger,
                             const Owner& owner, const GrantUser& user, Call& call) {
  call.phase = FailureReason::kRefused;
  auto plan = decide(container, inventory, &ledger, owner, user, true);
  if (!plan) {
    call.phase = why_refused(container, inventory, owner, user);
    return plan;
  }
  call.log.warnings(plan->warnings);
  call.timing.step("decide");
  return plan;
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
  TRY_VOID(give_network(container, live, inventory, ledger, owner, call, plan));
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

// Whose word it was that could not be understood.
Result<Container> understand(const std::string& text, Call& call) {
  auto container = understand(text, call.options);
  if (!container) call.phase = read_config(call.options.config) ? FailureReason::kRefused : FailureReason::kConfig;
  return container;
}

// The init of a machine takes over processes whose parent is gone. In a container, the engine itself may be process 1.
bool is_reaper(const ProcessIdentity& process) {
  if (process.pid != 1) return false;
  const auto name = fabric::sysfs::read_file("/proc/1/comm", 64);
  return !fabric::value_or(name, std::string()).starts_with("podman");
}

Result<std::string> read_precreate_config() {
  return read_text_fd(STDIN_FILENO, JsonLimits{}.bytes, kStdinTimeoutMs, "config.json on stdin");
}

Result<void> write_stdout(std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fabric::sys_error(written < 0 ? errno : EIO, "write the edited config.json");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

// Who waits for the edited config.json. Until the container has an init, that process stands for it: when it is gone
// and nothing was bound, the grant is returned.
Result<ProcessIdentity> requester() {
  const pid_t parent = ::getppid();
  const auto process = parent > 0 ? identify(parent) : std::nullopt;
  if (!process || is_reaper(*process)) return fabric::make_error("whoever started this hook is gone");
  return *process;
}

// Books and edits; what is booked is kept once the edited text is written.
Result<void> edit_for(Container& container, const ProcessIdentity& requester,
                      const std::shared_ptr<const Returns>& returns, Call& call) {
  const Options& options = call.options;
  call.phase = FailureReason::kLedger;
  const auto ledger = TRY(Ledger::open(options.ledger, returns));
  call.timing.step("read");
  repair(ledger, call.log);
  call.timing.step("repair");
  auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
  const std::string token = TRY(new_token());
  const GrantUser user{token_owner(token).key, "precreate", requester};
  const Owner owner = owner_of(container.spec, token_owner(token));
  TRY_VOID(add_own_hcas(options.ledger, owner, options.root, inventory));
  call.timing.step("read");

  Booking booking(ledger, owner, user.key, returns->rails(), call.log);
  const Plan plan = TRY(decide_and_book(container, inventory, ledger, owner, user, call));
  if (!plan.netdevs.empty()) {
    call.log.warning(
        "rails come when the container's network namespace exists: the hook has to run at createRuntime as well");
  }
  call.phase = FailureReason::kLedger;
  if (!plan.mounts.empty()) TRY_VOID(ledger.make_view(user.key, plan.view));
  call.timing.step("view");
  call.phase = FailureReason::kInternal;
  TRY_VOID(edit_spec(plan, token, container.config));
  call.phase = FailureReason::kState;
  TRY_VOID(write_stdout(container.config.dump()));
  // An orphan has another parent.
  if (::getppid() != requester.pid) return fabric::make_error("whoever started this hook is gone");
  call.timing.step("edit");
  call.phase = FailureReason::kLedger;
  TRY_VOID(booking.finish());
  call.timing.step("ledger");
  if (!plan.hcas.empty()) note_grant("booked", container, owner, plan, call);
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

Result<void> precreate(Call& call) {
  const ProcessIdentity parent = TRY(requester());
  const std::string text = TRY(read_precreate_config());
  Container container = TRY(understand(text, call));
  call.log.warnings(container.asked.warnings);
  if (!container.asked.request) return write_stdout(text);
  const auto returns = std::make_shared<Returns>(call.options.ledger, call.ipam);
  auto edited = edit_for(container, parent, returns, call);
  returns->report(call.log, call.counts);
  return edited;
}

}  // namespace hook
