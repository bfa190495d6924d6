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

}  // namespace

std::optional<std::vector<unsigned>> parse_dcb_pfc(std::string_view text) {
  constexpr std::string_view kKey = "prio-pfc ";
  const std::size_t at = text.find(kKey);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view line = text.substr(at + kKey.size());
  line = line.substr(0, line.find('\n'));
  std::vector<unsigned> on;
  for (const std::string_view one : fabric::split(line, ' ')) {
    const auto priority = fabric::parse_number<unsigned>(one.substr(0, one.find(':')));
    if (priority && one.ends_with(":on")) on.push_back(*priority);
  }
  return on;
}

std::vector<RailQos> read_qos(const std::string& root, const std::vector<std::string>& netdevs,
                              std::vector<Error>& unasked) {
  auto dcb = root.empty() ? find_program(root, "dcb") : std::nullopt;
  std::vector<RailQos> rails;
  for (const std::string& netdev : netdevs) {
    RailQos rail{netdev, {}, read_ecn(root, netdev)};
    if (dcb) {
      const auto answer = query_program(root, {*dcb, "pfc", "show", "dev", netdev});
      if (answer && answer->done) rail.pfc = parse_dcb_pfc(answer->text);
      if (!answer) {
        // `dcb` would fail in the same way for each rail, so only one error is reported.
        unasked.push_back(answer.error());
        dcb.reset();
      }
    }
    rails.push_back(std::move(rail));
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
  check.looked = !with.empty() || !without.empty();
  check.summary = check.looked ? fmt::format("PFC or ECN on {}", fabric::join(with, ", "))
                               : "neither `dcb` nor sysfs reports PFC or ECN of a rail";
  return check;
}

}  // namespace hook
