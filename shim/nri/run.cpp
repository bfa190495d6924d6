#include "shim/nri/run.hpp"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/apply/memlock.hpp"
#include "hook/base/process/ending_signals.hpp"
#include "hook/config/read_config.hpp"
#include "shim/nri/end_container.hpp"
#include "shim/nri/rdma_plugin.hpp"
#include "shim/nri/recount.hpp"
#include "shim/ttrpc/connection.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::UniqueFd;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{5000};
// A connection that lived so long was a good one: the next failure is waited for from the beginning.
constexpr std::chrono::seconds kGoodConnection{10};
constexpr const char* kEvictionReason = "asked for RDMA devices and got none: created while rdma-nri was not connected";

// What ends Connection::serve() besides the runtime: a signal, and work of our own.
class Wake {
 public:
  // more: a descriptor that is readable when there is work, or -1.
  static Result<Wake> make(int more) {
    Wake wake;
    wake.signals_ = TRY(hook::ending_signals());
    wake.work_ = UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    wake.any_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
    for (const int fd : {wake.signals_.get(), wake.work_.get(), more}) {
      if (fd >= 0) TRY_VOID(wake.watch(fd));
    }
    return wake;
  }

  int fd() const { return any_.get(); }
  void note_work() const { (void)::eventfd_write(work_.get(), 1); }
  // Until it is closed.
  Result<void> watch(int fd) const {
    epoll_event event{EPOLLIN, {}};
    if (::epoll_ctl(any_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return {};
    return fabric::sys_error(errno, "cannot wait for signals");
  }
  void take_work() const {
    eventfd_t count = 0;
    (void)::eventfd_read(work_.get(), &count);
  }
  // True: a signal came.
  bool wait_for_signal(milliseconds pause) const {
    pollfd wait{signals_.get(), POLLIN, 0};
    return ::poll(&wait, 1, static_cast<int>(pause.count())) > 0;
  }

 private:
  UniqueFd signals_;
  UniqueFd work_;
  UniqueFd any_;
};

// Of the runtime, which made the other end. None of one in another PID namespace.
std::optional<hook::Rlimit> memlock_of_peer(const UniqueFd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return std::nullopt;
  return hook::memlock_of(peer.pid);
}

class Loop {
 public:
  Loop(const NriPluginOptions& options, const hook::Log& log, const Wake& wake, NamespaceEnds& ends)
      : options_(options), log_(log), wake_(wake), ends_(ends), worker_(options, log) {}

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
      say_once(ended ? "the runtime has closed the connection" : ended.error().message);
      if (wake_.wait_for_signal(pause)) return {};
      pause = std::min(pause * 2, kLongestPause);
    }
  }

 private:
  // One connection, to its end.
  Result<Connection::Ended> serve(UniqueFd socket) {
    worker_.set_engine_memlock(memlock_of_peer(socket));
    RdmaPlugin handler(worker_, log_, ends_, options_.engine, [this] { wake_.note_work(); });
    const auto plugin = TRY(NriSession::open(std::move(socket), handler));
    TRY_VOID(plugin->register_as(options_.identity));
    said_.clear();
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
      if (recount) go_on(recount, handler);
      if (handler.synchronized_late()) return Error{"Synchronize took longer than the runtime waits: connecting anew"};
      handler.return_what_is_left();
      evict(*plugin, handler.take_ungranted());
    }
  }

  // What cannot be asked is held: the next Synchronize asks again.
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
    const char* const what =
        "grants of containers that the runtime does not name are held until rdma-nri connects again";
    log_.warning(fabric::wrap(std::move(error), what).message);
  }

  void evict(NriSession& plugin, const std::vector<Ungranted>& ungranted) {
    if (ungranted.empty()) return;
    const auto& config = worker_.read_config();
    if (!config || !config->nri.evict_ungranted) return;
    for (const Ungranted& container : ungranted) {
      const auto asked = plugin.evict(container.id, kEvictionReason);
      if (!asked)
        log_.warning(fabric::wrap(asked.error(), fmt::format("evicting container {}", container.label)).message);
      // The answer says nothing: up to NRI 0.12.2 the runtime's side drops evictions that are asked for this way.
      const auto ended = end_container(container.id, container.pid);
      if (ended) {
        log_.warning(fmt::format("evicted container {}", container.label));
      } else {
        log_.error(fabric::wrap(ended.error(), fmt::format("evicting container {}", container.label)));
      }
    }
  }

  // A runtime that is down for an hour is one line.
  void say_once(const std::string& what) {
    if (what == said_) return;
    said_ = what;
    log_.warning(what + "; trying again");
  }

  const NriPluginOptions& options_;
  const hook::Log& log_;
  const Wake& wake_;
  NamespaceEnds& ends_;
  ConfiguredWorker worker_;
  std::string said_;
};

}  // namespace

Result<void> run_plugin(const NriPluginOptions& options, const hook::Log& log) {
  auto opened = NamespaceEnds::open();
  if (!opened) log.warning(opened.error().message);
  NamespaceEnds ends = opened ? std::move(*opened) : NamespaceEnds();
  const Wake wake = TRY(Wake::make(ends.fd()));
  Loop loop(options, log, wake, ends);
  return options.launched_socket ? loop.run_launched() : loop.run_connecting();
}

}  // namespace shim
