#include "init/ping/causes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "init/ping/describe.hpp"
#include "init/ping/evidence.hpp"
#include "init/ping/suspects.hpp"

namespace init::ping {
namespace {

using Kind = Cause::Kind;
using Sign = Suspect::Sign;

// Numbers of tests of one object.
struct Share {
  std::size_t failed = 0;
  std::size_t tested = 0;
  std::size_t untested = 0;
};

std::string describe(const Fault& fault) {
  return describe(Failure{fault.layer, fault.detail == nullptr ? "" : *fault.detail});
}

// Returns "3 of 7 tests failed, 4 did not run".
std::string results_of(const Share& share) {
  if (share.tested == 0) return fmt::format("{} did not run", count_of(share.untested, "test"));
  return fmt::format("{} of {} failed{}", share.failed, count_of(share.tested, "test"),
                     share.untested == 0 ? "" : fmt::format(", {} did not run", share.untested));
}

// Returns a value of a sign: "P_Key 0x8001".
std::string value_text(Sign sign, std::uint64_t value) {
  if (sign == Sign::kPkey)
    return fmt::format("P_Key {:#06x}{}", value, value < 0x8000 ? ", a limited member of its partition" : "");
  if (sign == Sign::kMtu) return fmt::format("active MTU {}", value);
  if (sign == Sign::kFamily) return fmt::format("a GID of IPv{}", value);
  return fmt::format("InfiniBand subnet {:016x}", value);
}

constexpr std::string_view kUnequalMtu =
    "NCCL 2.20.3 to 2.29 sends with the MTU of the sender, so that its connections break or hang; NCCL 2.30 takes the "
    "smaller one";

std::string_view remedy_of_sign(Sign sign) {
  switch (sign) {
    case Sign::kCables:
      return "set NCCL_IB_SUBNET_AWARE_ROUTING=1, which NCCL has from 2.30.7 on, give each cable a subnet of its own, "
             "and connect port 0 of each node to port 1 of the next node";
    case Sign::kSubnet:
      return "use HCAs of one InfiniBand subnet on all ranks: rdma-init --hca, or NCCL_IB_HCA";
    case Sign::kFamily:
      return "give the netdevs of this rail addresses of one family, or set NCCL_IB_ADDR_FAMILY on all ranks and unset "
             "NCCL_IB_GID_INDEX";
    default:
      return {};
  }
}

Layer layer_of(const Suspect& suspect) {
  if (suspect.sign == Sign::kMtu) return Layer::kMtu;
  if (suspect.sign == Sign::kPkey) return Layer::kPkey;
  if (suspect.sign == Sign::kFamily) return Layer::kGid;
  return suspect.example->layer;
}

class Naming {
 public:
  explicit Naming(const Outcome& outcome) : outcome_(outcome) {}
  std::vector<Cause> find() {
    add_unequal();
    add_absent();
    const bool stopped = outcome_.cells.empty() && !causes_.empty();  // the job ended before the first test
    std::vector<Suspect> suspects;
    if (!stopped && outcome_.members.size() > 1 && outcome_.rails > 0)
      suspects = find_suspects(evidence_.emplace(outcome_));
    for (const Member& member : outcome_.members)
      add_problems(member, static_cast<std::size_t>(&member - outcome_.members.data()));
    std::ranges::stable_sort(causes_, {}, &Cause::kind);
    add_suspects(std::move(suspects));
    if (evidence_) add_untested();
    return std::move(causes_);
  }

 private:
  // The lines are in the order of the members.
  void add_unequal() {
    std::size_t member = 0;
    for (const std::string& line : outcome_.unequal) {
      while (member < outcome_.members.size() && !line.starts_with(name_of(outcome_.members[member]) + " "))
        ++member;
      Cause& cause = add(Kind::kRank, Layer::kRank, line);
      if (member < outcome_.members.size()) cause.rank = outcome_.members[member].rank;
      cause.remedy = "run `rdma-init doctor` on this rank";
    }
  }

  void add_absent() {
    const std::vector<unsigned>& absent = outcome_.absent;
    if (absent.empty()) return;
    Cause& cause = add(Kind::kRank, Layer::kRank,
                       fmt::format("{} {} did not come: {} of {} ranks came", absent.size() == 1 ? "rank" : "ranks",
                                   name_ranks(absent), outcome_.size - absent.size(), outcome_.size));
    cause.rank = absent.front();
    cause.remedy =
        "read the log of each of these ranks: it did not start, or does not reach rank 0; --timeout sets how long rank "
        "0 waits";
  }

  // --- Problems that a rank has reported, or that it is silent.

  void add_problems(const Member& one, std::size_t member) {
    if (one.lost_with) return;  // the relay is the cause
    if (one.problem.failed()) {
      const Share share = share_of(member);
      const auto lost = std::ranges::count(outcome_.members, std::optional(one.rank), &Member::lost_with);
      const std::string relayed =
          lost == 0 ? "" : fmt::format("; {} reported through it", count_of(static_cast<std::size_t>(lost), "rank"));
      set(add(Kind::kRank, one.problem.layer,
              fmt::format("{}: {}; {}{}", name_of(one), describe(one.problem), results_of(share), relayed)),
          share)
          .rank = one.rank;
      return;
    }
    const auto is_alike = [&](const Rail& rail) {
      return rail.problem.failed() && rail.problem.layer == one.rails.front().problem.layer;
    };
    if (!one.rails.empty() && std::ranges::all_of(one.rails, is_alike)) {
      const Share share = share_of(member);
      const std::string all = one.rails.size() == 1 ? "" : fmt::format("all {} rails: ", one.rails.size());
      const Failure& problem = one.rails.front().problem;
      set(add(Kind::kRank, problem.layer,
              fmt::format("{}: {}{}; {}", name(member, 0), all, describe(problem), results_of(share))),
          share)
          .rank = one.rank;
      return;
    }
    for (unsigned rail = 0; rail < one.rails.size(); ++rail) {
      const Failure& problem = one.rails[rail].problem;
      if (problem.failed()) add_problem(member, rail, problem);
    }
  }

  void add_problem(std::size_t member, unsigned rail, const Failure& problem) {
    const Share share = share_of(member, rail);
    Cause& cause = set(add(Kind::kRailOfRank, problem.layer,
                           fmt::format("{}: {}; {}", name(member, rail), describe(problem), results_of(share))),
                       share);
    cause.rank = outcome_.members[member].rank;
    cause.rail = rail;
    cause.rails = {rail};
  }

  Share share_of(std::size_t member, unsigned rail) const {
    if (!evidence_ || rail >= outcome_.rails) return {};
    const End& end = evidence_->end(member, rail);
    return {end.explained, end.good + end.failed, end.untested};
  }

  Share share_of(std::size_t member) const {
    Share sum;
    for (unsigned rail = 0; rail < outcome_.rails; ++rail) {
      const Share share = share_of(member, rail);
      sum.failed += share.failed;
      sum.tested += share.tested;
      sum.untested += share.untested;
    }
    return sum;
  }

  // --- What the tests show.

  // A value that differs is certain, so it comes first. Values without a failure and objects whose extent is not
  // certain come last.
  void add_suspects(std::vector<Suspect> suspects) {
    const auto order = [&](const Suspect& suspect) {
      constexpr int kKinds = static_cast<int>(Kind::kLink) + 1;
      if (suspect.failed == 0) return kKinds;
      return suspect.sign == Sign::kTests ? static_cast<int>(kind_of(suspect)) : -1;
    };
    std::ranges::stable_sort(suspects, std::greater{}, &Suspect::failed);
    std::ranges::stable_sort(suspects, {}, order);
    const auto has_sign = [](const Suspect& suspect) { return suspect.sign != Sign::kTests && suspect.failed > 0; };
    const auto signs = std::ranges::find_if_not(suspects, has_sign);
    std::ranges::stable_sort(suspects.begin(), signs, {},
                             [](const Suspect& suspect) { return suspect.members.size(); });
    for (const Suspect& suspect : suspects)
      add_suspect(suspect);
  }

  Kind kind_of(const Suspect& suspect) const {
    if (suspect.sign == Sign::kCables) return Kind::kCables;
    if (suspect.members.empty()) return Kind::kRail;
    if (suspect.members.size() > 1 || suspect.others.size() > 1) return Kind::kGroup;
    if (!suspect.others.empty()) return Kind::kLink;
    return suspect.rails.size() == outcome_.rails ? Kind::kRank : Kind::kRailOfRank;
  }

  void add_suspect(const Suspect& suspect) {
    const Kind kind = kind_of(suspect);
    const Share share = share_of(suspect, kind);
    Cause& cause = set(add(kind, layer_of(suspect), text_of(suspect, kind, share)), share);
    cause.remedy = remedy_for(suspect, kind);
    if (kind == Kind::kRank || kind == Kind::kRailOfRank || kind == Kind::kLink)
      cause.rank = outcome_.members[suspect.members.front()].rank;
    if (kind == Kind::kLink) cause.other = outcome_.members[suspect.others.front()].rank;
    cause.rails = suspect.rails;
    if (kind != Kind::kRank && suspect.rails.size() == 1) cause.rail = suspect.rails.front();
    if (kind != Kind::kGroup) return;
    for (const std::size_t member : suspect.members)
      cause.ranks.push_back(outcome_.members[member].rank);
    for (const std::size_t member : suspect.others)
      cause.unreached.push_back(outcome_.members[member].rank);
  }

  Share share_of(const Suspect& suspect, Kind kind) const {
    Share share{suspect.failed, 0, 0};
    if (kind == Kind::kGroup || kind == Kind::kCables || kind == Kind::kLink) {
      share.tested = suspect.failed;  // none of their tests is good
      return share;
    }
    for (const unsigned rail : suspect.rails) {
      for (std::size_t member = 0; member < outcome_.members.size(); ++member) {
        if (kind != Kind::kRail && member != suspect.members.front()) continue;
        const End& end = evidence_->end(member, rail);
        share.tested += end.good + end.failed;
        share.untested += end.untested;
      }
    }
    if (kind == Kind::kRail) share = {share.failed, share.tested / 2, share.untested / 2};
    return share;
  }

  std::string text_of(const Suspect& suspect, Kind kind, const Share& share) const {
    const std::string who = subject_of(suspect, kind);
    if (suspect.sign == Sign::kCables)
      return fmt::format("{}: each port reaches one peer at most, as with direct cables without a switch; {} failed{}",
                         who, count_of(share.failed, "test"), pair_of(suspect, ", for example "));
    if (suspect.sign != Sign::kTests) {
      const std::string tests = suspect.failed == 0 ? "" : fmt::format("; {} failed", count_of(suspect.failed, "test"));
      const std::string_view effect = suspect.sign == Sign::kMtu ? kUnequalMtu : std::string_view();
      const bool has_rails = suspect.members.size() > 1 || suspect.rails.size() == 1;
      const std::string rails = has_rails ? "" : fmt::format(" on {} rails", suspect.rails.size());
      return fmt::format("{}: {}{}, {} of {} ranks {} {}{}{}{}{}", who, value_text(suspect.sign, suspect.value), rails,
                         suspect.count, outcome_.members.size(), suspect.count == 1 ? "has" : "have",
                         value_text(suspect.sign, suspect.usual), effect.empty() ? "" : ": ", effect, tests,
                         pair_of(suspect, ", for example "));
    }
    if (kind == Kind::kRank || kind == Kind::kRailOfRank) return text_of_end(suspect, who, share);
    if (kind == Kind::kGroup && suspect.others.empty())
      return fmt::format("{}: {} failed, none with other ranks is good{}", who, count_of(share.failed, "test"),
                         pair_of(suspect, ", for example "));
    if (kind == Kind::kLink) return fmt::format("{}: {}: {}", who, results_of(share), describe(*suspect.example));
    return fmt::format("{}: {}{}", who, results_of(share), pair_of(suspect, ", for example "));
  }

  // Returns the object with its ranks.
  std::string subject_of(const Suspect& suspect, Kind kind) const {
    const bool is_on_all = suspect.rails.size() == outcome_.rails && outcome_.rails > 1;
    const std::string rail =
        is_on_all ? fmt::format("all {} rails", outcome_.rails)
                  : fmt::format("{} {}", suspect.rails.size() == 1 ? "rail" : "rails", name_ranks(suspect.rails));
    if (kind == Kind::kRail || kind == Kind::kCables) return rail + " of all ranks";
    if (kind == Kind::kGroup && suspect.others.empty())
      return fmt::format("{} of ranks {}", rail, name_members(outcome_, suspect.members));
    if (kind == Kind::kGroup)
      return fmt::format("{} between ranks {} and ranks {}", rail, name_members(outcome_, suspect.members),
                         name_members(outcome_, suspect.others));
    const unsigned shown = suspect.example == nullptr ? suspect.rails.front() : suspect.example->rail;
    if (kind == Kind::kLink)
      return fmt::format("{} between {} and {}", rail, name(suspect.members.front(), shown),
                         name(suspect.others.front(), shown));
    return name(suspect.members.front(), shown);
  }

  std::string text_of_end(const Suspect& suspect, const std::string& who, const Share& share) const {
    const Fault& fault = *suspect.example;
    const std::size_t peer = fault.first == suspect.members.front() ? fault.second : fault.first;
    const std::string rails = suspect.rails.size() == 1 ? "" : fmt::format(" on {} rails", suspect.rails.size());
    return fmt::format("{}: {}{}, {}with {}: {}", who, results_of(share), rails,
                       share.failed == 1 ? "" : "for example ", name(peer, fault.rail), describe(fault));
  }

  // Returns the two ends of a pair that failed, as an example, and its failure. before: text in front.
  std::string pair_of(const Suspect& suspect, std::string_view before) const {
    if (suspect.example == nullptr) return "";
    const Fault& fault = *suspect.example;
    return fmt::format("{}between {} and {}: {}", before, name(fault.first, fault.rail), name(fault.second, fault.rail),
                       describe(fault));
  }

  std::string remedy_for(const Suspect& suspect, Kind kind) const {
    if (const std::string_view of_sign = remedy_of_sign(suspect.sign); !of_sign.empty()) return std::string(of_sign);
    const std::size_t member = suspect.members.empty() ? 0 : suspect.members.front();
    const bool infiniband = outcome_.members[member].rails[suspect.rails.front()].infiniband;
    const Layer layer = layer_of(suspect);
    const bool is_of_switch = layer == Layer::kRetry || layer == Layer::kNeighbour;
    if (!infiniband && is_of_switch && (kind == Kind::kGroup || kind == Kind::kRail))
      return "check the switches between these ports: uplinks, VLAN, routes, and access lists for UDP port 4791";
    return std::string(remedy_of(layer, infiniband));
  }

  void add_untested() {
    const std::size_t untested = evidence_->count_untested();
    if (untested == 0) return;
    Cause& cause = add(Kind::kLink, Layer::kUntested,
                       fmt::format("{} of {} tests did not run{}", untested, outcome_.count_pairs() * outcome_.rails,
                                   outcome_.out_of_time ? ": the time budget ended" : ""));
    cause.remedy = causes_.size() == 1 ? "run rdma-ping again" : "repair the other causes and run rdma-ping again";
  }

  Cause& add(Kind kind, Layer layer, std::string message) {
    Cause& cause = causes_.emplace_back();
    cause.kind = kind;
    cause.layer = layer;
    cause.message = std::move(message);
    cause.remedy = about(layer).remedy;
    return cause;
  }
  static Cause& set(Cause& cause, const Share& share) {
    cause.failed = share.failed;
    cause.tested = share.tested;
    return cause;
  }

  std::string name(std::size_t member, unsigned rail) const {
    return fmt::format("{}, {}", name_of(outcome_.members[member]), describe(outcome_.members[member], rail));
  }

  const Outcome& outcome_;
  std::optional<Evidence> evidence_;
  std::vector<Cause> causes_;
};

}  // namespace

std::vector<Cause> find_causes(const Outcome& outcome) {
  return Naming(outcome).find();
}

}  // namespace init::ping
