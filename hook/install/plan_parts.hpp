// What the plans of all engines share.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "hook/install/plan_install.hpp"

namespace hook {

// Adds a file that is all ours. Errors: another one is there.
fabric::Result<void> add_own_file(InstallPlan& plan, const ReadNodeFile& read, const std::string& path,
                                  const std::string& text);

// The first line of a file or block of ours.
inline constexpr const char* kOurs =
    "# Written by `rdma-hook install`; `rdma-hook install --uninstall` takes it away.\n";

bool is_nvidia_runtime(std::string_view program);

// A node whose pods have their GPUs by another runtime than runc: rdma-runtime becomes that one, or they lose them.
fabric::Result<void> put_behind(InstallPlan& plan, const EngineFacts& facts, const ReadNodeFile& read,
                                const std::string& program);

fabric::Result<void> plan_containerd(InstallPlan& plan, const EngineFacts& facts, const ReadNodeFile& read);

}  // namespace hook
