// Finds the program of an engine on a node: from its processes, its systemd unit and the usual directories.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

struct EngineProcess {
  std::string name;  // its comm, such as "containerd"
  int pid = 0;
  std::string directory;      // ROOT/proc/PID
  bool in_container = false;  // it is in a container: its PID namespace is not the node's
};

// Returns the processes, also those in containers, whose name (/proc/PID/comm) is in `names`, in the order of /proc.
// root: prefix of the node's /proc.
std::vector<EngineProcess> find_processes(const std::string& root, const std::vector<std::string_view>& names);

// Returns the start time of a process in clock ticks since the boot; nullopt if the process has ended.
std::optional<std::uint64_t> start_ticks(const EngineProcess& process);

// Returns the text of a systemd unit followed by its drop-ins, in the order of systemd.unit(5); an empty text if there
// is no such unit.
std::string read_unit(const std::string& root, const std::string& unit);
// Returns the program in the last ExecStart= of a unit's text (systemd.service(5)). Returns nullopt if the text has no
// ExecStart= or the path of the program is not absolute. Pure.
std::optional<std::string> exec_start(std::string_view unit);

// Returns the path of an engine's program on the node; nullopt if the engine is not installed. Searches in this order:
// the programs of running processes of root outside of containers, the unit NAME.service, find_program().
std::optional<std::string> find_engine_program(const std::string& root, const std::string& name);

}  // namespace hook
