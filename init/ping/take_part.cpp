#include "init/ping/take_part.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <optional>
#include <utility>

#include "base/process/helper.hpp"
#include "base/timing.hpp"
#include "init/ping/meeting_point.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/relay.hpp"

namespace init::ping {
namespace {

constexpr double kMoveSeconds = 5;  // limit for a rank to reach its relay

constexpr const char* kNoRank0 = "read the log of rank 0, which has ended or does not answer";

// Joins at the meeting point. Another program may accept the connection and close it: rank 0 of a job that just ends,
// or a proxy in front of rank 0.
Result<std::pair<Channel, Welcome>> join(const Part& part, double deadline) {
  constexpr timespec kPause{0, 200'000'000};
  for (;;) {
    Channel channel = TRY(Channel::connect(part.host, part.port, deadline));
    auto welcome = greet(channel, part.token, part.join, deadline);
    if (welcome) return std::pair(std::move(channel), std::move(*welcome));
    const int code = welcome.error().code;
    if ((code != ECONNRESET && code != EPIPE) || clock_seconds() >= deadline) return std::move(welcome).error();
    ::nanosleep(&kPause, nullptr);
  }
}

// The time of a rank between its place in the job and the verdict.
class Stay {
 public:
  Stay(const Part& part, const Log& log, Channel channel, const Welcome& welcome)
      : part_(part),
        log_(log),
        channel_(std::move(channel)),
        deadline_(end_of_waits(welcome, part.longest)),
        handle_(part.make_handler(deadline_)) {}

  Result<Verdict> follow() {
    for (;;) {
      const Message message = TRY(channel_.receive(deadline_));
      if (const auto* verdict = std::get_if<Verdict>(&message)) return *verdict;
      if (std::holds_alternative<BecomeRelay>(message)) {
        auto point = listen();
        if (point) return relay(std::move(*point));
        TRY_VOID(channel_.send(StayDirect{}, deadline_));
      } else if (const auto* way = std::get_if<MoveTo>(&message)) {
        TRY_VOID(move(*way));
      } else {
        has_begun_ = true;
        TRY_VOID(handle_(channel_, message));
      }
    }
  }

  // Returns true if the rank can join again: it lost its relay before the tests.
  bool can_join_again() const { return has_moved_ && !has_begun_; }
  const std::string& peer() const { return channel_.peer(); }

 private:
  // Ranks reach this rank at the address with which it reaches rank 0.
  Result<MeetingPoint> listen() const { return MeetingPoint::listen(channel_.own_address(), kFanOut, part_.token); }

  Result<void> move(const MoveTo& way) {
    const double deadline = std::min(deadline_, clock_seconds() + kMoveSeconds);
    auto relay = Channel::connect(way.host, way.port, deadline,
                                  fmt::format("rank {}, through which this rank reports", way.relay));
    if (!relay || !greet_relay(*relay, part_.token, part_.join, deadline))
      return channel_.send(StayDirect{}, deadline_);
    channel_ = std::move(*relay);
    has_moved_ = true;
    return {};
  }

  // The child tests as a rank that reports through the relay, which is this process.
  [[noreturn]] void test_in_child(UniqueFd socket) {
    Channel own(std::move(socket));
    if (greet_relay(own, part_.token, part_.join, deadline_))
      static_cast<void>(ping::follow(own, handle_, deadline_).has_value());
    ::_exit(0);
  }

  Result<Verdict> relay(MeetingPoint point) {
    std::array<char, NI_MAXHOST> host{};
    const SocketAddress at = point.address();
    ::getnameinfo(at.raw(), at.length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST);
    const std::uint16_t port = ntohs(reinterpret_cast<const sockaddr_in&>(at.storage).sin_port);
    TRY_VOID(channel_.send(RelayAt{host.data(), port}, deadline_));
    Channel::Parts rank0 = std::move(channel_).release();
    auto [child, own] = base::start_helper(SOCK_STREAM, [&](pid_t, UniqueFd ours, UniqueFd theirs) {
      ours.reset();
      rank0.socket.reset();
      point.leave();
      test_in_child(std::move(theirs));
    });
    if (!own.ok()) return sys_error(errno, "socketpair");
    if (child < 0) return sys_error(errno, "fork");
    const RaisedFileLimit limit;
    point.add(std::move(own));
    Relay desk(point.add_rank0(std::move(rank0)), clock_seconds(), deadline_);
    point.run(desk, log_, [&] { return desk.verdict(); });
    end_child(child);
    if (desk.is_of_rank0()) return desk.verdict();
    return base::Error{desk.verdict().text, 0, kNoRank0};
  }

  const Part& part_;
  const Log& log_;
  Channel channel_;
  double deadline_;
  Handler handle_;
  bool has_moved_ = false;
  bool has_begun_ = false;
};

}  // namespace

void end_child(pid_t child) {
  constexpr int kTurns = 20;
  constexpr timespec kPause{0, 50'000'000};
  for (int turn = 0; turn < kTurns && ::waitpid(child, nullptr, WNOHANG) == 0; ++turn) {
    if (turn == kTurns / 2) ::kill(child, SIGKILL);
    ::nanosleep(&kPause, nullptr);
  }
}

Result<Verdict> take_part(const Part& part, const Log& log) {
  const double deadline = clock_seconds() + part.meeting_seconds;
  for (;;) {
    auto joined = TRY(join(part, deadline));
    Stay stay(part, log, std::move(joined.first), joined.second);
    auto verdict = stay.follow();
    if (verdict) return verdict;
    // The container of the relay may start again.
    if (stay.can_join_again() && clock_seconds() < deadline) continue;
    if (verdict.error().hint.empty()) verdict.error().hint = kNoRank0;
    return verdict;
  }
}

}  // namespace init::ping
