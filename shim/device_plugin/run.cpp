#include "shim/device_plugin/run.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/process/daemon_state.hpp"
#include "base/process/ending_signals.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "fabric/kept_node.hpp"
#include "fabric/read_node.hpp"
#include "hook/apply/cdi_spec.hpp"
#include "shim/device_plugin/kubelet_directory.hpp"
#include "shim/device_plugin/node_reader.hpp"
#include "shim/device_plugin/wire/kubelet.hpp"
#include "shim/kubelet/file_events.hpp"
#include "shim/kubelet/node_watch.hpp"
#include "shim/kubelet/wake_up.hpp"

namespace shim {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kFirstTry{100};
constexpr milliseconds kLongestTry{1000};  // longest pause between attempts to register
constexpr auto kNever = Clock::time_point::max();
constexpr milliseconds kRetry{200};  // pause before a waiting Allocate is tried again
// Longest time from a registration to the kubelet's call of ListAndWatch. The kubelet calls it at once, and without it
// knows no devices. After this time the plugin registers again.
constexpr seconds kUntilWatched{10};
// After a first registration, a failure is logged only if it lasts longer than this time. A shorter one is normal when
// the kubelet restarts, and the new registration is logged.
constexpr seconds kUntilReported{10};

// Serves one resource at its socket and registers it with the kubelet.
class Endpoint {
 public:
  Endpoint(const DevicePluginSettings& settings, const base::Log& log, const WakeUp& wake, std::string resource)
      : settings_(settings), log_(log), wake_(wake), resource_(std::move(resource)) {}

  // Does the work that is due. Returns the time of the next call; kNever if no call is due before the next event.
  // kubelet: identity of the kubelet's socket; empty: there is no socket.
  Clock::time_point tend(const Resource& resource, bool cdi, const FileIdentity& kubelet) {
    const auto now = Clock::now();
    // A kubelet that starts also removes the plugin's socket from its directory.
    if (server_ && (cdi != cdi_ || file_identity(path()) != socket_)) end();
    if (!server_) {
      if (now < next_try_) return next_try_;
      if (!serve(resource, cdi)) return next_try_;
    } else if (resource != published_) {
      published_ = resource;
      server_->publish(resource);
    }
    take_answer(now);
    const auto next = tend_registration(now, kubelet);
    return server_->retry() ? std::min(next, now + kRetry) : next;
  }

  // Returns why the resource is not registered with this kubelet; empty: it is registered.
  std::string problem(const FileIdentity& kubelet) const {
    if (kubelet.empty()) return fmt::format("the kubelet has no socket `{}/kubelet.sock`", settings_.directory);
    if (server_ && registered_with_ == kubelet) return {};
    return problem_.empty() ? "the kubelet has not answered yet" : problem_;
  }

 private:
  Clock::time_point tend_registration(Clock::time_point now, const FileIdentity& kubelet) {
    // The directory's watch reports a new socket, and wake_ the end of the call.
    if (kubelet.empty() || registration_) return kNever;
    if (kubelet != registered_with_) return register_or_wait(now, kubelet);
    return see_watch(now);
  }

  std::string path() const { return settings_.directory + "/" + socket_name(resource_); }

  void end() {
    server_.reset();
    registered_with_.clear();
  }

  bool serve(const Resource& resource, bool cdi) {
    DeviceServer::Settings server{.socket = path(), .by_cdi = {}, .check = {}, .allocated = {}, .wake = wake_.call()};
    if (cdi) server.by_cdi = [this](const std::vector<const CountedHca*>& hcas) { return are_cdi_devices(hcas); };
    server.check = [root = settings_.node.root](const CountedHca& hca) -> Result<void> {
      // The kernel may have given the uverbs number to another HCA meanwhile. The container must not get the node of
      // that HCA.
      const auto named = hca.uverbs ? fabric::hca_of_uverbs(root, *hca.uverbs) : std::nullopt;
      if (named == hca.name) return {};
      return make_error("{} has another device node now; remedy: try again", base::printable(hca.name));
    };
    server.allocated = [this](const std::vector<const CountedHca*>& hcas, const Result<void>& done) {
      std::vector<std::string> names;
      names.reserve(hcas.size());
      for (const CountedHca* hca : hcas)
        names.push_back(hca->name);
      // Until the container starts and the ledger records its grant, this log line is the only record of the
      // allocation.
      base::EventLine line(done ? "allocated" : "refused");
      line.add("resource", resource_).add("hcas", names);
      if (!done) line.add("because", done.error().message);
      done ? log_.info(line.text()) : log_.warning(line.text());
    };
    auto started = DeviceServer::start(std::move(server), resource);
    if (!started) {
      fail(started.error().message);
      return false;
    }
    server_ = std::move(started).value();
    cdi_ = cdi;
    published_ = resource;
    socket_ = file_identity(path());
    registered_with_.clear();
    next_try_ = {};
    return true;
  }

  // Returns true if files describe all these HCAs as CDI devices. If not, the container must get device nodes, because
  // a runtime refuses to start a container with an unknown CDI device.
  bool are_cdi_devices(const std::vector<const CountedHca*>& hcas) const {
    const auto described = described_cdi_devices(settings_.node.root);
    const auto missing =
        std::ranges::find_if(hcas, [&](const CountedHca* hca) { return !described.contains(hca->name); });
    if (missing == hcas.end()) return true;
    log_.warning(
        fmt::format("no file in /etc/cdi or /var/run/cdi describes `{}={}`: the container gets device nodes; "
                    "remedy: run `rdma-hook cdi generate --out /var/run/cdi/rdma-init.json` on the node",
                    hook::kCdiKind, base::printable((*missing)->name)));
    return false;
  }

  Clock::time_point register_or_wait(Clock::time_point now, const FileIdentity& kubelet) {
    if (now < next_try_) return next_try_;
    // The identity of the kubelet's socket is stored before the call: if the kubelet restarts before it answers, the
    // identity differs, and the plugin registers again.
    asked_ = kubelet;
    registration_ = Registration::begin(settings_.directory, resource_, wake_.call());
    return kNever;
  }

  void take_answer(Clock::time_point now) {
    const Result<void>* const result = registration_ ? registration_->result() : nullptr;
    if (!result) return;
    if (*result) {
      registered_with_ = asked_;
      registered_at_ = now;
      was_watched_ = false;
      pause_ = kFirstTry;
      last_message_.clear();
      problem_.clear();
      log_.info(fmt::format("{} is registered with the kubelet", resource_));
    } else {
      fail(fmt::format("cannot register {}: {}", resource_, result->error().message));
    }
    registration_.reset();
  }

  // Checks that the kubelet still has a ListAndWatch call open. Without such a call the kubelet has forgotten the
  // resource, so the resource is registered again. Returns the time of the next check.
  Clock::time_point see_watch(Clock::time_point now) {
    if (server_->watchers() > 0) {
      was_watched_ = true;
      failing_since_.reset();
      return kNever;  // no timeout: wake_ reports the end of the call
    }
    // A kubelet that restarts first ends its ListAndWatch call, and removes the plugin's socket a moment later. The
    // plugin waits for the removal, which makes tend() create the socket again.
    const auto patience = was_watched_ ? seconds(1) : kUntilWatched;
    if (was_watched_ && !unwatched_since_) unwatched_since_ = now;
    const auto until = unwatched_since_.value_or(*registered_at_) + patience;
    if (now < until) return until;
    unwatched_since_.reset();
    registered_with_.clear();
    fail(fmt::format("the kubelet has no open ListAndWatch call for {}", resource_));
    return next_try_;
  }

  // Logs a failure once, even if the kubelet is down for an hour.
  void fail(const std::string& what) {
    problem_ = what;
    const auto now = Clock::now();
    next_try_ = now + pause_;
    pause_ = std::min(pause_ * 2, kLongestTry);
    if (!failing_since_) failing_since_ = now;
    if (registered_at_ && now - *failing_since_ < kUntilReported) return;
    if (std::exchange(last_message_, what) != what) log_.warning(what + "; trying again");
  }

  const DevicePluginSettings& settings_;
  const base::Log& log_;
  const WakeUp& wake_;
  const std::string resource_;
  std::unique_ptr<DeviceServer> server_;
  bool cdi_ = false;
  Resource published_;
  FileIdentity socket_;  // identity of the plugin's socket
  std::unique_ptr<Registration> registration_;
  FileIdentity asked_;                              // identity of the kubelet's socket when registration_ began
  FileIdentity registered_with_;                    // kubelet's socket at the last registration; empty: none
  std::optional<Clock::time_point> registered_at_;  // time of the last registration; nullopt: none
  bool was_watched_ = false;
  std::optional<Clock::time_point> unwatched_since_;
  Clock::time_point next_try_;
  milliseconds pause_ = kFirstTry;
  std::optional<Clock::time_point> failing_since_;
  std::string problem_;  // last failure since the last registration
  std::string last_message_;
};

class DevicePlugin {
 public:
  DevicePlugin(const DevicePluginSettings& settings, const base::Log& log, WakeUp wake, UniqueFd signals)
      : settings_(settings),
        log_(log),
        wake_(std::move(wake)),
        signals_(std::move(signals)),
        node_(settings.node),
        reader_(node_, log),
        watch_(reader_, kept_, !settings.node.root.empty()),
        state_(settings.node.ledger, kProgram, log) {
    node_.kept = &kept_;
  }

  Result<void> run() {
    for (;;) {
      auto next = watch_.look();
      next = std::min(next, tend());
      state_.set(state());
      if (TRY(wait_until(next))) return {};
    }
  }

 private:
  Clock::time_point tend() {
    if (!watch_.has_config()) return kNever;
    const auto later = Clock::now() + seconds(1);
    // If the kubelet's directory was replaced, the sockets in the old directory are unreachable and must be made again.
    if (directory_ && !directory_->is_there()) {
      endpoints_.clear();
      directory_.reset();
    }
    if (!directory_ && !open_directory()) return later;  // no event reports that the directory is free
    const FileIdentity kubelet = file_identity(settings_.directory + "/kubelet.sock");
    std::map<std::string, std::unique_ptr<Endpoint>> former;
    // All endpoints move to `former`, and those of resources that still exist move back below. The destructors end the
    // endpoints that stay in `former`, because the administrator's config.json no longer has their resources.
    former.swap(endpoints_);
    auto next = kNever;
    for (const Resource& resource : reader_.resources()) {
      auto& endpoint = endpoints_[resource.name];
      if (const auto had = former.find(resource.name); had != former.end()) endpoint = std::move(had->second);
      if (!endpoint) endpoint = std::make_unique<Endpoint>(settings_, log_, wake_, resource.name);
      next = std::min(next, endpoint->tend(resource, reader_.options().cdi, kubelet));
    }
    return next;
  }

  base::ProbedState state() const {
    if (!watch_.has_config()) return {false, reader_.problem()};
    const auto names = reader_.configured_resources();
    if (names.empty())
      return {true, fmt::format("no pool of `{}` has a \"resource\": nothing to register",
                                base::printable(settings_.node.config.file))};
    if (!directory_) return {false, last_message_};
    const FileIdentity kubelet = file_identity(settings_.directory + "/kubelet.sock");
    for (const std::string& name : names) {
      const auto endpoint = endpoints_.find(name);
      const std::string problem = endpoint == endpoints_.end() ? reader_.problem() : endpoint->second->problem(kubelet);
      if (endpoint == endpoints_.end() || !problem.empty())
        return {false, fmt::format("{} is not registered with the kubelet: {}", name, problem)};
    }
    return {true, fmt::format("registered with the kubelet: {}", fmt::join(names, ", "))};
  }

  bool open_directory() {
    auto opened = KubeletDirectory::open(settings_.directory);
    if (opened) {
      directory_ = std::move(opened).value();
      last_message_.clear();
      return true;
    }
    if (std::exchange(last_message_, opened.error().message) != opened.error().message)
      log_.warning(base::with_remedy(opened.error()) + "; trying again");
    return false;
  }

  // Returns true if a signal arrived.
  Result<bool> wait_until(Clock::time_point time) {
    std::vector<pollfd> fds{{directory_ ? directory_->events().fd() : -1, POLLIN, 0}};
    const bool ends = TRY(watch_.wait_until(time, signals_.get(), wake_, fds));
    if (fds[0].revents != 0) directory_->events().take();
    return ends;
  }

  const DevicePluginSettings& settings_;
  const base::Log& log_;
  WakeUp wake_;
  UniqueFd signals_;
  fabric::KeptNode kept_{fabric::NodeEvents()};
  hook::NodeSettings node_;
  NodeReader reader_;
  NodeWatch watch_;
  base::DaemonState state_;
  std::optional<KubeletDirectory> directory_;
  std::map<std::string, std::unique_ptr<Endpoint>> endpoints_;
  std::string last_message_;
};

}  // namespace

Result<void> run_device_plugin(const DevicePluginSettings& settings, const base::Log& log) {
  TRY_VOID(hook::check_root(settings.node.root));
  UniqueFd signals = TRY(base::ending_signals());
  return DevicePlugin(settings, log, TRY(WakeUp::make()), std::move(signals)).run();
}

}  // namespace shim
