// Programs that are started in turn and timed from the spawn to their end, and how every benchmark says what it
// measured.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fabric/result.hpp"

namespace bench {

struct Contestant {
  std::vector<std::string> argv;
  unsigned runs = 0;            // how often at most
  double seconds_at_most = 60;  // no further run once this much time went into it
  std::vector<double> seconds = {};
};

// Every run of each, spread evenly over the whole contest, so that a slow moment of the machine meets all. The programs
// get this environment and nothing else, and no standard output. Errors: a program that cannot run or fails.
fabric::Result<void> run_contest(std::vector<Contestant>& contestants, const std::vector<std::string>& environment);

// What a program prints. Errors: it cannot run or fails.
fabric::Result<std::string> output_of(const std::vector<std::string>& argv,
                                      const std::vector<std::string>& environment);

// Its path, where Debian installs programs; empty: it is not here.
std::string program(const std::string& name);

// One bar of a chart: in this scene, this contestant.
struct Measurement {
  std::string scene;
  std::string contestant;
  std::vector<double> seconds;
  std::vector<std::pair<std::string, std::vector<double>>> more = {};  // other figures, by name and unit
};

// A line of JSON on standard output, which report.py reads; nothing for who has not run.
void print(const Measurement& measurement);

}  // namespace bench
