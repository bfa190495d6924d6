#include "shim/nri/run.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/proc.hpp"
#include "base/process/daemon_state.hpp"
#include "base/process/ending_signals.hpp"
#include "base/unique_fd.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/config/read_config.hpp"
#include "shim/nri/rdma_plugin.hpp"
#include "shim/nri/wire/session.hpp"
#include "shim/ttrpc/connection.hpp"

namespace shim {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{5000};
// If a connection lasted at least this long, the pauses between attempts to connect start with kFirstPause again.
constexpr std::chrono::seconds kGoodConnection{10};
// Longest wait for the registration of a Recount, which connects a second time. Meanwhile the plugin answers no request
// on its first connection, where the runtime waits only 2 s for an answer.
constexpr milliseconds kRegistration{200};
constexpr const char* kEvictionReason =
    "requests RDMA devices but has no grant: created while rdma-nri was not connected";

// Ends Connection::serve() when a signal arrives or when the plugin has work to do.
class Wake {
 public:
  // more: a further descriptor, or -1, that is readable when there is work.
  static Result<Wake> make(int more) {
    Wake wake;
    wake.signals_ = TRY(base::ending_signals());
    wake.work_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    wake.any_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    for (const int fd : {wake.signals_.get(), wake.work_.get(), more})
      if (fd >= 0) TRY_VOID(wake.watch(fd));
    return wake;
  }

  int fd() const { return any_.get(); }
  void note_work() const { (void)::eventfd_write(work_.get(), 1); }
  // Watches a descriptor until it is closed.
  Result<void> watch(int fd) const {
    epoll_event event{EPOLLIN, {}};
    if (::epoll_ctl(any_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return sys_error(errno, "cannot wait for signals");
  }
  void take_work() const {
    eventfd_t count = 0;
    (void)::eventfd_read(work_.get(), &count);
  }
  // Returns true if a signal arrived.
  bool wait_for_signal(milliseconds pause) const {
    pollfd wait{signals_.get(), POLLIN, 0};
    return ::poll(&wait, 1, static_cast<int>(pause.count())) > 0;
  }

 private:
  UniqueFd signals_;
  UniqueFd work_;
  UniqueFd any_;
};

// Returns the runtime's RLIMIT_MEMLOCK: the runtime created the other end of the socket. nullopt: the limit is unknown,
// for example because the runtime is in another PID namespace.
std::optional<hook::Rlimit> memlock_of_peer(const UniqueFd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return std::nullopt;
  return hook::memlock_of(peer.pid);
}

base::ProbedState not_connected(const Error& error) {
  const bool is_missing = error.code == ENOENT || error.code == ECONNREFUSED;
  return {false, "not connected to the runtime: " +
                     base::with_remedy(error, is_missing ? "start the runtime; restart it if `rdma-hook install` has "
                                                           "changed its configuration"
                                                         : "")};
}

// Queries again which containers the runtime knows. A runtime lists them only to a new connection, so this class opens
// a second one. The plugin's own connection stays open, because containers that are created meanwhile need it to get
// devices.
class Recount : private NriHandler {
 public:
  // Connects and registers, without waiting for the runtime's Synchronize. ids: the containers for step().
  // Errors: the runtime cannot be reached, or refuses the registration.
  static Result<std::unique_ptr<Recount>> begin(const std::string& socket, const PluginIdentity& identity,
                                                std::set<std::string> ids) {
    std::unique_ptr<Recount> recount(new Recount(std::move(ids)));
    auto connected = TRY(connect_socket(socket));
    recount->fd_ = connected.get();
    recount->plugin_ = TRY(NriSession::open(std::move(connected), *recount));
    // A timeout is no error: the runtime accepts plugins one at a time, and answers later if another plugin is
    // registering.
    const auto registered = recount->plugin_->register_as(identity, kRegistration);
    if (!registered && registered.error().code != ETIMEDOUT) return registered.error();
    return recount;
  }
  // Readable when the runtime has sent data.
  int fd() const { return fd_; }
  // Reads the available data without waiting. Returns those of `ids` that the runtime does not know, or knows as
  // stopped. nullopt: the runtime has not listed all containers yet. Errors: the connection ended before the list was
  // complete.
  Result<std::optional<std::set<std::string>>> step() {
    const auto ended = TRY(plugin_->serve(-1, Connection::Clock::now()));
    if (complete_) return std::optional(missing_);
    if (ended == Connection::Ended::kPeer) return Error{"the runtime has closed the connection", ECONNRESET};
    return std::optional<std::set<std::string>>();
  }

 private:
  explicit Recount(std::set<std::string> ids) : ids_(std::move(ids)) {}

  // NRI requires a subscription to at least one event. RemovePodSandbox is chosen because it is rare.
  Result<std::vector<Event>> configure(const RuntimeInfo& /*runtime*/) override {
    return std::vector<Event>{Event::kRemovePodSandbox};
  }
  void synchronize_begin() override { missing_ = ids_; }
  using NriHandler::found;
  void found(const NriContainer& container) override {
    if (!container.stopped) missing_.erase(container.id);
  }
  Result<void> synchronize_end() override {
    complete_ = true;
    return {};
  }
  Result<std::string> answer(NriRequest /*request*/) override { return std::string(); }

  std::set<std::string> ids_;
  std::set<std::string> missing_;
  bool complete_ = false;
  int fd_ = -1;
  std::unique_ptr<NriSession> plugin_;
};

class Loop {
 public:
  Loop(const NriPluginOptions& options, const base::Log& log, const Wake& wake, NamespaceEnds& ends)
      : options_(options),
        log_(log),
        wake_(wake),
        ends_(ends),
        worker_(options, log),
        state_(options.node.ledger, kNriProgram, log) {}

  Result<void> run_launched() {
    auto ended = serve(TRY(launched_socket(*options_.launched_socket)));
    if (!ended) return ended.error();
    return {};
  }

  Result<void> run_connecting() {
    milliseconds pause = kFirstPause;
    for (;;) {
      const auto began = Clock::now();
      auto socket = connect_socket(options_.socket);
      const auto ended = socket ? serve(std::move(*socket)) : Result<Connection::Ended>(socket.error());
      if (ended && *ended == Connection::Ended::kStopped) return {};
      if (Clock::now() - began >= kGoodConnection) pause = kFirstPause;
      const Error why = ended ? Error{"the runtime has closed the connection"} : ended.error();
      state_.set(not_connected(why));
      log_once(why.message);
      if (wake_.wait_for_signal(pause)) return {};
      pause = std::min(pause * 2, kLongestPause);
    }
  }

 private:
  // Serves one connection until it ends.
  Result<Connection::Ended> serve(UniqueFd socket) {
    worker_.set_engine_memlock(memlock_of_peer(socket));
    RdmaPlugin handler(worker_, log_, ends_, options_.engine, [this] { wake_.note_work(); });
    const auto plugin = TRY(NriSession::open(std::move(socket), handler));
    TRY_VOID(plugin->register_as(options_.identity));
    last_message_.clear();
    log_.info(fmt::format("registered as {}-{}", options_.identity.index, options_.identity.name));
    std::unique_ptr<Recount> recount;
    for (;;) {
      const auto ended = TRY(plugin->serve(wake_.fd(), handler.recount_at()));
      if (ended == Connection::Ended::kDeadline) {
        recount = begin_recount(handler.take_spared());
        continue;
      }
      if (ended != Connection::Ended::kStopped || wake_.wait_for_signal(milliseconds(0))) return ended;
      wake_.take_work();
      // Each pending request has been answered here, so the work below makes no request wait.
      if (recount) go_on(recount, handler);
      if (handler.synchronized_late()) return Error{"Synchronize took longer than the runtime's request timeout"};
      if (const auto& runtime = handler.synchronized_with()) state_.set({true, "connected to " + *runtime});
      handler.release_rest();
      evict(*plugin, handler.take_ungranted());
    }
  }

  // Returns nullptr if the runtime cannot be queried. The grants of the containers in `spared` then stay until the next
  // Synchronize.
  std::unique_ptr<Recount> begin_recount(const std::set<std::string>& spared) {
    auto recount = Recount::begin(options_.socket, options_.identity, spared);
    auto watched = recount ? wake_.watch((*recount)->fd()) : recount.error();
    if (watched) return std::move(*recount);
    keep(std::move(watched).error());
    return nullptr;
  }

  void go_on(std::unique_ptr<Recount>& recount, RdmaPlugin& handler) {
    auto missing = recount->step();
    if (missing && !*missing) return;
    recount.reset();
    if (missing) {
      handler.end_unknown(**std::move(missing));
    } else {
      keep(std::move(missing).error());
    }
  }

  void keep(Error error) {
    const char* const what = "grants of containers unknown to the runtime stay until rdma-nri connects again";
    log_.warning(base::wrap(std::move(error), what).message);
  }

  void evict(NriSession& plugin, const std::vector<Ungranted>& ungranted) {
    if (ungranted.empty()) return;
    const auto& config = worker_.read_config();
    if (!config || !config->nri.evict_ungranted) return;
    for (const Ungranted& container : ungranted) {
      const auto asked = plugin.evict(container.id, kEvictionReason);
      if (!asked)
        log_.warning(base::wrap(asked.error(), fmt::format("cannot evict container {}", container.label)).message);
      // The plugin also kills the container itself: up to NRI 0.12.2 the runtime ignores the evictions in
      // UpdateContainers, and its answer does not show that.
      const auto ended = end_container(container.id, container.pid);
      if (ended) {
        log_.warning(fmt::format("evicted container {}", container.label));
      } else {
        log_.error(base::wrap(ended.error(), fmt::format("cannot evict container {}", container.label)));
      }
    }
  }

  // Logs a failure once, even if the runtime is down for an hour.
  void log_once(const std::string& what) {
    if (what == last_message_) return;
    last_message_ = what;
    log_.warning(what + "; trying again");
  }

  const NriPluginOptions& options_;
  const base::Log& log_;
  const Wake& wake_;
  NamespaceEnds& ends_;
  ConfiguredWorker worker_;
  base::DaemonState state_;
  std::string last_message_;
};

}  // namespace

// The pidfd is opened before the process is checked. A pidfd always refers to the same process, even if another process
// gets the PID between check and kill.
Result<void> end_container(const std::string& id, pid_t pid) {
  if (pid <= 0 || id.empty()) return make_error("the runtime reported no process of the container");
  const base::UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process.ok()) {
    if (errno == ESRCH) return {};
    return sys_error(errno, "cannot open process {}", pid);
  }
  // Runtimes include the container's id in the name of its cgroup, some with a prefix and `.scope`. Reads this PID
  // namespace's /proc, whatever --root is.
  const auto cgroups = base::read_proc_cgroup(pid);
  if (!cgroups || cgroups->find(id) == std::string::npos)
    return make_error("process {} is not in a cgroup of the container `{}`", pid, id);
  if (::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) != 0 && errno != ESRCH)
    return sys_error(errno, "cannot kill process {} of the container `{}`", pid, id);
  return {};
}

Result<void> run_plugin(const NriPluginOptions& options, const base::Log& log) {
  TRY_VOID(hook::check_root(options.node.root));
  auto opened = NamespaceEnds::open();
  // Without inotify the plugin still works: later starts of containers and `rdma-hook recover` find that namespaces
  // have ended.
  if (!opened) log.warning(opened.error().message);
  NamespaceEnds ends = opened ? std::move(*opened) : NamespaceEnds();
  const Wake wake = TRY(Wake::make(ends.fd()));
  // Only a warning, because the file is read again for each container.
  if (const auto config = hook::read_config(options.node.config); !config)
    log.warning(base::with_remedy(config.error()) + "; until then containers that request HCAs are refused");
  Loop loop(options, log, wake, ends);
  return options.launched_socket ? loop.run_launched() : loop.run_connecting();
}

}  // namespace shim
