#include "shim/dra/claim_calls.hpp"

#include <algorithm>
#include <utility>

#include "base/text.hpp"
#include "shim/dra/api/http_answer.hpp"

namespace shim {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The kubelet cancels a call after 45 s. Its deadline leaves time for the answer.
constexpr seconds kPatience{30};
constexpr milliseconds kPause{500};
// Longest time of one try, for locks that another process has for a moment. During a try the driver does nothing else:
// no other call of the kubelet and no health.
constexpr milliseconds kTryTime{50};
constexpr auto kNoCall = ClaimCalls::Clock::time_point::max();

Result<void> check_names(const ClaimKey& key) {
  if (is_dns_label(key.space) && is_dns_subdomain(key.name) && is_uid(key.uid)) return {};
  return make_error("`{}/{}` with the UID `{}` is not the name of a claim", base::printable(key.space),
                    base::printable(key.name), base::printable(key.uid));
}

Result<hook::ClaimOfNode> claim_of(const ApiMessage& message, const ClaimKey& key) {
  auto claim = TRY(parse_claim(message.text));
  TRY_VOID(check_key(claim, key));
  return claim;
}

}  // namespace

// A call that waits can be of a kubelet that has restarted meanwhile. After Unprepare, an earlier Prepare would book
// HCAs that no call releases; after Prepare, an earlier Unprepare would release HCAs that a pod begins to use.
void ClaimCalls::end_earlier(const ClaimKey& key, bool prepares) {
  const char* const why = prepares ? "the kubelet prepares the claim again" : "the kubelet has ended the claim";
  for (Call& call : calls_) {
    if (call.call->prepares == prepares) continue;
    for (Waiting& waiting : call.claims)
      if (waiting.key.uid == key.uid && !waiting.answer) end(call, waiting, Error{why});
  }
}

void ClaimCalls::add(std::shared_ptr<ClaimsCall> call) {
  Call added{std::move(call), {}, Clock::now() + kPatience};
  for (const ClaimKey& key : added.call->claims) {
    end_earlier(key, added.call->prepares);
    added.claims.push_back({.key = key});
  }
  calls_.push_back(std::move(added));
}

void ClaimCalls::take(const ApiMessage& message) {
  for (Call& call : calls_) {
    for (Waiting& waiting : call.claims) {
      if (waiting.asked == 0 || waiting.asked != message.id) continue;
      waiting.asked = 0;
      const bool may_pass = message.number == 0 || http::can_pass(message.number);
      if (message.number != http::kOk) return fail(call, waiting, failure_of(message), may_pass);
      auto claim = claim_of(message, waiting.key);
      if (!claim) return fail(call, waiting, claim.error(), false);
      waiting.claim = *std::move(claim);
      waiting.next_try = {};
      return;
    }
  }
}

void ClaimCalls::end(const Call& call, Waiting& waiting, Result<std::vector<hook::PreparedDevice>> done) {
  actions_.ended(waiting.key, call.call->prepares, done ? Result<void>() : Result<void>(done.error()),
                 Clock::now() - (call.until - kPatience));
  waiting.answer.emplace();
  if (done) {
    waiting.answer->devices = *std::move(done);
  } else {
    waiting.answer->error = base::with_remedy(done.error());
  }
}

void ClaimCalls::fail(const Call& call, Waiting& waiting, const Error& error, bool may_pass) {
  const auto now = Clock::now();
  waiting.problem = error;
  if (!may_pass || now >= call.until) return end(call, waiting, error);
  waiting.next_try = now + kPause;
}

void ClaimCalls::try_prepare(const Call& call, Waiting& waiting) {
  auto prepared = actions_.prepare(*waiting.claim, std::min(call.until, Clock::now() + kTryTime));
  if (prepared) return end(call, waiting, std::move(prepared));
  fail(call, waiting, prepared.error(), hook::can_pass(prepared.error()));
}

void ClaimCalls::try_unprepare(const Call& call, Waiting& waiting) {
  if (!is_uid(waiting.key.uid)) return end(call, waiting, std::vector<hook::PreparedDevice>());  // never prepared
  const auto done = actions_.unprepare(waiting.key.uid, std::min(call.until, Clock::now() + kTryTime));
  if (done) return end(call, waiting, std::vector<hook::PreparedDevice>());
  fail(call, waiting, done.error(), hook::can_pass(done.error()));
}

Result<void> ClaimCalls::try_claim(const Call& call, Waiting& waiting) {
  if (!call.call->prepares) {
    try_unprepare(call, waiting);
  } else if (waiting.claim) {
    try_prepare(call, waiting);
  } else if (const auto valid = check_names(waiting.key); !valid) {
    fail(call, waiting, valid.error(), false);
  } else {
    waiting.asked = ++last_id_;
    TRY_VOID(actions_.ask(
        {.kind = ApiMessage::Kind::kGetClaim,
         .id = waiting.asked,
         .number = static_cast<std::uint32_t>(std::chrono::ceil<seconds>(call.until.time_since_epoch()).count()),
         .text = waiting.key.space,
         .more = waiting.key.name}));
  }
  return {};
}

Result<ClaimCalls::Clock::time_point> ClaimCalls::work() {
  auto next = kNoCall;
  for (Call& call : calls_) {
    for (Waiting& waiting : call.claims) {
      const auto now = Clock::now();
      if (waiting.answer) continue;
      if (waiting.asked == 0 && now >= waiting.next_try) TRY_VOID(try_claim(call, waiting));
      // Without an answer of the API server, or after a failure that has not passed.
      if (!waiting.answer && now >= call.until)
        end(call, waiting, waiting.problem.value_or(Error{"the API server does not answer"}));
      if (waiting.answer) continue;
      next = std::min(next, waiting.asked != 0 ? call.until : std::min(call.until, waiting.next_try));
    }
  }
  std::erase_if(calls_, [](const Call& call) {
    if (!std::ranges::all_of(call.claims, [](const Waiting& waiting) { return waiting.answer.has_value(); }))
      return false;
    std::map<std::string, ClaimsCall::Answer> answers;
    for (const Waiting& waiting : call.claims)
      answers.emplace(waiting.key.uid, *waiting.answer);
    call.call->finish(answers);
    return true;
  });
  return next;
}

}  // namespace shim
