#include "shim/dra/driver.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <map>
#include <string_view>
#include <utility>

#include "base/file.hpp"
#include "base/process/daemon_state.hpp"
#include "base/process/ending_signals.hpp"
#include "base/process/frame_socket.hpp"
#include "base/process/helper.hpp"
#include "base/text.hpp"
#include "hook/admin/metrics/count.hpp"
#include "shim/dra/api/api_message.hpp"
#include "shim/dra/api/api_process.hpp"
#include "shim/dra/claim_calls.hpp"
#include "shim/dra/claim_event.hpp"
#include "shim/dra/node.hpp"
#include "shim/dra/sockets.hpp"
#include "shim/dra/wire/kubelet_server.hpp"
#include "shim/kubelet/file_events.hpp"
#include "shim/kubelet/node_watch.hpp"
#include "shim/kubelet/wake_up.hpp"
#include "shim/kubelet/wire/grpc_parts.hpp"

namespace shim {
namespace {

using Clock = std::chrono::steady_clock;
using Kind = ApiMessage::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr auto kNever = Clock::time_point::max();
constexpr seconds kBetweenTries{1};
// The kubelet takes the health of devices as unknown 30 s after a list (Kubernetes 1.34 to 1.37).
constexpr seconds kBetweenHealth{25};
// The scheduler must learn within a second that another owner has taken an HCA.
constexpr milliseconds kBetweenLedgerReads{500};
constexpr milliseconds kSendTime{20000};
constexpr milliseconds kReceiveTime{2000};
constexpr std::size_t kMostEventTexts = 1024;  // more than a node has pods

std::string_view variable(const char* name) {
  const char* const value = std::getenv(name);
  return value ? value : "";
}

// Returns an error for a text that cannot be a header of HTTP.
Result<std::string> read_token(const std::string& directory) {
  const std::string path = directory + "/token";
  const auto text = TRY(base::read_text_file(path, {.bytes = std::size_t{64} << 10}));
  const std::string token(base::trim(text));
  const bool is_token = !token.empty() && std::ranges::all_of(token, [](char c) { return c > ' ' && c <= '~'; });
  if (!is_token) return make_error("`{}` has no token", base::printable(path));
  return token;
}

ApiMessage read_credential(const std::string& directory) {
  constexpr std::size_t kMostCa = std::size_t{1} << 20;
  const auto token = read_token(directory);
  const auto ca = base::read_text_file(directory + "/ca.crt", {.bytes = kMostCa});
  if (!token || !ca) return {.kind = Kind::kCredential, .more = (token ? ca.error() : token.error()).message};
  return {.kind = Kind::kCredential, .text = *token, .more = *ca};
}

class Driver {
 public:
  Driver(const DraSettings& settings, base::Log& log, WakeUp wake, base::UniqueFd signals, base::UniqueFd api)
      : settings_(settings),
        log_(log),
        wake_(std::move(wake)),
        signals_(std::move(signals)),
        api_(std::move(api), kMostMessage),
        sockets_(sockets_in(settings.kubelet, variable("POD_UID"))),
        node_settings_(settings.node),
        node_(node_settings_, log),
        watch_(node_, kept_, !settings.node.root.empty(), kBetweenLedgerReads),
        state_(settings.node.ledger, kDraProgram, log),
        cluster_(settings.cluster),
        calls_(actions()) {
    node_settings_.kept = &kept_;
    cluster_.minor = 0;  // not known yet
  }

  Result<void> run() {
    hook::sweep_claims(claim_settings(), log_);
    for (;;) {
      auto next = watch_.look();
      TRY_VOID(update_slices());
      next = std::min(next, tend_kubelet());
      if (server_)
        for (auto& call : server_->take_calls())
          calls_.add(std::move(call));
      const bool has_calls = !calls_.is_empty();
      next = std::min(next, TRY(calls_.work()));
      if (has_calls) next = std::min(next, watch_.after_other_reads());
      next = std::min(next, tend_health());
      state_.set(state());
      if (TRY(wait_until(next))) break;
    }
    warn_of_claims();
    return {};
  }

 private:
  // Warns of the claims that stay prepared, because their pods cannot end until a driver runs again.
  void warn_of_claims() const {
    std::vector<Error> unread;
    const auto prepared = hook::claims_on_record(settings_.node.ledger, unread);
    std::vector<std::string> names;
    for (const auto& claim : prepared ? *prepared : std::vector<hook::ClaimOnRecord>())
      if (!claim.is_pending) names.push_back(fmt::format("{}/{}", claim.space, claim.name));
    if (names.empty()) return;
    log_.warning(
        fmt::format("claims stay prepared: {}; their pods stay in Terminating until rdma-dra runs again; "
                    "remedy: before you remove rdma-dra, delete these pods",
                    base::join_first(names, 8)));
  }

  hook::ClaimSettings claim_settings() const {
    return {.node = node_settings_, .cdi_directory = settings_.node.root + hook::kClaimDirectory};
  }

  ClaimCalls::Actions actions() {
    return {.ask = [this](const ApiMessage& message) { return send(message); },
            .prepare = [this](hook::ClaimOfNode& claim, base::Deadline deadline) { return prepare(claim, deadline); },
            .unprepare =
                [this](const std::string& uid, base::Deadline deadline) {
                  return hook::unprepare_claim(uid, claim_settings(), log_, deadline);
                },
            .ended = [this](const ClaimKey& key, bool prepares, const Result<void>& done,
                            Clock::duration took) { note_end(key, prepares, done, took); }};
  }

  Result<std::vector<hook::PreparedDevice>> prepare(hook::ClaimOfNode& claim, base::Deadline deadline) {
    if (node_.version() == 0) return make_error("the node is not read yet: {}", node_.problem());
    prepared_hcas_.clear();
    TRY_VOID(find_hcas(claim, node_.names(), settings_.cluster.node));
    for (const hook::ClaimDevice& device : claim.devices)
      prepared_hcas_.push_back(device.hca);
    return hook::prepare_claim(claim, claim_settings(), log_, deadline);
  }

  void note_end(const ClaimKey& key, bool prepares, const Result<void>& done, Clock::duration took) {
    const auto microseconds = std::chrono::duration_cast<std::chrono::microseconds>(took).count();
    hook::count_claim(settings_.node.ledger, prepares ? "prepare" : "unprepare", done,
                      static_cast<std::uint64_t>(microseconds));
    base::EventLine line(prepares ? (done ? "prepared" : "refused") : (done ? "unprepared" : "kept"));
    line.add("claim", key.space + "/" + key.name).add("uid", key.uid);
    if (done && prepares) line.add("hcas", prepared_hcas_);
    if (!done) line.add("because", done.error().message);
    done ? log_.info(line.text()) : log_.warning(line.text());
    // Each event is an object of the cluster, and the kubelet repeats a failed call after 60 to 90 seconds. So each
    // text becomes one event of a claim, until the claim is prepared or has ended.
    if (event_texts_.size() > kMostEventTexts) event_texts_.clear();
    if (done || !prepares) event_texts_.erase(key.uid);
    if (done || !prepares || !is_dns_label(key.space) || !is_dns_subdomain(key.name)) return;
    if (std::exchange(event_texts_[key.uid], done.error().message) == done.error().message) return;
    const auto event = claim_event(key, done.error(), settings_.cluster.node, std::time(nullptr));
    // If the process for the API server is gone, the main loop reads the end of its socket.
    static_cast<void>(send({.kind = Kind::kEvent, .text = key.space, .more = base::to_text(event)}));
  }

  Result<void> send(const ApiMessage& message) {
    if (auto sent = api_.send(packed(message), base::from_now(kSendTime)); !sent) return ended(sent.error());
    return {};
  }
  static Error ended(const Error& why) {
    return Error{fmt::format("the process that talks to the API server has ended: {}", why.message), EIO,
                 "search the kernel's log (`dmesg`) for a system call that the seccomp filter refused"};
  }

  // Tells the process for the API server if the wanted slices have changed.
  Result<void> update_slices() {
    if (node_.version() == 0 || cluster_.minor == 0) return {};
    if (std::exchange(shown_version_, node_.version()) == node_.version() && !is_cluster_new_) return {};
    is_cluster_new_ = false;
    auto published = published_devices(node_.inventory(), node_.config(), node_.names(), node_.holds(), cluster_);
    if (warnings_ != published.warnings) log_.warnings(published.warnings);
    warnings_ = std::move(published.warnings);
    std::string text = base::to_text(base::Json(resource_slices(published.devices, cluster_)));
    left_out_ = published.left_out;
    note_health(published.devices);
    if (text == slices_) return {};
    slices_ = std::move(text);
    devices_ = published.devices.size();
    return std::exchange(is_changed_, true) ? Result<void>() : send({.kind = Kind::kChanged});
  }

  void note_health(const std::vector<PublishedDevice>& devices) {
    using State = DeviceHealth::State;
    std::vector<DeviceHealth> health;
    for (const PublishedDevice& device : devices) {
      const bool is_away = node_.away().contains(device.hca);
      const bool is_healthy = device.problem.empty() || device.is_held;
      health.push_back({device.name,
                        is_away      ? State::kUnknown
                        : is_healthy ? State::kHealthy
                                     : State::kUnhealthy,
                        is_away || is_healthy ? "" : fmt::format("{} {}", device.hca, device.problem)});
    }
    if (health == health_) return;
    health_ = std::move(health);
    next_health_ = {};
  }

  Clock::time_point tend_health() {
    if (!server_ || server_->watchers() == 0) return kNever;
    if (Clock::now() >= next_health_) {
      server_->send_health(health_);
      next_health_ = Clock::now() + kBetweenHealth;
    }
    return next_health_;
  }

  // Has the sockets in the kubelet's directories, also after the directories were removed or made again.
  Clock::time_point tend_kubelet() {
    const auto now = Clock::now();
    if (server_ && file_identity(sockets_.registration) == registration_ && file_identity(sockets_.service) == service_)
      return kNever;
    if (now < next_serve_) return next_serve_;
    server_.reset();
    auto started = serve();
    if (started) {
      last_message_.clear();
      return kNever;
    }
    next_serve_ = now + kBetweenTries;
    if (std::exchange(last_message_, started.error().message) != started.error().message)
      log_.warning(base::with_remedy(started.error()) + "; trying again");
    return next_serve_;
  }

  Result<void> serve() {
    const auto lock = TRY(take_sockets(sockets_, log_));
    files_.watch({sockets_.registry, sockets_.directory});
    server_ = TRY(KubeletServer::start({.registration = sockets_.registration,
                                        .service = sockets_.service,
                                        .pool = settings_.cluster.node,
                                        .wake = wake_.call()}));
    registration_ = file_identity(sockets_.registration);
    service_ = file_identity(sockets_.service);
    next_health_ = {};
    return {};
  }

  base::ProbedState state() const {
    if (!watch_.has_config()) return {false, node_.problem()};
    if (!server_) return {false, last_message_};
    const auto registration = server_->registration();
    if (!registration) return {false, "the kubelet has not registered the driver yet"};
    if (!registration->empty()) return {false, base::printable(*registration)};
    if (cluster_.minor == 0 || !publication_ || !publication_->empty())
      return {false, publication_ && !publication_->empty() ? *publication_ : "the API server has no slices yet"};
    return {true, "registered with the kubelet, " + published_text(devices_, left_out_, settings_.cluster.node)};
  }

  // Handles a message of the process for the API server, of which nothing is trusted.
  Result<void> handle(const ApiMessage& message) {
    switch (message.kind) {
      case Kind::kNeedCredential:
        return send(read_credential(settings_.credential));
      case Kind::kNeedSlices:
        is_changed_ = false;
        return send({.kind = Kind::kSlices, .text = slices_});
      case Kind::kClaim:
        calls_.take(message);
        return {};
      case Kind::kCluster:
        if (message.number < kFirstDraMinor || !is_uid(message.text)) return Error{"it sent no cluster", EINVAL};
        // The features that an API server of this version has dropped stay off.
        if (message.number != named_minor_) cluster_.minor = message.number;
        is_cluster_new_ = is_cluster_new_ || message.number != named_minor_ || cluster_.node_uid != message.text;
        named_minor_ = message.number;
        cluster_.node_uid = message.text;
        return {};
      case Kind::kState:
        publication_ = message.text.empty() ? "" : base::with_remedy(failure_of(message));
        if (publication_->empty()) {
          log_.info("published " + published_text(devices_, left_out_, settings_.cluster.node));
        } else {
          log_.warning("the slices are not published: " + *publication_ + "; trying again");
        }
        return {};
      case Kind::kDropped:
        log_.warning(
            fmt::format("the API server of Kubernetes 1.{} has dropped {} of a ResourceSlice: only exclusive "
                        "HCAs without a problem are published; remedy: turn on its feature gates "
                        "DRADeviceTaints and DRAConsumableCapacity, and then restart rdma-dra",
                        named_minor_, base::printable(message.text)));
        cluster_.minor = std::min(cluster_.minor, kFirstSharingMinor - 1);
        is_cluster_new_ = true;
        return {};
      default:
        return Error{"it sent no message", EINVAL};
    }
  }

  Result<void> read_messages() {
    auto text = api_.receive(base::from_now(kReceiveTime));
    // Messages that came together are in memory after the first receive(), and poll(2) does not report them.
    for (; text; text = api_.receive(base::Deadline())) {
      const auto message = unpacked(*text);
      const auto done = message ? handle(*message) : Result<void>(Error{"it sent no message"});
      if (!done) return ended(done.error());
    }
    return text.error().code == ETIMEDOUT ? Result<void>() : Result<void>(ended(text.error()));
  }

  // Returns true if a signal arrived.
  Result<bool> wait_until(Clock::time_point time) {
    std::vector<pollfd> fds{{api_.fd(), POLLIN, 0}, {files_.fd(), POLLIN, 0}};
    if (TRY(watch_.wait_until(time, signals_.get(), wake_, fds))) return true;
    if (fds[0].revents != 0) TRY_VOID(read_messages());
    if (fds[1].revents != 0) files_.take();
    return false;
  }

  const DraSettings& settings_;
  base::Log& log_;
  WakeUp wake_;
  base::UniqueFd signals_;
  base::FrameSocket api_;
  const Sockets sockets_;
  fabric::KeptNode kept_{fabric::NodeEvents()};
  hook::NodeSettings node_settings_;
  DraNode node_;
  NodeWatch watch_;
  base::DaemonState state_;
  FileEvents files_;
  SliceCluster cluster_;
  unsigned named_minor_ = 0;  // version of the API server; 0: not known yet
  bool is_cluster_new_ = false;
  std::uint64_t shown_version_ = 0;  // DraNode::version() of slices_
  std::string slices_;               // the wanted slices
  bool is_changed_ = false;          // the process for the API server has not asked for the changed ones yet
  std::size_t devices_ = 0;
  std::size_t left_out_ = 0;  // PublishedDevices::left_out
  std::vector<std::string> warnings_;
  std::optional<std::string> publication_;  // why the slices are not published; empty: they are
  std::vector<DeviceHealth> health_;
  Clock::time_point next_health_;
  std::unique_ptr<KubeletServer> server_;
  FileIdentity registration_;  // identity of the sockets of server_
  FileIdentity service_;
  Clock::time_point next_serve_;
  std::string last_message_;
  ClaimCalls calls_;
  std::map<std::string, std::string> event_texts_;  // text of the last event, by UID of the claim
  std::vector<std::string> prepared_hcas_;          // names of the HCAs in the last prepare()
};

Result<ApiAddress> api_address(const std::string& named) {
  if (!named.empty()) {
    const std::size_t colon = named.rfind(':');
    std::string_view ip = std::string_view(named).substr(0, std::min(colon, named.size()));
    if (ip.starts_with('[') && ip.ends_with(']')) ip = ip.substr(1, ip.size() - 2);
    return parse_api_address(ip, colon == std::string::npos ? "" : std::string_view(named).substr(colon + 1));
  }
  return parse_api_address(variable("KUBERNETES_SERVICE_HOST"), variable("KUBERNETES_SERVICE_PORT"));
}

}  // namespace

Result<void> run_driver(DraSettings settings, const base::Log& log) {
  TRY_VOID(name_node(settings.cluster.node));
  const ApiProcessSettings api{.address = TRY(api_address(settings.api)),
                               .node = settings.cluster.node,
                               .minor = settings.minor_is_named ? settings.cluster.minor : 0};
  base::UniqueFd signals = TRY(base::ending_signals());
  // The process begins before gRPC's threads, which a fork would not copy.
  auto [pid, socket] = base::start_helper(SOCK_STREAM, [&](pid_t parent, base::UniqueFd ours, base::UniqueFd theirs) {
    ours.reset();
    const auto done = run_api_process(api, std::move(theirs), parent);
    if (!done) log.error(done.error());
  });
  if (!socket.ok() || pid < 0) return sys_error(errno, "cannot start the process that talks to the API server");
  silence_grpc();
  base::Log own = base::Log::to_stderr(kDraProgram);
  auto done = Driver(settings, own, TRY(WakeUp::make()), std::move(signals), std::move(socket)).run();
  // The end of the socket ends it too, but not within a request. It has no state that must stay.
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  return done;
}

}  // namespace shim
