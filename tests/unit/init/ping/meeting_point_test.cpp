// Rank 0 and its ranks over TCP on this machine, with strangers between them.
#include "init/ping/meeting_point.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <thread>
#include <utility>
#include <vector>

#include "base/timing.hpp"
#include "init/ping/referee.hpp"
#include "init/ping/tester.hpp"
#include "support/results.hpp"
#include "unit/sanitized.hpp"

namespace {

using namespace init::ping;
using namespace test_support;
using base::UniqueFd;

constexpr double kLongWait = 120;  // seconds, for a busy machine
constexpr const char* kToken = "job 7";

SocketAddress local(const char* host, std::uint16_t port) {
  SocketAddress address;
  auto& ipv4 = reinterpret_cast<sockaddr_in&>(address.storage);
  ipv4.sin_family = AF_INET;
  ipv4.sin_port = htons(port);
  ::inet_pton(AF_INET, host, &ipv4.sin_addr);
  address.length = sizeof ipv4;
  return address;
}

// Returns a socket from this address of 127.0.0.0/8. Its connection may be refused or reset.
UniqueFd connect_from(const char* host, std::uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const SocketAddress from = local(host, 0);
  const SocketAddress to = local("127.0.0.1", port);
  ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&from.storage), from.length);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to.storage), to.length) != 0) fd.reset();
  return fd;
}

Join join_of(unsigned rank, unsigned size) {
  return {rank, size, "node" + std::to_string(rank), "host" + std::to_string(rank), {}, {}};
}

// Returns all bytes until the peer closes the connection; nullopt: the connection is reset, or open for too long.
std::optional<std::string> read_to_end(const UniqueFd& socket) {
  std::string all;
  for (;;) {
    pollfd entry{socket.get(), POLLIN, 0};
    if (::poll(&entry, 1, static_cast<int>(kLongWait * 1000)) != 1) return std::nullopt;
    std::array<char, 4096> bytes{};
    const ssize_t count = ::recv(socket.get(), bytes.data(), bytes.size(), 0);
    if (count < 0) return std::nullopt;
    if (count == 0) return all;
    all.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

// Returns a meeting point at a free port of 127.0.0.1, and the port.
std::pair<MeetingPoint, std::uint16_t> listen_anywhere(unsigned size) {
  // Another program may take the port in between.
  for (;;) {
    UniqueFd free(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SocketAddress any = local("127.0.0.1", 0);
    auto* const raw = reinterpret_cast<sockaddr*>(&any.storage);
    ::bind(free.get(), raw, any.length);
    ::getsockname(free.get(), raw, &any.length);
    free.reset();
    auto point = MeetingPoint::listen(any, size, kToken);
    if (point) return {std::move(*point), ntohs(reinterpret_cast<const sockaddr_in&>(any.storage).sin_port)};
  }
}

// A meeting point that runs in a thread until all ranks are here. They have no rails, so that nothing is tested.
class RunningPoint {
 public:
  explicit RunningPoint(unsigned size) : referee_({size, kLongWait, false, 64, false}, base::clock_seconds()) {
    auto [point, port] = listen_anywhere(size);
    port_ = port;
    thread_ = std::thread([this, here = std::move(point)]() mutable {
      here.run(referee_, init::Log(init::LogLevel::kQuiet), [] { return Verdict{0, "good", ""}; });
    });
  }
  ~RunningPoint() { end(); }

  std::uint16_t port() const { return port_; }
  const Outcome& end() {
    if (thread_.joinable()) thread_.join();
    return referee_.outcome();
  }

 private:
  Referee referee_;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

const Handler kNoTests = [](Channel&, const Message&) { return base::Result<void>(); };

// Returns the verdict of a rank, which tries again as a program does.
base::Result<Verdict> be_rank(std::uint16_t port, unsigned rank, unsigned size) {
  const double deadline = base::clock_seconds() + kLongWait;
  for (;;) {
    Channel channel = TRY(Channel::connect("127.0.0.1", port, deadline));
    const auto welcome = greet(channel, kToken, join_of(rank, size), deadline);
    if (welcome) return follow(channel, kNoTests, deadline);
    if (welcome.error().code != ECONNRESET && welcome.error().code != EPIPE) return welcome.error();
  }
}

// Ranks of this size join one after the other, and get the verdict.
void join_all(std::uint16_t port, unsigned size) {
  std::vector<std::thread> ranks;
  for (unsigned rank = 0; rank < size; ++rank) {
    ranks.emplace_back([=] {
      const auto verdict = be_rank(port, rank, size);
      EXPECT_EQ(error_message(verdict), "") << rank;
      if (verdict) {
        EXPECT_EQ(verdict->text, "good") << rank;
      }
    });
  }
  for (std::thread& rank : ranks)
    rank.join();
}

TEST(MeetingPoint, CarriesVerdictToAllRanks) {
  RunningPoint point(8);
  join_all(point.port(), 8);
  EXPECT_TRUE(point.end().absent.empty());
  EXPECT_TRUE(point.end().strangers.empty());
}

// Ranks of this size join beside a stranger. It has the address of the ranks, and another one. It opens more
// connections than the meeting point keeps, and goes on for as long as the ranks join. Every second one sends a Hello
// and then nothing.
void join_beside_stranger(unsigned size) {
  const RaisedFileLimit limit;
  for (const char* const from : {"127.0.0.1", "127.0.0.9"}) {
    RunningPoint point(size);
    std::atomic<bool> is_over = false;
    std::atomic<unsigned> opened = 0;
    std::thread stranger([&] {
      std::vector<UniqueFd> held(MeetingPoint::kSpare + 256);
      const std::string hello = encode(Hello{kProtocol, std::string(kNonce, 'n'), 1, "stranger"});
      for (std::size_t at = 0; !is_over; ++at) {
        UniqueFd& one = held[at % held.size()];
        one = connect_from(from, point.port());
        if (at % 2 == 0) static_cast<void>(::send(one.get(), hello.data(), hello.size(), MSG_NOSIGNAL));
        ++opened;
      }
    });
    while (opened < MeetingPoint::kSpare + 256)
      std::this_thread::yield();
    join_all(point.port(), size);
    is_over = true;
    stranger.join();
    EXPECT_TRUE(point.end().absent.empty()) << from;
  }
}

TEST(MeetingPoint, StrangerThatOnlyOpensConnectionsKeepsNoRankOut) {
  join_beside_stranger(16);
}

// `ctest -C long` runs it.
TEST(MeetingPoint, DISABLED_StrangerKeepsNoneOf1024RanksOut) {
  join_beside_stranger(1024);
}

// Returns the resident memory of a process in bytes.
std::size_t resident(pid_t pid) {
  std::ifstream status(fmt::format("/proc/{}/statm", pid));
  std::size_t total = 0;
  std::size_t pages = 0;
  status >> total >> pages;
  return pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

// Each stranger sends as much as it can without the token: a Hello, and a frame that lacks its last byte.
TEST(MeetingPoint, KeepsLittleMemoryFor8192Strangers) {
  if (kIsSanitized) GTEST_SKIP() << "memory cannot be measured under the address sanitizer";
  constexpr unsigned kSize = 8192;
  const RaisedFileLimit limit;
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  if (files.rlim_cur < kSize + 256) GTEST_SKIP() << "needs an open file for each stranger";
  auto [point, port] = listen_anywhere(kSize);
  const pid_t rank0 = ::fork();
  if (rank0 == 0) {
    // The memory that earlier tests of this process have freed would hide the growth.
    ::malloc_trim(0);
    Referee referee({kSize, kLongWait, false, 64, false}, base::clock_seconds());
    point.run(referee, init::Log(init::LogLevel::kQuiet), [] { return Verdict{}; });
    ::_exit(0);
  }
  point.leave();
  std::string bytes = encode(Hello{kProtocol, std::string(kNonce, 'n'), 1, std::string(kLongestName, 'h')});
  bytes += std::string("\0\0\1\0", 4) + encode(Proof{})[4] + std::string(kLongestFirstFrame - 2, 'x');
  std::vector<UniqueFd> strangers(kSize);
  std::size_t first = 0;
  std::size_t most = 0;
  for (UniqueFd& stranger : strangers) {
    stranger = connect_from("127.0.0.9", port);
    static_cast<void>(::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL));
    const auto number = &stranger - strangers.data();
    if (number % 64 != 0 && number != kSize - 1) continue;
    char answer = 0;
    EXPECT_EQ(::recv(stranger.get(), &answer, 1, 0), 1) << "its challenge";
    most = std::max(most, resident(rank0));
    if (first == 0) first = most;
  }
  ::kill(rank0, SIGKILL);
  ::waitpid(rank0, nullptr, 0);
  EXPECT_GT(most, first);
  EXPECT_LT(most - first, std::size_t{kSize} * 1536);
}

bool is_closed(const UniqueFd& socket) {
  pollfd entry{socket.get(), POLLRDHUP, 0};
  return ::poll(&entry, 1, 0) == 1;
}

// Ranks of a node, or behind one address, are many too: they have a fair share.
TEST(MeetingPoint, ClosesOldestConnectionOfNetworkWithMostStrangers) {
  const RaisedFileLimit limit;
  double seconds = 0;
  do {
    RunningPoint point(2);
    const double start = base::clock_seconds();
    std::vector<UniqueFd> ranks(8);
    for (UniqueFd& rank : ranks)
      rank = connect_from("127.0.0.1", point.port());
    std::vector<UniqueFd> strangers(MeetingPoint::kSpare);
    for (UniqueFd& stranger : strangers)
      stranger = connect_from("127.0.0.9", point.port());
    while (!is_closed(strangers.front()) && base::clock_seconds() < start + kLongWait)
      std::this_thread::yield();
    seconds = base::clock_seconds() - start;
    // After some seconds all strangers close.
    if (seconds < 3) {
      EXPECT_TRUE(std::ranges::none_of(ranks, is_closed));
      EXPECT_FALSE(is_closed(strangers.back()));
    }
    join_all(point.port(), 2);
  } while (seconds >= 3);
}

// The bytes of a rank that joined, on another connection.
TEST(MeetingPoint, RefusesReplay) {
  RunningPoint point(2);
  const std::string hello = encode(Hello{kProtocol, std::string(kNonce, 'n'), 1, "host1"});
  const auto begin = [&] {
    UniqueFd socket = connect_from("127.0.0.1", point.port());
    static_cast<void>(::send(socket.get(), hello.data(), hello.size(), MSG_NOSIGNAL));
    return socket;
  };
  const auto challenge_of = [](const UniqueFd& socket) {
    std::string challenge(encode(Challenge{std::string(kNonce, 'c')}).size(), '\0');
    static_cast<void>(::recv(socket.get(), challenge.data(), challenge.size(), MSG_WAITALL));
    return challenge;
  };
  {
    const UniqueFd rank = begin();
    Seals seals = make_seals(kToken, hello, challenge_of(rank));
    const std::string proof = encode(Proof{}, &seals.rank) + encode(join_of(1, 2), &seals.rank);
    static_cast<void>(::send(rank.get(), proof.data(), proof.size(), MSG_NOSIGNAL));
    char byte = 0;
    ASSERT_EQ(::recv(rank.get(), &byte, 1, 0), 1) << "its Welcome";
    const UniqueFd again = begin();
    static_cast<void>(challenge_of(again));
    static_cast<void>(::send(again.get(), proof.data(), proof.size(), MSG_NOSIGNAL));
    EXPECT_EQ(read_to_end(again), encode(Refusal{"it has the token of another job"}));
  }
  join_all(point.port(), 2);
}

TEST(MeetingPoint, ReportsRankWithAnotherToken) {
  RunningPoint point(2);
  Channel channel = must(Channel::connect("127.0.0.1", point.port(), base::clock_seconds() + kLongWait));
  const auto welcome = greet(channel, "job 8", join_of(1, 2), base::clock_seconds() + kLongWait);
  EXPECT_EQ(error_message(welcome), "rank 0 refuses this rank: it has the token of another job");
  join_all(point.port(), 2);
  ASSERT_EQ(point.end().strangers.size(), 1U);
  EXPECT_TRUE(point.end().strangers.front().ends_with(" (rank 1, host1): it has the token of another job"));
}

// A rank of the former version has a Hello of the same form.
TEST(MeetingPoint, AnswersFormerVersion) {
  RunningPoint point(2);
  const UniqueFd old = connect_from("127.0.0.1", point.port());
  const std::string hello = encode(Hello{3, std::string(kNonce, 'n'), 1, "host1"});
  ASSERT_EQ(::send(old.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
  EXPECT_EQ(read_to_end(old), encode(Refusal{"it is another version of rdma-ping"}));
  join_all(point.port(), 2);
  EXPECT_EQ(point.end().strangers.size(), 1U);
}

// The Hello of protocol 1, as long as it may be, gets the answer of that protocol, and its connection no reset.
TEST(MeetingPoint, AnswersOlderVersion) {
  RunningPoint point(2);
  const UniqueFd old = connect_from("127.0.0.1", point.port());
  std::string hello("\0\0\x9c\x40\0\0\1", 7);
  hello.resize(40'004);
  ASSERT_EQ(::send(old.get(), hello.data(), hello.size(), MSG_NOSIGNAL), static_cast<ssize_t>(hello.size()));
  EXPECT_EQ(read_to_end(old), encode(Refusal{"it is another version of rdma-ping"}));
  join_all(point.port(), 2);
  ASSERT_EQ(point.end().strangers.size(), 1U);
  EXPECT_EQ(point.end().strangers.front().find('('), std::string::npos) << "it has no rank and host of that version";
}

TEST(MeetingPoint, ClosesStrangerThatSendsMoreOrOtherMessages) {
  RunningPoint point(2);
  const std::string hello = encode(Hello{kProtocol, std::string(kNonce, 'n'), 1, "stranger"});
  const std::string rows[] = {
      encode(Join{1, 2, std::string(64, 'n'), std::string(64, 'h'), {}, {std::string(99, 'u')}}),
      encode(join_of(1, 2)),
      encode(Verdict{}),
      encode(Proof{}),
      std::string(5, '\xff'),
      hello + encode(Refusal{"x"})};
  for (const std::string& bytes : rows) {
    const UniqueFd stranger = connect_from("127.0.0.1", point.port());
    ASSERT_EQ(::send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    pollfd entry{stranger.get(), POLLRDHUP, 0};
    // Not at the end of the time that a stranger has, which would be 5 s.
    EXPECT_EQ(::poll(&entry, 1, 4000), 1);
  }
  join_all(point.port(), 2);
}

// A rank and a program at the address of rank 0 that answers with these frames.
struct Impostor {
  UniqueFd rank;
  Channel own;

  static Impostor make() {
    std::array<int, 2> ends{};
    static_cast<void>(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()));
    return {UniqueFd(ends[0]), Channel(UniqueFd(ends[1]))};
  }
};

std::string read_some(int socket) {
  std::array<char, 4096> bytes{};
  const ssize_t count = ::recv(socket, bytes.data(), bytes.size(), 0);
  return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
}

// Answers a rank's Hello. Returns the seals of a program that knows `token`, and all bytes of the rank so far.
std::pair<Seals, std::string> challenge_rank(int socket, std::string_view token) {
  std::string hello = read_some(socket);
  const std::string challenge = encode(Challenge{std::string(kNonce, 'c')});
  static_cast<void>(::send(socket, challenge.data(), challenge.size(), MSG_NOSIGNAL));
  Seals seals = make_seals(token, hello, challenge);
  return {seals, hello + read_some(socket)};
}

TEST(Rank, BelievesNoRank0WithoutTheToken) {
  const struct {
    const char* name;
    std::string (*answer)(Seals& own);  // the frames after the rank's proof
  } rows[] = {
      {"no code",
       [](Seals&) {
         return encode(Welcome{true, "", 1000}) + encode(Verdict{0, "good", ""});
       }},
      {"code of another token",
       [](Seals& own) {
         return encode(Welcome{true, "", 1000}, &own.rank0) + encode(Verdict{}, &own.rank0);
       }},
  };
  for (const auto& row : rows) {
    Impostor impostor = Impostor::make();
    std::string seen;
    std::thread program([&] {
      auto [seals, bytes] = challenge_rank(impostor.rank.get(), "guess");
      const std::string frames = row.answer(seals);
      static_cast<void>(::send(impostor.rank.get(), frames.data(), frames.size(), MSG_NOSIGNAL));
      seen = std::move(bytes);
    });
    const auto welcome = greet(impostor.own, kToken, join_of(1, 2), base::clock_seconds() + kLongWait);
    program.join();
    ASSERT_FALSE(welcome.has_value()) << row.name;
    EXPECT_EQ(welcome.error().code, EBADMSG) << row.name;
    EXPECT_EQ(welcome.error().message, "the program at the address of rank 0 does not know the token of this job");
    EXPECT_NE(seen.find("host1"), std::string::npos);
    EXPECT_EQ(seen.find(kToken), std::string::npos) << "the token crossed the network";
  }
}

// Its own frames come back to it.
TEST(Rank, RefusesItsOwnMessages) {
  Impostor impostor = Impostor::make();
  std::thread program([&] {
    const std::string sent = challenge_rank(impostor.rank.get(), "guess").second;
    const std::string sealed = sent.substr(encode(Hello{kProtocol, std::string(kNonce, 'n'), 1, "host1"}).size());
    static_cast<void>(::send(impostor.rank.get(), sealed.data(), sealed.size(), MSG_NOSIGNAL));
  });
  const auto welcome = greet(impostor.own, kToken, join_of(1, 2), base::clock_seconds() + kLongWait);
  program.join();
  ASSERT_FALSE(welcome.has_value());
  EXPECT_EQ(welcome.error().code, EBADMSG);
}

// Rank 0 knows the token, promises a verdict within a day, and then sends bytes of a long message.
TEST(Rank, EndsAtItsOwnLimit) {
  Impostor impostor = Impostor::make();
  std::atomic<bool> is_over = false;
  std::thread program([&] {
    Seals seals = challenge_rank(impostor.rank.get(), kToken).first;
    std::string frames = encode(Welcome{true, "", 86'400'000}, &seals.rank0) + std::string("\0\0\x9c\x40\2", 5);
    while (!is_over) {
      static_cast<void>(::send(impostor.rank.get(), frames.data(), frames.size(), MSG_NOSIGNAL | MSG_DONTWAIT));
      frames = "x";
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const auto welcome = greet(impostor.own, kToken, join_of(1, 2), base::clock_seconds() + kLongWait);
  EXPECT_EQ(error_message(welcome), "");
  constexpr double kOfMessages = 5;  // what end_of_waits() adds
  if (welcome) {
    const double end = end_of_waits(*welcome, 0.1 - kOfMessages);
    EXPECT_EQ(follow(impostor.own, kNoTests, end).error().code, ETIMEDOUT);
  }
  is_over = true;
  program.join();
}

}  // namespace
