// Takes back what an install wrote: the inverse of a record.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/record.hpp"

namespace hook {

// For the engine, which reads the temporaries of a plan by it.
inline constexpr const char* kCheckFile = "/var/lib/rdma-init/check.toml";

// Restores each file of the record as it was. keeps_programs: programs that were put, and the record of them, stay. A
// file that somebody changed since is kept, and stays on record; its path is added to `kept`. said: gets a line for
// each file that was restored or removed. Errors: what undoing needs room for is written first, so that without room
// nothing is changed.
Result<void> take_back(const std::string& root, InstallRecord record, bool keeps_programs,
                       std::vector<std::string>& kept, std::string& said);

// Removes what a call that was killed left of the files of a record.
Result<void> remove_temporaries(const std::string& root, const InstallRecord& record);

}  // namespace hook
