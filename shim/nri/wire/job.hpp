// What rdma-nri has its worker do, and what that answers, as bytes.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "shim/nri/wire/values.hpp"

namespace shim {

struct Job {
  enum class Kind : int { kGivePod = 1, kGiveContainer, kLeave, kReturnPod, kRecover };
  Kind kind = Kind::kGivePod;
  NriPod pod = {};
  NriContainer container = {};
  std::set<std::string> gone = {};  // kRecover: containers that are known to be gone
};

std::string job_bytes(const Job& job);
fabric::Result<Job> parse_job(std::string_view bytes);

std::string adjustment_bytes(const ContainerAdjustment& adjustment);
fabric::Result<ContainerAdjustment> parse_adjustment(std::string_view bytes);

}  // namespace shim
