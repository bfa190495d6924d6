// Restarts of an engine that has not read the files that install wrote.
#pragma once

#include <string>

#include "hook/base/result.hpp"
#include "hook/install/record.hpp"

namespace hook {

// Returns whether the engine may not have read the present files. A restart by hand or a boot since the write ends
// that, also if the record does not note it. A reload of Docker is found in the output of `docker info`. Without proof
// a restart is due.
bool is_restart_due(const std::string& root, const InstallRecord& record);

// Returns the line that reports a restart that is due, with the command as remedy.
std::string restart_due_line(const InstallRecord& record);

// Restarts the engine, or has Docker reload its configuration. Returns the text to print. Errors: EIO, the command
// fails.
Result<std::string> restart_engine(const std::string& root, const InstallRecord& record);
// Restarts the engine if a restart is due and `restart` is set. Notes in the record that the engine has read the files.
// Returns the text to print; empty: no restart is due. Errors: EIO, the command fails.
Result<std::string> restart_if_due(const std::string& root, bool restart);

// Sets the write time of the record anew if the engine started while its files were being replaced: it may have read
// the files of before.
Result<void> renew_write_time(const std::string& root);

}  // namespace hook
