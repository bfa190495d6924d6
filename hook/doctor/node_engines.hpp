// The node's container engines as doctor sees them: what is installed and running, and what of it names our programs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/doctor/checks.hpp"
#include "hook/install/ask_engine.hpp"
#include "hook/install/record.hpp"

namespace hook {

struct RunningProcess {
  std::string name;  // "containerd", "crio", "dockerd", "rdma-nri"
  int pid = 0;
  std::optional<std::uint64_t> memlock;  // hard RLIMIT_MEMLOCK, bytes; UINT64_MAX: unlimited; nullopt: not known
  std::optional<std::int64_t> started;   // seconds since the epoch
};

// A file of an engine's that names programs of ours, or that install wrote.
struct EngineFile {
  std::string path;
  Engine engine = Engine::kContainerd;
  bool read_at_start = false;  // the engine reads it when it starts, and then no more
  std::int64_t changed = 0;    // mtime, seconds since the epoch
  std::vector<std::string> programs;
};

struct OurProgram {
  std::string path;
  std::string named_in;
  int error = 0;                             // errno that keeps it from being executed; 0: none
  std::string version;                       // "rdma-hook 0.1.0"; empty: it does not say
  std::optional<fabric::Error> unsafe = {};  // others than root can change it: it was not executed
};

struct RefusedEngine {
  std::string program;
  std::string why;     // it would not start again, or it was not asked; printable
  std::string remedy;  // empty: not known
};

struct EngineLimit {
  std::string unit;  // "containerd.service"
  std::uint64_t memlock = 0;
};

struct NodeEngines {
  fabric::Result<std::vector<FoundEngine>> found = std::vector<FoundEngine>();
  std::vector<RefusedEngine> refused;
  fabric::Result<std::optional<InstallRecord>> record = std::optional<InstallRecord>();
  std::vector<std::pair<std::string, EditState>> changed;  // files of the record that are not as installed
  std::vector<EngineFile> files;
  std::vector<std::string> unread;  // files that could not be read, each with why
  std::vector<OurProgram> programs;
  std::vector<RunningProcess> processes;
  std::vector<EngineLimit> units;
  std::vector<fabric::Error> unasked;      // why other programs were not asked
  std::optional<bool> docker_has_runtime;  // nullopt: not asked, or no answer
};

// root: the node's. programs: of ours that configuration names (config.json's `runtime`), with the file.
NodeEngines read_node_engines(const std::string& root);

// Pure: "engine", "programs", "memlock".
std::vector<Check> check_engines(const NodeEngines& engines);

// The paths of programs of ours in a text, each once: "/usr/local/bin/rdma-hook". Lines that begin with # are none.
std::vector<std::string> our_programs_in(std::string_view text);
// The last LimitMEMLOCK= of a unit's text, in bytes (systemd.exec(5)): "infinity", "64K", "8M:16M" (soft and hard: the
// hard one). nullopt: none, or one that cannot be read.
std::optional<std::uint64_t> unit_memlock(std::string_view text);

}  // namespace hook
