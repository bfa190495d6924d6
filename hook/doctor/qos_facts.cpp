#include "hook/doctor/checks.hpp"

#include <algorithm>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"
#include "hook/base/result.hpp"
#include "hook/install/query_engine.hpp"

namespace hook {
namespace {

namespace sysfs = fabric::sysfs;

// Reads roce_np/enable/0 to 7 and roce_rp/enable/0 to 7 in /sys/class/net/NETDEV/ecn. Only MLNX_OFED has these files.
// Returns true if ECN is enabled for at least one priority; nullopt if no directory `enable` exists.
std::optional<bool> read_ecn(const std::string& root, const std::string& netdev) {
  // One enabled priority is enough, at the notification point (np, the receiver) or the reaction point (rp, the
  // sender).
  std::optional<bool> on;
  for (const char* side : {"roce_np", "roce_rp"}) {
    const auto enable = sysfs::Directory::open(fmt::format("{}/sys/class/net/{}/ecn/{}/enable", root, netdev, side));
    if (!enable) continue;
    const auto names = enable->list();
    on = on.value_or(false) || std::ranges::any_of(names, [&](const std::string& priority) {
           return enable->read_int(priority.c_str()).value_or(0) == 1;
         });
  }
  return on;
}

constexpr unsigned kEcnBits = 2;  // the lower bits of a traffic class

// Returns the text after the key up to the end of the line, empty if the key is missing.
std::string_view line_of(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view line = text.substr(at + key.size());
  return line.substr(0, line.find('\n'));
}

}  // namespace

std::optional<std::vector<unsigned>> parse_dcb_pfc(std::string_view text) {
  const std::string_view line = line_of(text, "prio-pfc ");
  if (line.empty()) return std::nullopt;
  std::vector<unsigned> on;
  for (const std::string_view one : fabric::split(line, ' ')) {
    const auto priority = fabric::parse_number<unsigned>(one.substr(0, one.find(':')));
    if (priority && one.ends_with(":on")) on.push_back(*priority);
  }
  return on;
}

std::optional<unsigned> parse_dcb_priority(std::string_view text, unsigned dscp) {
  const std::string_view line = line_of(text, "dscp-prio ");
  for (const std::string_view one : fabric::split(line, ' ')) {
    const std::size_t colon = one.find(':');
    if (colon != std::string_view::npos && fabric::parse_number<unsigned>(one.substr(0, colon)) == dscp)
      return fabric::parse_number<unsigned>(one.substr(colon + 1));
  }
  return std::nullopt;
}

std::vector<RailQos> read_qos(const std::string& root, std::vector<RailQos> rails, std::vector<Error>& unasked) {
  auto dcb = root.empty() ? find_program(root, "dcb") : std::nullopt;
  const auto ask = [&](std::vector<std::string> words) -> std::optional<std::string> {
    if (!dcb) return std::nullopt;
    words.insert(words.begin(), *dcb);
    auto answer = query_program(root, words);
    if (answer) return answer->done ? std::optional(std::move(answer->text)) : std::nullopt;
    // `dcb` would fail in the same way for each rail, so only one error is reported.
    unasked.push_back(answer.error());
    dcb.reset();
    return std::nullopt;
  };
  for (RailQos& rail : rails) {
    rail.ecn = read_ecn(root, rail.netdev);
    if (const auto text = ask({"pfc", "show", "dev", rail.netdev})) rail.pfc = parse_dcb_pfc(*text);
    if (!rail.traffic_class) continue;
    if (const auto text = ask({"-N", "app", "show", "dev", rail.netdev, "dscp-prio"}))
      rail.priority = parse_dcb_priority(*text, *rail.traffic_class >> kEcnBits);
  }
  return rails;
}

// Each finding is a note: the configuration of the switches is unknown, so PFC or ECN on the node does not prove that
// flow control works, and their absence does not prove a fault.
Check check_qos(const std::vector<RailQos>& rails) {
  Check check{"qos", {}, {}};
  std::vector<std::string> without;
  std::vector<std::string> with;
  for (const RailQos& rail : rails) {
    const bool pfc = rail.pfc && !rail.pfc->empty();
    if (pfc || rail.ecn == true) with.push_back(fabric::printable(rail.netdev));
    if (rail.pfc && rail.pfc->empty() && rail.ecn != true) without.push_back(fabric::printable(rail.netdev));
  }
  if (!without.empty()) {
    check.add(Grade::kNote, fabric::join(without, ", "),
              "no priority has PFC: a congested RoCE fabric drops packets unless ECN prevents it",
              "run `dcb pfc set dev NETDEV prio-pfc 3:on`, configure the switches alike, and set "
              "NCCL_IB_TC for that priority");
  }
  for (const RailQos& rail : rails) {
    const bool is_lossy = rail.priority && rail.pfc && std::ranges::find(*rail.pfc, *rail.priority) == rail.pfc->end();
    if (!is_lossy) continue;
    check.add(Grade::kNote, fabric::printable(rail.netdev),
              fmt::format("NCCL_IB_TC={} of config.json has priority {} here, which has no PFC", *rail.traffic_class,
                          *rail.priority),
              fmt::format("run `dcb pfc set dev {} prio-pfc {}:on`, or correct \"env\"", fabric::printable(rail.netdev),
                          *rail.priority));
  }
  check.looked = !with.empty() || !without.empty();
  check.summary = check.looked ? fmt::format("PFC or ECN on {}", fabric::join(with, ", "))
                               : "neither `dcb` nor sysfs reports PFC or ECN of a rail";
  return check;
}

}  // namespace hook
