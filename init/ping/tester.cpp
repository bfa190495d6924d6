#include "init/ping/tester.hpp"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <deque>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "base/text.hpp"
#include "base/timing.hpp"
#include "init/ping/explain.hpp"
#include "init/ping/open_rail.hpp"
#include "init/ping/queue_pair.hpp"

namespace init::ping {
namespace {

constexpr double kLate = 5;  // seconds after the promised time: messages take time as well

class Tester {
 public:
  // deadline: the end of all waits.
  Tester(NcclChoice& choice, double deadline) : choice_(choice), deadline_(deadline) {}

  Result<void> handle(Channel& channel, const Message& message) {
    return channel.send(TRY(answer_to(message)), deadline_);
  }

 private:
  Result<Message> answer_to(const Message& message) {
    if (const auto* prepare = std::get_if<Prepare>(&message)) return prepare_rails(*prepare);
    if (const auto* round = std::get_if<Round>(&message)) return begin(*round);
    if (const auto* contacts = std::get_if<Contacts>(&message)) return connect(*contacts);
    if (const auto* go = std::get_if<Go>(&message)) return test(*go);
    return make_error("rank 0 sent a message that this rank does not expect");
  }

  // One queue pair of the current round.
  struct Test {
    std::size_t own = 0;  // position of the rail on this rank
    std::unique_ptr<QueuePair> pair = {};
    Contact peer = {};
    Failure failure = {};
  };

  Result<Message> prepare_rails(const Prepare& prepare) {
    if (bytes_ != 0 || prepare.bytes == 0 || prepare.bytes > kMostBytes)
      return make_error("rank 0 requests writes of {} bytes; this rank accepts 1 to {}, once", prepare.bytes,
                        kMostBytes);
    bytes_ = prepare.bytes;
    return Message(open_rails(prepare));
  }

  Prepared open_rails(const Prepare& prepare) {
    Prepared prepared{{}, choice_.rails};
    auto verbs = load_verbs();
    if (!verbs) {
      prepared.problem = {Layer::kLibrary, std::move(verbs).error().message};
      return prepared;
    }
    verbs_ = *verbs;
    for (Rail& rail : prepared.rails) {
      OpenRail& opened = open_.emplace_back(verbs_);
      if (!rail.problem.failed()) rail.problem = opened.open(rail, prepare.bytes, choice_.connecting.pkey_index);
      is_usable_.push_back(!rail.problem.failed());
    }
    return prepared;
  }

  Result<Message> begin(const Round& round) {
    if (round.bytes == 0 || round.bytes > bytes_)
      return make_error("rank 0 requests writes of {} bytes; the buffer of this rank has {}", round.bytes, bytes_);
    for (std::size_t i = 0; i < round.rails.size(); ++i) {
      const std::size_t own = round.rails[i].own;
      const auto is_same = [&](const RailPair& other) { return other.own == own; };
      if (own >= open_.size() || !is_usable_[own] || std::ranges::count_if(round.rails, is_same) > 1)
        return make_error("rank 0 asks for rail {}", own);
    }
    round_ = round;
    std::vector<Test> former = std::exchange(tests_, {});
    for (const RailPair pair : round.rails)
      tests_.emplace_back().own = pair.own;
    // The kernel may wait for a grace period to remove the queue pair of the former round.
    for_each_test([&](Test& test) {
      const auto same = std::ranges::find(former, test.own, &Test::own);
      if (same != former.end()) same->pair.reset();
      test.pair = std::make_unique<QueuePair>(open_[test.own], choice_.connecting, round.number, round.bytes);
    });
    Contacts contacts{round.number, {}};
    for (Test& test : tests_) {
      contacts.contacts.push_back(test.pair->contact());
      test.failure = contacts.contacts.back().failure;
    }
    return Message(std::move(contacts));
  }

  // Calls work() for all tests side by side, each rail in a thread of its own.
  void for_each_test(const std::function<void(Test&)>& work) {
    std::vector<std::thread> threads;
    std::size_t next = 1;
    try {
      for (; next < tests_.size(); ++next)
        threads.emplace_back(std::cref(work), std::ref(tests_[next]));
    } catch (const std::system_error&) {
      // The container has reached its limit of threads, so this thread works for the remaining rails.
    }
    for (std::size_t i = next; i < tests_.size(); ++i)
      work(tests_[i]);
    if (!tests_.empty()) work(tests_.front());
    for (std::thread& thread : threads)
      thread.join();
  }

  Result<Message> connect(const Contacts& contacts) {
    if (contacts.round != round_.number || contacts.contacts.size() != tests_.size())
      return make_error("rank 0 sent contacts of another round");
    for (std::size_t i = 0; i < tests_.size(); ++i)
      tests_[i].peer = contacts.contacts[i];
    for (Test& test : tests_) {
      if (!test.failure.failed() && test.peer.failure.failed())
        test.failure = {Layer::kUntested, "the peer has no queue pair"};
    }
    // The kernel may wait for seconds for the MAC address of each peer.
    for_each_test([](Test& test) {
      if (!test.failure.failed()) test.failure = test.pair->connect(test.peer);
    });
    Connected connected{round_.number, {}};
    for (Test& test : tests_) {
      explain_failure(test);
      connected.failures.push_back(test.failure);
    }
    return Message(std::move(connected));
  }

  // Names the first layer that failed, if it is below the one that reported the failure.
  void explain_failure(Test& test) {
    const bool is_path = test.failure.layer == Layer::kRetry || test.failure.layer == Layer::kNeighbour ||
                         test.failure.layer == Layer::kRoute || test.failure.layer == Layer::kGid;
    if (!is_path) return;
    if (const std::string& doubt = choice_.doubts[test.own]; !doubt.empty()) {
      test.failure = {Layer::kGid, fmt::format("{}; {}", doubt, test.failure.detail)};
      return;
    }
    if (test.failure.layer == Layer::kGid) return;
    const Failure cause = explain(choice_.rails[test.own], test.peer.gid);
    if (cause.failed()) test.failure = {cause.layer, fmt::format("{}; {}", cause.detail, test.failure.detail)};
  }

  // Takes completions until every test is done, or the deadline.
  void run(const std::vector<QueuePair*>& pairs, double seconds) {
    const double deadline = std::min(deadline_, clock_seconds() + seconds);
    const auto is_done = [](const QueuePair* pair) { return pair->is_done(); };
    while (!std::ranges::all_of(pairs, is_done) && clock_seconds() < deadline) {
      bool any = false;
      for (QueuePair* pair : pairs)
        any |= pair->take_completions();
      if (!any) wait_for_completion(pairs, deadline);
    }
    for (QueuePair* pair : pairs)
      pair->end_test(seconds);
  }

  static void wait_for_completion(const std::vector<QueuePair*>& pairs, double deadline) {
    std::vector<pollfd> entries;
    entries.reserve(pairs.size());
    for (QueuePair* pair : pairs)
      entries.push_back({pair->rail().arm(), POLLIN, 0});
    // A completion that came before arm() causes no event.
    bool any = false;
    for (QueuePair* pair : pairs)
      any |= pair->take_completions();
    const double left = any ? 0 : std::max(0.0, deadline - clock_seconds());
    if (::poll(entries.data(), entries.size(), static_cast<int>(std::ceil(left * 1000))) <= 0) return;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if ((entries[i].revents & POLLIN) != 0) pairs[i]->rail().take_event();
    }
  }

  Result<Message> test(const Go& go) {
    if (go.round != round_.number || go.connected.size() != tests_.size())
      return make_error("rank 0 starts a test that this rank has not prepared");
    std::vector<QueuePair*> pairs;
    for (std::size_t i = 0; i < tests_.size(); ++i) {
      if (go.connected[i] == 0 || tests_[i].failure.failed()) continue;
      pairs.push_back(tests_[i].pair.get());
      tests_[i].pair->start_test();
    }
    run(pairs, round_.limit_ms / 1000.0);
    if (round_.bandwidth_ms != 0) {
      const double seconds = round_.bandwidth_ms / 1000.0;
      const double until = clock_seconds() + seconds;
      for (QueuePair* pair : pairs)
        pair->start_bandwidth(until);
      run(pairs, seconds + round_.limit_ms / 1000.0);
    }
    return Message(results_of(go));
  }

  // Returns true if the cause of the failure is certainly at this end.
  bool is_own(const Test& test) const {
    const Layer layer = test.failure.layer;
    const bool has_doubt = layer == Layer::kGid && !choice_.doubts[test.own].empty();
    return has_doubt || layer == Layer::kMemlock || layer == Layer::kRoute;
  }

  Results results_of(const Go& go) {
    Results results{round_.number, {}};
    for (std::size_t i = 0; i < tests_.size(); ++i) {
      Test& test = tests_[i];
      const bool has_run = go.connected[i] != 0 && !test.failure.failed();
      if (has_run) {
        test.failure = test.pair->failure();
        explain_failure(test);
      }
      results.results.push_back({test.failure, is_own(test), has_run ? test.pair->mbps() : 0});
    }
    return results;
  }

  NcclChoice& choice_;
  double deadline_;
  Verbs verbs_;
  std::uint32_t bytes_ = 0;  // longest write; 0: the rails are not open
  std::deque<OpenRail> open_;
  std::vector<bool> is_usable_;  // for each rail: whether it is open without a problem
  Round round_;
  std::vector<Test> tests_;
};

}  // namespace

namespace {

base::Error refusal(const std::string& reason) {
  return {fmt::format("rank 0 refuses this rank: {}", base::one_line(reason)), 0,
          "start all ranks from one image, with the same RDMA_PING_TOKEN and number of ranks"};
}

// Proves the token in both directions. wanted: Join or Attach.
Result<Welcome> prove(Channel& peer, std::string_view token, const Join& join, Message wanted, double deadline) {
  const Hello hello{kProtocol, TRY(random_nonce()), join.rank, join.host};
  TRY_VOID(peer.send(hello, deadline));
  const Message first = TRY(peer.receive(deadline));
  if (const auto* refused = std::get_if<Refusal>(&first)) return refusal(refused->reason);
  const auto* const challenge = std::get_if<Challenge>(&first);
  if (challenge == nullptr) return make_error("the answer is not that of rdma-ping");
  peer.use(make_seals(token, encode(hello), encode(*challenge)));
  TRY_VOID(peer.send(Proof{}, deadline));
  TRY_VOID(peer.send(std::move(wanted), deadline));
  auto second = peer.receive(deadline);
  if (!second) {
    base::Error error = std::move(second).error();
    if (error.code != EBADMSG) return error;
    return base::Error{"the program at the address of rank 0 does not know the token of this job", EBADMSG,
                       "check that --master or MASTER_ADDR names rank 0 of this job"};
  }
  if (const auto* refused = std::get_if<Refusal>(&*second)) return refusal(refused->reason);
  auto* const welcome = std::get_if<Welcome>(&*second);
  if (welcome == nullptr) return make_error("the answer is not that of rdma-ping");
  if (!welcome->accepted) return refusal(welcome->reason);
  return std::move(*welcome);
}

}  // namespace

Result<Welcome> greet(Channel& rank0, std::string_view token, const Join& join, double deadline) {
  return prove(rank0, token, join, join, deadline);
}

Result<Welcome> greet_relay(Channel& relay, std::string_view token, const Join& join, double deadline) {
  return prove(relay, token, join, Attach{join.rank}, deadline);
}

Handler make_tester(NcclChoice& choice, double deadline) {
  // A function object is copied, and a tester cannot be.
  return [tester = std::make_shared<Tester>(choice, deadline)](Channel& channel, const Message& message) {
    return tester->handle(channel, message);
  };
}

double end_of_waits(const Welcome& welcome, double longest) {
  return clock_seconds() + std::min(welcome.limit_ms / 1000.0, longest) + kLate;
}

Result<Verdict> follow(Channel& rank0, const Handler& handle, double deadline) {
  for (;;) {
    const Message message = TRY(rank0.receive(deadline));
    if (const auto* verdict = std::get_if<Verdict>(&message)) return *verdict;
    TRY_VOID(handle(rank0, message));
  }
}

}  // namespace init::ping
