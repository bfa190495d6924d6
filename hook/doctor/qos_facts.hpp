// Flow control of RoCE rails, as far as `dcb` of iproute2 and sysfs show it. Hints: the switches have the last word.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"
#include "hook/doctor/findings.hpp"

namespace hook {

struct RailQos {
  std::string netdev;
  std::optional<std::vector<unsigned>> pfc;  // priorities with PFC; nullopt: not known
  std::optional<bool> ecn;  // on some priority, as mlx5 of MLNX_OFED has it in sysfs; nullopt: not known
};

// The priorities that are on, of "prio-pfc 0:off 3:on" in what `dcb pfc show` prints; nullopt: it says nothing.
std::optional<std::vector<unsigned>> parse_dcb_pfc(std::string_view text);

// netdevs: of the RoCE rails. root: in front of /sys; `dcb` is asked on this node alone. unasked: gets an error if it
// cannot be executed.
std::vector<RailQos> read_qos(const std::string& root, const std::vector<std::string>& netdevs,
                              std::vector<fabric::Error>& unasked);

// Pure.
Check check_qos(const std::vector<RailQos>& rails);

}  // namespace hook
