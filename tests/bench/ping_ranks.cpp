// ping_ranks RANKS [RAILS [MILLISECONDS]]: runs rank 0 of rdma-ping with RANKS processes on this machine, over the
// loopback device. The processes join, report through relays and answer as ranks do; in place of queue pairs, a test
// takes MILLISECONDS. Prints a table in Markdown, with and without relays: the time until all ranks are here, the time
// of the rounds, the frames of rank 0, its CPU time and its memory.
#include <arpa/inet.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <thread>

#include "base/timing.hpp"
#include "init/ping/causes.hpp"
#include "init/ping/meeting_point.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/take_part.hpp"

namespace {

using namespace init::ping;

constexpr const char* kToken = "job 7";
constexpr const char* kHost = "127.0.0.1";
constexpr double kLongest = 300;

struct Wanted {
  unsigned ranks = 512;
  unsigned rails = 2;
  unsigned milliseconds = 17;
};

class Counted : public Referee {
 public:
  using Referee::Referee;
  void receive(int connection, const std::string& from, Message message, double now) override {
    if (const auto* const bundle = std::get_if<Bundle>(&message)) carried_ += bundle->carried.size();
    if (std::holds_alternative<Join>(message)) begun_ = now;
    ++frames_;
    Referee::receive(connection, from, std::move(message), now);
  }
  std::vector<Outgoing> take_outgoing(bool is_idle, double now) override {
    std::vector<Outgoing> outgoing = Referee::take_outgoing(is_idle, now);
    frames_ += outgoing.size();
    for (const Outgoing& one : outgoing) {
      if (const auto* const bundle = std::get_if<Bundle>(&one.message)) carried_ += bundle->carried.size();
    }
    return outgoing;
  }
  std::size_t frames() const { return frames_; }
  std::size_t carried() const { return carried_; }
  double begun() const { return begun_; }

 private:
  std::size_t frames_ = 0;
  std::size_t carried_ = 0;
  double begun_ = 0;
};

Handler answer(const Join& join, unsigned milliseconds) {
  return [=, round = Round()](Channel& channel, const Message& message) mutable -> base::Result<void> {
    const double deadline = base::clock_seconds() + kLongest;
    if (std::holds_alternative<Prepare>(message)) return channel.send(Prepared{{}, join.rails}, deadline);
    if (const auto* next = std::get_if<Round>(&message)) {
      round = *next;
      return channel.send(Contacts{round.number, std::vector<Contact>(round.rails.size())}, deadline);
    }
    if (std::holds_alternative<Contacts>(message))
      return channel.send(Connected{round.number, std::vector<Failure>(round.rails.size())}, deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
    return channel.send(Results{round.number, std::vector<TestResult>(round.rails.size())}, deadline);
  };
}

[[noreturn]] void be_rank(unsigned rank, std::uint16_t port, const Wanted& wanted) {
  Part part{kHost,
            port,
            kToken,
            {rank,
             wanted.ranks,
             "node" + std::to_string(rank),
             "host" + std::to_string(rank),
             std::vector<Rail>(wanted.rails),
             {}},
            kLongest,
            kLongest,
            {}};
  part.make_handler = [&](double) { return answer(part.join, wanted.milliseconds); };
  const auto verdict = take_part(part, init::Log(init::LogLevel::kInfo));
  if (!verdict) fmt::print(stderr, "rank {}: {}\n", rank, verdict.error().message);
  ::_exit(verdict && verdict->code == 0 ? 0 : 1);
}

// Returns the CPU time of this process.
double cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// Runs one job in this process and its children.
int run(const Wanted& wanted, unsigned tree_from) {
  const RaisedFileLimit limit;
  SocketAddress address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  ipv4.sin_family = AF_INET;
  ::inet_pton(AF_INET, kHost, &ipv4.sin_addr);
  address.length = sizeof ipv4;
  auto point = MeetingPoint::listen(address, wanted.ranks, kToken);
  if (!point) {
    fmt::print(stderr, "{}\n", point.error().message);
    return 1;
  }
  const SocketAddress at = point->address();
  const std::uint16_t port = ntohs(reinterpret_cast<const sockaddr_in&>(at.storage).sin_port);
  const double start = base::clock_seconds();
  for (unsigned rank = 0; rank < wanted.ranks; ++rank) {
    if (::fork() != 0) continue;
    point->leave();
    be_rank(rank, port, wanted);
  }
  Rules rules;
  rules.size = wanted.ranks;
  rules.meeting_seconds = kLongest;
  rules.tree_from = tree_from;
  Counted referee(rules, base::clock_seconds());
  const double before = cpu_seconds();  // without the starts of the processes
  int code = 1;
  point->run(referee, init::Log(init::LogLevel::kQuiet), [&] {
    code = find_causes(referee.outcome()).empty() ? 0 : 1;
    return Verdict{static_cast<std::uint8_t>(code), "done", ""};
  });
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double cpu = cpu_seconds() - before;
  for (int status = 0; ::wait(&status) > 0;)
    code |= status;
  fmt::print("| {} | {} | {} | {:.2f} | {:.2f} | {} | {} | {:.2f} | {:.1f} |\n", wanted.ranks, wanted.rails,
             tree_from <= wanted.ranks ? "yes" : "no", referee.begun() - start, referee.outcome().seconds,
             referee.frames(), referee.carried(), cpu, static_cast<double>(usage.ru_maxrss) / 1024);
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  Wanted wanted;
  const auto number = [&](int at, unsigned otherwise) {
    return argc > at ? static_cast<unsigned>(std::atoi(argv[at])) : otherwise;
  };
  wanted.ranks = number(1, 0);
  wanted.rails = number(2, 2);
  wanted.milliseconds = number(3, 17);
  if (wanted.ranks < 2 || wanted.ranks > 4096 || wanted.rails < 1 || wanted.rails > 32) {
    fmt::print(stderr, "usage: ping_ranks RANKS [RAILS [MILLISECONDS]]\n");
    return 2;
  }
  fmt::print(
      "| ranks | rails | relays | all ranks are here, s | rounds, s | frames of rank 0 | messages in bundles | CPU of "
      "rank 0, s | memory of rank 0, MB |\n| --: | --: | --- | --: | --: | --: | --: | --: | --: |\n");
  for (const unsigned tree_from : {kFanOut, wanted.ranks + 1}) {
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) std::exit(run(wanted, tree_from));
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
