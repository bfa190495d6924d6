#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "fabric/result.hpp"

namespace trainer {

struct Options {
  std::string listen_port;   // --listen
  std::string connect_host;  // --connect HOST:PORT
  std::string connect_port;
  bool rts_only = false;
  bool help = false;
  std::size_t memory = 64U << 20U;
  std::uint32_t message = 64U << 10U;
  std::uint32_t rounds = 64;
  int timeout = 60;
};

extern const char* const kUsage;

// An error is a misuse of the command line.
fabric::Result<Options> parse_options(std::span<char*> arguments);

}  // namespace trainer
