#include "shim/nri/rdma_plugin.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "fabric/text.hpp"
#include "shim/nri/spec_of.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;

// An answer that comes late is none: the container is created without it.
constexpr double kContainerShare = 0.75;
constexpr double kPodShare = 0.5;

constexpr std::array<std::string_view, 3> kPrefixes = {"rdma-init.io/", "k8s.volcengine.com/", "cni.spidernet.io/"};

bool speaks_of_rdma(const std::map<std::string, std::string>& annotations) {
  return std::any_of(annotations.begin(), annotations.end(), [](const auto& entry) {
    return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                       [&](std::string_view prefix) { return entry.first.starts_with(prefix); });
  });
}

std::string label_of(const NriPod& pod, const NriContainer& container) {
  if (pod.name.empty()) return fabric::printable(container.name);
  return fabric::printable(fmt::format("{}/{}/{}", pod.pod_namespace, pod.name, container.name));
}

Error in_pod(Error error, const NriPod& pod) {
  return fabric::wrap(std::move(error), fabric::printable(fmt::format("pod {}/{}", pod.pod_namespace, pod.name)));
}

}  // namespace

RdmaPlugin::Clock::time_point RdmaPlugin::within(double share) const {
  const auto whole = static_cast<double>(request_timeout_.count());
  return Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(whole * share));
}

Result<std::vector<Event>> RdmaPlugin::configure(const RuntimeInfo& runtime) {
  const auto engine = engine_ ? engine_ : engine_of_runtime(runtime.name);
  if (!engine) {
    return Error{fmt::format("runtime `{}` is not known", fabric::printable(runtime.name)), 0,
                 "say whose annotations these are: --engine containerd or crio"};
  }
  grants_.set_engine(*engine);
  if (runtime.request_timeout_ms > 0) request_timeout_ = std::chrono::milliseconds(runtime.request_timeout_ms);
  log_.info(fmt::format("configured by {} {}{}{}; a request may take {} ms", fabric::printable(runtime.name),
                        fabric::printable(runtime.version), runtime.nri_version.empty() ? "" : ", NRI ",
                        fabric::printable(runtime.nri_version), request_timeout_.count()));
  return std::vector<Event>{Event::kRunPodSandbox,   Event::kStopPodSandbox, Event::kRemovePodSandbox,
                            Event::kCreateContainer, Event::kStopContainer,  Event::kRemoveContainer};
}

void RdmaPlugin::synchronize_begin() {
  synchronize_began_ = Clock::now();
  synchronized_late_ = false;
  asking_pods_.clear();
  ungranted_.clear();
  auto unbound = grants_.unbound_containers();
  unnamed_ = unbound ? std::move(unbound).value() : std::set<std::string>();
}

void RdmaPlugin::found(const NriPod& pod) {
  if (!speaks_of_rdma(pod.annotations)) return;
  NriPod kept;
  kept.id = pod.id;
  kept.name = pod.name;
  kept.pod_namespace = pod.pod_namespace;
  kept.annotations = pod.annotations;
  kept.namespaces = pod.namespaces;
  asking_pods_[pod.id] = std::move(kept);
}

void RdmaPlugin::found(const NriContainer& container) {
  if (container.state == ContainerState::kStopped) return;
  const auto known_pod = asking_pods_.find(container.pod_id);
  const NriPod pod = known_pod == asking_pods_.end() ? NriPod() : known_pod->second;
  unnamed_.erase(container.id);
  const auto lacks = grants_.lacks_grant(pod, container);
  if (!lacks || !*lacks) return;  // what is wrong with what it asks is no matter of a missing grant
  ungranted_.push_back({container.id, label_of(pod, container), static_cast<pid_t>(container.pid)});
  log_.warning(
      fmt::format("container {} ({}) asked for RDMA devices and has no grant: it was created while rdma-nri "
                  "was not connected; create it anew",
                  ungranted_.back().label, fabric::printable(container.id.substr(0, 12))));
}

Result<void> RdmaPlugin::synchronize_end() {
  synchronized_late_ = Clock::now() - synchronize_began_ > request_timeout_;
  returns_due_ = true;
  asking_pods_.clear();
  work_is_due_();
  return {};
}

void RdmaPlugin::return_what_is_left() {
  if (!std::exchange(returns_due_, false)) return;
  const auto done = grants_.recover(std::exchange(unnamed_, {}), within(kPodShare));
  if (!done) log_.warning(fabric::wrap(done.error(), "returning what is left").message);
}

// An error would do harm: containerd 2.1.9 forgets the sandbox of a pod that a plugin refuses, so that its pause
// container, shim and mounts stay on the node, once more with every retry of the kubelet's. The pod's first container
// that asks is given the rails then, or refused with the same words.
Result<void> RdmaPlugin::run_pod_sandbox(const NriPod& pod) {
  const auto given = grants_.give_pod(pod, within(kPodShare));
  if (!given) log_.error(in_pod(given.error(), pod));
  return {};
}

Result<ContainerAdjustment> RdmaPlugin::create_container(const NriPod& pod, const NriContainer& container) {
  return grants_.give_container(pod, container, within(kContainerShare));
}

// Teardown must not fail: what is left is found by the next call, or by `rdma-hook recover`.
Result<void> RdmaPlugin::stop_pod_sandbox(const NriPod& pod) {
  const auto returned = grants_.return_pod(pod, within(kContainerShare));
  if (!returned) log_.error(in_pod(returned.error(), pod));
  return {};
}

Result<void> RdmaPlugin::remove_pod_sandbox(const NriPod& pod) {
  return stop_pod_sandbox(pod);
}

Result<void> RdmaPlugin::stop_container(const NriPod& pod, const NriContainer& container) {
  const auto left = grants_.leave(pod, container, within(kContainerShare));
  if (!left) log_.error(in_pod(left.error(), pod));
  return {};
}

Result<void> RdmaPlugin::remove_container(const NriPod& pod, const NriContainer& container) {
  return stop_container(pod, container);
}

}  // namespace shim
