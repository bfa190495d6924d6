// The simulation of NCCL's choice of a GID index, compared with a second implementation of the same rule, and the plan
// for one index that uses the simulation.
#include <algorithm>

#include "arbitrary.hpp"
#include "fabric/inventory.hpp"
#include "init/gid_index.hpp"
#include "require.hpp"

namespace {

using namespace fabric;
using fuzz::require;
using namespace init::nccl;

// One slot as NCCL reads it. type -1: the type cannot be read.
struct Slot {
  Address gid;
  int type = -1;
};

std::vector<Slot> slots_of(const fabric::Port& port) {
  std::size_t length = port.gid_tbl_len.value_or(0);
  for (const GidEntry& entry : port.gids)
    length = std::max<std::size_t>(length, entry.index + 1);
  std::vector<Slot> slots(length);
  for (const GidEntry& entry : port.gids) {
    Slot& slot = slots[entry.index];
    slot.gid = entry.gid;
    const auto* text = entry.type ? std::get_if<std::string>(&*entry.type) : nullptr;
    if (text) slot.type = *text == "RoCE v2" ? 2 : 1;
  }
  return slots;
}

bool is_valid(const Address& gid) {
  // fe80::/64, as NCCL compares: all eight bytes of the prefix.
  const bool link_local =
      gid.bytes[0] == 0xfe && gid.bytes[1] == 0x80 &&
      std::all_of(gid.bytes.begin() + 2, gid.bytes.begin() + 8, [](auto byte) { return byte == 0; });
  return !gid.is_zero() && !link_local;
}

// ncclUpdateGidIndex() and its caller, NCCL 2.26 to 2.30.7, in its own order of tests. A type that cannot be read
// compares as neither version.
std::optional<unsigned> nccl_choice(const std::vector<Slot>& slots, const GidRules& rules) {
  unsigned current = 0;
  for (unsigned candidate = 1; candidate < slots.size(); ++candidate) {
    const Slot& now = slots[current];
    const Slot& next = slots[candidate];
    const bool wanted_family = next.gid.family() == rules.family;
    const bool in_range = !rules.range || rules.range->contains(next.gid);
    if (now.gid.family() != next.gid.family() && wanted_family && in_range) {
      current = candidate;
    } else if (wanted_family && is_valid(next.gid) && in_range) {
      if (rules.version < init::nccl::kToleratesUnreadable && (now.type < 0 || next.type < 0)) return std::nullopt;
      if ((now.type != next.type || !is_valid(now.gid)) && next.type == rules.roce_version) current = candidate;
    }
  }
  return current;
}

GidRules arbitrary_rules(FuzzedDataProvider& data) {
  GidRules rules;
  if (data.ConsumeBool()) rules.family = fabric::Family::kIpv6;
  if (data.ConsumeBool()) {
    rules.range = fabric::Cidr{fuzz::arbitrary_address(data), data.ConsumeIntegralInRange(0U, 128U)};
    if (rules.range->base.family() != rules.family) rules.range.reset();
  }
  rules.roce_version = data.PickValueInArray({2L, 2L, 1L, 0L});
  rules.version = fuzz::arbitrary_version(data);
  return rules;
}

void check_choice(const fabric::Port& port, const GidRules& rules) {
  const GidChoice choice = init::nccl::choose_gid(port, rules);
  if (rules.version < init::nccl::kChoosesGid) {
    require(choice.index == 0U, "before 2.21 an unset index is index 0");
    return;
  }
  const auto slots = slots_of(port);
  if (!choice.uncertain) require(choice.index == nccl_choice(slots, rules), "NCCL's choice is simulated right");
  if (choice.index) require(*choice.index == 0 || *choice.index < slots.size(), "the chosen index is in the table");
}

void check_plan(const std::vector<fabric::Port>& ports, const GidRules& rules, bool may_set_range) {
  const fabric::Hca hca;
  std::vector<init::Candidate> candidates(ports.size());
  std::vector<init::WantedGid> wanted;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    candidates[i].hca = &hca;
    candidates[i].port = &ports[i];
    const auto own = std::find_if(ports[i].gids.begin(), ports[i].gids.end(), [&](const GidEntry& entry) {
      return entry.is_v2() && !entry.gid.is_zero() && entry.gid.family() == rules.family;
    });
    if (own != ports[i].gids.end())
      wanted.push_back({i, &candidates[i], {own->index, own->gid, init::GidRank::kIpv4, "net1"}});
  }
  const init::IndexPlan plan = init::plan_index(wanted, rules, may_set_range);
  if (!may_set_range) require(!plan.range, "a range is set only where it may be");
  GidRules effective = rules;
  if (plan.range) effective.range = plan.range;
  for (const init::WantedGid& one : wanted) {
    if (std::find(plan.wrong.begin(), plan.wrong.end(), one.port) != plan.wrong.end()) continue;
    const GidChoice choice =
        plan.index ? GidChoice{*plan.index, false} : init::nccl::choose_gid(ports[one.port], effective);
    require(choice.index == one.gid.index && !choice.uncertain, "a port that is not reported as wrong gets its GID");
  }
  require(wanted.empty() || plan.wrong.size() < wanted.size() || !plan.index, "an index is right for a port");
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  const GidRules rules = arbitrary_rules(data);
  const bool may_set_range = data.ConsumeBool();
  std::vector<fabric::Port> ports;
  for (auto left = data.ConsumeIntegralInRange(1, 4); left > 0; --left) {
    fabric::Port port;
    if (data.ConsumeBool()) port.gid_tbl_len = data.ConsumeIntegralInRange(0U, 300U);
    port.gids = fuzz::arbitrary_gids(data);
    check_choice(port, rules);
    ports.push_back(std::move(port));
  }
  check_plan(ports, rules, may_set_range);
}
