// The part of a rank other than rank 0 between its start and the verdict: it joins, and then tests and reports directly
// or through a relay, or is a relay itself.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "base/result.hpp"
#include "init/log.hpp"
#include "init/ping/tester.hpp"

namespace init::ping {

struct Part {
  std::string host;  // meeting point of the job
  std::uint16_t port = 0;
  std::string token;
  Join join;
  double meeting_seconds = 30;  // how long it waits for its place in the job
  double longest = 0;           // limit of all waits after that in seconds, whatever rank 0 sends
  // Returns the handler of the messages of the tests. deadline: clock_seconds(), the end of all waits.
  std::function<Handler(double deadline)> make_handler;
};

// Takes part in the job. Errors: those of Channel and of the handler, or rank 0 refuses this rank, or the relay ended.
// The hint is empty if the rank did not reach rank 0.
base::Result<Verdict> take_part(const Part& part, const Log& log);

// Ends a child that tests. The kernel may hold it in a call of a verb, so there is a limit.
void end_child(pid_t child);

}  // namespace init::ping
