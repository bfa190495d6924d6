#include "shim/nri/grants.hpp"

#include <memory>
#include <utility>

#include "shim/nri/do_job.hpp"
#include "shim/nri/holders.hpp"
#include "shim/nri/spec_of.hpp"

namespace shim {
namespace {

using fabric::Result;
using hook::Ledger;

bool asks(const hook::Asking& container) {
  return container.request && container.request->wish.kind != hook::Wish::Kind::kNone;
}

}  // namespace

Grants::Grants(const GrantSettings& settings, const hook::Log& log)
    : settings_(settings), log_(log), worker_([this]() -> Result<Worker::Serve> {
        auto runner =
            std::make_shared<JobRunner>(TRY(JobRunner::begin(settings_, config_ ? *config_ : read_config(), engine_)));
        return Worker::Serve([runner](std::string_view bytes) { return runner->run(bytes); });
      }) {}

void Grants::set_engine(hook::Engine engine) {
  engine_ = engine;
  worker_.retire();
  (void)read_config();
  if (const auto started = worker_.start(); !started) log_.warning(started.error().message);
}

const Result<hook::Config>& Grants::read_config() {
  auto texts = hook::read_config_texts(settings_.config);
  if (!texts) {
    texts_.clear();
    config_.emplace(texts.error());
    worker_.retire();
  } else if (!config_ || *texts != texts_) {
    config_.emplace(hook::valid_config(*texts));
    texts_ = std::move(texts).value();
    worker_.retire();
  }
  return *config_;
}

hook::Config Grants::config() {
  const auto& config = read_config();
  return config ? *config : hook::Config();
}

Result<hook::Asking> Grants::understand(hook::ContainerSpec spec) {
  return hook::understand_spec(std::move(spec), read_config(), engine_);
}

Result<void> Grants::give_pod(const NriPod& pod, Clock::time_point deadline) {
  const hook::Asking container = TRY(understand(spec_of(pod, engine_)));
  log_.warnings(container.warnings);
  if (!asks(container) || hook::uses_host_network(container.spec)) return {};
  (void)TRY(ask({Job::Kind::kGivePod, pod}, deadline));
  return {};
}

Result<ContainerAdjustment> Grants::give_container(const NriPod& pod, const NriContainer& container,
                                                   Clock::time_point deadline) {
  const hook::Asking asking = TRY(understand(spec_of(pod, container, engine_)));
  log_.warnings(asking.warnings);
  if (!asking.request) return ContainerAdjustment();
  return parse_adjustment(TRY(ask({Job::Kind::kGiveContainer, pod, container}, deadline)));
}

Result<void> Grants::leave(const NriPod& pod, const NriContainer& container, Clock::time_point deadline) {
  const auto ledger = TRY(Ledger::open(settings_.ledger));
  // Most containers hold nothing.
  if (!TRY(find_holder(ledger, spec_of(pod, container, engine_), container.id))) return {};
  (void)TRY(ask({Job::Kind::kLeave, pod, container}, deadline));
  return {};
}

Result<void> Grants::return_pod(const NriPod& pod, Clock::time_point deadline) {
  const auto ledger = TRY(Ledger::open(settings_.ledger));
  if (!TRY(find_pod_grant(ledger, spec_of(pod, engine_), pod.id))) return {};
  (void)TRY(ask({Job::Kind::kReturnPod, pod}, deadline));
  return {};
}

Result<std::set<std::string>> Grants::unbound_containers() const {
  std::set<std::string> ids;
  const auto ledger = TRY(Ledger::open(settings_.ledger));
  for (const hook::Grant& grant : TRY(ledger.list())) {
    for (const hook::GrantUser& user : grant.users) {
      if (is_unbound(grant, user)) ids.insert(user.id);
    }
  }
  return ids;
}

Result<void> Grants::recover(const std::set<std::string>& gone, Clock::time_point deadline) {
  (void)TRY(ask({Job::Kind::kRecover, {}, {}, gone}, deadline));
  return {};
}

Result<bool> Grants::lacks_grant(const NriPod& pod, const NriContainer& container) {
  const hook::Asking asking = TRY(understand(spec_of(pod, container, engine_)));
  if (!asks(asking)) return false;
  const auto ledger = TRY(Ledger::open(settings_.ledger));
  return !TRY(find_holder(ledger, asking.spec, container.id)).has_value();
}

}  // namespace shim
