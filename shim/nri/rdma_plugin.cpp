#include "shim/nri/rdma_plugin.hpp"

#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <string_view>

#include "base/process/sandbox.hpp"
#include "base/text.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "shim/nri/grant_worker.hpp"
#include "shim/nri/terms.hpp"
#include "shim/nri/wire/messages.hpp"

namespace shim {
namespace {

// Shares of the runtime's request timeout. The runtime ignores a late answer and creates the container without HCAs.
constexpr double kContainerShare = 0.75;
constexpr double kPodShare = 0.5;

// Longest time between CreateContainer and the time from which the runtime's Synchronize lists the container: the
// kubelet's timeout for one request to the runtime (--runtime-request-timeout).
constexpr std::chrono::seconds kLongestCreation{120};

// Most grants that the worker releases in one job, which has a deadline.
constexpr std::size_t kEndedAtOnce = 32;

constexpr std::array<std::string_view, 3> kPrefixes = {"rdma-init.io/", "k8s.volcengine.com/", "cni.spidernet.io/"};

bool speaks_of_rdma(const std::map<std::string, std::string>& annotations) {
  return std::ranges::any_of(annotations, [](const auto& entry) {
    return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return entry.first.starts_with(prefix); });
  });
}

std::string label_of(const NriPod& pod, const NriContainer& container) {
  if (pod.name.empty()) return base::printable(container.name);
  return base::printable(fmt::format("{}/{}/{}", pod.pod_namespace, pod.name, container.name));
}

// Returns true for NRI 0.10 or later: "v0.12.0". Runtimes before NRI 0.12 do not report their version and so count as
// older.
bool can_validate(std::string_view nri_version) {
  if (nri_version.starts_with('v')) nri_version.remove_prefix(1);
  const auto version = base::version_of(nri_version);
  return version && *version >= std::pair(0U, 10U);
}

bool is_rdma_node(const hook::SpecDevice& device) {
  return device.path.starts_with("/dev/infiniband/");
}

// A runtime whose CDI support is off silently drops the CDI devices of a container (containerd 2.0), so the log must
// have a warning.
void warn_of_missing_cdi(const NriContainer& container, const base::Log& log) {
  if (std::ranges::any_of(container.devices, is_rdma_node)) return;
  for (const std::string& name : container.cdi_devices) {
    const std::string kind = name.substr(0, name.find('='));
    if (kind != hook::kCdiKind && kind != hook::kClaimKind) continue;
    log.warning(fmt::format(
        "container {} requests CDI device `{}` but has no RDMA device node; remedy: enable CDI in the runtime",
        base::printable(container.name), base::printable(name)));
  }
}

bool asks(const hook::ContainerRequest& container) {
  return container.request && container.request->selection.kind != hook::HcaSelection::Kind::kNone;
}

}  // namespace

Result<NamespaceEnds> NamespaceEnds::open() {
  NamespaceEnds ends;
  ends.events_ = base::UniqueFd(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!ends.events_.ok()) return sys_error(errno, "cannot watch network namespaces");
  return ends;
}

Result<void> NamespaceEnds::watch(const std::string& path, const std::string& key) {
  if (!events_.ok()) return {};
  if (const auto known = paths_.find(path); known != paths_.end()) {
    known->second.insert(key);
    return {};
  }
  const std::string directory = path.substr(0, path.rfind('/'));
  // The directory is watched, because a watch on the path would watch the namespace that is mounted over the file. The
  // unlink(2) of the file is an event of the directory.
  const int watch = ::inotify_add_watch(events_.get(), directory.c_str(), IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR);
  if (watch < 0) return sys_error(errno, "cannot watch `{}`", base::printable(directory));
  directories_[watch] = directory;
  paths_[path].insert(key);
  return {};
}

std::optional<std::set<std::string>> NamespaceEnds::take() {
  std::set<std::string> ended;
  bool are_lost = false;
  alignas(inotify_event) std::array<char, 4096> buffer;
  for (;;) {
    const ssize_t count = events_.ok() ? ::read(events_.get(), buffer.data(), buffer.size()) : -1;
    if (count <= 0) return are_lost ? std::nullopt : std::optional(std::move(ended));
    for (std::size_t at = 0; at < static_cast<std::size_t>(count);) {
      // memcpy(3) is used, because reading a char array as an inotify_event would break strict aliasing.
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      const std::string_view name(buffer.data() + at + sizeof event, event.len);
      at += sizeof event + event.len;
      // The queue overflowed and lost events, or the directory itself is gone, so any watched namespace may have ended.
      are_lost = are_lost || (event.mask & (IN_Q_OVERFLOW | IN_IGNORED)) != 0;
      const auto directory = directories_.find(event.wd);
      if (directory == directories_.end()) continue;
      const auto removed = paths_.find(fmt::format("{}/{}", directory->second, name.substr(0, name.find('\0'))));
      if (removed != paths_.end()) ended.merge(paths_.extract(removed).mapped());
      if ((event.mask & IN_IGNORED) != 0) directories_.erase(directory);
    }
  }
}

ConfiguredWorker::ConfiguredWorker(const NriPluginOptions& options, const base::Log& log)
    : options_(options),
      log_(log),
      node_(options.node),
      kept_ledger_(node_.ledger),
      worker_([this]() -> Result<Worker::Serve> {
        const auto& config = config_ ? *config_ : read_config();
        // restrict_process() forbids execve(2), so begin() starts the IPAM helper before it: the helper executes
        // programs.
        const auto worker = std::make_shared<GrantWorker>(TRY(GrantWorker::begin(node_, config, plugin_log(options_))));
        TRY_VOID(base::restrict_process());
        return Worker::Serve([worker](std::string_view job) { return worker->run(job); });
      }) {}

void ConfiguredWorker::set_engine(hook::Engine engine) {
  node_.engine = engine;
  worker_.retire();
  (void)read_config();
  // A warning is enough: the first request starts the worker again and reports the failure.
  if (const auto started = worker_.start(); !started) log_.warning(started.error().message);
}

const Result<hook::Config>& ConfiguredWorker::read_config() {
  if (config_ && version_.is_current()) return *config_;
  version_ = hook::ConfigVersion(node_.config);  // before the read, so that a later change is noticed
  auto texts = hook::read_config_texts(node_.config);
  if (!texts) {
    texts_.clear();
    // The cause can be outside of the files: the mode of a directory above, or a limit of this process.
    version_ = hook::ConfigVersion();
    config_.emplace(texts.error());
    worker_.retire();
  } else if (!config_ || *texts != texts_) {
    config_.emplace(hook::valid_config(*texts));
    texts_ = std::move(texts).value();
    worker_.retire();
  }
  return *config_;
}

RdmaPlugin::Clock::time_point RdmaPlugin::within(double share) const {
  const auto whole = static_cast<double>(request_timeout_.count());
  return Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(whole * share));
}

Result<std::vector<Event>> RdmaPlugin::configure(const RuntimeInfo& runtime) {
  const auto engine = engine_ ? engine_ : engine_of_runtime(runtime.name);
  if (!engine)
    return Error{fmt::format("runtime `{}` is not known", base::printable(runtime.name)), 0,
                 "pass --engine containerd or --engine crio"};
  worker_.set_engine(*engine);
  if (runtime.request_timeout_ms > 0) request_timeout_ = std::chrono::milliseconds(runtime.request_timeout_ms);
  runtime_ = base::printable(fmt::format("{} {}", runtime.name, runtime.version));
  log_.info(fmt::format("configured by {}{}{}; a request may take {} ms", runtime_,
                        runtime.nri_version.empty() ? "" : ", NRI ", base::printable(runtime.nri_version),
                        request_timeout_.count()));
  std::vector<Event> events{Event::kRunPodSandbox,   Event::kStopPodSandbox, Event::kRemovePodSandbox,
                            Event::kCreateContainer, Event::kStopContainer,  Event::kRemoveContainer};
  validates_ = can_validate(runtime.nri_version);
  if (validates_) events.push_back(Event::kValidateContainerAdjustment);
  return events;
}

void RdmaPlugin::synchronize_begin() {
  synchronize_began_ = Clock::now();
  synchronized_late_ = false;
  requesting_pods_.clear();
  ungranted_.clear();
  const auto ledger = worker_.open_ledger();
  auto doubtful = ledger ? doubtful_containers(*ledger) : ledger.error();
  doubtful_ = doubtful ? std::move(doubtful).value() : Doubtful();
  for (const auto& [netns, key] : doubtful_.namespaces)
    watch(netns, key);
  pods_.clear();
  to_release_.clear();
  spared_.clear();
  recount_at_.reset();
}

void RdmaPlugin::watch(const std::string& netns, const std::string& key) {
  if (const auto watched = ends_.watch(netns, key); !watched) log_.warning(watched.error().message);
}

void RdmaPlugin::found(const NriPod& pod) {
  if (speaks_of_rdma(pod.annotations)) requesting_pods_[pod.id] = pod;
}

void RdmaPlugin::found(const NriContainer& container) {
  if (doubtful_.podless.contains(container.id)) pods_[container.id] = container.pod_id;
  if (container.stopped) return;
  // found(NriPod) stores only pods with annotations about RDMA. An empty NriPod stands for any other pod.
  const auto known_pod = requesting_pods_.find(container.pod_id);
  const NriPod pod = known_pod == requesting_pods_.end() ? NriPod() : known_pod->second;
  doubtful_.unbound.erase(container.id);
  const auto lacks = lacks_grant({.event = Event::kCreateContainer, .pod = pod, .container = container});
  if (!lacks.has_value() || !*lacks) return;  // an invalid request would have failed the container's creation
  ungranted_.push_back({container.id, label_of(pod, container), static_cast<pid_t>(container.pid)});
  log_.warning(
      fmt::format("container {} ({}) requests RDMA devices but has no grant: it was created while rdma-nri "
                  "was not connected; remedy: create it again",
                  ungranted_.back().label, base::printable(container.id.substr(0, 12))));
}

Result<void> RdmaPlugin::synchronize_end() {
  synchronized_late_ = Clock::now() - synchronize_began_ > request_timeout_;
  synchronized_with_ = runtime_;
  release_is_due_ = true;
  requesting_pods_.clear();
  // A container that the runtime did not list may be alive if it is young: containerd 1.7 may synchronize during the
  // creation of a container, before it lists that container. A grant of unknown age counts as young once. The age does
  // not depend on the node's time, which can jump.
  const Clock::time_point now = Clock::now();
  Clock::duration wait{0};
  for (const auto& [id, booked] : doubtful_.unbound) {
    const Clock::time_point since = booked ? Clock::time_point(std::chrono::nanoseconds(*booked)) : now;
    const Clock::duration age = std::max(now - since, Clock::duration(0));
    (age < kLongestCreation ? spared_ : to_release_).insert(id);
    wait = std::max<Clock::duration>(wait, kLongestCreation - age);
  }
  if (!spared_.empty()) recount_at_ = Clock::now() + wait;
  work_is_due_();
  return {};
}

std::set<std::string> RdmaPlugin::take_spared() {
  recount_at_.reset();
  return std::exchange(spared_, {});
}

void RdmaPlugin::end_unknown(std::set<std::string> ids) {
  to_release_.merge(ids);
  release_is_due_ = true;
}

void RdmaPlugin::release_rest() {
  auto ended = ends_.take();
  if (std::exchange(release_is_due_, false) || !ended) return recover_all();
  while (!ended->empty()) {
    std::set<std::string> some;
    while (some.size() < kEndedAtOnce && !ended->empty())
      some.insert(ended->extract(ended->begin()));
    const auto done = worker_.ask(ended_job(some), within(kPodShare));
    if (done) continue;
    log_.warning(base::wrap(done.error(), "cannot release the grants of ended pods").message);
    return recover_all();
  }
}

void RdmaPlugin::recover_all() {
  const auto done =
      worker_.ask(recover_job(std::exchange(to_release_, {}), std::exchange(pods_, {})), within(kPodShare));
  if (!done) log_.warning(base::wrap(done.error(), "cannot release unused grants").message);
}

// Answers a request. Only CreateContainer returns errors. The removal of pods and containers must not fail: the next
// call or `rdma-hook recover` releases grants that are left. An error of RunPodSandbox would do harm: containerd 2.1.9
// forgets the sandbox of a pod that a plugin refuses, so that its pause container, shim and mounts stay on the node.
// Each retry of the kubelet adds another such sandbox. Instead, the pod's first container that requests HCAs gets the
// rails, or is refused with the same message.
Result<std::string> RdmaPlugin::answer(NriRequest request) {
  auto answer = call_worker(request);
  if (answer || request.event == Event::kCreateContainer) return answer;
  const NriPod& pod = request.pod;
  log_.error(base::wrap(answer.error(), base::printable(fmt::format("pod {}/{}", pod.pod_namespace, pod.name))));
  if (request.event == Event::kStopContainer) {
    // The runtime may send no other request about this container for a long time. So the plugin itself tries the
    // release again, between requests.
    release_later(request.container.id);
  }
  return std::string();
}

Result<std::string> RdmaPlugin::call_worker(NriRequest& request) {
  const auto deadline = within(request.event == Event::kRunPodSandbox ? kPodShare : kContainerShare);
  hook::ContainerRequest requesting{.spec = request.allocates() ? take_spec(request, worker_.engine())
                                                                : netns_spec_of(request)};
  if (auto answer = TRY(answer_here(request, requesting))) return *std::move(answer);
  std::string answer = TRY(worker_.ask(job_of(request, requesting), deadline));
  if (validates_ && request.event == Event::kCreateContainer) note_granted_nodes(request.container, answer);
  return answer;
}

void RdmaPlugin::note_granted_nodes(const NriContainer& container, std::string_view response) {
  granted_.id = container.id;
  granted_.nodes.clear();
  std::ranges::copy_if(container.devices, std::back_inserter(granted_.nodes), is_rdma_node);
  if (auto added = devices_of_response(response); added)
    granted_.nodes.insert(granted_.nodes.end(), added->begin(), added->end());
}

std::string RdmaPlugin::refusal(const NriValidation& validation) {
  if (validation.container_id.empty() || validation.container_id != granted_.id) return {};
  for (const hook::SpecDevice& node : granted_.nodes) {
    const auto now = validation.devices.find(node.path);
    const bool is_there = now != validation.devices.end();
    if (is_there && now->second.major == node.major && now->second.minor == node.minor) continue;
    // The name of the other plugin is known only if NRI recorded an owner of the device.
    const auto owner = validation.owners.find(node.path);
    const std::string plugin = owner == validation.owners.end()
                                   ? "another NRI plugin"
                                   : fmt::format("NRI plugin `{}`", base::printable(owner->second));
    std::string reason = fmt::format(
        "{} {} `{}`, a device node of a granted HCA; remedy: remove that plugin, or set a lower index for it", plugin,
        is_there ? "replaced" : "removed", base::printable(node.path));
    log_.error(Error{fmt::format("container {}: {}", base::printable(validation.container_id.substr(0, 12)), reason)});
    release_later(validation.container_id);
    return reason;
  }
  return {};
}

void RdmaPlugin::release_later(const std::string& id) {
  to_release_.insert(id);
  release_is_due_ = true;
  work_is_due_();
}

// Returns false if no prepared claim is reserved for the pod. A ledger that cannot be read is an error for the worker.
bool RdmaPlugin::may_have_claim(const std::string& pod_uid) {
  const auto ledger = worker_.open_ledger();
  if (!ledger) return true;
  const auto found = ledger->may_have_id(pod_uid);
  return !found.has_value() || *found;
}

Result<std::optional<std::string>> RdmaPlugin::answer_here(const NriRequest& request,
                                                           hook::ContainerRequest& requesting) {
  const auto unless = [](bool needs_worker) { return needs_worker ? std::nullopt : std::optional(std::string()); };
  const bool creates = request.event == Event::kCreateContainer;
  const hook::ContainerSpec& spec = requesting.spec;
  switch (request.event) {
    case Event::kRunPodSandbox:
    case Event::kCreateContainer: {
      requesting = TRY(understand(std::move(requesting.spec)));
      log_.warnings(requesting.warnings);
      log_.note(requesting.note);
      if (creates) warn_of_missing_cdi(request.container, log_);
      const bool allocates =
          creates ? requesting.request.has_value()
                  : (asks(requesting) || may_have_claim(request.pod.uid)) && !TRY(hook::uses_host_network(spec));
      // The namespace is watched before the worker makes the grant, so that an early end of the namespace is not
      // missed.
      if (allocates && spec.netns_path) watch(*spec.netns_path, TRY(hook::owner_of(spec, {})).key);
      if (allocates || !creates || requesting.pod_note.empty()) return unless(allocates);
      // Without HCAs, only the variable of the note is added, which needs neither ledger nor node.
      return std::optional(
          create_response(TRY(nri_adjustment(hook::adjust(hook::plan_without_hcas(requesting.pod_note), spec)))));
    }
    case Event::kStopPodSandbox:
    case Event::kRemovePodSandbox: {
      const auto ledger = TRY(worker_.open_ledger());
      hook::Ledger::Unread unread;
      // An unreadable grant may belong to this pod, so the worker tries to release it and reports the error.
      return unless(!TRY(find_pod_grants(ledger, spec, request.pod.id, unread)).empty() || !unread.empty());
    }
    case Event::kStopContainer:
    case Event::kRemoveContainer: {
      const auto ledger = TRY(worker_.open_ledger());
      return unless(TRY(may_have_grant(ledger, spec, request.container.id)));
    }
    default:
      return unless(false);
  }
}

// Returns true if the container requests HCAs and has no grant. Errors: those of parse_request(), and those of the
// ledger.
Result<bool> RdmaPlugin::lacks_grant(NriRequest request) {
  const hook::ContainerRequest requesting = TRY(understand(take_spec(request, worker_.engine())));
  if (!asks(requesting)) return false;
  const auto ledger = TRY(worker_.open_ledger());
  return !TRY(find_grant_of(ledger, requesting.spec, request.container.id)).has_value();
}

Result<hook::ContainerRequest> RdmaPlugin::understand(hook::ContainerSpec spec) {
  return hook::understand_spec(std::move(spec), worker_.read_config(), {worker_.engine()}, worker_.root());
}

}  // namespace shim
