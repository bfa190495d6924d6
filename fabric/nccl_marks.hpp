// The marks of NCCL's packets, by which switches choose a priority. Pure.
#pragma once

#include <cstdint>
#include <string_view>

namespace fabric {

// Returns the number that NCCL reads from a numeric variable: strtoll() with base 0. Text after the number is ignored,
// other text is 0. Overflow and the empty string yield the default (src/misc/param.cc, 2.21.5 to 2.30.7).
long parse_param(std::string_view value, long fallback);

struct NcclMarks {
  std::uint8_t traffic_class = 0;  // traffic class in the GRH: DSCP in the upper six bits, ECN in the lower two
  std::uint8_t service_level = 0;
};

// Returns the marks that NCCL uses with these values of NCCL_IB_TC and NCCL_IB_SL; empty: not set. NCCL stores both in
// bytes without a check. The default is -1 since 2.26, which a communicator's own setting replaces, and 0 before 2.26
// (src/transport/net_ib/connect.cc, 2.26 to 2.30.7). minus_one_is_default: false before 2.26, where -1 is 255.
NcclMarks nccl_marks(std::string_view traffic_class, std::string_view service_level, bool minus_one_is_default = true);

}  // namespace fabric
