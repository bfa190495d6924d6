#include <algorithm>
#include <ctime>

#include "base/result.hpp"
#include "base/text.hpp"
#include "hook/admin/doctor/checks.hpp"
#include "hook/admin/install/distribution.hpp"
#include "hook/admin/install/plan.hpp"
#include "hook/apply/memlock.hpp"

namespace hook {
namespace {

constexpr const char* kRunInstall = "run `rdma-hook install`";

// The oldest version of each engine that was tested with rdma-init.
struct Tried {
  Engine engine;
  int major;
  int minor;
};
constexpr Tried kOldestTried[] = {
    {Engine::kContainerd, 1, 6}, {Engine::kCrio, 1, 34}, {Engine::kDocker, 20, 10}, {Engine::kPodman, 4, 3}};

// Podman is missing in this list because it has no daemon.
constexpr Word<Engine> kProcesses[] = {
    {"containerd", Engine::kContainerd}, {"crio", Engine::kCrio}, {"dockerd", Engine::kDocker}};

// Returns the first process with this name; nullptr if none runs.
const RunningProcess* find_process(const NodeEngines& engines, std::string_view name) {
  const auto found = std::ranges::find(engines.processes, name, &RunningProcess::name);
  return found == engines.processes.end() ? nullptr : &*found;
}

// Returns local time, which the node's logs also use.
std::string clock_text(std::int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  char text[32] = "";
  ::localtime_r(&time, &parts);
  std::strftime(text, sizeof text, "%F %T", &parts);
  return text;
}

// Returns whether an install record, a file of an engine or a running rdma-nri connects an engine with rdma-init.
bool is_set_up(const NodeEngines& engines) {
  return (engines.record && *engines.record) || !engines.files.empty() || find_process(engines, "rdma-nri");
}

// A node without rdma-init is broken only if the caller expects rdma-init there.
Grade grade_without_installation(const NodeEngines& engines) {
  return engines.is_expected ? Grade::kBroken : Grade::kNote;
}

// Returns the name of the engine that rdma-init is configured for, although the node does not have it; empty if that
// is not so. find_engines() does not find the containerd of k3s, RKE2 and microk8s, nor an engine outside of its
// directories, which may run. Programs that are no engine, such as Apptainer, read the files of CDI too.
std::string configured_without_engine(const NodeEngines& engines) {
  const InstallRecord* const record = engines.record && *engines.record ? &**engines.record : nullptr;
  if (record && !record->is_restored()) {
    if (record->engine == kSlurm) return engines.has_slurm ? "" : record->engine;
    const auto is_it = [&](const auto& one) { return to_string(one.engine) == record->engine; };
    const auto runs = [&](const auto& one) {
      return to_string(one.value) == record->engine && find_process(engines, one.word);
    };
    const bool is_there = is_distribution(record->engine) || std::ranges::any_of(*engines.found, is_it) ||
                          std::ranges::any_of(kProcesses, runs);
    return is_there ? "" : record->engine;
  }
  const auto runs = [&](const auto& one) { return find_process(engines, one.word) != nullptr; };
  if (!engines.found->empty() || std::ranges::any_of(kProcesses, runs)) return {};
  const auto file = std::ranges::find_if(
      engines.files, [](const EngineFile& one) { return one.path.find("/cdi/") == std::string::npos; });
  return file == engines.files.end() ? "" : std::string(to_string(file->engine));
}

// An engine older than the tested versions may work, so it gets a note. An engine that refuses its configuration cannot
// start again, so it is `broken`.
void check_found(const NodeEngines& engines, Check& check) {
  if (!engines.found) {
    check.add(Grade::kWarning, "engines", engines.found.error().message, base::remedy_of(engines.found.error()));
    return;
  }
  if (const std::string engine = configured_without_engine(engines); !engine.empty())
    check.add(Grade::kBroken, "engines", fmt::format("rdma-init is configured for {}, which is not installed", engine),
              "install it again, or run `rdma-hook install --uninstall`");
  if (engines.found->empty() && !is_set_up(engines) && !engines.has_slurm)
    check.add(grade_without_installation(engines), "engines", "no container engine is installed",
              "install containerd, CRI-O, Docker or Podman");
  for (const FoundEngine& engine : *engines.found) {
    for (const auto& [of, major, minor] : kOldestTried) {
      if (engine.engine != of || !engine.trouble.empty()) continue;
      if (std::pair(engine.major, engine.minor) >= std::pair(major, minor)) continue;
      check.add(Grade::kNote, engine.program,
                fmt::format("version {}.{} is older than the oldest tested version {}.{}", engine.major, engine.minor,
                            major, minor),
                "");
    }
  }
  for (const FoundEngine& engine : engines.refused) {
    check.add(Grade::kBroken, engine.program, engine.trouble, engine.remedy);
    if (engine.remedy.empty()) check.findings.back().remedy = "correct its configuration before the engine restarts";
  }
}

// A file that lacks the text of `rdma-hook install` is `broken`, because no container gets HCAs. A file that was
// changed after install may still have that text, so it gets a warning.
void check_record(const NodeEngines& engines, Check& check) {
  if (!engines.record) {
    check.add(Grade::kBroken, kInstallRecord, engines.record.error().message, base::remedy_of(engines.record.error()));
    return;
  }
  for (const auto& [path, state] : engines.changed) {
    const bool missing = state == EditState::kNotWritten;
    check.add(missing ? Grade::kBroken : Grade::kWarning, path,
              missing ? "does not have the changes of install" : "changed since install",
              missing ? kRunInstall : "compare with `rdma-hook install --status` and merge by hand");
  }
}

// Returns a finding if a file that the engine reads only at its start is newer than its process. The finding is
// `broken` only for a file of install, which records the time of the write on the clock of process start times. The
// mtime of another file is compared with a start time that moves if the node's clock is set, so the finding is a
// warning.
std::optional<Finding> find_unread_file(const RunningProcess& process, const NodeEngines& engines) {
  const std::string remedy = fmt::format("run `systemctl restart {}`", process.name);
  const EngineFile* newest = nullptr;
  for (const EngineFile& file : engines.files) {
    if (!file.read_at_start || process.name != to_word(kProcesses, file.engine)) continue;
    if (file.written && process.start_ticks && *process.start_ticks <= *file.written)
      return Finding{Grade::kBroken, process.name,
                     fmt::format("has not read `{}`: its process {} started before install wrote the file", file.path,
                                 process.pid),
                     remedy};
    if (!file.written && (!newest || file.changed > newest->changed)) newest = &file;
  }
  // The start time of the process is computed from a boot time in whole seconds, so it can be one second too early.
  if (!newest || !process.started || newest->changed <= *process.started + 1) return std::nullopt;
  return Finding{
      Grade::kWarning, process.name,
      fmt::format("may not have read `{2}`: by the node's clock its process {1} started at {0}, and the file "
                  "was changed at {3}",
                  clock_text(*process.started), process.pid, newest->path, clock_text(newest->changed)),
      remedy};
}

// Adds a finding for each running engine that must be restarted. Adds a finding if dockerd has not loaded the runtime
// `rdma`.
void check_restarts(const NodeEngines& engines, Check& check) {
  for (const RunningProcess& process : engines.processes) {
    // An engine that refuses its configuration would not start again, so it gets no advice to restart it.
    const auto is_it = [&](const FoundEngine& refused) { return refused.program.ends_with("/" + process.name); };
    if (std::ranges::any_of(engines.refused, is_it)) continue;
    if (auto finding = find_unread_file(process, engines)) check.add(*std::move(finding));
  }
  if (engines.docker_has_runtime == false)
    check.add(Grade::kBroken, "dockerd", "has not read daemon.json: the runtime `rdma` is missing",
              "run `systemctl reload docker`");
}

// If `rdma-hook install` selected way nri, rdma-nri must run. This is not checked if the engine itself starts rdma-nri
// from /opt/nri/plugins.
void check_plugin(const NodeEngines& engines, Check& check) {
  const bool by_nri = engines.record && *engines.record && (*engines.record)->way == "nri";
  const bool started_by_engine = std::ranges::any_of(
      engines.files, [](const EngineFile& file) { return file.path.starts_with("/opt/nri/plugins/"); });
  if (!by_nri || started_by_engine || find_process(engines, "rdma-nri")) return;
  check.add(Grade::kBroken, "rdma-nri", "not running: containers that request HCAs are refused",
            "run `systemctl enable --now rdma-nri`");
}

// While rdma-nri does not run, containerd starts containers without the HCAs that they request. Only `rdma-hook
// verify`, as a hook in containerd's base specification, prevents this.
void check_verify(const NodeEngines& engines, Check& check) {
  const bool has_nri = engines.record && *engines.record && (*engines.record)->way == "nri";
  if (!has_nri || (*engines.record)->engine != to_string(Engine::kContainerd)) return;
  const bool verifies = std::ranges::any_of(engines.files, [](const EngineFile& file) {
    return file.path.starts_with("/etc/containerd/") && file.path.ends_with(".json") && !file.programs.empty();
  });
  if (verifies) return;
  check.add(
      Grade::kWarning, "containerd",
      "no base specification in /etc/containerd calls `rdma-hook verify`: while rdma-nri is down, containers start "
      "without HCAs",
      "install `ctr` next to containerd, then run `rdma-hook install --uninstall` and `rdma-hook "
      "install`");
}

void check_cdi(const NodeEngines& engines, Check& check) {
  if (engines.without_cdi && find_process(engines, "rdma-dra"))
    check.add(
        Grade::kBroken, "containerd", "passes over the devices of claims: pods with claims start without HCAs",
        "with containerd 1.7, add `enable_cdi = true` to the table `[plugins.\"io.containerd.grpc.v1.cri\"]` of its "
        "configuration and restart it; before 1.7, install containerd 1.7 or later");
}

Check check_engine(const NodeEngines& engines) {
  Check check{"engine", {}, {}};
  check_found(engines, check);
  check_record(engines, check);
  for (const std::string& message : engines.unread)
    // A missing file is not in `unread`, so the usual cause of an entry is that doctor does not run as root.
    check.add(Grade::kWarning, "file", message, "run doctor as root");
  // If the check already has another finding, this finding may only be its consequence and is not added.
  if (!is_set_up(engines) && engines.record && check.findings.empty())
    check.add(grade_without_installation(engines), "engine",
              "rdma-init is not installed: no container gets an HCA from it",
              engines.found && engines.found->empty() ? "run `rdma-hook install --engine slurm`" : kRunInstall);
  check_restarts(engines, check);
  check_plugin(engines, check);
  check_verify(engines, check);
  check_cdi(engines, check);
  std::vector<std::string> names;
  if (engines.found)
    for (const FoundEngine& engine : *engines.found)
      names.push_back(engine.trouble.empty()
                          ? fmt::format("{} {}.{}", to_string(engine.engine), engine.major, engine.minor)
                          : std::string(to_string(engine.engine)));
  if (names.empty() && engines.has_slurm) names.emplace_back("slurmd");
  check.summary = base::join(names, ", ");
  if (engines.record && *engines.record)
    check.summary += fmt::format("{}{} configured, way {}", names.empty() ? "" : "; ", (*engines.record)->engine,
                                 (*engines.record)->way);
  if (check.summary.empty()) check.summary = "no engine is installed";
  return check;
}

// rdma-runtime prints its own version first, then the version of the OCI runtime that it executes.
std::string_view own_version(const OurProgram& program) {
  const std::string_view version = program.version;
  return version.substr(0, version.find('\n'));
}

// Checks each program that an engine's file names: it exists, only root can change it, and it has the version of this
// program.
Check check_programs(const NodeEngines& engines) {
  Check check{"programs", {}, {}};
  std::vector<std::string> names;
  for (const OurProgram& program : engines.programs) {
    names.push_back(printable(program.path));
    const std::string name = program.path.substr(program.path.rfind('/') + 1);
    if (program.error != 0) {
      check.add(
          Grade::kBroken, printable(program.path),
          fmt::format("{1}; `{0}` names it", program.named_in,
                      program.error == ENOENT ? "missing"
                                              : fmt::format("cannot be executed: {}", std::strerror(program.error))),
          "install the programs again, or run `rdma-hook install` if they moved");
    } else if (program.unsafe) {
      check.add(Grade::kBroken, printable(program.path), program.unsafe->message, program.unsafe->hint);
    } else if (const auto version = own_version(program); !version.ends_with(" " RDMA_INIT_VERSION)) {
      check.add(Grade::kWarning, printable(program.path),
                fmt::format("is {}, expected {}", version.empty() ? "of unknown version" : printable(version),
                            RDMA_INIT_VERSION),
                "install all programs from the same version");
    }
  }
  for (const Error& error : engines.unasked)
    check.add(Grade::kWarning, "programs", error.message, base::remedy_of(error));
  check.summary = names.empty() ? "no file of an engine names a program of rdma-init" : base::join(names, ", ");
  return check;
}

// Containers inherit RLIMIT_MEMLOCK from the engine. LimitMEMLOCK of the systemd unit is checked too, because it
// applies after the engine's next restart.
Check check_memlock(const NodeEngines& engines) {
  constexpr std::uint64_t kUsual = 8 << 20;  // default RLIMIT_MEMLOCK of systemd since version 250
  Check check{"memlock", {}, {}};
  std::vector<std::string> seen;
  for (const Engine engine : {Engine::kContainerd, Engine::kCrio, Engine::kDocker}) {
    const std::string_view process = to_word(kProcesses, engine);
    const std::string unit = std::string(to_string(engine)) + ".service";
    const RunningProcess* running = find_process(engines, process);
    const auto of_unit = engines.unit_memlocks.find(unit);
    std::optional<std::uint64_t> limit = running ? running->memlock : std::nullopt;
    const bool by_unit = of_unit != engines.unit_memlocks.end() && of_unit->second < limit.value_or(UINT64_MAX);
    if (by_unit) limit = of_unit->second;
    if (!limit) continue;
    seen.push_back(fmt::format("{} {}", process, limit_text(limit)));
    if (*limit >= kUsual) continue;
    check.add(Grade::kWarning, unit,
              fmt::format("{} {}: containers without a limit of their own get no more",
                          by_unit ? "sets RLIMIT_MEMLOCK to" : "runs with RLIMIT_MEMLOCK of", limit_text(limit)),
              fmt::format("add LimitMEMLOCK=infinity to [Service] with `systemctl edit {0}`, then restart it", unit));
  }
  check.summary = seen.empty() ? "no engine runs as a daemon" : base::join(seen, ", ");
  return check;
}

}  // namespace

std::vector<Finding> check_rail_tests(const NodeEngines& engines, const Config& config) {
  std::vector<Finding> findings;
  if (!find_process(engines, "rdma-nri")) return findings;
  for (const auto& [name, network] : config.networks) {
    std::vector<std::string> tests;
    if (network.duplicate_test != RailTest::kOff) tests.emplace_back("\"duplicate_test\"");
    if (network.gateway_test == RailTest::kFail) tests.emplace_back("\"gateway_test\"");
    if (tests.empty()) continue;
    findings.push_back(
        {Grade::kWarning, fmt::format("network {}", base::printable(name)),
         fmt::format("rdma-nri does not run {}: a container can get an address that another host has, or a "
                     "silent gateway",
                     base::join(tests, " and ")),
         "test with `arping -D` on the rails' subnets, or use rdma-runtime, which runs the tests"});
  }
  return findings;
}

std::vector<Check> check_engines(const NodeEngines& engines) {
  return {check_engine(engines), check_programs(engines), check_memlock(engines)};
}

}  // namespace hook
