// Calls of the runtime.
#include "shim/ttrpc/connection.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <thread>

#include "unit/nri/peer.hpp"
#include "unit/ttrpc/scene.hpp"

namespace shim {
namespace {

using namespace std::chrono_literals;
using shim_peer::message;
using shim_peer::request;

using CallTest = ConnectionTest;

TEST_F(CallTest, CallsTheRuntime) {
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

TEST_F(CallTest, ServesRequestsWhileItWaits) {
  peer_.send(message(1, 1, 1, request("Configure", "")) + message(2, 1, 2, shim_peer::text(2, "registered")));
  EXPECT_EQ(connection_->call("S", "Register", "", 30s).value(), "registered");
  EXPECT_EQ(asked_, Answers{"Configure"});
  const auto sent = peer_.received();
  ASSERT_EQ(sent.size(), 2U);
  EXPECT_EQ(sent[0].connection + sent[1].connection, 3U);
}

TEST_F(CallTest, ARefusedCall) {
  peer_.send(message(2, 1, 2, shim_peer::text(1, shim_peer::number(1, 3) + shim_peer::text(2, "bad\nidx"))));
  const auto refused = connection_->call("S", "M", "", 30s);
  EXPECT_EQ(refused.error().message, "call `S.M`: the runtime refused: bad?idx (status 3)");
  EXPECT_EQ(refused.error().code, EINVAL);
}

TEST_F(CallTest, ACallWithoutAnswerEnds) {
  const auto silent = connection_->call("S", "M", "", 20ms);
  EXPECT_EQ(silent.error().message, "call `S.M`: no answer within 20 ms");
  EXPECT_EQ(silent.error().code, ETIMEDOUT);
  // The answer that comes too late is not the next call's.
  peer_.send(message(2, 1, 2, shim_peer::text(2, "late")) + message(2, 3, 2, shim_peer::text(2, "right")));
  EXPECT_EQ(connection_->call("S", "M", "", 30s).value(), "right");
}

TEST_F(CallTest, ATalkativeRuntimeDoesNotKeepACallAlive) {
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

TEST_F(CallTest, ACallThatTheRuntimeDoesNotSurvive) {
  peer_.close();
  EXPECT_EQ(connection_->call("S", "M", "", 30s).error().message, "call `S.M`: the runtime closed the connection");
}

}  // namespace
}  // namespace shim
