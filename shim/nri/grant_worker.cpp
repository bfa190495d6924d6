#include "shim/nri/grant_worker.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/failure.hpp"
#include "base/packed_record.hpp"
#include "base/text.hpp"
#include "hook/admin/metrics/count.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/grant/claims_of.hpp"
#include "hook/grant/grant.hpp"
#include "hook/grant/refused.hpp"
#include "hook/rails/addresses.hpp"
#include "shim/nri/grants_of.hpp"
#include "shim/nri/terms.hpp"

namespace shim {
namespace {

using hook::Call;
using hook::ContainerRequest;
using hook::Grantee;
using hook::Ledger;
using hook::OpenLedger;
using hook::Owner;

constexpr const char* kPodStage = "nri-pod";
constexpr const char* kContainerStage = "nri-container";
// The first byte of a job, which tells its kind. Packed values follow.
constexpr char kRequest = 'Q';
constexpr char kRecover = 'R';
constexpr char kEnded = 'E';
// Longest wait for the lock of a grant whose namespace has ended.
constexpr std::chrono::milliseconds kEndedPatience{200};

// Returns the network namespace that gets the rails: the path that the runtime reports for the pod. Empty path: the
// container is outside of a pod, and its namespace does not exist yet.
std::string netns_of(const Grantee& who) {
  return who.owner.netns ? who.owner.netns->path : "";
}

Result<std::string> grant_to_pod(const NriRequest& request, ContainerRequest& requesting, Call& call) {
  // The pod's sandbox counts as a user, so that the grant stays until the pod ends, even without a container.
  Grantee who = TRY(hook::grantee_of(
      requesting.spec, {.key = {}, .id = request.pod.id, .process = {}, .pod = request.pod.id}, std::string()));
  const OpenLedger& open = *TRY(OpenLedger::keep(call));
  const std::string uid = hook::pod_identity(requesting.spec, requesting.caller.engine).pod_uid;
  const auto claims = TRY(about(FailureReason::kLedger, hook::claims_of_pod(uid, open.ledger)));
  if (!requesting.request) requesting.request.emplace();
  hook::join_claims(claims, call.node.root, who.owner, *requesting.request);
  // A claim for monitoring has no rails, and an earlier claim of the pod may have ended.
  if (requesting.request->selection.kind == hook::HcaSelection::Kind::kNone) return std::string();
  // For the pod, HCAs are only booked and rails added. Devices and variables are set later, for each container.
  const auto booking =
      TRY(hook::grant(requesting, who, {.event = "granted", .netns_path = netns_of(who), .hurried = true}, call));
  TRY_VOID(booking->finish());
  return std::string();
}

// Warns if RLIMIT_MEMLOCK may be too low. NRI does not report the container's capabilities, so CAP_IPC_LOCK counts as
// missing.
void warn_about_memlock(const hook::Plan& plan, const ContainerRequest& requesting, const ContainerAdjustment& answer,
                        const base::Log& log) {
  const std::optional<hook::Rlimit>& before = requesting.spec.memlock;
  const bool is_set = answer.memlock.has_value();
  if (plan.memlock && !before && !is_set) {
    log.warning(
        fmt::format("RLIMIT_MEMLOCK is not changed: the limit of {} cannot be read from another PID namespace; "
                    "remedy: set hostPID: true",
                    to_string(requesting.caller.engine)));
  }
  if (plan.capabilities.empty()) return;
  std::optional<std::uint64_t> limit;
  if (is_set) limit = std::min(answer.memlock->soft, answer.memlock->hard);
  if (!is_set && before) limit = hook::usable(*before);
  if (limit != UINT64_MAX) {
    log.warning(
        fmt::format("NRI cannot add CAP_IPC_LOCK: ibv_reg_mr fails beyond RLIMIT_MEMLOCK, which is {}; "
                    "remedy: use rdma-runtime, or {}",
                    hook::limit_text(limit), hook::where_to_add_ipc_lock(requesting.caller.engine)));
  } else if (is_set) {
    log.info("NRI cannot add CAP_IPC_LOCK: unlimited RLIMIT_MEMLOCK is set instead, which is enough for ibv_reg_mr");
  }
}

void warn_about_view(const hook::Plan& plan, const ContainerRequest& requesting, const base::Log& log) {
  if (plan.hcas.empty() || !needs_own_view(requesting)) return;
  log.warning(
      "NRI cannot mount the view of /sys/class/infiniband into a user namespace that may map the node's uid 0: all "
      "HCAs are visible in the container; remedy: use rdma-runtime, or map other users");
}

// Warns of RDMA limits that NRI cannot set. The plugin cannot write these limits itself, because the container has
// no cgroup yet. `rdma-hook verify` can, because it runs later.
void warn_about_limits(const hook::Plan& plan, hook::RdmaController controller, const base::Log& log) {
  if (plan.rdma_limits.empty() || can_limit_rdma(plan.rdma_limits, controller)) return;
  log.warning(
      fmt::format("NRI cannot limit the RDMA objects of {}; remedy: install `rdma-hook verify` as createRuntime "
                  "hook (`rdma-hook install --way nri`)",
                  controller == hook::RdmaController::kV1 ? "a container on cgroup v1" : "several HCAs"));
}

Result<std::string> grant_to_container(const NriRequest& request, ContainerRequest& requesting, Call& call) {
  // The grant records no process: the container's first process does not exist yet. The runtime's process would be
  // wrong, because it outlives the container.
  const std::string& id = request.container.id;
  Grantee who = TRY(hook::grantee_of(requesting.spec, {.key = {}, .id = id, .process = {}}, std::nullopt));
  // Messages name the container's id, because users know it from the runtime, and not the token.
  if (who.owner.kind == Owner::Kind::kToken) who.owner.label = hook::container_owner(id, "").label;
  const OpenLedger& open = *TRY(OpenLedger::keep(call));
  if (who.owner.kind == Owner::Kind::kToken) open.ledger.expect_new(who.owner.key);
  // Another instance of this plugin, or an earlier attempt, may have made a grant for this container, which is then
  // used.
  if (auto found = TRY(about(FailureReason::kLedger, find_grant_of(open.ledger, requesting.spec, id))))
    who = *std::move(found);
  who.user.pod = request.pod.id;
  who.user.name = request.container.name;
  for (const Grantee& earlier :
       TRY(about(FailureReason::kLedger, find_earlier_tries(open.ledger, requesting.spec, who.user))))
    // Earlier attempts to create this container are removed from their grants. Otherwise the HCAs of these attempts
    // would stay booked until the pod ends.
    TRY_VOID(about(FailureReason::kLedger, open.ledger.leave(earlier.owner, earlier.user.key)));
  const hook::Way way{.event = "granted", .netns_path = netns_of(who), .hurried = true, .variables = true};
  const auto booking = TRY(hook::grant(requesting, who, way, call));
  const hook::Plan& plan = booking->plan;
  const auto controller =
      plan.rdma_limits.empty() ? hook::RdmaController::kNone : TRY(hook::rdma_controller(call.node.root));
  const ContainerAdjustment answer =
      TRY(about(FailureReason::kState, nri_adjustment(booking->adjustment, requesting.spec.memlock, controller)));
  warn_about_limits(plan, controller, call.log);
  warn_about_view(plan, requesting, call.log);
  warn_about_memlock(plan, requesting, answer, call.log);
  call.timing.step("edit");
  TRY_VOID(booking->finish());
  return create_response(answer);
}

Result<void> leave(const NriRequest& request, const hook::ContainerSpec& spec, const Ledger& ledger) {
  const auto found = TRY(find_grant_of(ledger, spec, request.container.id));
  return found ? ledger.leave(found->owner, found->user.key) : Result<void>();
}

// Removes the pod's users without a process from a grant that a container or a token (hook::token_owner()) owns. Only
// a pod in the node's network namespace has such grants: the grant of any other pod belongs to the pod's namespace.
Result<void> end_pod_users(const hook::Grant& grant, const std::string& pod, const Ledger& ledger) {
  for (const hook::GrantUser& user : grant.users)
    if (!has_process(user) && hook::has_id(user, pod)) TRY_VOID(ledger.leave(grant.owner, user.key));
  return {};
}

// Releases a grant that the pod's own network namespace owns. Errors: EBUSY, a process of a container still runs.
Result<void> end_pod(const hook::Grant& grant, const Ledger& ledger) {
  const auto user = std::ranges::find_if(grant.users, has_process);
  if (user == grant.users.end()) return ledger.release_grant(grant.owner.key);
  return Error{fmt::format("cannot release the grant of {}: container `{}` still runs", grant.owner.label,
                           base::printable(user->id)),
               EBUSY, "stop that container; the grant is then released"};
}

// Releases the pod's grants. A grant that cannot be released yet must not delay the release of the other grants.
Result<void> release_pod(const NriRequest& request, const hook::ContainerSpec& spec, const Ledger& ledger) {
  Result<void> all;
  Ledger::Unread unread;
  for (const hook::Grant& grant : TRY(find_pod_grants(ledger, spec, request.pod.id, unread))) {
    // find_pod_grants() also returns grants that the pod's containers own.
    const bool is_pods = grant.owner.kind == Owner::Kind::kNetns;
    keep_first(all, is_pods ? end_pod(grant, ledger) : end_pod_users(grant, request.pod.id, ledger));
  }
  return all && !unread.empty() ? unread.front() : all;
}

Result<void> end_unbound(std::string_view id, const Ledger& ledger) {
  Ledger::Unread unread;  // recover() reports them
  for (const hook::Grant& grant : TRY(ledger.find_by_id(id, &unread))) {
    for (const hook::GrantUser& user : grant.users)
      if (is_unbound(grant, user) && user.id == id) TRY_VOID(ledger.leave(grant.owner, user.key));
  }
  return {};
}

Result<void> recover(const std::set<std::string>& ended, const std::map<std::string, std::string>& pods,
                     const Ledger& ledger, const base::Log& log) {
  for (const std::string& id : ended)
    TRY_VOID(end_unbound(id, ledger));
  for (const auto& [container, pod] : pods)
    TRY_VOID(ledger.note_pod(container, pod));
  log.warnings(TRY(ledger.recover()).warnings);
  return {};
}

Result<void> release_ended(const std::set<std::string>& keys, const Ledger& ledger) {
  Result<void> all;
  for (const std::string& key : keys) {
    // A namespace whose file was removed may live on in processes. Its grant is then not stale and stays.
    const auto done = ledger.release(key, base::from_now(kEndedPatience), [] { return Result<void>(); });
    keep_first(all, done.has_value() ? Result<void>() : Result<void>(done.error()));
  }
  return all;
}

template <typename... Values>
std::string make_job(char kind, const Values&... values) {
  std::string job(1, kind);
  (base::pack(job, values), ...);
  return job;
}

template <typename... Values>
Result<void> read_job(std::string_view job, Values&... values) {
  job.remove_prefix(1);
  if ((base::unpack(job, values) && ...) && job.empty()) return {};
  return Error{"cannot read a job of rdma-nri", EINVAL};
}

}  // namespace

std::string job_of(const NriRequest& request, const ContainerRequest& requesting) {
  return make_job(kRequest, request.event, request.pod.id, request.container.id, request.container.name, requesting);
}

std::string recover_job(const std::set<std::string>& ended, const std::map<std::string, std::string>& pods) {
  return make_job(kRecover, ended, pods);
}

std::string ended_job(const std::set<std::string>& keys) {
  return make_job(kEnded, keys);
}

GrantWorker::GrantWorker(hook::NodeSettings node, Result<hook::Config> config, base::Log log)
    : node_(std::move(node)), config_(std::move(config)), log_(std::move(log)) {}

Result<GrantWorker> GrantWorker::begin(hook::NodeSettings node, Result<hook::Config> config, base::Log log) {
  GrantWorker worker(std::move(node), std::move(config), std::move(log));
  // The helper is started here, before restrict_process() forbids execve(2), because it executes IPAM plugins.
  const hook::Config* const known = worker.config_ ? &*worker.config_ : nullptr;
  worker.ipam_ = TRY(hook::IpamHelper::start_if_any(hook::ipam_programs(known, worker.node_.ledger)));
  // Events report changes of the running kernel, and none of a file tree. The sockets are opened here, because
  // restrict_process() forbids the socket for uevents.
  fabric::NodeEvents events;
  if (worker.node_.root.empty() && !worker.node_.snapshot) events.open();
  worker.kept_ = std::make_unique<fabric::KeptNode>(std::move(events));
  worker.node_.kept = worker.kept_.get();
  worker.kept_ledger_ = std::make_unique<hook::KeptLedger>(worker.node_.ledger);
  worker.node_.kept_ledger = worker.kept_ledger_.get();
  return worker;
}

Worker::Answer GrantWorker::run(std::string_view job) {
  log_.hold();
  Worker::Answer answer = serve(job);
  answer.afterwards = [this, then = std::move(answer.afterwards)] {
    log_.write_held();
    if (then) then();
  };
  return answer;
}

Worker::Answer GrantWorker::serve(std::string_view job) {
  log_.set_container("");
  if (job.starts_with(kRecover)) {
    std::set<std::string> ended;
    std::map<std::string, std::string> pods;
    if (const auto read = read_job(job, ended, pods); !read) return {read.error()};
    return release_by(hook::Releaser::kRecover,
                      [&](const Ledger& ledger) { return recover(ended, pods, ledger, log_); });
  }
  if (job.starts_with(kEnded)) {
    std::set<std::string> keys;
    if (const auto read = read_job(job, keys); !read) return {read.error()};
    return release_by(hook::Releaser::kOther, [&](const Ledger& ledger) { return release_ended(keys, ledger); });
  }
  NriRequest request;
  ContainerRequest requesting;
  if (const auto read =
          read_job(job, request.event, request.pod.id, request.container.id, request.container.name, requesting);
      !read)
    return {read.error()};
  log_.set_container(request.container.id.empty() ? request.pod.id : request.container.id);
  if (request.allocates()) return allocate(request, std::move(requesting));
  return release_by(hook::Releaser::kOther, [&, &spec = requesting.spec](const Ledger& ledger) {
    return request.of_pod() ? release_pod(request, spec, ledger) : leave(request, spec, ledger);
  });
}

Worker::Answer GrantWorker::allocate(const NriRequest& request, ContainerRequest requesting) {
  const bool pod = request.of_pod();
  auto call = std::make_shared<Call>(Call{node_, log_, helper()});
  call->container = pod ? request.pod.id : request.container.id;
  auto container = hook::refused_container(call->container, requesting.spec, node_.engine);
  if (!requesting.spec.memlock) requesting.spec.memlock = node_.engine_memlock;
  requesting.caller = {node_.engine};
  if (config_) requesting.admin = *config_;
  const auto steps = pod ? grant_to_pod : grant_to_container;
  auto done =
      config_ ? steps(request, requesting, *call) : Result<std::string>(about(FailureReason::kConfig, config_).error());
  if (!done) call->log.error(done.error());
  // The result is copied, because `done` moves into the answer before the counters are written.
  const auto result = done ? Result<void>() : Result<void>(done.error());
  const auto* const stage = pod ? kPodStage : kContainerStage;
  // The runtime does not wait for the metrics' counters and the note of the refusal.
  return {std::move(done), [stage, call = std::move(call), result, container = std::move(container)] {
            hook::count_stage(stage, *call, result);
            if (!result) hook::note_refused(call->node.ledger, stage, container, result.error());
          }};
}

Worker::Answer GrantWorker::release_by(hook::Releaser by, const ReleaseSteps& steps) {
  Call call{node_, log_, helper()};
  const auto open = OpenLedger::open(call);
  if (!open) return {open.error()};
  const auto done = steps(open->ledger);
  open->report(by, call);
  const auto count = [ledger = open->ledger, outcome = std::move(call.outcome)] {
    hook::count_releases(ledger.directory(), outcome);
  };
  if (!done) return {done.error(), count};
  return {std::string(), count};
}

}  // namespace shim
