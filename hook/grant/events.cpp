#include "hook/grant/events.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "base/log.hpp"
#include "hook/ledger/grant.hpp"

namespace hook {
namespace {

std::vector<std::string> names_of(const std::vector<PlannedHca>& hcas) {
  std::vector<std::string> names(hcas.size());
  std::ranges::transform(hcas, names.begin(), [](const PlannedHca& hca) { return hca.name; });
  return names;
}

// The fields of a rail are separated by colons, so IPv6 is in brackets.
std::string text_of(const RailAddress& address) {
  const std::string text = to_string(address.address);
  return address.address.is_ipv4() ? fmt::format("{}/{}", text, address.prefix)
                                   : fmt::format("[{}]/{}", text, address.prefix);
}

// Returns "net1:mlx5_0:10.1.0.5/16+[fd00::5]/64:gid5"; "-" stands for the addresses if rdma-hook set none, and for an
// unknown GID index.
std::string text_of(const RailRecord& record) {
  std::string addresses;
  for (const RailAddress& address : record.rail.addresses)
    addresses += (addresses.empty() ? "" : "+") + text_of(address);
  const std::string gid = record.gid_index ? fmt::format("gid{}", *record.gid_index) : "-";
  return fmt::format("{}:{}:{}:{}", record.rail.name, record.rail.hca, addresses.empty() ? "-" : addresses, gid);
}

// Returns the GID index if all rails have the same one: NCCL_IB_GID_INDEX can name only one.
std::optional<unsigned> common_gid_index(const NetworkRecord& record) {
  std::optional<unsigned> common;
  for (const RailRecord& rail : record.rails) {
    if (!rail.gid_index || (common && *common != *rail.gid_index)) return std::nullopt;
    common = rail.gid_index;
  }
  return common;
}

void append_rails(EventLine& line, const std::optional<NetworkRecord>& record) {
  if (!record) return;
  if (const auto index = common_gid_index(*record)) line.add("aligned", *index);
  std::vector<std::string> rails;
  for (const RailRecord& rail : record->rails)
    rails.push_back(text_of(rail));
  line.add("rails", rails);
}

void add_steps(EventLine& line, const Timing& timing) {
  line.add("total_us", timing.total());
  for (const auto& [step, microseconds] : timing.steps())
    line.add(step + "_us", microseconds);
}

// The path of a pod's network namespace identifies the grant for people, and for tools that join this line with the
// engine's log.
void add_owner(EventLine& line, const Owner& owner) {
  line.add("key", shown_key(owner.key));
  if (owner.netns) line.add("netns", owner.netns->path);
}

}  // namespace

std::string_view mode_of(const std::vector<PlannedHca>& hcas) {
  if (hcas.empty()) return "none";
  const Mode first = hcas.front().mode;
  const auto differs = [&](const PlannedHca& hca) { return hca.mode != first; };
  return std::ranges::any_of(hcas, differs) ? "mixed" : to_string(first);
}

std::string granted_line(std::string_view event, const Granted& granted) {
  EventLine line(event);
  if (!granted.container.empty()) line.add("container", granted.container);
  add_owner(line, granted.owner);
  line.add("engine", to_string(granted.engine)).add("hcas", names_of(granted.hcas));
  line.add("mode", mode_of(granted.hcas));
  add_steps(line, granted.timing);
  append_rails(line, granted.rails);
  if (granted.require) line.add("require", *granted.require);
  line.add("no_rail", granted.no_rail);
  return line.add("source", granted.source).text();
}

std::string_view to_string(ReleaseReason reason) {
  constexpr std::string_view kNames[] = {"poststop",       "recover",     "namespace-gone",
                                         "container-gone", "claim-ended", "interrupted"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(ReleaseReason::kInterrupted) + 1);
  return kNames[static_cast<std::size_t>(reason)];
}

std::string released_line(const ReleaseEvent& released, const Timing* timing) {
  EventLine line(released.left ? "left" : "returned");
  line.add("container", released.containers);
  add_owner(line, released.owner);
  line.add("reason", to_string(released.reason)).add("hcas", names_of(released.hcas));
  line.add("mode", mode_of(released.hcas)).add("held_s", released.held);
  if (timing) {
    add_steps(line, *timing);
  } else {
    line.add("total_us", released.rails_us).add("rails_us", released.rails_us);
  }
  append_rails(line, released.rails);
  return line.text();
}

}  // namespace hook
