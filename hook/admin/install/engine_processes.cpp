#include "hook/admin/install/engine_processes.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.hpp"
#include "base/process/identity.hpp"
#include "base/text.hpp"
#include "hook/admin/install/node_files.hpp"

namespace hook {
namespace {

// Returns the text of a file of /proc; empty if it cannot be read, or if it is longer than any command line.
std::string text_of(const std::string& path) {
  constexpr std::size_t kLongestText = 1 << 20;
  return base::value_or(base::read_file(path, kLongestText), std::string());
}

// Returns true if the process is in a PID namespace below the node's. The line NSpid in /proc/PID/status has the PID of
// the process in each of its PID namespaces (proc_pid_status(5)), so it has two or more numbers then.
bool is_in_container(std::string_view status) {
  constexpr std::string_view kName = "NSpid:";
  for (const std::string_view line : base::split(status, '\n'))
    if (line.starts_with(kName))
      return base::trim(line.substr(kName.size())).find_first_of(" \t") != std::string_view::npos;
  return false;
}

// The kernel appends this text to the path of a program that was replaced or removed (proc_pid_exe(5)).
constexpr std::string_view kDeleted = " (deleted)";

// Returns the path of the program that the process executes. Returns nullopt if the process is in a container, does not
// belong to root, or has another name than its program. The checks are needed because any user can start a process with
// the name `containerd`.
std::optional<std::string> program_of(const std::string& root, const EngineProcess& process) {
  struct stat owner {};
  if (process.in_container || ::stat(process.directory.c_str(), &owner) != 0 || owner.st_uid != 0) return std::nullopt;
  auto program = base::read_link(AT_FDCWD, (process.directory + "/exe").c_str());
  if (!program) return std::nullopt;
  if (program->ends_with(kDeleted)) program->resize(program->size() - kDeleted.size());
  if (!program->ends_with("/" + process.name) || !node_has(root, *program, X_OK)) return std::nullopt;
  return program;
}

}  // namespace

std::vector<EngineProcess> find_processes(const std::string& root, const std::vector<std::string_view>& names) {
  std::vector<EngineProcess> found;
  for (const std::string& entry : names_in(root, "/proc")) {
    const auto pid = base::parse_number<int>(entry);
    if (!pid) continue;
    std::string directory = fmt::format("{}/proc/{}", root, entry);
    const std::string comm = text_of(directory + "/comm");
    const std::string_view name = base::trim(comm);
    if (std::ranges::find(names, name) == names.end()) continue;
    const bool inside = is_in_container(text_of(directory + "/status"));
    found.push_back({std::string(name), *pid, std::move(directory), inside});
  }
  return found;
}

std::optional<std::uint64_t> start_ticks(const EngineProcess& process) {
  return start_time_in(text_of(process.directory + "/stat"));
}

std::string unit_of(const std::string& program) {
  return (program == "dockerd" ? "docker" : program == "slurm" ? "slurmd" : program) + ".service";
}

EngineStart read_engine_start(const std::string& root, const std::string& program) {
  const std::string name = program.substr(program.rfind('/') + 1);
  const Unit unit = read_unit(root, unit_of(name));
  EngineStart start;
  start.variables = read_unit_variables(root, unit);
  if (auto command = exec_start(unit, start.variables)) {
    start.command = *std::move(command);
    if (start.command.words.front().ends_with("/" + name)) return start;
  }
  // There is no unit, or it starts a script that executes the engine. Any user can start a process of this name.
  for (const EngineProcess& process : find_processes(root, {name})) {
    if (program_of(root, process) != program) continue;
    start.command.words.clear();
    const std::string line = text_of(process.directory + "/cmdline");
    for (const std::string_view word : base::split(line, '\0'))
      start.command.words.emplace_back(word);
    start.command.file = fmt::format("/proc/{}/cmdline", process.pid);
    start.command.line = 1;
    break;
  }
  return start;
}

std::optional<std::string> find_engine_program(const std::string& root, const std::string& name) {
  // The program of a running engine is preferred, because several programs of this name can be installed.
  for (const EngineProcess& process : find_processes(root, {name}))
    if (auto program = program_of(root, process)) return program;
  const auto command = exec_start(read_unit(root, unit_of(name)), {});
  if (command && command->words.front().ends_with("/" + name) && node_has(root, command->words.front(), X_OK))
    return command->words.front();
  return find_program(root, name);
}

}  // namespace hook
