#include "shim/nri/do_job.hpp"

#include <memory>
#include <utility>

#include "hook/base/failure.hpp"
#include "hook/base/process/sandbox.hpp"
#include "hook/grant/grant.hpp"
#include "hook/metrics/count.hpp"
#include "shim/nri/adjustment.hpp"
#include "shim/nri/holders.hpp"
#include "shim/nri/spec_of.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::about;
using hook::Asking;
using hook::Call;
using hook::FailureReason;
using hook::Grantee;
using hook::Ledger;
using hook::OpenLedger;
using hook::Owner;

constexpr const char* kPodStage = "nri-pod";
constexpr const char* kContainerStage = "nri-container";

// Namespaces are entered without a word of NRI's: the path is the runtime's own. Outside of pods there is none yet.
hook::NetworkTarget target_of(const Grantee& who) {
  return {who.owner.netns ? who.owner.netns->path : "", true};
}

// What happened, into the log; the counters are for afterwards, when the runtime has its answer.
Worker::Answer answer(const char* stage, std::shared_ptr<Call> call, Result<std::string> done) {
  if (!done) call->log.error(done.error());
  const auto result = done ? Result<void>() : Result<void>(done.error());
  return {std::move(done), [stage, call = std::move(call), result] { hook::count_stage(stage, *call, result); }};
}

Result<std::string> give_to_pod(const Job& job, const Asking& asking, Call& call) {
  const Owner own = hook::container_owner(job.pod.id, "");
  // The sandbox stands for itself: its part ends with it.
  const Grantee who{hook::owner_of(asking.spec, own), {own.key, job.pod.id, {}}};
  const auto open = TRY(OpenLedger::open(call));
  const auto nothing_more = [](const hook::Plan&) { return Result<void>(); };
  TRY_VOID(hook::grant(open, asking, who, {"granted", target_of(who), false, nothing_more}, call));
  return std::string();
}

Result<std::string> give_to_container(const Job& job, const Asking& asking, Call& call) {
  const std::string& id = job.container.id;
  Grantee who = TRY(hook::new_grantee(asking.spec, id, {}));
  // Its id stands for it, for as long as the runtime knows it.
  if (who.owner.kind == Owner::Kind::kToken) who.owner.label = hook::container_owner(id, "").label;
  const auto open = TRY(OpenLedger::open(call));
  // Another instance of this plugin, or an earlier try, has booked for it.
  if (auto holder = TRY(about(FailureReason::kLedger, find_holder(open.ledger, asking.spec, id))))
    who = {std::move(holder->owner), std::move(holder->user)};
  ContainerAdjustment adjustment;
  const auto write_down = [&](const hook::Plan& plan) -> Result<void> {
    adjustment = TRY(about(FailureReason::kState, nri_adjustment(plan, who.token, job.container)));
    if (!plan.capabilities.empty() && !adjustment.rlimits.empty()) {
      call.log.info("NRI cannot add CAP_IPC_LOCK: RLIMIT_MEMLOCK is raised instead, which is enough for ibv_reg_mr");
    }
    call.timing.step("edit");
    return {};
  };
  TRY_VOID(hook::grant(open, asking, who, {"granted", target_of(who), false, write_down}, call));
  return adjustment_bytes(adjustment);
}

Result<void> leave(const Job& job, hook::Engine engine, const Ledger& ledger) {
  const auto holder = TRY(find_holder(ledger, spec_of(job.pod, job.container, engine), job.container.id));
  return holder ? ledger.leave(holder->owner, holder->user.key) : Result<void>();
}

Result<void> return_pod(const Job& job, hook::Engine engine, const Ledger& ledger) {
  const auto key = TRY(find_pod_grant(ledger, spec_of(job.pod, engine), job.pod.id));
  return key ? ledger.give_back(*key) : Result<void>();
}

Result<void> recover(const Job& job, const Ledger& ledger) {
  for (const hook::Grant& grant : TRY(ledger.list())) {
    for (const hook::GrantUser& user : grant.users) {
      if (is_unbound(grant, user) && job.gone.contains(user.id)) TRY_VOID(ledger.leave(grant.owner, user.key));
    }
  }
  (void)TRY(ledger.recover());
  return {};
}

}  // namespace

Result<JobRunner> JobRunner::begin(const GrantSettings& settings, Result<hook::Config> config, hook::Engine engine) {
  hook::NodeSettings node{
      .config = settings.config, .root = settings.root, .snapshot = {}, .ledger = settings.ledger, .engine = engine};
  JobRunner runner(std::move(node), std::move(config), plugin_log(settings));
  if (runner.config_ && hook::runs_ipam_plugins(*runner.config_)) runner.ipam_ = TRY(hook::IpamHelper::start());
  TRY_VOID(hook::restrict_syscalls());
  return runner;
}

Worker::Answer JobRunner::run(std::string_view bytes) {
  const auto job = parse_job(bytes);
  if (!job) return {job.error()};
  log_.set_container(job->container.id.empty() ? job->pod.id : job->container.id);
  switch (job->kind) {
    case Job::Kind::kGivePod:
    case Job::Kind::kGiveContainer:
      return give(*job);
    case Job::Kind::kLeave:
    case Job::Kind::kReturnPod:
    case Job::Kind::kRecover:
      return take_back(*job);
  }
  return {std::string()};
}

Worker::Answer JobRunner::give(const Job& job) {
  const bool pod = job.kind == Job::Kind::kGivePod;
  auto call = std::make_shared<Call>(Call{node_, log_, helper()});
  call->container = pod ? job.pod.id : job.container.id;
  auto spec = pod ? spec_of(job.pod, node_.engine) : spec_of(job.pod, job.container, node_.engine);
  const auto asking = hook::understand_spec(std::move(spec), config_, node_.engine);
  const auto steps = pod ? give_to_pod : give_to_container;
  auto done = asking ? steps(job, *asking, *call) : Result<std::string>(asking.error());
  return answer(pod ? kPodStage : kContainerStage, std::move(call), std::move(done));
}

Worker::Answer JobRunner::take_back(const Job& job) {
  const bool recovers = job.kind == Job::Kind::kRecover;
  Call call{node_, log_, helper()};
  const auto open = OpenLedger::open(call, recovers ? hook::Returns::Caller::kRecover : hook::Returns::Caller::kOther);
  if (!open) return {open.error()};
  const auto done = recovers                            ? recover(job, open->ledger)
                    : job.kind == Job::Kind::kReturnPod ? return_pod(job, node_.engine, open->ledger)
                                                        : leave(job, node_.engine, open->ledger);
  open->returns->report(log_, call.outcome);
  const auto count = [ledger = node_.ledger, outcome = std::move(call.outcome)] {
    hook::count_returns(ledger, outcome);
  };
  if (!done) return {done.error(), count};
  return {std::string(), count};
}

}  // namespace shim
