// Restores the files that an install wrote, by its record.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/record.hpp"

namespace hook {

// A temporary file that imports the temporaries of a plan. containerd checks this file.
inline constexpr const char* kCheckFile = "/var/lib/rdma-init/check.toml";

struct RestoreOptions {
  bool keeps_programs = false;  // the copied programs and their record are not removed
  bool force = false;           // changes that were made since install are dropped
};

// Restores each file of the record. If a file that existed before install was changed since, only the changes of
// install are removed: its lines, and all lines of its block. Two kinds of files are kept: files in which the lines of
// install were changed, and changed files that install made. They stay in the record, and their paths are added to
// `kept`. With `force`, a file of the first kind gets its text of before install, and a file of the second kind is
// removed. A link or directory in place of a file is always kept.
// said: gets one line for each file that was restored or removed, and a diff of the changes that were dropped.
// Errors: a file cannot be written. All temporaries are written first, so that no file is changed if there is no space.
Result<void> restore_files(const std::string& root, InstallRecord record, const RestoreOptions& options,
                           std::vector<std::string>& kept, std::string& said);

// Returns the changes that restore_files() would make, as diffs, and the files that it would keep.
Result<std::string> foresee_restore(const std::string& root, const InstallRecord& record, bool force);

// Removes the temporaries that a killed call left beside the files of a record.
Result<void> remove_temporaries(const std::string& root, const InstallRecord& record);

}  // namespace hook
