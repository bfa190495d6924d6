// ping_schedule MILLISECONDS [RAILS]: runs rdma-ping's schedule for up to 1,024 ranks against a model of ranks with a
// fake clock, in which each pair of ranks takes MILLISECONDS. Prints a table in Markdown: rounds, the job's time, and
// the time and memory that the referee and the model take together.
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>

#include "init/ping/causes.hpp"
#include "unit/init/ping/fabric_model.hpp"

namespace {

using namespace ping_test;

// Prints the row of one size.
int simulate(unsigned size, unsigned rails, double seconds) {
  Rules rules;
  rules.size = size;
  Faults faults;
  faults.test_seconds = seconds;
  FabricModel model(rules, rails, faults);
  model.run();
  const Outcome& outcome = model.outcome();
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const double cpu = static_cast<double>(usage.ru_utime.tv_sec) + static_cast<double>(usage.ru_utime.tv_usec) / 1e6;
  fmt::print("| {} | {} | {} | {:.1f} | {:.0f} | {:.2f} | {:.1f} |\n", size, rails, rounds_of(size), outcome.seconds,
             test_budget(size, rails, rules), cpu, static_cast<double>(usage.ru_maxrss) / 1024);
  return find_causes(outcome).empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) / 1000 : 0;
  const int rails = argc > 2 ? std::atoi(argv[2]) : 8;
  if (seconds <= 0 || rails < 1 || rails > 32) {
    fmt::print(stderr, "usage: ping_schedule MILLISECONDS [RAILS]\n");
    return 2;
  }
  fmt::print(
      "| ranks | rails | rounds | seconds | budget | CPU, s | memory, MB |\n| --: | --: | --: | --: | --: | --: | --: "
      "|\n");
  std::fflush(stdout);
  for (const unsigned size : {2U, 16U, 128U, 1024U}) {
    // A process of its own, for its own peak of memory.
    const pid_t child = ::fork();
    if (child == 0) std::exit(simulate(size, static_cast<unsigned>(rails), seconds));
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 1;
  }
  return 0;
}
