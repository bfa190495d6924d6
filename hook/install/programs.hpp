// Copies programs from an image to the node, where the engine executes them.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

// The default directory of the copied programs.
inline constexpr const char* kPutDirectory = "/opt/rdma-init/bin";

// Returns the paths in `directory` of the node for rdma-hook and rdma-runtime. Leaves out a program that `from` does
// not have.
std::vector<std::string> programs_to_install(const std::string& from, const std::string& directory);

// Copies each program, owned by root and with mode 0755. Does not write an identical program. Replaces a file by
// rename(2), so that processes which execute the old file continue.
// Returns the paths that were written. Errors: a program cannot be read or written, or a user other than root can
// change it or a directory above it.
Result<std::vector<std::string>> install_programs(const std::string& root, const std::string& from,
                                                  const std::vector<std::string>& put);
// Checks the programs in `directory` of the node, which an engine will execute as root. Missing programs are accepted.
// Errors: EACCES, a user other than root can change a program or a directory above it.
Result<void> check_programs_belong_to_root(const std::string& root, const std::string& directory);
// Removes the programs and the temporaries that a killed process left.
Result<void> remove_programs(const std::string& root, const std::vector<std::string>& put);

// Makes the directory of the ledger, which only root may read. Otherwise an engine or the kubelet would make it with
// mode 0755.
Result<void> make_ledger_directory(const std::string& root);

// Makes the directory of the file that `config apply` writes, owned by root and with mode 0755. Otherwise the kubelet
// would make it.
Result<void> make_cluster_directory(const std::string& root);
// Removes the file that `config apply` writes and its temporary, then the directory and /etc/rdma-init if they are
// empty.
Result<void> remove_cluster_directory(const std::string& root);

}  // namespace hook
