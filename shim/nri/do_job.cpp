#include "shim/nri/do_job.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "hook/base/process/sandbox.hpp"
#include "hook/grant/give_network.hpp"
#include "hook/grant/spec_grant.hpp"
#include "hook/metrics/count_call.hpp"
#include "shim/nri/adjustment.hpp"
#include "shim/nri/holders.hpp"
#include "shim/nri/spec_of.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::Call;
using hook::Ledger;
using hook::OpenLedger;
using hook::Owner;
using hook::SpecBooking;
using hook::SpecUser;

constexpr const char* kPodStage = "nri-pod";
constexpr const char* kContainerStage = "nri-container";

// Rails of a pod's plan that are not there yet. Namespaces are entered without a word of NRI's: the path is the
// runtime's own.
Result<void> give_rails(SpecBooking& booked, Call& call) {
  if (booked.plan.netdevs.empty() || !booked.who.owner.netns) return {};
  call.phase = hook::FailureReason::kNetwork;
  const hook::NetworkTarget target{booked.who.user.key, booked.who.owner.netns->path, true};
  return hook::give_network(booked.container, target, booked.inventory, booked.ledger, booked.who.owner, call,
                            booked.plan);
}

// What happened, into the log; the counters are for afterwards, when the runtime has its answer.
Worker::Answer answer(const char* stage, std::shared_ptr<Call> call, Result<std::string> done) {
  if (!done) call->log.error(done.error());
  const auto result = done ? Result<void>() : Result<void>(done.error());
  return {std::move(done), [stage, call = std::move(call), result] { hook::count_call(stage, *call, result); }};
}

Result<std::string> give_to_pod(const Job& job, const hook::Container& container, Call& call) {
  const Owner own = hook::container_owner(job.pod.id, "");
  // The sandbox stands for itself: its part ends with it.
  const SpecUser who{"", hook::owner_of(container.spec, own), {own.key, job.pod.id, {}}};
  const auto open = TRY(OpenLedger::open(call));
  TRY_VOID(hook::book_and_write_down(open, container, who, "granted", call,
                                     [&](SpecBooking& booked) { return give_rails(booked, call); }));
  return std::string();
}

Result<std::string> give_to_container(const Job& job, const hook::Container& asking, Call& call) {
  const std::string& id = job.container.id;
  SpecUser who = TRY(hook::new_spec_user(asking.spec, id, {}));
  // Its id stands for it, for as long as the runtime knows it.
  if (who.owner.kind == Owner::Kind::kToken) who.owner.label = hook::container_owner(id, "").label;
  const auto open = TRY(OpenLedger::open(call));
  // Another instance of this plugin, or an earlier try, has booked for it.
  if (auto holder = TRY(find_holder(open.ledger, asking.spec, id)))
    who = {"", std::move(holder->owner), std::move(holder->user)};
  ContainerAdjustment adjustment;
  const auto write_down = [&](SpecBooking& booked) -> Result<void> {
    TRY_VOID(give_rails(booked, call));
    call.phase = hook::FailureReason::kState;
    adjustment = TRY(nri_adjustment(booked.plan, who.token, job.container));
    if (!booked.plan.capabilities.empty() && !adjustment.rlimits.empty()) {
      call.log.info("NRI cannot add CAP_IPC_LOCK: RLIMIT_MEMLOCK is raised instead, which is enough for ibv_reg_mr");
    }
    return {};
  };
  TRY_VOID(hook::book_and_write_down(open, asking, who, "granted", call, write_down));
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
  hook::Options options;
  options.engine = engine;
  options.config = settings.config;
  options.root = settings.root;
  options.ledger = settings.ledger;
  JobRunner runner(std::move(options), std::move(config), plugin_log(settings));
  const auto has_plugin = [](const auto& entry) { return entry.second.ipam.has_value(); };
  if (runner.config_) {
    const auto& networks = runner.config_->networks;
    if (std::any_of(networks.begin(), networks.end(), has_plugin)) runner.ipam_ = TRY(hook::IpamHelper::start());
  }
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
  auto call = std::make_shared<Call>(Call{options_, log_, helper()});
  call->container = pod ? job.pod.id : job.container.id;
  auto spec = pod ? spec_of(job.pod, options_.engine) : spec_of(job.pod, job.container, options_.engine);
  const auto asking = hook::understand_spec(std::move(spec), config_, options_.engine);
  const auto steps = pod ? give_to_pod : give_to_container;
  auto done = asking ? steps(job, *asking, *call) : Result<std::string>(asking.error());
  return answer(pod ? kPodStage : kContainerStage, std::move(call), std::move(done));
}

Worker::Answer JobRunner::take_back(const Job& job) {
  const bool recovers = job.kind == Job::Kind::kRecover;
  Call call{options_, log_, helper()};
  const auto open = OpenLedger::open(call, recovers ? hook::Returns::Caller::kRecover : hook::Returns::Caller::kOther);
  if (!open) return {open.error()};
  const auto done = recovers                            ? recover(job, open->ledger)
                    : job.kind == Job::Kind::kReturnPod ? return_pod(job, options_.engine, open->ledger)
                                                        : leave(job, options_.engine, open->ledger);
  open->returns->report(log_, call.counts);
  const auto count = [ledger = options_.ledger, counts = std::move(call.counts)] { hook::add_counts(ledger, counts); };
  if (!done) return {done.error(), count};
  return {std::string(), count};
}

}  // namespace shim
