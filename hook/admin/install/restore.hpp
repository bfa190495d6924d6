// Restores the files that an install wrote, by its record.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "hook/admin/install/record.hpp"

namespace hook {

// A temporary file that imports the temporary files of a plan. containerd 2 checks this file, because it cannot check a
// temporary drop-in by itself.
inline constexpr const char* kCheckFile = "/var/lib/rdma-init/check.toml";

struct RestoreOptions {
  bool keeps_programs = false;  // keep the copied programs, and the record that lists them
  bool force = false;           // drop changes that were made since install
};

// Restores each file of the record. A file that existed before install and was changed since install keeps these
// changes: only the lines of install, and all lines between kOurs and kOursEnd, are removed from the file.
// Two kinds of files are kept as they are: files in which the lines of install were changed, and files that install
// made and that were changed since. Both kinds stay in the record, and their paths are added to `kept`. With `force`, a
// file of the first kind gets its text of before install, and a file of the second kind is removed. A link or directory
// in place of a file is always kept.
// report: gets one line for each file that was restored or removed, and a diff of the changes that were dropped.
// Errors: a file cannot be written. All temporary files are written first, so that no file is changed if there is no
// space.
Result<void> restore_files(const std::string& root, InstallRecord record, const RestoreOptions& options,
                           std::vector<std::string>& kept, std::string& report);

// Returns the changes that restore_files() would make, as diffs, and adds the paths of the files that restore_files()
// would keep to `kept`. Errors (root only): a file could not be written.
Result<std::string> foresee_restore(const std::string& root, const InstallRecord& record, bool force,
                                    std::vector<std::string>& kept);

// Returns the error EEXIST for files that were changed since install and are kept.
// kept: their paths, in backquotes.
Error changed_since(const std::vector<std::string>& kept, const char* remedy);

// Removes the temporary files of the record, of its files and of kCheckFile that a killed call left.
Result<void> remove_temporaries(const std::string& root, const InstallRecord& record);

}  // namespace hook
