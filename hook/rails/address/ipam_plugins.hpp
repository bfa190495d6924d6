// Runs programs side by side, each bounded in time and output. In the helper only; internal to hook/rails/address.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "hook/rails/address/ipam.hpp"

namespace hook {

// What became of one plugin.
struct PluginEnd {
  std::string refusal;  // why it was not run, or not to its end; empty: it ended by itself
  std::string hint;
  int code = 0;    // errno of that
  int status = 0;  // as of wait(2)
  std::string out;
  std::string err;  // its beginning
};

// All at once. Ends the process if the channel does. SIGCHLD has to be blocked and at its default.
std::vector<PluginEnd> run_plugins(const std::vector<IpamCall>& calls, const std::vector<IpamProgram>& programs,
                                   int timeout_ms, int channel);
// Milliseconds of CLOCK_MONOTONIC.
long monotonic_ms();

}  // namespace hook
