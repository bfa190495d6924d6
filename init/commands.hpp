// What each form of rdma-init does: parsed options in, exit code out.
#pragma once

#include "init/options.hpp"

namespace init {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitRefused = 78;  // EX_CONFIG of sysexits.h: --require or --strict not met

// Runs options.command. kExec returns only if the trainer could not be executed, or with --reap when it has ended.
int run_command(const Options& options, char* const* environment);

}  // namespace init
