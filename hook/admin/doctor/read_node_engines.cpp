#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/result.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"
#include "hook/admin/doctor/checks.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/admin/install/unit.hpp"

namespace hook {
namespace {

constexpr std::size_t kLongestFile = 4 << 20;

struct EnginePlace {
  Engine engine;
  const char* path;    // a file, or a directory
  const char* suffix;  // end of the file names in the directory `path`; nullptr: `path` is a file
  bool read_at_start;
};
constexpr EnginePlace kPlaces[] = {
    {Engine::kContainerd, "/etc/containerd/config.toml", nullptr, true},
    {Engine::kContainerd, "/etc/containerd/conf.d", ".toml", true},
    {Engine::kContainerd, "/etc/containerd", ".json", true},  // base specifications of containers
    {Engine::kCrio, "/etc/crio/crio.conf", nullptr, true},
    {Engine::kCrio, "/etc/crio/crio.conf.d", ".conf", true},
    {Engine::kDocker, "/etc/docker/daemon.json", nullptr, false},  // SIGHUP makes dockerd read it again
    {Engine::kPodman, "/etc/containers/containers.conf", nullptr, false},
    {Engine::kPodman, "/etc/containers/containers.conf.d", ".conf", false},
    {Engine::kPodman, "/etc/containers/oci/hooks.d", ".json", false},
    {Engine::kPodman, "/usr/share/containers/oci/hooks.d", ".json", false},
    {Engine::kPodman, "/etc/cdi", ".json", false},
    {Engine::kPodman, "/var/run/cdi", ".json", false}};

constexpr const char* kPlugins = "/opt/nri/plugins";

// Returns the text of a file; nullopt if it cannot be read. Adds a message to `unread` unless the file is missing.
std::optional<std::string> read_text(const std::string& path, std::vector<std::string>* unread = nullptr) {
  auto text = base::read_file(path, kLongestFile);
  if (auto* found = std::get_if<std::string>(&text)) return std::move(*found);
  const int code = std::get<base::Unreadable>(text).code;
  if (unread && !base::is_absent(code)) unread->push_back(sys_error(code, "cannot read `{}`", path).message);
  return std::nullopt;
}

// Returns EngineFile::written of a file.
std::optional<std::uint64_t> write_ticks(const NodeEngines& engines, const std::string& path) {
  if (!engines.record || !*engines.record) return std::nullopt;
  const InstallRecord& record = **engines.record;
  const bool has_text =
      std::ranges::find(record.edits, path, &FileEdit::path) != record.edits.end() &&
      std::ranges::find(engines.changed, path, [](const auto& one) { return one.first; }) == engines.changed.end();
  const auto now = write_time_now();
  if (!has_text || !record.written || !now) return std::nullopt;
  return record.written->boot == now->boot ? record.written->ticks : 0;
}

// Adds a file if it names programs of rdma-init.
// always: adds it even if it names none, because install wrote it.
void add_file(const std::string& root, const EnginePlace& place, const std::string& path, bool always,
              NodeEngines& engines) {
  const auto is_it = [&](const EngineFile& file) { return file.path == path; };
  if (std::ranges::any_of(engines.files, is_it)) return;
  const auto text = read_text(root + path, &engines.unread);
  struct stat seen {};
  if (!text || ::stat((root + path).c_str(), &seen) != 0) return;
  EngineFile file{path,          place.engine,           place.read_at_start,
                  seen.st_mtime, our_programs_in(*text), write_ticks(engines, path)};
  if (always || !file.programs.empty()) engines.files.push_back(std::move(file));
}

// Reads the files of all engines that can name programs of rdma-init, because a node can have several engines.
void read_files(const std::string& root, NodeEngines& engines) {
  std::set<std::string> installed;
  if (engines.record && *engines.record)
    for (const FileEdit& edit : (*engines.record)->edits)
      installed.insert(edit.path);
  for (const EnginePlace& place : kPlaces) {
    const std::string path = place.path;
    if (!place.suffix) {
      add_file(root, place, path, installed.contains(path), engines);
      continue;
    }
    for (const std::string& name : names_in(root, path)) {
      const std::string file = fmt::format("{}/{}", path, name);
      if (name.ends_with(place.suffix)) add_file(root, place, file, installed.contains(file), engines);
    }
  }
  // containerd and CRI-O start each file of this directory as an NRI plugin. The file is a program or a link to one.
  for (const std::string& name : names_in(root, kPlugins)) {
    if (!name.ends_with("-rdma") && !name.ends_with("-rdma-nri")) continue;
    const std::string path = std::string(kPlugins) + "/" + name;
    engines.files.push_back({path, Engine::kContainerd, false, 0, {path}});
  }
}

// Sets the version of a program, or `unsafe` if a user other than root can change the program. After any other failure
// the version is empty, which check_programs() reports. rdma-runtime prints its version and then fails if it finds no
// OCI runtime to execute: its version is used.
void query_version(const std::string& root, OurProgram& program) {
  auto answer = query_program(root, {program.path, "--version"});
  if (answer && (answer->done || answer->text.starts_with("rdma-runtime "))) program.version = base::trim(answer->text);
  if (!answer && answer.error().code == EACCES) program.unsafe = std::move(answer).error();
}

// Reads each program once, even if several files name it. A program is executed only if it exists and is executable.
void read_programs(const std::string& root, NodeEngines& engines) {
  for (const EngineFile& file : engines.files) {
    for (const std::string& path : file.programs) {
      const auto is_it = [&](const OurProgram& program) { return program.path == path; };
      if (std::ranges::any_of(engines.programs, is_it)) continue;
      OurProgram program{path, file.path, 0, {}};
      struct stat seen {};
      if (::stat((root + path).c_str(), &seen) != 0) {
        program.error = errno;
      } else if (!S_ISREG(seen.st_mode) || ::access((root + path).c_str(), X_OK) != 0) {
        program.error = EACCES;
      } else {
        query_version(root, program);
      }
      engines.programs.push_back(std::move(program));
    }
  }
}

// Returns the time of the node's boot in seconds since the epoch; nullopt if it is unknown.
std::optional<std::int64_t> boot_time(const std::string& root) {
  const auto text = read_text(root + "/proc/stat");
  if (!text) return std::nullopt;
  for (const std::string_view line : base::split(*text, '\n'))
    if (line.starts_with("btime ")) return base::parse_number<std::int64_t>(base::trim(line.substr(6)));
  return std::nullopt;
}

void read_processes(const std::string& root, NodeEngines& engines) {
  const auto boot = boot_time(root);
  for (const EngineProcess& found : find_processes(root, {"containerd", "crio", "dockerd", "rdma-dra", "rdma-nri"})) {
    // An engine in a container, such as Docker in Docker, is not an engine of the node. rdma-dra and rdma-nri count
    // also in a container, because they can run in a pod.
    if (found.in_container && !found.name.starts_with("rdma-")) continue;
    RunningProcess process{found.name, found.pid, {}};
    const auto limits = read_text(found.directory + "/limits");
    if (const auto memlock = limits ? memlock_in(*limits) : std::nullopt) process.memlock = memlock->hard;
    process.start_ticks = start_ticks(found);
    if (process.start_ticks && boot)
      process.started = *boot + static_cast<std::int64_t>(*process.start_ticks) / ::sysconf(_SC_CLK_TCK);
    engines.processes.push_back(std::move(process));
  }
}

// Returns whether a process with this name runs.
bool runs(const NodeEngines& engines, std::string_view name) {
  return std::ranges::any_of(engines.processes, [&](const RunningProcess& process) { return process.name == name; });
}

// Returns whether the running dockerd has loaded the runtime `rdma`. daemon.json does not prove it, because the file
// can have changed after dockerd read it. Returns nullopt if the query of dockerd fails.
std::optional<bool> query_docker(const std::string& root, NodeEngines& engines) {
  const auto names_us = [](const EngineFile& file) { return file.engine == Engine::kDocker && !file.programs.empty(); };
  const auto file = std::ranges::find_if(engines.files, names_us);
  const auto docker = find_program(root, "docker");
  if (file == engines.files.end() || !docker || !runs(engines, "dockerd")) return std::nullopt;
  const auto answer = query_program(root, {*docker, "info", "--format", "{{json .Runtimes}}"});
  if (!answer) engines.unasked.push_back(answer.error());
  if (!answer || !answer->done) return std::nullopt;
  return answer->text.find(file->programs.front()) != std::string::npos;
}

}  // namespace

std::vector<std::string> our_programs_in(std::string_view text) {
  constexpr std::string_view kNames[] = {"rdma-hook", "rdma-runtime", "rdma-nri"};
  // The characters that separate paths in JSON, TOML and hook files.
  constexpr std::string_view kEnds = "\"' \t=,[]{}()";
  std::vector<std::string> programs;
  for (const std::string_view line : base::split(text, '\n')) {
    if (base::trim(line).starts_with('#')) continue;
    for (std::size_t at = 0; (at = line.find('/', at)) != std::string_view::npos;) {
      const std::size_t end = std::min(line.find_first_of(kEnds, at), line.size());
      const std::string_view path = line.substr(at, end - at);
      const bool begins = at == 0 || kEnds.find(line[at - 1]) != std::string_view::npos;
      const std::string_view name = path.substr(path.rfind('/') + 1);
      const bool ours = std::ranges::find(kNames, name) != std::end(kNames);
      if (begins && ours && std::ranges::find(programs, path) == programs.end()) programs.emplace_back(path);
      at = end;
    }
  }
  return programs;
}

std::optional<Rlimit> memlock_in(std::string_view limits) {
  constexpr std::string_view kName = "Max locked memory";
  const auto bytes = [](std::string_view word) {
    return word == "unlimited" ? std::optional(UINT64_MAX) : base::parse_number<std::uint64_t>(word);
  };
  // The line is "Max locked memory         8388608              8388608              bytes".
  for (const std::string_view line : base::split(limits, '\n')) {
    if (!line.starts_with(kName)) continue;
    const std::string_view soft = base::trim(line.substr(kName.size()));
    const std::string_view hard = base::trim(soft.substr(std::min(soft.size(), soft.find(' '))));
    const auto one = bytes(soft.substr(0, soft.find(' ')));
    const auto other = bytes(hard.substr(0, hard.find(' ')));
    return one && other ? std::optional(Rlimit{*one, *other}) : std::nullopt;
  }
  return std::nullopt;
}

NodeEngines read_node_engines(const std::string& root) {
  NodeEngines engines;
  engines.has_slurm = find_engine_program(root, "slurmd").has_value();
  engines.found = find_engines(root);
  if (engines.found && !engines.found->empty() && ::geteuid() != 0) {
    // An engine that another user starts cannot read the files of root, and Podman then reads that user's own files:
    // its failure is no fault of the node.
    engines.unasked.push_back({"the configuration of the engines is not checked: only root can read it", EPERM,
                               "run doctor as root on the node itself"});
  } else if (engines.found) {
    for (FoundEngine engine : *engines.found) {
      if (engine.trouble.empty()) {
        const auto read = check_engine_config(root, engine, "cannot load its configuration");
        if (read) {
          // containerd 1.6 does not have the member, and containerd 2 sets it.
          if (engine.engine == Engine::kContainerd && engine.major == 1)
            engines.without_cdi = read->find("enable_cdi = true") == std::string::npos;
          continue;
        }
        engine.trouble = read.error().message;
        engine.remedy = base::remedy_of(read.error());
      }
      engines.refused.push_back(std::move(engine));
    }
  }
  engines.record = read_install_record(root);
  if (engines.record && *engines.record) {
    for (const FileEdit& edit : (*engines.record)->edits) {
      const auto state = state_of_edit(root, edit);
      if (!state) engines.unread.push_back(state.error().message);
      if (state && *state != EditState::kInstalled) engines.changed.emplace_back(edit.path, *state);
    }
  }
  read_files(root, engines);
  read_programs(root, engines);
  read_processes(root, engines);
  for (const char* unit : {"containerd.service", "crio.service", "docker.service"})
    if (const auto limit = unit_memlock(read_unit(root, unit))) engines.unit_memlocks.emplace(unit, *limit);
  engines.docker_has_runtime = query_docker(root, engines);
  return engines;
}

}  // namespace hook
