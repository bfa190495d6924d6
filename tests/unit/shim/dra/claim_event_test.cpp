// Events about claims that cannot be prepared.
#include "shim/dra/claim_event.hpp"

#include <gtest/gtest.h>

namespace shim {
namespace {

using base::FailureReason;

const ClaimKey kEventClaim{"team-a", "train-0-rails", "7b1c6f0e"};

TEST(ClaimEvent, NamesClaimReasonAndRemedy) {
  const base::Error error{"`mlx5_1` is held by container web", 0, "stop the container", FailureReason::kBusy};
  const base::Json event = claim_event(kEventClaim, error, "n1", 1790000000);
  EXPECT_EQ(event["metadata"].dump(), R"({"generateName":"train-0-rails.","namespace":"team-a"})");
  EXPECT_EQ(event["involvedObject"].dump(), R"({"apiVersion":"resource.k8s.io/v1","kind":"ResourceClaim",)"
                                            R"("namespace":"team-a","name":"train-0-rails","uid":"7b1c6f0e"})");
  EXPECT_EQ(event["reason"], "HcaInUse");
  EXPECT_EQ(event["message"], "node n1: `mlx5_1` is held by container web; remedy: stop the container");
  EXPECT_EQ(event["firstTimestamp"], "2026-09-21T14:13:20Z");
}

TEST(ClaimEvent, CutsAndEscapesItsText) {
  const ClaimKey key{"team-a", std::string(253, 'a'), "u"};
  const base::Json event = claim_event(key, {std::string(5000, 'x') + "\n"}, "n1", 0);
  EXPECT_LE(event["message"].get<std::string>().size(), 1024U);
  EXPECT_EQ(event["metadata"]["generateName"].get<std::string>().size(), 201U);
  EXPECT_EQ(claim_event(key, {"a\nb"}, "n1", 0)["message"].get<std::string>().find('\n'), std::string::npos);
}

TEST(ClaimEvent, HasNameThatTheApiServerAccepts) {
  const ClaimKey key{"team-a", std::string(198, 'a') + "--.b", "u"};
  EXPECT_EQ(claim_event(key, {"x"}, "n1", 0)["metadata"]["generateName"], std::string(198, 'a') + ".");
}

TEST(ClaimEvent, HasReasonOfFailure) {
  EXPECT_EQ(event_reason(FailureReason::kNoHca), "HcaMissing");
  EXPECT_EQ(event_reason(FailureReason::kConfig), "Refused");
  EXPECT_EQ(event_reason(FailureReason::kRefused), "Refused");
  EXPECT_EQ(event_reason(FailureReason::kLedger), "FailedPrepare");
  EXPECT_EQ(event_reason(FailureReason::kUnspecified), "FailedPrepare");
}

}  // namespace
}  // namespace shim
