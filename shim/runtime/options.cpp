#include "shim/runtime/options.hpp"

#include <algorithm>
#include <array>

namespace shim {
namespace {

constexpr Takes kValue = Takes::kValue;

constexpr std::array kGlobal = {
    OptionSpec{"debug"},
    OptionSpec{"log", 0, kValue, Field::kLog},
    OptionSpec{"log-format", 0, kValue, Field::kLogFormat},
    OptionSpec{"log-level", 0, kValue},  // crun 1.16
    OptionSpec{"root", 0, kValue, Field::kRoot},
    OptionSpec{"rootless", 0, kValue},
    OptionSpec{"criu", 0, kValue},  // runc up to 1.3
    OptionSpec{"systemd-cgroup"},
    OptionSpec{"cgroup-manager", 0, kValue},  // crun
    OptionSpec{"help", 'h', Takes::kNothing, Field::kHelp},
    OptionSpec{"usage", '?', Takes::kNothing, Field::kHelp},
    OptionSpec{"version", 'v', Takes::kNothing, Field::kVersion},
    OptionSpec{"", 'V', Takes::kNothing, Field::kVersion},
};

constexpr std::array kStart = {
    OptionSpec{"bundle", 'b', kValue, Field::kBundle},
    OptionSpec{"config", 'f', kValue, Field::kConfig},  // crun; runc after 1.4, without the letter
    OptionSpec{"console-socket", 0, kValue},
    OptionSpec{"pidfd-socket", 0, kValue},  // runc 1.2
    OptionSpec{"pid-file", 0, kValue},
    OptionSpec{"preserve-fds", 0, kValue},
    OptionSpec{"detach", 'd'},
    OptionSpec{"keep"},
    OptionSpec{"no-pivot"},
    OptionSpec{"no-new-keyring"},
    OptionSpec{"no-subreaper"},
    OptionSpec{"help", 'h', Takes::kNothing, Field::kHelp},
    OptionSpec{"usage", '?', Takes::kNothing, Field::kHelp},
};

constexpr std::array kExec = {
    OptionSpec{"process", 'p', kValue, Field::kProcess},
    OptionSpec{"console-socket", 0, kValue},
    OptionSpec{"pidfd-socket", 0, kValue},
    OptionSpec{"pid-file", 0, kValue},
    OptionSpec{"preserve-fds", 0, kValue},
    OptionSpec{"cwd", 0, kValue},
    OptionSpec{"env", 'e', kValue},
    OptionSpec{"user", 'u', kValue},
    OptionSpec{"additional-gids", 'g', kValue},
    OptionSpec{"cap", 'c', kValue},
    OptionSpec{"cgroup", 0, kValue},
    OptionSpec{"process-label", 0, kValue},
    OptionSpec{"apparmor", 0, kValue},
    OptionSpec{"tty", 't', Takes::kOptional},
    OptionSpec{"detach", 'd'},
    OptionSpec{"no-new-privs"},
    OptionSpec{"no-subreaper"},
    OptionSpec{"ignore-paused"},
    OptionSpec{"help", 'h', Takes::kNothing, Field::kHelp},
    OptionSpec{"usage", '?', Takes::kNothing, Field::kHelp},
};

constexpr std::array<std::string_view, 20> kCommands = {
    "checkpoint", "create", "delete",  "events", "exec", "features", "kill",  "list",   "mounts", "pause",
    "ps",         "resume", "restore", "run",    "spec", "start",    "state", "update", "help",   "init"};

}  // namespace

std::span<const OptionSpec> global_options() {
  return kGlobal;
}

std::span<const OptionSpec> start_options() {
  return kStart;
}

std::span<const OptionSpec> exec_options() {
  return kExec;
}

bool is_command(std::string_view name) {
  return std::find(kCommands.begin(), kCommands.end(), name) != kCommands.end();
}

}  // namespace shim
