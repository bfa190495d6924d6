// The rounds of the referee: disjoint pairs of members meet, each pair with its own steps.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "init/ping/referee.hpp"

namespace init::ping {
namespace {

constexpr double kTestSeconds = 6;    // limit of one test: one retransmission of NCCL's timeout (4.3 s) fits in
constexpr double kAnswerSeconds = 9;  // limit of an answer; an address that does not resolve takes seconds as well
constexpr std::uint32_t kProbeBytes = 64;
constexpr std::size_t kMostCrossed = 1000;  // failures of crossed rails that are kept

// Returns true if the first of two ends' results is the one to report: it names a cause at its own end, or an earlier
// layer.
bool is_decisive(const TestResult& first, const TestResult& second) {
  if (!first.failure.failed() || !second.failure.failed()) return first.failure.failed();
  if (first.is_own != second.is_own) return first.is_own;
  return first.failure.layer <= second.failure.layer;
}

}  // namespace

bool Referee::is_testable(std::size_t member, unsigned rail) const {
  return is_usable(member) && !outcome_.members[member].rails[rail].problem.failed();
}

// Returns false if the test has a result that another test would not change.
bool Referee::is_open(Pair pair, unsigned own, unsigned peer) const {
  if (own != peer || stage_ == Stage::kProbe || stage_ == Stage::kRetest) return true;
  return outcome_.cells[outcome_.cell_of(pair.first, pair.second, own)] == Layer::kUntested;
}

std::vector<RailPair> Referee::rails_of(Pair pair) const {
  std::vector<RailPair> rails;
  for (unsigned own = 0; own < outcome_.rails; ++own) {
    const unsigned peer = (own + shift_) % outcome_.rails;
    if (!is_testable(pair.first, own) || !is_testable(pair.second, peer) || !is_open(pair, own, peer)) continue;
    const bool is_suspended = rails_[pair.first][own].is_suspended() || rails_[pair.second][peer].is_suspended();
    if (is_suspended && stage_ != Stage::kProbe && stage_ != Stage::kRetest) continue;
    rails.push_back({static_cast<std::uint8_t>(own), static_cast<std::uint8_t>(peer)});
  }
  return rails;
}

// Starts the meetings of these pairs that have rails to test.
void Referee::start_meetings(const std::vector<Pair>& pairs, std::uint32_t bytes, double now) {
  ++number_;
  meetings_.clear();
  meeting_of_.assign(outcome_.members.size(), std::nullopt);
  const double bandwidth =
      rules_.bandwidth && (stage_ == Stage::kRounds || stage_ == Stage::kResume) ? kBandwidthSeconds : 0;
  for (const Pair& pair : pairs) {
    std::vector<RailPair> rails = rails_of(pair);
    if (rails.empty()) continue;
    Round first{number_, bytes, milliseconds(bandwidth), milliseconds(kTestSeconds), outcome_.members[pair.second].rank,
                rails};
    Round second = first;
    second.peer = outcome_.members[pair.first].rank;
    for (RailPair& swapped : second.rails)
      std::swap(swapped.own, swapped.peer);
    send(pair.first, std::move(first));
    send(pair.second, std::move(second));
    meeting_of_[pair.first] = meeting_of_[pair.second] = meetings_.size();
    Meeting meeting{{{pair.first}, {pair.second}}, std::move(rails), Step::kContacts, now + kAnswerSeconds};
    meetings_.push_back(std::move(meeting));
  }
  open_meetings_ = meetings_.size();
  contacts_left_ = connected_left_ = 2 * open_meetings_;
  is_complete_ = true;
  deadline_ = std::min(end_, now + kCheckSeconds);
}

// Starts the next round with tests. Returns false if there is none up to `end`.
bool Referee::start_round(std::size_t end, double now) {
  while (next_ < end) {
    const std::size_t round = next_++;
    shift_ = static_cast<unsigned>(round / schedule_.rounds());
    start_meetings(schedule_.pairs(round % schedule_.rounds()), rules_.bytes, now);
    if (open_meetings_ > 0) return true;
  }
  return false;
}

void Referee::next_round(double now) {
  if (start_round(schedule_.rounds(), now)) return;
  if (stage_ == Stage::kRounds) {
    begin_probe(now);
  } else {
    next_crossed_round(now);
  }
}

// Crossed rails are information only. In a rail-optimized fabric none of them works, and each round takes seconds:
// after a round without any result there is no further one.
void Referee::next_crossed_round(double now) {
  stage_ = Stage::kCrossed;
  const bool is_useless = outcome_.crossed_tested > 0 && outcome_.crossed_failed() == outcome_.crossed_tested;
  if (!outcome_.failures.empty() || is_useless || !start_round(rounds_, now)) finish(now);
}

// Pairs without an acknowledgement exchange one small packet, which arrives if the MTU of the path is the cause.
void Referee::begin_probe(double now) {
  stage_ = Stage::kProbe;
  std::vector<bool> is_taken(outcome_.members.size());
  std::vector<Pair> pairs;
  for (const FailedPair& failed : outcome_.failures) {
    if (failed.failure.layer != Layer::kRetry || is_taken[failed.first] || is_taken[failed.second]) continue;
    is_taken[failed.first] = is_taken[failed.second] = true;
    pairs.emplace_back(failed.first, failed.second);
  }
  if (rules_.bytes <= kProbeBytes) pairs.clear();
  start_meetings(pairs, kProbeBytes, now);
  if (open_meetings_ == 0) begin_retest(now);
}

// Members with a rail that never worked meet members with working rails only.
void Referee::begin_retest(double now) {
  stage_ = Stage::kRetest;
  std::vector<std::size_t> suspects;
  std::vector<std::size_t> good;
  for (std::size_t member = 0; member < outcome_.members.size(); ++member) {
    const bool works = std::ranges::all_of(rails_[member], &RailState::has_worked);
    const bool has_failed = std::ranges::any_of(rails_[member], [](const RailState& rail) { return rail.failed > 0; });
    if (is_usable(member) && works) good.push_back(member);
    if (is_usable(member) && !works && has_failed) suspects.push_back(member);
  }
  const std::vector<Pair> pairs = pairs_of_retest(suspects, good);
  if (outcome_.is_sparse()) outcome_.add_pairs(pairs);
  start_meetings(pairs, rules_.bytes, now);
  if (open_meetings_ == 0) begin_resume(now);
}

// Runs the remaining tests of rails that worked in the retest: a good rail was suspended if its first peers were
// broken.
void Referee::begin_resume(double now) {
  stage_ = Stage::kResume;
  next_ = 0;
  next_round(now);
}

void Referee::finish(double now) {
  outcome_.seconds = started_ == 0 ? 0 : now - started_;
  stage_ = Stage::kFinished;
}

// --- The steps of a meeting.

// Takes the message of one end. Returns false if rank 0 does not expect it.
bool Referee::take_half(Meeting& meeting, int side, Message& message) {
  Half& half = meeting.halves[side];
  const std::size_t tests = meeting.rails.size();
  const auto note = [&](std::size_t test, const Failure& failure) {
    if (!failure.failed()) return;
    half.failures.resize(tests);
    half.failures[test] = failure;
  };
  if (auto* contacts = std::get_if<Contacts>(&message)) {
    if (half.has_contacts || contacts->contacts.size() != tests) return false;
    half.has_contacts = true;
    if (--contacts_left_ == 0) is_complete_ = true;
    for (std::size_t i = 0; i < tests; ++i)
      note(i, contacts->contacts[i].failure);
    // The peer has its Round already, because a connection keeps the order of messages.
    send(meeting.halves[1 - side].member, std::move(*contacts));
    return true;
  }
  if (auto* connected = std::get_if<Connected>(&message)) {
    if (meeting.step != Step::kConnecting || half.has_connected || connected->failures.size() != tests) return false;
    half.has_connected = true;
    if (--connected_left_ == 0) is_complete_ = true;
    for (std::size_t i = 0; i < tests; ++i)
      note(i, connected->failures[i]);
    return true;
  }
  auto* const results = std::get_if<Results>(&message);
  const bool is_expected = meeting.step == Step::kTesting && !half.has_results;
  if (results == nullptr || !is_expected || results->results.size() != tests) return false;
  half.has_results = true;
  half.results = std::move(results->results);
  return true;
}

void Referee::take_of_round(std::size_t member, Message message, double now) {
  const auto round_of = [](const Message& any) -> std::optional<std::uint32_t> {
    if (const auto* contacts = std::get_if<Contacts>(&any)) return contacts->round;
    if (const auto* connected = std::get_if<Connected>(&any)) return connected->round;
    if (const auto* results = std::get_if<Results>(&any)) return results->round;
    return std::nullopt;
  };
  const auto round = round_of(message);
  // A member whose peer was dropped still answers for the former round.
  if (round && *round < number_) return;
  if (!is_usable(member)) return;
  const auto at = meeting_of_[member];
  Meeting* const meeting = at && round == number_ ? &meetings_[*at] : nullptr;
  if (meeting != nullptr && meeting->step == Step::kDone) return;
  if (meeting == nullptr || !take_half(*meeting, meeting->halves[0].member == member ? 0 : 1, message)) {
    drop(member, "it sent a message that rank 0 does not expect");
    if (meeting != nullptr) end_meeting(*meeting);
  } else {
    advance(*meeting, now);
  }
  end_stage_if_done(now);
}

// Makes the next step if both members have made this one.
void Referee::advance(Meeting& meeting, double now) {
  const auto both = [&](auto part) { return meeting.halves[0].*part && meeting.halves[1].*part; };
  if (meeting.step == Step::kContacts && both(&Half::has_contacts)) {
    meeting.step = Step::kConnecting;
    meeting.deadline = now + kAnswerSeconds;
  } else if (meeting.step == Step::kConnecting && both(&Half::has_connected)) {
    start_test(meeting);
    meeting.step = Step::kTesting;
    // A member measures the bandwidth after the test, and may then wait once more.
    meeting.deadline = now + kAnswerSeconds + (rules_.bandwidth ? kBandwidthSeconds + kTestSeconds : 0);
  } else if (meeting.step == Step::kTesting && both(&Half::has_results)) {
    record(meeting);
    end_meeting(meeting);
  }
}

void Referee::start_test(const Meeting& meeting) {
  Go go{number_, std::vector<std::uint8_t>(meeting.rails.size(), 1)};
  for (const Half& half : meeting.halves) {
    for (std::size_t i = 0; i < half.failures.size(); ++i) {
      if (half.failures[i].failed()) go.connected[i] = 0;
    }
  }
  for (const Half& half : meeting.halves)
    send(half.member, go);
}

void Referee::end_meeting(Meeting& meeting) {
  if (meeting.step == Step::kDone) return;
  meeting.step = Step::kDone;
  --open_meetings_;
  for (Half& half : meeting.halves) {
    if (!half.has_contacts && --contacts_left_ == 0) is_complete_ = true;
    if (!half.has_connected && --connected_left_ == 0) is_complete_ = true;
    half.results = {};
  }
}

void Referee::record(const Meeting& meeting) {
  for (std::size_t i = 0; i < meeting.rails.size(); ++i)
    record_test(meeting, i);
}

// Returns the result of one end. A queue pair that is not there, or not connected, is a failure whatever the result
// says.
TestResult Referee::result_of(const Half& half, std::size_t at) {
  TestResult result = half.results[at];
  if (!result.failure.failed() && !half.failures.empty()) result.failure = half.failures[at];
  return result;
}

void Referee::record_test(const Meeting& meeting, std::size_t at) {
  const TestResult first = result_of(meeting.halves[0], at);
  const TestResult second = result_of(meeting.halves[1], at);
  FailedPair test{meeting.halves[0].member,
                  meeting.halves[1].member,
                  meeting.rails[at].own,
                  meeting.rails[at].peer,
                  {},
                  Side::kUnknown};
  test.failure = (is_decisive(first, second) ? first : second).failure;
  if (first.is_own != second.is_own) test.culprit = first.is_own ? Side::kFirst : Side::kSecond;
  if (stage_ == Stage::kProbe) return record_probe(test);
  const bool failed = test.failure.failed();
  if (shift_ != 0) {
    ++outcome_.crossed_tested;
    if (!failed) return;
    if (outcome_.crossed.size() == kMostCrossed)
      ++outcome_.crossed_dropped;
    else
      outcome_.crossed.push_back(std::move(test));
    return;
  }
  const std::size_t cell = outcome_.cell_of(test.first, test.second, test.first_rail);
  // A retest adds a result, and never replaces one.
  if (outcome_.cells[cell] != Layer::kUntested) return;
  outcome_.cells[cell] = test.failure.layer;
  if (!outcome_.gbps.empty()) outcome_.gbps[cell] = static_cast<float>(std::min(first.mbps, second.mbps)) / 1000;
  for (const auto& [member, side] : {std::pair(test.first, Side::kSecond), std::pair(test.second, Side::kFirst)}) {
    RailState& rail = rails_[member][test.first_rail];
    rail.has_worked |= !failed;
    // `side` is the other end: a failure that it has caused is not counted here.
    if (failed && test.culprit != side) ++rail.failed;
  }
  if (failed) outcome_.failures.push_back(std::move(test));
}

void Referee::record_probe(const FailedPair& test) {
  if (test.failure.failed()) return;
  for (FailedPair& failed : outcome_.failures) {
    const bool is_same = failed.first == test.first && failed.second == test.second &&
                         failed.first_rail == test.first_rail && failed.failure.layer == Layer::kRetry;
    if (!is_same) continue;
    const unsigned mtu = std::min(outcome_.members[test.first].rails[test.first_rail].mtu,
                                  outcome_.members[test.second].rails[test.second_rail].mtu);
    failed.failure = {Layer::kMtu, fmt::format("{} bytes arrive, {} bytes in packets of MTU {} do not", kProbeBytes,
                                               rules_.bytes, mtu)};
    outcome_.cells[outcome_.cell_of(failed.first, failed.second, failed.first_rail)] = Layer::kMtu;
  }
}

void Referee::end_stage_if_done(double now) {
  if (open_meetings_ > 0) return;
  if (stage_ == Stage::kRounds || stage_ == Stage::kResume) {
    next_round(now);
  } else if (stage_ == Stage::kProbe) {
    begin_retest(now);
  } else if (stage_ == Stage::kRetest) {
    begin_resume(now);
  } else {
    next_crossed_round(now);
  }
}

void Referee::pass_meetings(double now) {
  deadline_ = std::min(end_, now + kCheckSeconds);
  for (Meeting& meeting : meetings_) {
    if (meeting.step == Step::kDone || now < meeting.deadline) continue;
    for (const Half& half : meeting.halves) {
      const bool has_answered = (meeting.step == Step::kContacts && half.has_contacts) ||
                                (meeting.step == Step::kConnecting && half.has_connected) ||
                                (meeting.step == Step::kTesting && half.has_results);
      if (!has_answered) drop(half.member, fmt::format("it does not answer for {:.0f} s", kAnswerSeconds));
    }
    end_meeting(meeting);
  }
  end_stage_if_done(now);
}

}  // namespace init::ping
