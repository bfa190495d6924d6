// Restores the files that an install wrote: the inverse of a record.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/record.hpp"

namespace hook {

// A temporary file of containerd that imports the temporaries of a plan, for the engine's check.
inline constexpr const char* kCheckFile = "/var/lib/rdma-init/check.toml";

// Restores each file of the record. A file that was changed since install is kept and stays in the record; its path is
// added to `kept`.
// keeps_programs: the copied programs and their record stay. said: gets one line for each file that was restored or
// removed.
// Errors: all temporaries are written first, so that without space nothing is changed.
Result<void> restore_files(const std::string& root, InstallRecord record, bool keeps_programs,
                           std::vector<std::string>& kept, std::string& said);

// Removes the temporaries that a killed call left beside the files of a record.
Result<void> remove_temporaries(const std::string& root, const InstallRecord& record);

}  // namespace hook
