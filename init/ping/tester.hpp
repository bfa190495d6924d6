// The part of every rank: opens the rails, makes the tests that rank 0 requests, and returns its verdict.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/rails.hpp"

namespace init::ping {

// Sends the Hello and returns the answer of rank 0. deadline: clock_seconds(). Errors: those of Channel, or rank 0
// refuses this rank.
fabric::Result<Welcome> greet(Channel& rank0, const Hello& hello, double deadline);

// Makes the tests that rank 0 requests, until its verdict. choice: of the same rank as the Hello. Errors: rank 0 has
// ended, or sends no verdict within the time that it promised.
fabric::Result<Verdict> follow(Channel& rank0, const Welcome& welcome, NcclChoice& choice);

}  // namespace init::ping
