// Any bytes as the stream of a connection between rank 0 and a rank, and any sequence of messages from three ranks, one
// of them a relay.
#include <string>
#include <vector>

#include "init/ping/referee.hpp"
#include "require.hpp"

namespace {

using namespace init::ping;
using fuzz::require;

std::vector<Message> read_stream(std::string_view text) {
  Inbox inbox;
  std::vector<Message> messages;
  inbox.add(text.data(), text.size());
  for (;;) {
    auto message = inbox.next();
    if (!message) {
      fuzz::require_refusal(message.error(), "the refusal of a message");
      return messages;
    }
    if (!*message) return messages;
    // The fields after it are of another version.
    const auto* const hello = std::get_if<Hello>(&**message);
    if (hello != nullptr && hello->protocol != kProtocol) return messages;
    const std::string frame = encode(**message);
    require(frame.size() <= kLongestFrame, "a frame is bounded");
    messages.push_back(std::move(**message));
  }
}

// Without the token no bytes become a message, except a Refusal before the first one.
void check_strangers(std::string_view text) {
  Inbox inbox(kLongestFirstFrame);
  inbox.require(make_seals("t", "h", "c").rank);
  inbox.add(text.data(), text.size());
  for (;;) {
    const auto message = inbox.next();
    if (!message) return fuzz::require_refusal(message.error(), "the refusal of a message without a code");
    if (!*message) return;
    require(std::holds_alternative<Refusal>(**message), "a message has a code");
  }
}

Join join_of(unsigned rank) {
  return {rank, 3, std::to_string(rank), "host", std::vector<init::ping::Rail>(2), {}};
}

// Rank 1, rank 2, which is a relay, or a stranger sends these messages. The test ends in time with all of them.
void check_referee(const std::vector<Message>& messages, FuzzedDataProvider& data) {
  Rules rules;
  rules.size = 3;
  rules.fan_out = 2;
  rules.tree_from = 3;
  Referee referee(rules, 0);
  double now = 0;
  for (const unsigned rank : {0U, 1U, 2U})
    referee.receive(static_cast<int>(rank), "a", join_of(rank), now);
  referee.receive(2, "a", RelayAt{"10.0.0.2", 9}, now);
  if (data.ConsumeBool()) referee.receive(2, "a", Bundle{{{2, encode(Attach{2})}}}, now);
  for (const unsigned rank : {0U, 2U})
    referee.receive(static_cast<int>(rank), "a", Prepared{{}, join_of(rank).rails}, now);
  for (const Message& message : messages) {
    referee.receive(data.PickValueInArray({1, 2, 5}), "b", message, now);
    if (data.ConsumeBool()) referee.pass(now += 1);
    if (data.ConsumeIntegralInRange(0, 20) == 0) referee.lose(data.PickValueInArray({1, 2}), now);
    for (const auto& one : referee.take_outgoing(true, now))
      require(encode(one.message).size() <= kLongestFrame, "a frame is bounded");
  }
  for (int step = 0; !referee.is_finished() && step < 10'000; ++step)
    referee.pass(now = std::max(now, referee.deadline()));
  require(referee.is_finished(), "the referee ends");
  require(now <= static_cast<double>(messages.size()) + rules.meeting_seconds + 10.25 + test_budget(3, 2, rules),
          "the referee ends in time");
  for (const std::string& line : referee.take_progress())
    fuzz::require_one_line(line, "progress");
  referee.announce({1, "bad", ""});
}

}  // namespace

void fuzz::run(std::string_view text, FuzzedDataProvider data) {
  check_strangers(text);
  check_referee(read_stream(text), data);
}
