// Finds the program of an engine on a node: from its processes, its systemd unit and the usual directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hook/admin/install/unit.hpp"

namespace hook {

struct EngineProcess {
  std::string name;  // comm of the process, such as "containerd"
  int pid = 0;
  std::string directory;      // ROOT/proc/PID
  bool in_container = false;  // true: the process is in a container: its PID namespace is not the node's
};

// Returns the processes, also those in containers, whose name (/proc/PID/comm) is in `names`, in the order of /proc.
// root: prefix of the node's /proc.
std::vector<EngineProcess> find_processes(const std::string& root, const std::vector<std::string_view>& names);

// Returns the start time of a process in clock ticks since the boot; nullopt if the process has ended.
std::optional<std::uint64_t> start_ticks(const EngineProcess& process);

// Returns the name of the systemd unit that starts an engine: "docker.service" for "dockerd" and "docker",
// "slurmd.service" for "slurmd" and "slurm".
std::string unit_of(const std::string& program);

// The command that starts an engine, and the variables of its unit.
struct EngineStart {
  UnitCommand command;  // has no words if neither a unit nor a process of the engine shows the command
  UnitVariables variables;
};
// Reads how the node starts an engine's program, such as "/usr/bin/dockerd": by its unit, or, if the node has no such
// unit or the unit starts another program such as a shell, by the command line of its process. Only a process of root
// that executes the engine's program counts.
EngineStart read_engine_start(const std::string& root, const std::string& program);

// Returns the path of an engine's program on the node; nullopt if the engine is not installed. Searches in this order:
// the programs of running processes of root outside of containers, its unit, find_program().
std::optional<std::string> find_engine_program(const std::string& root, const std::string& name);

}  // namespace hook
