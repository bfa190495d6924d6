// The options of the OCI runtimes that rdma-runtime stands in front of: runc 1.1 to 1.4 and its development branch
// (urfave/cli), crun 1.8 to 1.29 (argp). One table for both, because they agree wherever both have an option.
#pragma once

#include <span>
#include <string_view>

namespace shim {

enum class Takes {
  kNothing,
  kValue,     // `--x V` or `--x=V`
  kOptional,  // only `--x=V` or glued to the letter: crun's `--tty`
};

// What rdma-runtime wants to know.
enum class Field { kNone, kRoot, kLog, kLogFormat, kBundle, kConfig, kProcess, kHelp, kVersion };

struct OptionSpec {
  std::string_view name;  // empty: only the letter
  char letter = 0;        // 0: none
  Takes takes = Takes::kNothing;
  Field field = Field::kNone;
};

// In front of the command.
std::span<const OptionSpec> global_options();
// Of `create` and `run`.
std::span<const OptionSpec> start_options();
// Of `exec`.
std::span<const OptionSpec> exec_options();

// A command of one of the runtimes.
bool is_command(std::string_view name);

}  // namespace shim
