#include "shim/nri/grants.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include "fabric/text.hpp"
#include "hook/count_call.hpp"
#include "hook/give_network.hpp"
#include "hook/metrics/returns.hpp"
#include "hook/network/address/ipam_helper.hpp"
#include "hook/process/sandbox.hpp"
#include "hook/spec_grant.hpp"
#include "shim/nri/adjustment.hpp"
#include "shim/nri/adjustment_json.hpp"
#include "shim/nri/in_child.hpp"
#include "shim/nri/spec_of.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::GrantUser;
using hook::Ledger;
using hook::Owner;
using hook::SpecBooking;
using hook::SpecUser;

constexpr const char* kPodStage = "nri-pod";
constexpr const char* kContainerStage = "nri-container";

bool asks(const hook::Container& container) {
  return container.asked.request && container.asked.request->wish.kind != hook::Wish::Kind::kNone;
}

const GrantUser* find_user(const hook::Grant& grant, const std::string& id) {
  const auto found =
      std::find_if(grant.users.begin(), grant.users.end(), [&](const GrantUser& user) { return user.id == id; });
  return found == grant.users.end() ? nullptr : &*found;
}

// A token without a process is one of this plugin's: the container's id stands for it.
bool is_unbound(const hook::Grant& grant, const GrantUser& user) {
  return grant.owner.kind == Owner::Kind::kToken && !user.process;
}

// The container's part in the pod's grant, or its own.
Result<std::optional<std::pair<Owner, GrantUser>>> find_holder(const Ledger& ledger, const hook::ContainerSpec& spec,
                                                               const std::string& id) {
  using Found = std::optional<std::pair<Owner, GrantUser>>;
  const Owner nobody = hook::container_owner(id, "");
  const Owner owner = hook::owner_of(spec, nobody);
  if (owner.kind == Owner::Kind::kNetns) {
    const auto grant = TRY(ledger.find(owner.key));
    const GrantUser* user = grant ? find_user(*grant, id) : nullptr;
    return user ? Found(std::pair(owner, *user)) : Found();
  }
  // In the node's network namespace: a token's grant, or the container's that createRuntime bound it to.
  for (const hook::Grant& grant : TRY(ledger.list())) {
    if (grant.owner.kind == Owner::Kind::kNetns) continue;
    if (const GrantUser* user = find_user(grant, id)) return Found(std::pair(grant.owner, *user));
  }
  return Found();
}

// The key of the pod's grant. containerd 1.7 tells of a pod's end when its network namespace is gone already (tried:
// 1.7.24): then the grant of which the sandbox is a part.
Result<std::optional<std::string>> find_pod_grant(const Ledger& ledger, const hook::ContainerSpec& spec,
                                                  const std::string& id) {
  const Owner owner = hook::owner_of(spec, hook::container_owner(id, ""));
  if (owner.kind == Owner::Kind::kNetns)
    return TRY(ledger.find(owner.key)) ? std::optional(owner.key) : std::optional<std::string>();
  for (const hook::Grant& grant : TRY(ledger.list())) {
    if (grant.owner.kind == Owner::Kind::kNetns && find_user(grant, id)) return std::optional(grant.owner.key);
  }
  return std::optional<std::string>();
}

// In a child, after isolate(): what the steps need of this process, and then few system calls.
struct Confined {
  hook::Log log;
  std::optional<hook::IpamHelper> ipam;

  Result<void> enter(const hook::Config& admin) {
    const auto has_plugin = [](const auto& entry) { return entry.second.ipam.has_value(); };
    if (std::any_of(admin.networks.begin(), admin.networks.end(), has_plugin)) ipam = TRY(hook::IpamHelper::start());
    return hook::restrict_syscalls();
  }
  hook::IpamHelper* helper() { return ipam ? &*ipam : nullptr; }
};

// Rails of a pod's plan that are not there yet. Namespaces are entered without a word of NRI's: the path is the
// runtime's own.
Result<void> give_rails(SpecBooking& booked, hook::Call& call) {
  if (booked.plan.netdevs.empty() || !booked.who.owner.netns) return {};
  call.phase = hook::FailureReason::kNetwork;
  const hook::NetworkTarget target{booked.who.user.key, booked.who.owner.netns->path, true};
  return hook::give_network(booked.container, target, booked.inventory, booked.ledger, booked.who.owner, call,
                            booked.plan);
}

// The steps of one request, counted and told as those of a hook.
Result<void> book(const hook::Container& container, const SpecUser& who, const std::string& id,
                  const hook::Options& options, const GrantSettings& settings, const char* stage,
                  const std::function<Result<void>(SpecBooking&, hook::Call&)>& write_down) {
  Confined confined{plugin_log(settings), {}};
  TRY_VOID(confined.enter(container.admin));
  confined.log.set_container(id);
  hook::Call call{options, confined.log, confined.helper()};
  call.container = id;
  auto booked = hook::book_and_write_down(container, who, "granted", call,
                                          [&](SpecBooking& one) { return write_down(one, call); });
  if (!booked) confined.log.error(booked.error());
  hook::count_call(stage, call, booked);
  return booked;
}

}  // namespace

hook::Log plugin_log(const GrantSettings& settings) {
  return settings.to_syslog ? hook::Log::to_syslog("rdma-nri") : hook::Log::to_stderr("rdma-nri");
}

hook::Options Grants::options() const {
  hook::Options options;
  options.command = hook::Command::kPrecreate;
  options.engine = engine_;
  options.config = settings_.config;
  options.root = settings_.root;
  options.ledger = settings_.ledger;
  return options;
}

const Result<hook::Config>& Grants::read_config() {
  auto texts = hook::read_config_texts(settings_.config);
  if (!texts) {
    texts_.clear();
    config_.emplace(texts.error());
  } else if (!config_ || *texts != texts_) {
    config_.emplace(hook::valid_config(*texts));
    texts_ = std::move(texts).value();
  }
  return *config_;
}

hook::Config Grants::config() {
  const auto& config = read_config();
  return config ? *config : hook::Config();
}

Result<hook::Container> Grants::understand(hook::ContainerSpec spec) {
  return hook::understand_spec(std::move(spec), read_config(), engine_);
}

Result<void> Grants::give_pod(const PodSandbox& pod, Clock::time_point deadline) {
  const hook::Container container = TRY(understand(spec_of(pod, engine_)));
  log_.warnings(container.asked.warnings);
  if (!asks(container) || hook::uses_host_network(container.spec)) return {};
  const Owner owner = hook::owner_of(container.spec, hook::container_owner(pod.id, ""));
  // The sandbox stands for itself: its part ends with it.
  const SpecUser who{"", owner, {hook::container_owner(pod.id, "").key, pod.id, {}}};
  const auto work = [&]() -> Result<std::string> {
    TRY_VOID(book(container, who, pod.id, options(), settings_, kPodStage,
                  [](SpecBooking& booked, hook::Call& call) { return give_rails(booked, call); }));
    return std::string();
  };
  (void)TRY(run_in_child(work, deadline));
  return {};
}

Result<ContainerAdjustment> Grants::give_container(const PodSandbox& pod, const Container& container,
                                                   Clock::time_point deadline) {
  const hook::Container asking = TRY(understand(spec_of(pod, container, engine_)));
  log_.warnings(asking.asked.warnings);
  if (!asking.asked.request) return ContainerAdjustment();
  const auto work = [&]() -> Result<std::string> {
    SpecUser who = TRY(hook::new_spec_user(asking.spec, container.id, {}));
    // Its id stands for it, for as long as the runtime knows it.
    if (who.owner.kind == Owner::Kind::kToken) who.owner.label = hook::container_owner(container.id, "").label;
    // Another instance of this plugin, or an earlier try, has booked for it.
    const auto ledger = TRY(Ledger::open(settings_.ledger));
    if (auto holder = TRY(find_holder(ledger, asking.spec, container.id))) {
      who = {"", std::move(holder->first), std::move(holder->second)};
    }
    ContainerAdjustment adjustment;
    const auto write_down = [&](SpecBooking& booked, hook::Call& call) -> Result<void> {
      TRY_VOID(give_rails(booked, call));
      call.phase = hook::FailureReason::kState;
      adjustment = TRY(nri_adjustment(booked.plan, who.token, container));
      if (!booked.plan.capabilities.empty() && !adjustment.rlimits.empty()) {
        call.log.info("NRI cannot add CAP_IPC_LOCK: RLIMIT_MEMLOCK is raised instead, which is enough for ibv_reg_mr");
      }
      return {};
    };
    TRY_VOID(book(asking, who, container.id, options(), settings_, kContainerStage, write_down));
    return adjustment_text(adjustment);
  };
  return parse_adjustment(TRY(run_in_child(work, deadline)));
}

Result<void> Grants::leave(const PodSandbox& pod, const Container& container, Clock::time_point deadline) {
  const hook::ContainerSpec spec = spec_of(pod, container, engine_);
  // Most containers hold nothing: no process is made for them.
  const auto looked_at = TRY(Ledger::open(settings_.ledger));
  if (!TRY(find_holder(looked_at, spec, container.id))) return {};
  const auto work = [&]() -> Result<std::string> {
    Confined confined{plugin_log(settings_), {}};
    TRY_VOID(confined.enter({}));
    confined.log.set_container(container.id);
    const auto returns = std::make_shared<hook::Returns>(settings_.ledger, confined.helper());
    const auto ledger = TRY(Ledger::open(settings_.ledger, returns));
    const auto holder = TRY(find_holder(ledger, spec, container.id));
    if (holder) TRY_VOID(ledger.leave(holder->first, holder->second.key));
    std::vector<hook::Increment> counts;
    returns->report(confined.log, counts);
    hook::add_counts(settings_.ledger, counts);
    return std::string();
  };
  (void)TRY(run_in_child(work, deadline));
  return {};
}

Result<void> Grants::return_pod(const PodSandbox& pod, Clock::time_point deadline) {
  const auto looked_at = TRY(Ledger::open(settings_.ledger));
  const auto key = TRY(find_pod_grant(looked_at, spec_of(pod, engine_), pod.id));
  if (!key) return {};
  const auto work = [&]() -> Result<std::string> {
    Confined confined{plugin_log(settings_), {}};
    TRY_VOID(confined.enter(config()));
    confined.log.set_container(pod.id);
    const auto returns = std::make_shared<hook::Returns>(settings_.ledger, confined.helper());
    const auto ledger = TRY(Ledger::open(settings_.ledger, returns));
    auto given = ledger.give_back(*key);
    std::vector<hook::Increment> counts;
    returns->report(confined.log, counts);
    hook::add_counts(settings_.ledger, counts);
    TRY_VOID(std::move(given));
    return std::string();
  };
  (void)TRY(run_in_child(work, deadline));
  return {};
}

Result<std::set<std::string>> Grants::unbound_containers() const {
  std::set<std::string> ids;
  const auto ledger = TRY(Ledger::open(settings_.ledger));
  for (const hook::Grant& grant : TRY(ledger.list())) {
    for (const GrantUser& user : grant.users) {
      if (is_unbound(grant, user)) ids.insert(user.id);
    }
  }
  return ids;
}

Result<void> Grants::recover(const std::set<std::string>& gone, Clock::time_point deadline) {
  const auto work = [&]() -> Result<std::string> {
    Confined confined{plugin_log(settings_), {}};
    TRY_VOID(confined.enter({}));
    const auto returns =
        std::make_shared<hook::Returns>(settings_.ledger, confined.helper(), hook::Returns::Caller::kRecover);
    const auto ledger = TRY(Ledger::open(settings_.ledger, returns));
    for (const hook::Grant& grant : TRY(ledger.list())) {
      for (const GrantUser& user : grant.users) {
        if (is_unbound(grant, user) && gone.contains(user.id)) TRY_VOID(ledger.leave(grant.owner, user.key));
      }
    }
    auto recovered = ledger.recover();
    std::vector<hook::Increment> counts;
    returns->report(confined.log, counts);
    hook::add_counts(settings_.ledger, counts);
    if (!recovered) return recovered.error();
    return std::string();
  };
  (void)TRY(run_in_child(work, deadline));
  return {};
}

Result<bool> Grants::lacks_grant(const PodSandbox& pod, const Container& container) {
  const hook::Container asking = TRY(understand(spec_of(pod, container, engine_)));
  if (!asks(asking)) return false;
  const auto ledger = TRY(Ledger::open(settings_.ledger));
  return !TRY(find_holder(ledger, asking.spec, container.id)).has_value();
}

}  // namespace shim
