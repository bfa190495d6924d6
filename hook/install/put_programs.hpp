// The programs of an image, put on the node whose engine shall call them.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"

namespace hook {

// Where they are put if nobody says otherwise.
inline constexpr const char* kPutDirectory = "/opt/rdma-init/bin";

// What of rdma-hook and rdma-runtime lies in `from`, as paths on the node, in `directory`.
std::vector<std::string> programs_to_put(const std::string& from, const std::string& directory);

// Each as it is in `from`, root's and 0755; one that is so already is not written. A file is replaced by rename(2): who
// runs the old one goes on with it. Returns those that were written. Errors: one cannot be read or written, or
// others than root could change it or a directory above it.
Result<std::vector<std::string>> put_programs(const std::string& root, const std::string& from,
                                              const std::vector<std::string>& put);
// With what a killed process left of them.
Result<void> remove_programs(const std::string& root, const std::vector<std::string>& put);

// The ledger's directory, which is root's alone, before an engine or the kubelet makes it for everybody to read.
Result<void> make_ledger_directory(const std::string& root);

// The directory of the file that `config apply` writes, root's and 0755: before the kubelet makes it.
Result<void> make_cluster_directory(const std::string& root);
// Removes that file, its temporary, and then the directory and /etc/rdma-init if they are empty.
Result<void> remove_cluster_directory(const std::string& root);

}  // namespace hook
