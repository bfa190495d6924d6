// Calls of the kubelet that wait for claims, retries and answers.
#include "shim/dra/claim_calls.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/text.hpp"

namespace shim {
namespace {

using base::FailureReason;

// A call of the kubelet, whose answer stays in memory.
class Call final : public ClaimsCall {
 public:
  Call(bool is_prepare, std::vector<ClaimKey> keys) {
    prepares = is_prepare;
    claims = std::move(keys);
  }
  void finish(const std::map<std::string, Answer>& answers) override {
    for (const auto& [uid, answer] : answers)
      text += fmt::format("{}={}{} ", uid, answer.error.empty() ? "ok" : answer.error, answer.devices.size());
  }
  std::string text;
};

std::string claim_text(const std::string& uid) {
  return R"({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"namespace": "a", "name": "c", "uid": ")" +
         uid + R"("}, "status": {"allocation": {"devices": {"results": [
         {"request": "hca", "driver": "rdma-init.io", "pool": "n1", "device": "d0"}]}}}})";
}

class ClaimCallsTest : public testing::Test {
 protected:
  std::shared_ptr<Call> begin(bool prepares, std::vector<ClaimKey> keys) {
    auto call = std::make_shared<Call>(prepares, std::move(keys));
    calls_.add(call);
    work();
    return call;
  }
  void work() { ASSERT_TRUE(calls_.work()); }
  // Answers the last request for a claim.
  void answer(unsigned status, const std::string& text) {
    calls_.take({.kind = ApiMessage::Kind::kClaim, .id = asked_.back().id, .number = status, .text = text});
    work();
  }

  std::vector<ApiMessage> asked_;
  std::vector<Error> failures_;  // results of the next calls of prepare and unprepare
  std::string log_;
  ClaimCalls calls_{
      {.ask =
           [this](const ApiMessage& message) {
             asked_.push_back(message);
             return Result<void>();
           },
       .prepare = [this](const hook::ClaimOfNode& claim, base::Deadline) -> Result<std::vector<hook::PreparedDevice>> {
         log_ += "prepare " + claim.uid + " ";
         if (failures_.empty()) return std::vector<hook::PreparedDevice>{{"hca", "d0", "", {"x/y=z"}}};
         Error error = failures_.back();
         failures_.pop_back();
         return error;
       },
       .unprepare = [this](const std::string& uid, base::Deadline) -> Result<void> {
         log_ += "unprepare " + uid + " ";
         if (failures_.empty()) return {};
         Error error = failures_.back();
         failures_.pop_back();
         return error;
       },
       .ended =
           [this](const ClaimKey& key, bool, const Result<void>& done, ClaimCalls::Clock::duration) {
             log_ += fmt::format("{} {} ", key.uid, done ? "ended" : "failed");
           }}};
};

TEST_F(ClaimCallsTest, AnswersWhenEachClaimIsPrepared) {
  const auto call = begin(true, {{"a", "c", "u1"}, {"a", "c", "u2"}});
  ASSERT_EQ(asked_.size(), 2U);
  EXPECT_EQ(asked_[0].text + "/" + asked_[0].more, "a/c");
  const std::chrono::seconds end{asked_[0].number};
  EXPECT_GT(end, ClaimCalls::Clock::now().time_since_epoch())
      << "the process for the API server drops requests of ended calls";
  answer(200, claim_text("u2"));
  EXPECT_EQ(call->text, "");
  asked_.pop_back();
  answer(200, claim_text("u1"));
  EXPECT_EQ(call->text, "u1=ok1 u2=ok1 ");
  EXPECT_EQ(log_, "prepare u2 u2 ended prepare u1 u1 ended ");
  EXPECT_TRUE(calls_.is_empty());
}

TEST_F(ClaimCallsTest, RefusesClaimThatIsAnotherOne) {
  const auto call = begin(true, {{"a", "c", "u1"}});
  answer(200, claim_text("u9"));
  EXPECT_NE(call->text.find("u9"), std::string::npos) << call->text;
  EXPECT_EQ(log_, "u1 failed ");
}

TEST_F(ClaimCallsTest, RefusesAtOnceWhatStaysWrong) {
  for (const unsigned status : {400U, 403U, 404U}) {
    const auto call = begin(true, {{"a", "c", "u1"}});
    answer(status, "no");
    EXPECT_EQ(call->text, "u1=no0 ") << status;
  }
  const auto call = begin(true, {{"a", "c", "u1"}});
  failures_ = {{"its pool is not allowed", 0, "", FailureReason::kRefused}};
  answer(200, claim_text("u1"));
  EXPECT_EQ(call->text, "u1=its pool is not allowed0 ");
  const auto hostile = begin(true, {{"../..", "c", "u1"}});
  EXPECT_NE(hostile->text.find("is not the name of a claim"), std::string::npos);
}

TEST_F(ClaimCallsTest, PassesTheRemedyAndNoControlCharacters) {
  const auto call = begin(true, {{"a", "c", "u1"}});
  calls_.take({.kind = ApiMessage::Kind::kClaim,
               .id = asked_.back().id,
               .number = 403,
               .text = "claims \"x\" is forbidden\x1b[31m\n",
               .more = "set `dra`\x07"});
  work();
  EXPECT_EQ(call->text, "u1=claims \"x\" is forbidden?[31m?; remedy: set `dra`?0 ");
}

TEST_F(ClaimCallsTest, TriesAgainAfterFailureThatCanPass) {
  const auto call = begin(true, {{"a", "c", "u1"}});
  answer(503, "overloaded");
  EXPECT_EQ(call->text, "");
  EXPECT_EQ(asked_.size(), 1U) << "not at once";
  const auto next = calls_.work();
  ASSERT_TRUE(next);
  EXPECT_LE(*next, ClaimCalls::Clock::now() + std::chrono::seconds(1));
  while (asked_.size() < 2)
    work();
  failures_ = {{"mlx5_0 is held by pod x", 0, "", FailureReason::kBusy}};
  answer(200, claim_text("u1"));
  EXPECT_EQ(call->text, "");
  while (call->text.empty())
    work();
  EXPECT_EQ(call->text, "u1=ok1 ");
  EXPECT_EQ(log_, "prepare u1 prepare u1 u1 ended ");
}

TEST_F(ClaimCallsTest, EndsClaimsWithoutReadingThem) {
  EXPECT_EQ(begin(false, {{"a", "c", "u1"}, {"a", "never", "NO UID"}})->text, "NO UID=ok0 u1=ok0 ");
  EXPECT_TRUE(asked_.empty());
  EXPECT_EQ(log_, "unprepare u1 u1 ended NO UID ended ");
}

TEST_F(ClaimCallsTest, EndsPrepareOfClaimThatTheKubeletEnds) {
  const auto call = begin(true, {{"a", "c", "u1"}, {"a", "c", "u2"}});
  EXPECT_EQ(begin(false, {{"a", "c", "u1"}})->text, "u1=ok0 ");
  answer(200, claim_text("u2"));
  EXPECT_EQ(call->text, "u1=the kubelet has ended the claim0 u2=ok1 ");
  EXPECT_EQ(log_, "u1 failed unprepare u1 u1 ended prepare u2 u2 ended ");
}

TEST_F(ClaimCallsTest, EndsUnprepareOfClaimThatTheKubeletPreparesAgain) {
  failures_ = {{"its HCAs are in use", EBUSY, "", FailureReason::kBusy}};
  const auto call = begin(false, {{"a", "c", "u1"}});
  EXPECT_EQ(call->text, "") << "waits";
  const auto again = begin(true, {{"a", "c", "u1"}});
  answer(200, claim_text("u1"));
  EXPECT_EQ(call->text, "u1=the kubelet prepares the claim again0 ");
  EXPECT_EQ(again->text, "u1=ok1 ");
  EXPECT_TRUE(calls_.is_empty());
  EXPECT_EQ(log_, "unprepare u1 u1 failed prepare u1 u1 ended ");
}

TEST_F(ClaimCallsTest, IgnoresAnswerThatNoCallAwaits) {
  calls_.take({.kind = ApiMessage::Kind::kClaim, .id = 0, .number = 200, .text = "{}"});
  const auto call = begin(true, {{"a", "c", "u1"}});
  calls_.take({.kind = ApiMessage::Kind::kClaim, .id = 77, .number = 200, .text = claim_text("u1")});
  EXPECT_EQ(call->text, "");
}

}  // namespace
}  // namespace shim
