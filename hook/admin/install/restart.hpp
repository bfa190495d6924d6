// Decides whether the engine must be restarted to read the files that install wrote, and restarts it.
#pragma once

#include <string>

#include "base/result.hpp"
#include "hook/admin/install/record.hpp"

namespace hook {

// Returns whether the engine may not have read the present files. Returns false if the engine or the node was restarted
// after the files were written, even if the record does not note it. For Docker, the output of `docker info` can prove
// a reload. Without proof a restart is due.
bool is_restart_due(const std::string& root, const InstallRecord& record);

// Checks that systemd has not given up to start an engine. Succeeds if the node has no systemd or no such unit, for an
// empty name, and for Podman, which needs no unit. Errors: EBUSY, the unit failed or is restarted again and again.
Result<void> check_unit_runs(const std::string& root, const std::string& unit);

// Returns the line that reports that a restart is due, with the command as remedy.
std::string restart_due_line(const InstallRecord& record);

// Restarts the engine; for Docker with way runtime, reloads its configuration. Returns the text to print. Errors: EIO,
// the command fails.
Result<std::string> restart_engine(const std::string& root, const InstallRecord& record);
// If a restart is due: restarts the engine if `restart` is true, and otherwise returns the line that reports the due
// restart. Records that the engine has read the files, if that is so. Returns the text to print; empty if no restart is
// due. Errors: EIO, the command fails.
Result<std::string> restart_if_due(const std::string& root, bool restart);

// Sets the write time of the record to now if the engine started after the recorded write time. The caller has just
// replaced the files, so the engine may have read a file before its replacement.
Result<void> renew_write_time(const std::string& root);

}  // namespace hook
