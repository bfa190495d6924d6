#include "hook/admin/doctor/checks.hpp"

#include <algorithm>

#include "base/file.hpp"
#include "base/result.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "fabric/port_faults.hpp"

namespace hook {
namespace {

// Reads roce_np/enable/0 to 7 and roce_rp/enable/0 to 7 in /sys/class/net/NETDEV/ecn. Only MLNX_OFED has these files.
// Returns true if ECN is enabled for at least one priority; nullopt if no directory `enable` exists.
std::optional<bool> read_ecn(const std::string& root, const std::string& netdev) {
  // One enabled priority is enough, at the notification point (np, the receiver) or the reaction point (rp, the
  // sender).
  std::optional<bool> on;
  for (const char* side : {"roce_np", "roce_rp"}) {
    const auto enable = base::Directory::open(fmt::format("{}/sys/class/net/{}/ecn/{}/enable", root, netdev, side));
    if (!enable) continue;
    const auto names = enable->list();
    on = on.value_or(false) || std::ranges::any_of(names, [&](const std::string& priority) {
           return enable->read_int(priority.c_str()).value_or(0) == 1;
         });
  }
  return on;
}

// Returns the global traffic class of the HCA, empty if there is none.
std::string read_global_class(const std::string& root, const std::string& hca) {
  const auto text =
      base::read_attribute(fmt::format("{}/sys/class/infiniband/{}/{}", root, hca, fabric::kGlobalClassFile));
  return std::string(fabric::parse_global_class(base::value_or(text, std::string())));
}

constexpr unsigned kEcnBits = 2;  // the lower bits of a traffic class

// Returns the text after the key up to the end of the line, empty if the key is missing.
std::string_view line_of(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return {};
  const std::string_view line = text.substr(at + key.size());
  return line.substr(0, line.find('\n'));
}

// Returns true if a driver may map a DSCP to a priority without an entry of `dcb app`, as that of MLNX_OFED does.
// Without the file `trust`, a driver trusts the VLAN tag (PCP) until `dcb app` has an entry for a DSCP
// (drivers/net/ethernet/mellanox/mlx5/core/en_dcbnl.c, Linux 6.12).
bool may_map_without_entry(const std::string& root, const std::string& netdev) {
  const auto trust = base::read_attribute(fmt::format("{}/sys/class/net/{}/qos/trust", root, netdev));
  const auto* text = std::get_if<std::string>(&trust);
  return text ? text->find("pcp") == std::string::npos : !base::is_absent(base::error_of(trust));
}

// Adds a note for each rail with a global traffic class, unless config.json has NCCL_IB_TC for its containers.
void check_global_classes(const std::vector<RailQos>& rails, Check& check) {
  for (const RailQos& rail : rails) {
    if (rail.global_class.empty() || !rail.marks.empty()) continue;
    const std::string value = base::printable(rail.global_class);
    check.add(Grade::kNote, base::printable(rail.hca),
              fmt::format("the global traffic class {} {}", value, fabric::kGlobalClassEffect),
              fmt::format("set \"env\": {{\"NCCL_IB_TC\": \"{}\"}} in the pool", value));
  }
}

}  // namespace

void add_priorities(const DcbPriorities& priorities, bool may_map, RailQos& rail) {
  for (MarkQos& mark : rail.marks) {
    const auto found = priorities.of_dscp.find(mark.traffic_class >> kEcnBits);
    if (found != priorities.of_dscp.end()) {
      mark.priority = found->second;
    } else if (!may_map) {
      mark.priority = priorities.fallback;
      mark.maps_dscp = !priorities.of_dscp.empty();
    }
  }
}

std::optional<std::vector<unsigned>> parse_dcb_pfc(std::string_view text) {
  const std::string_view line = line_of(text, "prio-pfc ");
  if (line.empty()) return std::nullopt;
  std::vector<unsigned> on;
  for (const std::string_view one : base::split(line, ' ')) {
    const auto priority = base::parse_number<unsigned>(one.substr(0, one.find(':')));
    if (priority && one.ends_with(":on")) on.push_back(*priority);
  }
  return on;
}

DcbPriorities parse_dcb_priorities(std::string_view text) {
  DcbPriorities priorities;
  for (const std::string_view one : base::split(line_of(text, "dscp-prio "), ' ')) {
    const std::size_t colon = std::min(one.find(':'), one.size());
    const auto dscp = base::parse_number<unsigned>(one.substr(0, colon));
    const auto priority = base::parse_number<unsigned>(one.substr(std::min(colon + 1, one.size())));
    if (dscp && priority) priorities.of_dscp[*dscp] = *priority;
  }
  const auto fallback = base::parse_number<unsigned>(base::trim(line_of(text, "default-prio ")));
  priorities.fallback = fallback.value_or(0);
  return priorities;
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
    rail.global_class = read_global_class(root, rail.hca);
    if (const auto text = ask({"pfc", "show", "dev", rail.netdev})) rail.pfc = parse_dcb_pfc(*text);
    if (rail.marks.empty()) continue;
    if (const auto text = ask({"-N", "app", "show", "dev", rail.netdev}))
      add_priorities(parse_dcb_priorities(*text), may_map_without_entry(root, rail.netdev), rail);
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
    if (pfc || rail.ecn == true) with.push_back(base::printable(rail.netdev));
    if (rail.pfc && rail.pfc->empty() && rail.ecn != true) without.push_back(base::printable(rail.netdev));
  }
  if (!without.empty()) {
    check.add(Grade::kNote, base::join(without, ", "),
              "no priority has PFC: a congested RoCE fabric drops packets unless ECN prevents it",
              "run `dcb pfc set dev NETDEV prio-pfc 3:on`, configure the switches alike, and set "
              "NCCL_IB_TC for that priority");
  }
  for (const RailQos& rail : rails) {
    if (!rail.pfc || rail.pfc->empty()) continue;  // a rail without PFC uses ECN, or has its note already
    const std::string netdev = base::printable(rail.netdev);
    for (const MarkQos& mark : rail.marks) {
      if (!mark.priority || std::ranges::find(*rail.pfc, *mark.priority) != rail.pfc->end()) continue;
      check.add(Grade::kNote, netdev,
                fmt::format("NCCL_IB_TC={} of config.json has priority {} here, which has no PFC{}", mark.traffic_class,
                            *mark.priority, mark.maps_dscp ? "" : ", because `dcb app` gives no DSCP a priority"),
                fmt::format("run `dcb app replace dev {} dscp-prio {}:{}`, or correct \"env\"", netdev,
                            mark.traffic_class >> kEcnBits, rail.pfc->front()));
    }
  }
  check_global_classes(rails, check);
  check.looked = !with.empty() || !without.empty();
  check.summary = check.looked ? fmt::format("PFC or ECN on {}", base::join(with, ", "))
                               : "neither `dcb` nor sysfs reports PFC or ECN of a rail";
  return check;
}

}  // namespace hook
