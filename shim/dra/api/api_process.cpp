#include "shim/dra/api/api_process.hpp"

#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/json/json.hpp"
#include "base/process/frame_socket.hpp"
#include "base/process/helper.hpp"
#include "base/process/sandbox.hpp"
#include "base/text.hpp"
#include "hook/admin/metrics/serve.hpp"
#include "shim/dra/api/api_client.hpp"
#include "shim/dra/api/api_message.hpp"
#include "shim/dra/api/publication.hpp"
#include "shim/dra/json_path.hpp"
#include "shim/dra/names.hpp"
#include "shim/dra/slices.hpp"

namespace shim {
namespace {

using base::Json;
using Clock = std::chrono::steady_clock;
using Kind = ApiMessage::Kind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr milliseconds kRequestTime{8000};
constexpr milliseconds kEventTime{2000};  // claims that wait are read afterwards
constexpr milliseconds kAskTime{5000};
constexpr milliseconds kFirstPause{250};
constexpr milliseconds kLongestPause{30000};
// Pause after a refusal that only another configuration or role ends.
constexpr seconds kRefusedPause{60};
// Pause before the second comparison that events demand within kQuiet. It doubles up to kLongestPause.
constexpr milliseconds kBetweenTries{500};
constexpr seconds kQuiet{60};
constexpr auto kNoWork = Clock::time_point::max();
constexpr const char* kGroupRemedy = "turn on resource.k8s.io/v1 at the API server, or use the device plugin";
constexpr const char* kSlicesPath = "/apis/resource.k8s.io/v1/resourceslices";

// Returns a name as part of a path or query. The names of Kubernetes' objects need no escapes, so any other character
// is dropped.
std::string in_path(std::string name) {
  std::erase_if(name, [](char c) { return !is_uid({&c, 1}) && c != '.'; });
  return name;
}

class ApiProcess {
 public:
  ApiProcess(const ApiProcessSettings& settings, base::UniqueFd channel)
      : settings_(settings),
        channel_(std::move(channel), kMostMessage),
        client_(settings.address, [this] { return ask_credential(); }) {}

  Result<void> run() {
    for (;;) {
      while (!received_.empty()) {
        const ApiMessage message = std::move(received_.front());
        received_.pop_front();
        TRY_VOID(handle(message));
      }
      auto next = TRY(work());
      if (!received_.empty()) continue;
      TRY_VOID(wait_until(next));
    }
  }

 private:
  // Asks the driver, and waits for the answer. Other messages that come meanwhile wait.
  Result<ApiMessage> ask(Kind question, Kind answer) {
    TRY_VOID(send({.kind = question}));
    const auto deadline = base::from_now(kAskTime);
    for (;;) {
      ApiMessage message = TRY(receive(deadline));
      if (message.kind == answer) return message;
      received_.push_back(std::move(message));
    }
  }

  Result<ApiCredential> ask_credential() {
    ApiMessage message = TRY(ask(Kind::kNeedCredential, Kind::kCredential));
    if (message.text.empty()) return Error{std::move(message.more)};
    return ApiCredential{std::move(message.text), std::move(message.more)};
  }

  Result<void> send(const ApiMessage& message) { return channel_.send(packed(message), base::from_now(kRequestTime)); }
  Result<ApiMessage> receive(base::Deadline deadline) {
    const auto text = TRY(channel_.receive(deadline));
    auto message = unpacked(text);
    if (!message) return Error{"the driver sent no message"};
    return *std::move(message);
  }

  Result<void> handle(const ApiMessage& message) {
    if (message.kind == Kind::kGetClaim) return get_claim(message);
    if (message.kind == Kind::kEvent) return create_event(message);
    // The slices are read at once, because they can be more than a socket holds: while this process waits for the API
    // server, it reads nothing.
    if (message.kind == Kind::kChanged) {
      const auto slices = ask(Kind::kNeedSlices, Kind::kSlices);
      if (slices) return handle(*slices);
      return slices.error().code == ETIMEDOUT ? Result<void>() : slices.error();
    }
    if (message.kind != Kind::kSlices) return {};
    auto wanted = base::parse_json(message.text, "the slices", kSliceLimits);
    if (!wanted || !wanted->is_array()) return {};
    wanted_.emplace(wanted->begin(), wanted->end());
    is_due_ = true;
    pause_ = kFirstPause;
    next_try_ = {};
    return {};
  }

  Result<void> get_claim(const ApiMessage& asked) {
    // Requests queue up while the API server does not answer. A request of a call that has ended needs no answer.
    const Clock::time_point until{seconds(asked.number)};
    if (Clock::now() >= until) return {};
    const std::string path = fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}",
                                         in_path(asked.text), in_path(asked.more));
    const auto answer = client_.request("GET", path, "", std::min(until, base::from_now(kRequestTime)));
    ApiMessage claim{.kind = Kind::kClaim, .id = asked.id, .number = answer ? answer->status : 0};
    if (answer && http::is_success(answer->status)) {
      claim.text = answer->body;
    } else {
      const Error error = answer ? error_of_answer(*answer, "the claim") : answer.error();
      claim.text = error.message;
      claim.more = base::remedy_of(error);
    }
    if (claim.text.size() > kMostMessage / 2 || (!answer && answer.error().code == EFBIG)) {
      claim.number = http::kTooLarge;
      claim.text = "the claim has more than 2 MiB: the API server stores at most 1.5 MiB";
      claim.more.clear();
    }
    return send(claim);
  }

  // Without a report of failures: the log of the driver and the kubelet's own event have the same text.
  Result<void> create_event(const ApiMessage& event) {
    const std::string path = fmt::format("/api/v1/namespaces/{}/events?fieldValidation=Strict", in_path(event.text));
    static_cast<void>(client_.request("POST", path, event.more, base::from_now(kEventTime)));
    return {};
  }

  // Does the work that is due. Returns the time of the next work. Errors: the driver is gone.
  Result<Clock::time_point> work() {
    const auto now = Clock::now();
    const bool must = !is_cluster_known_ || (wanted_ && (is_due_ || !watch_));
    if (!must) return kNoWork;
    if (now < next_try_) return next_try_;
    const auto done = publish();
    if (done) {
      pause_ = kFirstPause;
      next_try_ = {};
      if (wanted_) TRY_VOID(report({}));
      return is_due_ ? now : kNoWork;
    }
    next_try_ = Clock::now() + std::max<milliseconds>(pause_, wait_);
    pause_ = std::min(pause_ * 2, kLongestPause);
    wait_ = {};
    TRY_VOID(report(done.error()));
    return next_try_;
  }

  // Tells the driver why the slices are not published, once.
  Result<void> report(const std::optional<Error>& error) {
    const std::string text = error ? base::with_remedy(*error) : "";
    if (reported_ == text) return {};
    reported_ = text;
    ApiMessage state{.kind = Kind::kState};
    if (error) {
      state.text = error->message;
      state.more = base::remedy_of(*error);
    }
    return send(state);
  }

  Result<void> publish() {
    if (!is_cluster_known_) TRY_VOID(learn_cluster());
    if (!wanted_) return {};
    is_due_ = false;
    auto done = write_slices();
    if (!done) is_due_ = true;
    if (done && !watch_) done = begin_watch();
    return done;
  }

  // Returns error_of_answer(), and remembers how long to wait after an answer without success.
  Error refused(const ApiAnswer& answer, const std::string& what, std::string_view missing = {}) {
    if (answer.retry_after) wait_ = std::min<milliseconds>(seconds(*answer.retry_after), kRefusedPause);
    if (!http::can_pass(answer.status)) wait_ = kRefusedPause;
    return error_of_answer(answer, what, missing);
  }

  // Sends a GET whose answer must be a JSON object. missing: the remedy for 404.
  Result<Json> get(const std::string& path, const std::string& what, std::string_view missing = {}) {
    const auto answer = TRY(client_.request("GET", path, "", base::from_now(kRequestTime)));
    if (!http::is_success(answer.status)) return refused(answer, what, missing);
    return base::parse_json(answer.body, what);
  }

  Result<void> learn_cluster() {
    ApiMessage cluster{.kind = Kind::kCluster, .number = settings_.minor};
    if (settings_.minor == 0) {
      // A managed cluster says "36+".
      const Json version = TRY(get("/version", "version of the API server"));
      const auto minor = TRY(base::text_at(version, "minor"));
      const auto digits = minor.substr(0, minor.find_first_not_of("0123456789"));
      cluster.number = base::parse_number<std::uint32_t>(digits).value_or(0);
    }
    const Json node = TRY(get("/api/v1/nodes/" + in_path(settings_.node), fmt::format("node {}", settings_.node),
                              "pass --node or NODE_NAME as `kubectl get nodes` prints it"));
    cluster.text = node_uid_ = text_of(node, {"metadata", "uid"});
    if (!is_uid(node_uid_)) return make_error("node {} has no UID", settings_.node);
    if (cluster.number < kFirstDraMinor) {
      wait_ = kRefusedPause;
      return Error{fmt::format("Kubernetes 1.{} has no resource.k8s.io/v1", cluster.number), 0,
                   fmt::format("use Kubernetes 1.{} or later, or the device plugin", kFirstDraMinor)};
    }
    is_cluster_known_ = true;
    return send(cluster);
  }

  std::string selector() const {
    return fmt::format("fieldSelector=spec.driver%3D{}%2Cspec.nodeName%3D{}", kDraDriver, in_path(settings_.node));
  }

  // Brings the API server to the wanted slices.
  Result<void> write_slices() {
    const auto answer =
        TRY(client_.request("GET", fmt::format("{}?{}", kSlicesPath, selector()), "", base::from_now(kRequestTime)));
    if (!http::is_success(answer.status)) return refused(answer, "ResourceSlices", kGroupRemedy);
    ListedSlices listed = TRY(parse_slice_list(answer.body));
    // A Node object that was made again has another UID, and its slices have been deleted with the old one. The driver
    // then sends other slices.
    if (listed.slices.empty() && !known_.empty()) {
      const std::string before = node_uid_;
      known_.clear();
      TRY_VOID(learn_cluster());
      if (node_uid_ != before) return {};
    }
    // The field selector is a promise of the server. A slice of another node must not be deleted in any case.
    std::erase_if(listed.slices, [&](const Json& slice) { return !is_own(slice); });
    known_.clear();
    for (const Json& slice : listed.slices)
      note(slice);
    version_ = listed.resource_version;
    for (const SliceChange& change : slice_changes(*wanted_, listed.slices))
      TRY_VOID(write(change));
    return {};
  }

  bool is_own(const Json& slice) const {
    return text_of(slice, {"spec", "driver"}) == kDraDriver && text_of(slice, {"spec", "nodeName"}) == settings_.node;
  }

  // Remembers the version of a slice that this process has seen, so that the watch's event about it means no change.
  void note(const Json& slice) {
    known_[text_of(slice, {"metadata", "name"})] = text_of(slice, {"metadata", "resourceVersion"});
  }

  Result<void> write(const SliceChange& change) {
    const std::string named = fmt::format("{}/{}", kSlicesPath, in_path(change.name));
    const bool deletes = change.kind == SliceChange::Kind::kDelete;
    const bool creates = change.kind == SliceChange::Kind::kCreate;
    const char* const method = deletes ? "DELETE" : creates ? "POST" : "PUT";
    const std::string path = deletes ? named : (creates ? kSlicesPath : named) + std::string("?fieldValidation=Strict");
    const auto answer = TRY(client_.request(method, path, base::to_text(change.body), base::from_now(kRequestTime)));
    const std::string what = "ResourceSlice " + change.name;
    if (deletes) known_.erase(change.name);
    if (deletes && answer.status == http::kNotFound) return {};
    // Another writer was first: the next round reads its slices.
    if (!http::is_success(answer.status)) return refused(answer, what);
    if (deletes) return {};
    const Json stored = TRY(base::parse_json(answer.body, what, kSliceLimits));
    note(stored);
    const Json* const spec = base::member(stored, "spec");
    const auto dropped = dropped_member(change.body.at("spec"), spec ? *spec : Json());
    if (dropped && std::exchange(dropped_, *dropped) != *dropped)
      TRY_VOID(send({.kind = Kind::kDropped, .text = *dropped}));
    return {};
  }

  Result<void> begin_watch() {
    const std::string path = fmt::format("{}?{}&watch=1&allowWatchBookmarks=true&resourceVersion={}", kSlicesPath,
                                         selector(), in_path(version_));
    auto begun = TRY(client_.watch(path, base::from_now(kRequestTime)));
    if (!begun.watch) {
      is_due_ = true;
      return refused(begun.refusal, "watch of ResourceSlices");
    }
    watch_ = std::move(begun.watch);
    is_watch_new_ = true;
    return {};
  }

  // Reads the watch. An event about a slice whose version is not known means that another writer changed it.
  void read_watch() {
    auto lines = watch_->read();
    const bool has_ended = !lines || !*lines;
    if (has_ended) {
      // The API server ends a watch after 30 to 60 minutes. It may be another version then.
      end_watch();
      is_cluster_known_ = false;
      return;
    }
    for (const std::string& line : **lines)
      if (watch_) read_event(line);
  }

  // Plans to compare the slices, at once after a quiet time. Another writer that insists on its slices, or a server
  // that ends each watch, would otherwise cause requests without end.
  void compare_again() {
    if (std::exchange(is_due_, true)) return;
    const auto now = Clock::now();
    const bool is_first = now - std::exchange(compared_, now) > kQuiet;
    pace_ = is_first ? milliseconds(0) : std::clamp(pace_ * 2, kBetweenTries, kLongestPause);
    next_try_ = now + pace_;
  }
  void end_watch() {
    watch_.reset();
    compare_again();
  }

  void read_event(const std::string& line) {
    const auto event = base::parse_json(line, "the event", kSliceLimits);
    const std::string type = event ? text_of(*event, {"type"}) : "";
    if (type == "BOOKMARK") return;
    // 410 Gone, or text that is no event: begin again.
    if (type.empty() || type == "ERROR") return end_watch();
    const auto seen = known_.find(text_of(*event, {"object", "metadata", "name"}));
    const bool is_known = seen != known_.end();
    const bool is_seen = is_known && seen->second == text_of(*event, {"object", "metadata", "resourceVersion"});
    if (type == "DELETED" ? is_known : !is_seen) compare_again();
  }

  Result<void> wait_until(Clock::time_point time) {
    // Events that came with the head of the answer are in memory, and poll(2) does not report them.
    if (std::exchange(is_watch_new_, false)) {
      read_watch();
      return {};
    }
    const auto pause = std::max(std::chrono::ceil<milliseconds>(time - Clock::now()), milliseconds(0));
    pollfd fds[] = {{channel_.fd(), POLLIN, 0}, {watch_ ? watch_->fd() : -1, POLLIN, 0}};
    const int ready = ::poll(fds, std::size(fds), time == kNoWork ? -1 : static_cast<int>(pause.count()));
    if (ready <= 0) return {};
    if (fds[1].revents != 0) read_watch();
    if (fds[0].revents == 0) return {};
    received_.push_back(TRY(receive(base::from_now(kAskTime))));
    // Messages that came together are in memory now, and poll(2) does not report them.
    while (auto more = receive(base::Deadline()))
      received_.push_back(*std::move(more));
    return {};
  }

  const ApiProcessSettings& settings_;
  base::FrameSocket channel_;
  std::deque<ApiMessage> received_;  // messages of the driver that wait
  ApiClient client_;
  bool is_cluster_known_ = false;
  std::string node_uid_;                      // UID of the Node object
  std::optional<std::vector<Json>> wanted_;   // nullopt: the driver has not read the node yet
  bool is_due_ = false;                       // the slices of the API server may not be the wanted ones
  std::map<std::string, std::string> known_;  // version of each slice, as this process has read or written it
  std::string version_;                       // version of the last list
  std::optional<ApiWatch> watch_;
  bool is_watch_new_ = false;  // no event of watch_ has been read
  Clock::time_point next_try_;
  Clock::time_point compared_;  // the last compare_again()
  milliseconds pace_{};         // the pause that it made
  milliseconds pause_ = kFirstPause;
  milliseconds wait_{};  // shortest pause that the last answer demands
  std::optional<std::string> reported_;
  std::string dropped_;
};

}  // namespace

Result<void> run_api_process(const ApiProcessSettings& settings, base::UniqueFd channel, pid_t parent) {
  // isolate() keeps the descriptors 0 to 2 only.
  if (::dup2(channel.get(), STDIN_FILENO) < 0) return sys_error(errno, "cannot keep the socket of the driver");
  channel.reset();
  TRY_VOID(base::isolate());
  TRY_VOID(TlsStream::load());
  // OpenSSL compares the times of certificates by mktime(3), which otherwise reads /etc/localtime at each call.
  ::setenv("TZ", "UTC0", 1);
  ::tzset();
  TRY_VOID(hook::become_serving_user());
  // The change of the user has cleared these settings.
  if (::prctl(PR_SET_DUMPABLE, 0) != 0) return sys_error(errno, "cannot forbid that the process is traced");
  if (!base::die_with_parent(parent)) return Error{"the driver is gone"};
  TRY_VOID(base::restrict_to_client());
  // The filter allows no log. The driver detects the end, and logs it.
  static_cast<void>(ApiProcess(settings, base::UniqueFd(STDIN_FILENO)).run());
  ::_exit(0);
}

}  // namespace shim
