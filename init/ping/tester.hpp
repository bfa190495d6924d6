// The part of every rank: opens the rails, makes the tests that rank 0 requests, and returns its verdict.
#pragma once

#include <string>

#include "fabric/result.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/rails.hpp"

namespace init::ping {

// Sends the Hello, and follows rank 0 until its verdict. choice: of the same rank as the Hello. Errors: rank 0 refuses
// this rank, has ended, or sends no verdict within the time that it promised.
fabric::Result<Verdict> follow(Channel& rank0, const Hello& hello, NcclChoice& choice, double welcome_deadline);

}  // namespace init::ping
