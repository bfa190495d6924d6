// Which program of an engine a node runs: by its processes, by its systemd unit, and by where programs are.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hook {

struct EngineProcess {
  std::string name;  // its comm: "containerd"
  int pid = 0;
  std::string directory;      // of /proc, with the root in front
  bool in_container = false;  // it has a number in another PID namespace, too
};

// The processes of the node whose comm is one of these names, in the order of /proc. root: prefix of the node's /proc.
std::vector<EngineProcess> find_processes(const std::string& root, const std::vector<std::string_view>& names);

// The unit with its drop-ins, as systemd puts them together (systemd.unit(5)); empty: there is none.
std::string read_unit(const std::string& root, const std::string& unit);
// The program of the last ExecStart= of a unit's text (systemd.service(5)). nullopt: none, or no absolute path. Pure.
std::optional<std::string> exec_start(std::string_view unit);

// The program of an engine, as a path on the node: that of a process of root's which runs it outside of containers,
// else that of the unit NAME.service, else as find_program(). nullopt: the engine is not on this node.
std::optional<std::string> find_engine_program(const std::string& root, const std::string& name);

}  // namespace hook
