// The calls of the kubelet that wait: each claim of a call is read from the API server, prepared, and tried again for a
// while, because the kubelet repeats a failed call only after 60 to 90 seconds (Kubernetes 1.34 to 1.37).
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/timing.hpp"
#include "hook/claim/claims.hpp"
#include "shim/dra/api/api_message.hpp"
#include "shim/dra/claims.hpp"
#include "shim/dra/wire/kubelet_server.hpp"

namespace shim {

class ClaimCalls {
 public:
  using Clock = std::chrono::steady_clock;
  // Functions of the driver.
  struct Actions {
    std::function<Result<void>(const ApiMessage&)> ask;  // sends a request for a claim to the API server's process
    // prepare() and unprepare() wait at most until the deadline, because the driver does no other work meanwhile.
    std::function<Result<std::vector<hook::PreparedDevice>>(hook::ClaimOfNode&, base::Deadline)> prepare;
    std::function<Result<void>(const std::string& uid, base::Deadline)> unprepare;
    // Called once for each claim, with its result.
    std::function<void(const ClaimKey&, bool prepares, const Result<void>&, Clock::duration took)> ended;
  };
  explicit ClaimCalls(Actions actions) : actions_(std::move(actions)) {}

  void add(std::shared_ptr<ClaimsCall> call);
  // Takes the claim that the API server's process has read.
  void take(const ApiMessage& message);
  // Does the work that is due, and answers the calls that are complete. Returns the time of the next work. Errors: the
  // process for the API server is gone.
  Result<Clock::time_point> work();
  bool is_empty() const { return calls_.empty(); }

 private:
  struct Waiting {
    ClaimKey key;
    std::uint64_t asked = 0;  // ID of the request to the API server that has no answer yet; 0: none
    std::optional<hook::ClaimOfNode> claim = {};
    std::optional<ClaimsCall::Answer> answer = {};
    Clock::time_point next_try = {};
    std::optional<Error> problem = {};  // failure of the last try
  };
  struct Call {
    std::shared_ptr<ClaimsCall> call;
    std::vector<Waiting> claims;
    Clock::time_point until;
  };
  void end_earlier(const ClaimKey& key, bool prepares);
  Result<void> try_claim(const Call& call, Waiting& claim);
  void try_prepare(const Call& call, Waiting& claim);
  void try_unprepare(const Call& call, Waiting& claim);
  void end(const Call& call, Waiting& claim, Result<std::vector<hook::PreparedDevice>> done);
  void fail(const Call& call, Waiting& claim, const Error& error, bool may_pass);

  Actions actions_;
  std::vector<Call> calls_;
  std::uint64_t last_id_ = 0;
};

}  // namespace shim
