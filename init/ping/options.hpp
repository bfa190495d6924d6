// The command line of rdma-ping.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace init::ping {

inline constexpr int kExitFailure = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoRdma = 69;  // EX_UNAVAILABLE of sysexits.h

enum class Command { kTest, kHelp, kVersion };

struct Options {
  Command command = Command::kTest;
  std::optional<unsigned> rank;
  std::optional<unsigned> size;
  std::optional<std::string> master;  // HOST, HOST:PORT or [IPV6]:PORT
  bool all_rails = false;
  bool all_pairs = false;
  std::uint32_t bytes = 64 << 10;
  bool bandwidth = false;
  double timeout = 30;  // seconds
  bool json = false;
  std::string svg;                    // path of the heat map; empty: none is written
  std::vector<std::string> warnings;  // about RDMA_PING_* variables that are unknown
  char** program = nullptr;           // argv of the command to execute after a good result; nullptr: none
};

// The ends of the names of RDMA_PING_* variables that are no options, separated by spaces.
inline constexpr std::string_view kOtherVariables = "TOKEN";

// Parses the environment, then the command line, which has precedence. Errors are for exit code 2 and name the argument
// or the variable.
base::Result<Options> parse_options(int argc, char** argv, const char* const* environment);

// Returns the text of --help.
std::string help_text();

}  // namespace init::ping
