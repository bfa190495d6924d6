// Reads a mounted ConfigMap: a directory with the cluster's config.json. Its content is untrusted: the directory has
// mode 0777. config.json is a link to ..data/config.json, and ..data is a link to the current directory, which the
// kubelet replaces by a rename. Source: pkg/volume/util/atomic_writer.go, Kubernetes 1.31.
#pragma once

#include <string>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace hook {

inline constexpr std::size_t kLongestClusterConfig = std::size_t{1}
                                                     << 20;  // limit in bytes, as for the node's own file

// Returns the text of DIRECTORY/config.json. Follows at most a few links, and only inside of the directory. Opens only
// a regular file. Repeats the read if the directory is replaced meanwhile. Errors: ENOENT, no directory or file; EFBIG;
// ELOOP, links lead out or in a circle; EINVAL, not a regular file.
Result<std::string> read_cluster_config(const std::string& directory);

// Reports through a descriptor that a file in the directory may have changed.
class ConfigWatch {
 public:
  explicit ConfigWatch(std::string directory) : directory_(std::move(directory)) {}
  // Watches the directory that has the path `directory` now. Does nothing if that directory is watched already. Errors:
  // the directory does not exist; inotify fails.
  Result<void> renew();
  // The descriptor is readable after a change; -1: nothing is watched.
  int fd() const { return watch_.ok() ? watch_.get() : -1; }
  // Reads and discards all pending events.
  void take() const;

 private:
  std::string directory_;
  base::UniqueFd watch_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace hook
