// Restarts of an engine that has not read the files which install wrote.
#pragma once

#include <string>

#include "hook/base/result.hpp"
#include "hook/install/record.hpp"

namespace hook {

// Returns whether the engine may not have read the present files. Returns false after a restart by hand or a boot since
// the write, even if the record does not note it. For Docker, the output of `docker info` proves a reload. Without
// proof a restart is due.
bool is_restart_due(const std::string& root, const InstallRecord& record);

// Returns the line that reports a restart that is due, with the command as remedy.
std::string restart_due_line(const InstallRecord& record);

// Restarts the engine; for Docker, reloads its configuration. Returns the text to print. Errors: EIO, the command
// fails.
Result<std::string> restart_engine(const std::string& root, const InstallRecord& record);
// If a restart is due, restarts the engine, or without `restart` returns the line that reports it. If the engine has
// read the files, notes that in the record. Returns the text to print; empty if no restart is due. Errors: EIO, the
// command fails.
Result<std::string> restart_if_due(const std::string& root, bool restart);

// Renews the write time of the record if the engine started while its files were being replaced, because it may have
// read the earlier files.
Result<void> renew_write_time(const std::string& root);

}  // namespace hook
