// The plan for one GID index, carried out on a model of the kernel's tables; then the same with other containers and a
// slow kernel in between.
#include <algorithm>

#include "hook/rails/align/align.hpp"
#include "require.hpp"
#include "unit/hook/rails/kernel_gid_model.hpp"

namespace {

using fabric::Address;
using fuzz::require;
using namespace test_support;

// Returns an address of another container, of a small set, so that equal GIDs occur. 192.0.2.0/29 also has
// placeholders.
Address somebodys(FuzzedDataProvider& data) {
  Address address = hook::placeholder(data.ConsumeIntegralInRange(0U, 7U));
  if (data.ConsumeBool()) address.bytes[12] = 10;
  return address;
}

Address own_address(std::size_t rail) {
  Address address = hook::placeholder(static_cast<unsigned>(rail));
  address.bytes[12] = 11;
  return address;
}

KernelGidTable arbitrary_port(FuzzedDataProvider& data, std::uint8_t rail) {
  KernelGidTable port(data.PickValueInArray({4U, 16U, 17U, 128U}), data.ConsumeIntegralInRange(1U, 2U), rail);
  const auto add_others = [&] {
    for (auto left = data.ConsumeIntegralInRange(0, 10); left > 0; --left) {
      const unsigned index = data.ConsumeIntegralInRange(0U, port.length() - 1);
      const unsigned netdev = data.ConsumeIntegralInRange(10U, 20U);
      if (data.ConsumeBool()) {
        port.add(somebodys(data), netdev);
      } else if (port.slots()[index].netdev != kOwnNetdev) {
        port.set(index, somebodys(data), port.types() == 1 || data.ConsumeBool(), netdev);
        port.at(index).is_hidden = data.ConsumeIntegralInRange(0, 7) == 0;
        port.at(index).is_dying = data.ConsumeIntegralInRange(0, 7) == 0;
      }
    }
  };
  add_others();
  port.add(own_address(rail), kOwnNetdev);
  add_others();
  return port;
}

std::vector<KernelGidTable::Slot> foreign(const KernelGidTable& port) {
  auto slots = port.slots();
  for (auto& slot : slots)
    if (slot.netdev == kOwnNetdev) slot = {};
  return slots;
}

std::vector<hook::AlignRail> rails_of(const KernelGidModel& model) {
  std::vector<hook::AlignRail> rails;
  for (unsigned rail = 0; rail < model.ports.size(); ++rail) {
    const KernelGidTable& port = model.ports[rail];
    rails.push_back({rail, "rail" + std::to_string(rail), own_address(rail), port.read(port.length())});
  }
  return rails;
}

// Returns true if the table shows all GIDs: a plan cannot take hidden GIDs into account.
bool shows_all(const KernelGidTable& port) {
  for (unsigned index = 0; index < port.length(); ++index)
    if (!port.slots()[index].gid.is_zero() && !port.is_visible(index)) return false;
  const auto& slots = port.slots();
  // A full table can have only one of the two GIDs of an address.
  return std::count_if(slots.begin(), slots.end(), [](const auto& slot) { return slot.netdev == kOwnNetdev; }) ==
         port.types();
}

void check_plan(KernelGidModel model, unsigned most) {
  const auto rails = rails_of(model);
  const auto plan = plan_alignment(rails, most);
  if (!plan) return fuzz::require_one_line(plan.error().message, "the refusal of a plan");
  fuzz::require_one_line(to_string(*plan, rails), "the text of a plan");
  for (const hook::AlignMove& move : plan->moves) {
    KernelGidTable& port = model.ports[move.rail];
    require(move.fill >= 1 && move.fill <= most, "the bound of placeholders is kept");
    // Placeholders of other containers do not matter here. run_alignment() takes unused numbers.
    const auto filler = [](unsigned n) {
      Address address = hook::placeholder(n);
      address.bytes[12] = 12;
      return address;
    };
    const auto before = foreign(port);
    port.remove(own_address(move.rail), kOwnNetdev);
    for (unsigned n = 0; n < move.fill; ++n)
      port.add(filler(n), kOwnNetdev);
    for (const unsigned n : move.release)
      port.remove(filler(n), kOwnNetdev);
    port.add(own_address(move.rail), kOwnNetdev);
    require(foreign(port) == before, "GIDs of other containers stay");
    const auto index = port.find(own_address(move.rail), kOwnNetdev);
    require(index == plan->index || !shows_all(port), "the address gets the planned index");
  }
}

void check_run(FuzzedDataProvider& data, KernelGidModel& model, unsigned most) {
  auto rails = rails_of(model);
  std::vector<Address> addresses;
  for (std::size_t rail = 0; rail < rails.size(); ++rail)
    addresses.push_back(rails[rail].address);
  test_support::ModelLink link(model, addresses);
  link.meanwhile = [&] {
    if (data.remaining_bytes() > 0 && data.ConsumeIntegralInRange(0, 3) == 0) {
      const std::size_t port = data.ConsumeIntegralInRange<std::size_t>(0, model.ports.size() - 1);
      model.queue.push_back({port, data.ConsumeBool(), somebodys(data), data.ConsumeIntegralInRange(10U, 20U)});
    }
    model.work(data.remaining_bytes() > 0 ? data.ConsumeIntegralInRange(0U, 3U) : 1);
  };
  link.fails = [&](const std::string& what) {
    if (data.remaining_bytes() == 0 || data.ConsumeIntegralInRange(0, 63) != 0) return base::Result<void>();
    return base::Result<void>(base::make_error("cannot {}", what));
  };
  const auto report = run_alignment(std::move(rails), link, {.max_placeholders = most});
  if (!report) fuzz::require_one_line(report.error().message, "the error of an alignment");
  const bool was_lost = !report && report.error().message.find("has lost its address") != std::string::npos;
  const bool stays = !report && report.error().message.find("keeps") != std::string::npos;
  for (std::size_t rail = 0; rail < addresses.size(); ++rail) {
    require(was_lost || link.configured[rail].contains(addresses[rail]), "an address stays or is reported");
    require(was_lost || stays || link.configured[rail].size() == 1, "no placeholder stays");
    require(!report || model.ports[rail].find(addresses[rail], kOwnNetdev) == report->done.index,
            "the rails are at the reported index");
  }
  require(link.most_placeholders <= most, "the bound of placeholders is kept by a run");
}

}  // namespace

void fuzz::run(std::string_view, FuzzedDataProvider data) {
  KernelGidModel model;
  for (std::uint8_t rail = 0, rails = data.ConsumeIntegralInRange<std::uint8_t>(0, 4); rail < rails; ++rail)
    model.ports.push_back(arbitrary_port(data, rail));
  const unsigned most = data.ConsumeIntegralInRange(0U, 300U);
  check_plan(model, most);
  if (!model.ports.empty()) check_run(data, model, most);
}
