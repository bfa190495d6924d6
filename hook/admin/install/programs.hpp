// Copies programs from an image to the node, where the engine executes them. Makes the directories that the programs
// need.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace hook {

// The default directory of the copied programs.
inline constexpr const char* kPutDirectory = "/opt/rdma-init/bin";

// Returns the paths on the node to which rdma-hook and rdma-runtime are copied: their names in `directory`. Leaves out
// a program that `from`, a directory in the image, does not have.
std::vector<std::string> programs_to_install(const std::string& from, const std::string& directory);

// Copies the programs from the directory `from` to the paths `put`, owned by root and with mode 0755. Skips a program
// that is already there. Replaces a file by rename(2), so that processes that execute the old file can continue.
// Returns the paths that were written. Errors: a program cannot be read or written, or a user other than root can
// change the program or a directory above it.
Result<std::vector<std::string>> install_programs(const std::string& root, const std::string& from,
                                                  const std::vector<std::string>& put);
// Checks that only root can change the directories of the paths `put`, because an engine will execute the programs as
// root. A missing directory is no error. Errors: EACCES, the message names a program and the directory.
Result<void> check_places_belong_to_root(const std::string& root, const std::vector<std::string>& put);
// Checks rdma-hook and rdma-runtime in `directory` of the node, because an engine will execute them as root. A missing
// program is no error. Errors: EACCES, a user other than root can change a program or a directory above it.
Result<void> check_programs_belong_to_root(const std::string& root, const std::string& directory);
// Removes the programs `put`, and their temporary files that a killed process left.
Result<void> remove_programs(const std::string& root, const std::vector<std::string>& put);

// Makes the directory of the ledger with mode 0700. If install did not make it, an engine or the kubelet would make it
// for a mount, with mode 0755.
Result<void> make_ledger_directory(const std::string& root);

// Makes the directory of the file that `config apply` writes, with mode 0755 and root as owner. If install did not make
// it, the kubelet would make it for a mount.
Result<void> make_cluster_directory(const std::string& root);
// Removes the file that `config apply` writes and its temporary file. Then removes the directory of this file, and
// /etc/rdma-init, if they are empty.
Result<void> remove_cluster_directory(const std::string& root);

}  // namespace hook
