// Runs a program to its end, with its input and both outputs.
#pragma once

#include <string>
#include <vector>

namespace test_support {

struct Command {
  std::vector<std::string> argv;         // argv[0] is the path
  std::vector<std::string> environment;  // "NAME=value": the whole environment, no variable is inherited
  std::string input;                     // its stdin; written while the outputs are read
  // Ends a program that hangs, so that the other tests still run. Long enough for every program that ends by itself.
  int timeout_seconds = 60;
};

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;
  std::string out;
  std::string err;
};

Outcome run(const Command& command);

}  // namespace test_support
