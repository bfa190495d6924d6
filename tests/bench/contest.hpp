// Programs that are started in turn and timed from the spawn to their end.
#pragma once

#include <optional>
#include <string>
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

struct Figure {
  double median = 0;  // seconds
  double minimum = 0;
  std::size_t runs = 0;
};
// nullopt: it has not run.
std::optional<Figure> figure_of(std::vector<double> seconds);

}  // namespace bench
