#include "shim/ttrpc/connection.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <thread>

#include "support/results.hpp"
#include "unit/shim/nri/peer.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using namespace shim_peer;
using Clock = Connection::Clock;

// A Connection with requests of the runtime, invalid bytes, calls of the runtime, and its end. Over a socket pair,
// without threads where the peer's bytes fit into the socket: they are written first.

class ConnectionTest : public testing::Test {
 protected:
  // Answers with the request itself: "METHOD(PAYLOAD)".
  base::Result<std::string> handle(const Request& request) {
    const auto& [service, method, payload, timeout] = request;
    asked_.emplace_back(method);
    if (method == "Fail") return base::Error{"pool `a` is empty", 0, "add HCAs"};
    if (method == "Throw") throw std::runtime_error("no memory");
    if (method == "Nested") {
      const auto nested = connection_->call("S", "M", "", std::chrono::seconds(1));
      return nested.error();
    }
    if (method == "Large") return std::string(std::stoul(std::string(payload)), 'L');
    if (service != "nri.pkg.api.v1alpha1.Plugin") return base::Error{"service", ENOSYS};
    return std::string(method) + "(" + std::string(payload.substr(0, 100)) + ")";
  }

  // Serves the sent bytes, which fit into the socket.
  void pump() {
    for (int i = 0; i < 40; ++i)
      if (const auto served = connection_->serve(-1, Connection::Clock::now()); !served)
        error_ = served.error().message;
  }

  // Returns the plugin's answers: "STREAM: ANSWER".
  std::vector<std::string> answers() {
    pump();
    std::vector<std::string> all;
    for (const auto& received : peer_.received()) {
      EXPECT_EQ(received.connection, 1U);
      EXPECT_EQ(received.type, 2);
      all.push_back(std::to_string(received.stream) + ": " + shim_peer::answer(received.data));
    }
    return all;
  }

  using Answers = std::vector<std::string>;

  ConnectionTest() { connect(); }
  void connect() {
    peer_ = shim_peer::Peer();
    connection_ =
        Connection::open(peer_.take_plugin_end(), [this](const Request& request) { return handle(request); }).value();
  }

  shim_peer::Peer peer_;
  std::unique_ptr<Connection> connection_;
  std::vector<std::string> asked_;
  std::string error_;
};

TEST_F(ConnectionTest, AnswersRequests) {
  peer_.send(message(1, 1, 1, request("One", "p")) + message(1, 3, 1, request("Two", "")));
  EXPECT_EQ(answers(), (Answers{"1: One(p)", "3: Two()"}));
}

TEST_F(ConnectionTest, SendsOnlyHeaderForEmptyAnswer) {
  peer_.send(message(1, 1, 1, request("Large", "0")));
  pump();
  std::string bytes(64, '\0');
  const ssize_t count = ::recv(peer_.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  ASSERT_GT(count, 0);
  bytes.resize(static_cast<std::size_t>(count));
  EXPECT_EQ(bytes, "\0\0\0\1\0\0\0\12"s + "\0\0\0\0\0\0\0\1\2\0"s);
}

TEST_F(ConnectionTest, AcceptsEverySplitOfStream) {
  // One message in three frames, as Go sends a long one.
  const std::string inner = message(1, 1, 1, request("Split", "payload")).substr(8);
  const std::string bytes = frame(1, inner.substr(0, 4)) + frame(1, inner.substr(4, 20)) + frame(1, inner.substr(24));
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    connect();
    for (const auto part : {std::string_view(bytes).substr(0, cut), std::string_view(bytes).substr(cut)}) {
      peer_.send(part);
      for (int i = 0; i < 2; ++i)
        ASSERT_TRUE(connection_->serve(-1, Clock::now())) << cut;
    }
    const auto received = peer_.received();
    ASSERT_EQ(received.size(), 1U) << cut;
    EXPECT_EQ(answer(received[0].data), "Split(payload)");
  }
}

TEST_F(ConnectionTest, SendsErrorsAsStatuses) {
  peer_.send(message(1, 1, 1, request("Fail", "")) + message(1, 3, 1, request("Throw", "")) +
             message(1, 5, 1, request("M", "", "other")) + message(1, 7, 1, request("Nested", "")));
  EXPECT_EQ(answers(),
            (Answers{"1: status 2: pool `a` is empty (add HCAs)",
                     fmt::format("3: status 2: cannot serve the request: {} ({})", base::error_of_exception().message,
                                 base::error_of_exception().hint),
                     "5: status 12: service", "7: status 2: a request's handler must not use the connection"}));
}

TEST_F(ConnectionTest, RefusesRepeatedOrEvenStreams) {
  const std::string create = message(1, 5, 1, request("Create", ""));
  peer_.send(create + create + message(1, 3, 1, request("Create", "")) + message(1, 6, 1, request("Create", "")) +
             message(1, 7, 1, request("Next", "")));
  EXPECT_EQ(answers(),
            (Answers{"5: Create()", "5: status 3: the stream number of a request must be higher than all earlier ones",
                     "3: status 3: the stream number of a request must be higher than all earlier ones",
                     "6: status 3: the stream number of a request must be odd", "7: Next()"}));
  EXPECT_EQ(asked_, (Answers{"Create", "Next"}));
}

TEST_F(ConnectionTest, RefusesInvalidRequestAndContinues) {
  peer_.send(message(1, 1, 1, "\x0a\x7f") + message(1, 3, 1, request("Stream", ""), 2) +
             message(1, 5, 1, request("Closed", ""), 1));
  EXPECT_EQ(answers(), (Answers{"1: status 3: protobuf message: field 1 has 127 bytes, 0 are left",
                                "3: status 12: streams are not supported", "5: Closed()"}));
}

TEST_F(ConnectionTest, FailsPermanentlyAfterProtocolError) {
  const std::tuple<const char*, std::string, const char*> cases[] = {
      {"unknown connection", frame(4, "x"),
       "the runtime sent a frame for connection 4: NRI has connections 1 and 2 only"},
      {"unknown type", message(1, 1, 9, ""), "the runtime sent a ttrpc message of type 9: there are types 1 to 3 only"},
      {"data of a stream", message(1, 1, 3, ""), "the runtime sent a ttrpc message of type 3 in place of a request"},
      {"response where requests are", message(1, 1, 2, ""),
       "the runtime sent a ttrpc message of type 2 in place of a request"},
      {"request where answers are", message(2, 1, 1, ""),
       "the runtime sent a ttrpc message of type 1 in place of an answer"},
      {"answer without a request", message(2, 1, 2, ""), "the runtime answered ttrpc stream 1, which has no request"}};
  for (const auto& [name, bytes, error] : cases) {
    SCOPED_TRACE(name);
    connect();
    peer_.send(bytes);
    EXPECT_EQ(answers(), Answers{});
    EXPECT_EQ(error_, error);
    EXPECT_EQ(connection_->call("S", "M", "", 1s).error().message, error);
  }
}

TEST_F(ConnectionTest, EndsWhenRuntimeCloses) {
  peer_.send(message(1, 1, 1, request("Last", "")));
  peer_.close();
  const auto ended = test_support::must(connection_->serve());
  EXPECT_EQ(ended, Connection::Ended::kPeer);
  EXPECT_EQ(asked_, Answers{"Last"});
  EXPECT_EQ(connection_->serve().value(), Connection::Ended::kPeer);
  EXPECT_EQ(connection_->call("S", "M", "", 1s).error().code, ECONNRESET);
}

TEST_F(ConnectionTest, FailsWhenRuntimeClosesWithinMessage) {
  const std::string bytes = message(1, 1, 1, request("Half", "x"));
  const std::string split = frame(1, bytes.substr(8, 15));
  for (const std::string& part : {bytes.substr(0, 3), bytes.substr(0, 30), split}) {
    connect();
    peer_.send(part);
    peer_.close();
    EXPECT_EQ(connection_->serve().error().message, "the runtime closed the connection in the middle of a message");
  }
}

TEST_F(ConnectionTest, StopsWhenDescriptorIsReadable) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const base::UniqueFd reading(ends[0]);
  base::UniqueFd writing(ends[1]);
  EXPECT_EQ(connection_->serve(reading.get(), Clock::now()).value(), Connection::Ended::kDeadline);
  writing.reset();
  EXPECT_EQ(connection_->serve(reading.get()).value(), Connection::Ended::kStopped);
}

TEST_F(ConnectionTest, LimitsSentMessages) {
  EXPECT_EQ(connection_->call("S", "M", std::string(kMaxSendData, 'x'), 1s).error().code, EMSGSIZE);
  peer_.send(message(1, 1, 1, request("Large", "4194304")));
  EXPECT_EQ(answers(), Answers{"1: status 8: answer of 4194309 bytes: the limit is 4194304"});
}

TEST_F(ConnectionTest, PassesLargeMessagesBothWays) {
  std::vector<std::size_t> sizes;
  std::thread runtime([&] {
    // A Synchronize of the largest size that containerd 1.7's ttrpc sends, then one beyond every limit.
    const std::string large = message(1, 1, 1, request("Sync", std::string(10 << 20, 'S'))).substr(8);
    peer_.send(frame(1, large.substr(0, 4096)) + frame(1, large.substr(4096)));
    sizes.push_back(peer_.wait().value().data.size());
    peer_.send(frame(1, shim_peer::u32(17 << 20) + message(1, 3, 1, "").substr(8).substr(4)));
    for (int i = 0; i < 17; ++i)
      peer_.send(frame(1, std::string(1 << 20, 'x')));
    EXPECT_EQ(answer(peer_.wait().value().data), "status 8: request of 17825792 bytes: the limit is 16777216");
    for (const int size : {4085, 4087, 10'000, 3 << 20}) {
      peer_.send(message(1, static_cast<std::uint32_t>(size) * 2 + 1, 1, request("Large", std::to_string(size))));
      sizes.push_back(answer(peer_.wait().value().data).size());
    }
    peer_.close();
  });
  EXPECT_EQ(connection_->serve().value(), Connection::Ended::kPeer);
  runtime.join();
  EXPECT_EQ(sizes, (std::vector<std::size_t>{108, 4085, 4087, 10'000, 3 << 20}));
}

TEST_F(ConnectionTest, FailsWhenRuntimeDoesNotRead) {
  peer_.send(message(1, 1, 1, request("Large", "4000000")));
  EXPECT_EQ(connection_->serve().error().message, "the runtime has not read from its socket for 2 s");
}

// Calls to the runtime.

TEST_F(ConnectionTest, CallsTheRuntime) {
  peer_.send(message(2, 1, 2, shim_peer::text(2, "answer")));
  EXPECT_EQ(connection_->call("S", "M", "payload", 30s).value(), "answer");
  peer_.send(message(2, 3, 2, ""));
  EXPECT_EQ(connection_->call("S", "M", "", 30s).value(), "");
  const auto sent = peer_.received();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].connection, 2U);
  EXPECT_EQ(sent[0].stream, 1U);
  EXPECT_EQ(sent[0].type, 1);
  EXPECT_EQ(sent[1].stream, 3U);
  using Fields = std::map<unsigned, std::string>;
  EXPECT_EQ(shim_peer::fields(sent[0].data), (Fields{{1, "S"}, {2, "M"}, {3, "payload"}, {4, "30000000000"}}));
}

TEST_F(ConnectionTest, ServesRequestsDuringCall) {
  peer_.send(message(1, 1, 1, request("Configure", "")) + message(2, 1, 2, shim_peer::text(2, "registered")));
  EXPECT_EQ(connection_->call("S", "Register", "", 30s).value(), "registered");
  EXPECT_EQ(asked_, Answers{"Configure"});
  const auto sent = peer_.received();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].connection + sent[1].connection, 3U);
}

TEST_F(ConnectionTest, EndsRefusedOrUnansweredCall) {
  peer_.send(message(2, 1, 2, shim_peer::text(1, shim_peer::number(1, 3) + shim_peer::text(2, "bad\nidx"))));
  const auto refused = connection_->call("S", "M", "", 30s);
  EXPECT_EQ(refused.error().message, "call `S.M`: the runtime refused: bad?idx (status 3)");
  EXPECT_EQ(refused.error().code, EINVAL);
  const auto silent = connection_->call("S", "M", "", 20ms);
  EXPECT_EQ(silent.error().message, "call `S.M`: no answer within 20 ms");
  EXPECT_EQ(silent.error().code, ETIMEDOUT);
  // The late answer does not count for the next call.
  peer_.send(message(2, 3, 2, shim_peer::text(2, "late")) + message(2, 5, 2, shim_peer::text(2, "right")));
  EXPECT_EQ(connection_->call("S", "M", "", 30s).value(), "right");
  peer_.close();
  EXPECT_EQ(connection_->call("S", "M", "", 30s).error().message, "call `S.M`: the runtime closed the connection");
}

TEST_F(ConnectionTest, EndsCallAtDeadlineDuringRequests) {
  std::thread runtime([this] {
    std::uint32_t stream = 1;
    std::string bytes;
    for (int i = 0; i < 200; ++i, stream += 2)
      bytes += message(1, stream, 1, request("Noise", ""));
    while (::send(peer_.fd(), bytes.data(), 1, MSG_NOSIGNAL) > 0 && !bytes.empty()) {
      bytes.erase(0, 1);
      std::this_thread::sleep_for(1ms);
    }
  });
  EXPECT_EQ(connection_->call("S", "M", "", 100ms).error().code, ETIMEDOUT);
  connection_.reset();  // ends the thread
  runtime.join();
}

}  // namespace
}  // namespace shim
