#include "hook/stages.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/decide.hpp"
#include "hook/live/live_steps.hpp"
#include "hook/live/run_steps.hpp"
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

void warn(const std::vector<std::string>& warnings, const Log& log) {
  for (const std::string& warning : warnings)
    log.warning(warning);
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

Result<void> refuse_netdevs(const Plan& plan) {
  if (plan.netdevs.empty()) return {};
  return fabric::Error{fmt::format("`{}` would have to become `{}` in the container, and this version moves no netdevs",
                                   plan.netdevs.front().host, plan.netdevs.front().name),
                       0, "leave the network out of the request and of the pool, and let the CNI bring the rails"};
}

// One container between booking and the end of its steps. Unless finished, what was booked is given back, but not from
// a container that had it before this call: that one may be running.
class Booking {
 public:
  Booking(const Ledger& ledger, const Owner& owner, std::string user)
      : ledger_(&ledger), owner_(&owner), user_(std::move(user)), had_before_(has_settled()) {}
  Booking(const Booking&) = delete;
  Booking& operator=(const Booking&) = delete;
  ~Booking() {
    if (finished_) return;
    if (!had_before_) (void)ledger_->leave(*owner_, user_).has_value();
    (void)ledger_->settle(owner_->key).has_value();
  }
  Result<void> finish() {
    finished_ = true;
    return ledger_->settle(owner_->key);
  }

 private:
  bool has_settled() const {
    const auto grant = ledger_->find(owner_->key);
    if (!grant || !*grant || (*grant)->pending) return false;
    const auto& users = (*grant)->users;
    return std::any_of(users.begin(), users.end(), [&](const GrantUser& user) { return user.key == user_; });
  }

  const Ledger* ledger_;
  const Owner* owner_;
  std::string user_;
  bool had_before_;
  bool finished_ = false;
};

// The grant that precreate or rdma-runtime booked becomes this container's.
Result<void> bind_token(const ContainerSpec& spec, const Ledger& ledger, const Owner& owner, const GrantUser& user) {
  const auto token = spec.annotations.find(kGrantAnnotation);
  if (token == spec.annotations.end()) return {};
  (void)TRY(ledger.bind(token->second, owner, user));  // none of ours: nothing to bind
  return {};
}

Result<void> give(const Container& container, const LiveContainer& live, const Options& options, Log& log) {
  const auto ledger = TRY(Ledger::open(options.ledger));
  repair(ledger, log);
  const Owner owner = owner_of(container.spec, container_owner(live.state.id, live.state.bundle));
  const GrantUser user{container_owner(live.state.id, live.state.bundle).key, live.state.id, live.init};
  const auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));

  Booking booking(ledger, owner, user.key);
  TRY_VOID(bind_token(container.spec, ledger, owner, user));
  Plan plan = TRY(decide(container, inventory, &ledger, owner, user, true));
  warn(plan.warnings, log);
  if (plan.hcas.empty()) return booking.finish();
  leave_out_mounted(container.spec, plan);
  TRY_VOID(refuse_netdevs(plan));
  if (!plan.mounts.empty()) TRY_VOID(ledger.make_view(user.key, plan.view));
  const LivePlan steps = TRY(live_steps(plan, container.spec, live.state, options.root));
  warn(steps.warnings, log);
  warn(TRY(run_steps(live, steps.steps)), log);
  TRY_VOID(booking.finish());
  log.info(fmt::format("given {} ({})", names_of(plan), container.asked.request->wish.source));
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
Result<void> edit_for(Container& container, const ProcessIdentity& requester, const Options& options, Log& log) {
  const auto ledger = TRY(Ledger::open(options.ledger));
  repair(ledger, log);
  const auto inventory = TRY(read_node_for(*container.asked.request, container.admin, options));
  const std::string token = TRY(new_token());
  const GrantUser user{token_owner(token).key, "precreate", requester};
  const Owner owner = owner_of(container.spec, token_owner(token));

  Booking booking(ledger, owner, user.key);
  const Plan plan = TRY(decide(container, inventory, &ledger, owner, user, true));
  warn(plan.warnings, log);
  TRY_VOID(refuse_netdevs(plan));
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

Result<void> create_runtime(const Options& options, Log& log) {
  const OciState state = TRY(read_state());
  log.set_container(state.id);
  const std::string text = TRY(read_bundle_config(state.bundle));
  const Container container = TRY(understand(text, options));
  warn(container.asked.warnings, log);
  if (!container.asked.request) return {};
  const LiveContainer live = TRY(pin_container(state, container.spec));
  return give(container, live, options, log);
}

Result<void> poststop(const Options& options, Log& log) {
  const OciState state = TRY(read_state());
  log.set_container(state.id);
  const auto ledger = TRY(Ledger::open(options.ledger));
  const Owner own = container_owner(state.id, state.bundle);
  TRY_VOID(ledger.leave(own, own.key));
  // In a pod the grant is the namespace's. The bundle may be gone by now; then that is noticed when the namespace is.
  const auto text = state.bundle.empty() ? Result<std::string>(fabric::Error{}) : read_bundle_config(state.bundle);
  const auto config = text ? parse_json(*text, "config.json") : Result<Json>(fabric::Error{});
  const auto spec = config ? read_container_spec(*config) : Result<ContainerSpec>(fabric::Error{});
  if (spec) TRY_VOID(ledger.leave(owner_of(*spec, own), own.key));
  repair(ledger, log);
  return {};
}

Result<void> precreate(const Options& options, Log& log) {
  const ProcessIdentity parent = TRY(requester());
  const std::string text = TRY(read_precreate_config());
  Container container = TRY(understand(text, options));
  warn(container.asked.warnings, log);
  if (!container.asked.request) return write_stdout(text);
  return edit_for(container, parent, options, log);
}

}  // namespace hook
