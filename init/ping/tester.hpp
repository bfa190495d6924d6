// The part of every rank: opens the rails, makes the tests that rank 0 requests, and returns its verdict.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.hpp"
#include "init/ping/channel.hpp"
#include "init/ping/messages.hpp"
#include "init/ping/nccl_choice.hpp"

namespace init::ping {

// Proves the token to rank 0, and requires the same proof of rank 0. Then joins the job. token: the token of the job.
// deadline: clock_seconds(). Errors: those of Channel, or rank 0 refuses this rank, or does not know the token.
base::Result<Welcome> greet(Channel& rank0, std::string_view token, const Join& join, double deadline);
// Does the same with the relay of this rank, which has joined the job. join: that of the rank.
base::Result<Welcome> greet_relay(Channel& relay, std::string_view token, const Join& join, double deadline);

// Handles a message of rank 0, and answers it. channel: the connection to rank 0 or to the relay. Errors: those of
// Channel, or rank 0 does not keep to the protocol.
using Handler = std::function<base::Result<void>(Channel& channel, const Message& message)>;

// Returns a handler that makes the tests. choice: the choice of NCCL on this rank; it must outlive the handler.
// deadline: clock_seconds(), the end of all waits.
Handler make_tester(NcclChoice& choice, double deadline);

// Returns the end of all waits of a rank as clock_seconds(). longest: its own limit of all waits together in seconds,
// whatever rank 0 sends; messages get 5 s more.
double end_of_waits(const Welcome& welcome, double longest);
// Handles the messages of rank 0 until its verdict. Errors: those of the handler, or rank 0 has ended, or sends no
// verdict until the deadline, clock_seconds().
base::Result<Verdict> follow(Channel& rank0, const Handler& handle, double deadline);

}  // namespace init::ping
