// The part of every rank: opens the rails, makes the tests that rank 0 requests, and returns its verdict.
#pragma once

#include <string_view>

#include "base/result.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/nccl_choice.hpp"

namespace init::ping {

// Proves the token to rank 0, and requires the same proof of rank 0. Then joins the job. token: the token of the job.
// deadline: clock_seconds(). Errors: those of Channel, or rank 0 refuses this rank, or does not know the token.
base::Result<Welcome> greet(Channel& rank0, std::string_view token, const Join& join, double deadline);

// Makes the tests that rank 0 requests, until its verdict. choice: the choice of NCCL on this rank. longest: limit of
// all waits together in seconds, whatever rank 0 sends; messages get 5 s more. Errors: rank 0 has ended, or sends no
// verdict within the limit, or within the time that it promised.
base::Result<Verdict> follow(Channel& rank0, const Welcome& welcome, NcclChoice& choice, double longest);

}  // namespace init::ping
