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
#include "hook/network/return_rails.hpp"
#include "hook/oci/edit_spec.hpp"
#include "hook/oci/oci_state.hpp"

namespace hook {
namespace {

using fabric::Result;

constexpr int kStdinTimeoutMs = 10000;

Result<OciState> read_state() {
  const std::string text = TRY(read_state_text(STDIN_FILENO, kStdinTimeoutMs));
  return parse_oci_state(text);
}

std::string names_of(const Plan& plan) {
  std::vector<std::string> names;
  for (const PlannedHca& hca : plan.hcas)
    names.push_back(hca.name);
  return fabric::join(names, ", ");
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

std::string text_of(const Timing& timing) {
  std::string text = fmt::format("{} us", timing.total());
  for (const auto& [step, microseconds] : timing.steps())
    text += fmt::format(", {} {}", step, microseconds);
  return text;
}

void count_grant(const Plan& plan, Call& call) {
  for (const PlannedHca& hca : plan.hcas)
    call.counts.push_back(
        {kGrantsTotal,
         {{"engine", std::string(to_string(call.options.engine))}, {"mode", std::string(to_string(hca.mode))}}});
}

// The grant that precreate or rdma-runtime booked becomes this container's.
Result<void> bind_token(const ContainerSpec& spec, const Ledger& ledger, const Owner& owner, const GrantUser& user) {
  const auto token = spec.annotations.find(kGrantAnnotation);
  if (token == spec.annotations.end()) return {};
  (void)TRY(ledger.bind(token->second, owner, user));  // none of ours: nothing to bind
  return {};
}

Result<void> give(const Container& container, const LiveContainer& live, Call& call) {
  const Options& options = call.options;
  Log& log = call.log;
  call.phase = FailureReason::kLedger;
  const auto rails = std::make_shared<NodeRails>(options.ledger, call.ipam);
  const auto ledger = TRY(Ledger::open(options.ledger, rails));
  repair(ledger, log);
  const Owner owner = owner_of(container.spec, container_owner(live.state.id, live.state.bundle));
  const GrantUser user{container_owner(live.state.id, live.state.bundle).key, live.state.id, live.init};
  const auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
  call.timing.step("read");

  Booking booking(ledger, owner, user.key, *rails, log);
  TRY_VOID(bind_token(container.spec, ledger, owner, user));
  call.phase = FailureReason::kRefused;
  Plan plan = TRY(decide(container, inventory, &ledger, owner, user, true));
  log.warnings(plan.warnings);
  call.timing.step("decide");
  if (plan.hcas.empty()) return booking.finish();
  leave_out_mounted(container.spec, plan);
  call.phase = FailureReason::kNetwork;
  TRY_VOID(give_network(container, live, inventory, ledger, owner, call, plan));
  if (!plan.mounts.empty()) TRY_VOID(ledger.make_view(user.key, plan.view));
  call.phase = FailureReason::kDevices;
  call.timing.step("view");
  const LivePlan steps = TRY(live_steps(plan, container.spec, live.state, options.root));
  log.warnings(steps.warnings);
  log.warnings(TRY(run_steps(live, steps.steps)));
  call.timing.step("container");
  TRY_VOID(booking.finish());
  call.timing.step("ledger");
  count_grant(plan, call);
  log.info(
      fmt::format("given {} ({}) in {}", names_of(plan), container.asked.request->wish.source, text_of(call.timing)));
  return {};
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
Result<void> edit_for(Container& container, const ProcessIdentity& requester, Call& call) {
  const Options& options = call.options;
  Log& log = call.log;
  call.phase = FailureReason::kLedger;
  const auto rails = std::make_shared<NodeRails>(options.ledger, call.ipam);
  const auto ledger = TRY(Ledger::open(options.ledger, rails));
  repair(ledger, log);
  const auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
  const std::string token = TRY(new_token());
  const GrantUser user{token_owner(token).key, "precreate", requester};
  const Owner owner = owner_of(container.spec, token_owner(token));

  Booking booking(ledger, owner, user.key, *rails, log);
  const Plan plan = TRY(decide(container, inventory, &ledger, owner, user, true));
  log.warnings(plan.warnings);
  if (!plan.netdevs.empty()) {
    log.warning(
        "rails come when the container's network namespace exists: the hook has to run at createRuntime as well");
  }
  if (!plan.mounts.empty()) TRY_VOID(ledger.make_view(user.key, plan.view));
  TRY_VOID(edit_spec(plan, token, container.config));
  TRY_VOID(write_stdout(container.config.dump()));
  // An orphan has another parent.
  if (::getppid() != requester.pid) return fabric::make_error("whoever started this hook is gone");
  TRY_VOID(booking.finish());
  if (!plan.hcas.empty()) log.info(fmt::format("booked {} ({})", names_of(plan), container.asked.request->wish.source));
  return {};
}

}  // namespace

Result<void> create_runtime(Call& call) {
  Log& log = call.log;
  const OciState state = TRY(read_state());
  log.set_container(state.id);
  call.phase = FailureReason::kConfig;
  const std::string text = TRY(read_bundle_config(state.bundle));
  const Container container = TRY(understand(text, call.options));
  log.warnings(container.asked.warnings);
  if (!container.asked.request) return {};
  const LiveContainer live = TRY(pin_container(state, container.spec));
  return give(container, live, call);
}

Result<void> poststop(Call& call) {
  Log& log = call.log;
  const OciState state = TRY(read_state());
  log.set_container(state.id);
  const auto rails = std::make_shared<NodeRails>(call.options.ledger, call.ipam);
  const auto ledger = TRY(Ledger::open(call.options.ledger, rails));
  const Owner own = container_owner(state.id, state.bundle);
  TRY_VOID(ledger.leave(own, own.key));
  // In a pod the grant is the namespace's. The bundle may be gone by now; then that is noticed when the namespace is.
  const auto text = state.bundle.empty() ? Result<std::string>(fabric::Error{}) : read_bundle_config(state.bundle);
  const auto config = text ? parse_json(*text, "config.json") : Result<Json>(fabric::Error{});
  const auto spec = config ? read_container_spec(*config) : Result<ContainerSpec>(fabric::Error{});
  if (spec) TRY_VOID(ledger.leave(owner_of(*spec, own), own.key));
  repair(ledger, log);
  log.warnings(rails->take_warnings());
  call.timing.step("return");
  return {};
}

Result<void> precreate(Call& call) {
  Log& log = call.log;
  const ProcessIdentity parent = TRY(requester());
  const std::string text = TRY(read_precreate_config());
  Container container = TRY(understand(text, call.options));
  log.warnings(container.asked.warnings);
  if (!container.asked.request) return write_stdout(text);
  return edit_for(container, parent, call);
}

}  // namespace hook
