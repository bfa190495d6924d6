// Writes the files of CDI specifications, which engines read at any time.
#pragma once

#include <sys/types.h>

#include <string>

#include "base/json/json_fwd.hpp"
#include "base/log.hpp"
#include "base/result.hpp"

namespace hook {

// Returns the text of the file of a specification.
std::string cdi_text(const Json& spec);

// Writes the file of a specification by a temporary beside it, which engines do not read. An identical file stays as it
// is. mode: its permissions. Errors: the file cannot be written.
base::Result<void> write_cdi(const std::string& path, const Json& spec, mode_t mode);

// Removes the temporaries in a directory of CDI specifications that killed processes left. Logs a warning for each that
// it cannot remove.
void sweep_cdi(const std::string& path, const base::Log& log);

}  // namespace hook
