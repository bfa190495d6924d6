// What `rdma-hook install` would write: facts of the node's engine in, whole files out. Pure.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/install/plan_containerd.hpp"
#include "hook/install/plan_parts.hpp"

namespace hook {

// The files that a plan may depend on: facts.files.
std::vector<std::string> plan_files(const EngineFacts& facts);

// Errors: a file that could not be read; a setting that is no UTF-8; a file that is no JSON object (Docker); a file, an
// `imports` or a runtime `rdma` that somebody else wrote, with what to merge by hand; a way that the engine does not
// have.
fabric::Result<InstallPlan> plan_install(const EngineFacts& facts);

}  // namespace hook
