#include "hook/admin/install/restart.hpp"

#include <algorithm>
#include <cerrno>

#include "base/json/json.hpp"
#include "base/process/query_program.hpp"
#include "base/text.hpp"
#include "hook/admin/install/choose_engine.hpp"
#include "hook/admin/install/engine_processes.hpp"
#include "hook/admin/install/node_files.hpp"

namespace hook {
namespace {

// Limit of the wait for `systemctl restart`. The limit is longer than the 90 seconds that systemd waits for a service
// to stop (systemd-system.conf(5), DefaultTimeoutStopSec).
constexpr int kRestartPatienceMs = 120'000;

std::vector<std::string> command_of(const InstallRecord& record) {
  const auto engine = parse_engine(record.engine);
  const auto way = from_word(kInstallWays, record.way);
  return engine && way ? restart_command(*engine, *way) : std::vector<std::string>();
}

std::string process_name(const InstallRecord& record) {
  return record.engine == to_string(Engine::kDocker) ? "dockerd" : record.engine;
}

// Returns whether the engine runs and all its processes started after `ticks`. Processes in containers are ignored: an
// engine in a container (Docker in Docker) does not read the node's files.
bool has_started_since(const std::string& root, const InstallRecord& record, std::uint64_t ticks) {
  auto processes = find_processes(root, {process_name(record)});
  std::erase_if(processes, [](const EngineProcess& process) { return process.in_container; });
  return !processes.empty() && std::ranges::all_of(processes, [&](const EngineProcess& process) {
    const auto started = start_ticks(process);
    return started && *started > ticks;
  });
}

// Returns whether `docker info` shows that dockerd has read the present files: it lists rdma-runtime after install, and
// does not list it after uninstall. The start time of dockerd cannot show this, because a reload does not change the
// start time.
bool has_reloaded(const std::string& root, const InstallRecord& record) {
  if (record.engine != to_string(Engine::kDocker) || record.way != to_word(kInstallWays, InstallWay::kRuntime))
    return false;
  const auto docker = find_program(root, "docker");
  if (!docker || find_processes(root, {process_name(record)}).empty()) return false;
  const auto answer = query_program(root, {*docker, "info", "--format", "{{json .Runtimes}}"});
  if (!answer || !answer->done) return false;
  const bool has_runtime = answer->text.find(record.programs + "/rdma-runtime") != std::string::npos;
  return has_runtime != record.is_restored();
}

// If root is not this process's root, the PATH of this process has no meaning, and in a chroot systemctl does nothing
// and exits with 0 unless SYSTEMD_IGNORE_CHROOT is set (systemd, docs/ENVIRONMENT.md).
Result<Answer> query_systemctl(const std::string& root, std::vector<std::string> command, int patience_ms) {
  command[0] = find_program(root, command[0]).value_or("/usr/bin/systemctl");
  return query_program(root, command, root.empty() ? "" : "SYSTEMD_IGNORE_CHROOT=1", patience_ms);
}

bool has_read(const std::string& root, const InstallRecord& record) {
  const auto now = write_time_now();
  if (now && record.written &&
      (record.written->boot != now->boot || has_started_since(root, record, record.written->ticks)))
    return true;
  return has_reloaded(root, record);
}

}  // namespace

bool is_restart_due(const std::string& root, const InstallRecord& record) {
  return record.is_unread() && !command_of(record).empty() && !has_read(root, record);
}

Result<void> check_unit_runs(const std::string& root, const std::string& unit) {
  // Each call of podman reads its configuration; podman.service only serves its API.
  if (unit.empty() || unit == "podman.service" || !find_program(root, "systemctl")) return {};
  const auto answer =
      query_systemctl(root, {"systemctl", "show", "--property=ActiveState,SubState", unit}, kPatienceMs);
  // Returns no error if systemd does not answer, because the state of the unit is then unknown.
  if (!answer || !answer->done) return {};
  const bool failed = answer->text.find("ActiveState=failed") != std::string::npos;
  if (!failed && answer->text.find("SubState=auto-restart") == std::string::npos) return {};
  return Error{fmt::format("`{}` does not start: systemd reports {}", unit, failed ? "failed" : "auto-restart"), EBUSY,
               fmt::format("read `journalctl -u {}`, correct the cause and start it; nothing was changed", unit)};
}

std::string restart_due_line(const InstallRecord& record) {
  // The message names the last of the engine's files in the record, because that file refers to the engine's other
  // files. The message never names a file of rdma-init, because the engine does not read files of rdma-init.
  std::string file = "its restored configuration";
  for (const FileEdit& edit : record.edits)
    if (!record.is_restored() && !edit.path.starts_with("/etc/rdma-init/")) file = "`" + edit.path + "`";
  return fmt::format("restart due: {} has not read {}; remedy: {}\n", record.engine, file,
                     base::join(command_of(record), " "));
}

Result<std::string> restart_engine(const std::string& root, const InstallRecord& record) {
  const auto command = command_of(record);
  const std::string line = base::join(command, " ");
  const Answer answer = TRY(query_systemctl(root, command, kRestartPatienceMs));
  if (answer.done) return fmt::format("done: {}\n", line);
  return Error{fmt::format("`{}`: {}", line, shown(base::trim(answer.messages), 400)), EIO,
               fmt::format("correct the cause, then run `{}`; all files are written", line)};
}

Result<std::string> restart_if_due(const std::string& root, bool restart) {
  auto record = TRY(read_install_record(root));
  if (!record || !record->is_unread()) return std::string();
  const bool due = is_restart_due(root, *record);
  if (due && !restart) {
    if (!record->written) {
      // The record has no write time if a call was killed or an earlier version wrote it. The files were written before
      // now, so an engine that starts after now has read the files.
      record->written = write_time_now();
      static_cast<void>(write_install_record(root, *record));
    }
    return restart_due_line(*record);
  }
  std::string report = due ? TRY(restart_engine(root, *record)) : std::string();
  record->set_read();
  const auto written = write_install_record(root, *record);
  // A failed write of the record is reported only if this call restarted the engine. Without a restart the next call
  // finds again, by the engine's start time or by `docker info`, that no restart is due.
  if (!written && due)
    report += fmt::format("{}: the next call with --restart restarts the engine once more\n", written.error().message);
  return report;
}

Result<void> renew_write_time(const std::string& root) {
  auto record = TRY(read_install_record(root));
  if (!record || !record->is_unread() || !record->written || !has_started_since(root, *record, record->written->ticks))
    return {};
  record->written = write_time_now();
  return write_install_record(root, *record);
}

}  // namespace hook
