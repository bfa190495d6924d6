// A directory into which a cluster puts config.json: a mounted ConfigMap. It is read as untrusted data: it has mode
// 0777, and config.json is a link to ..data/config.json, where ..data is a link to the directory of the day, which the
// kubelet replaces by a rename (Kubernetes 1.31, pkg/volume/util/atomic_writer.go).
#pragma once

#include <string>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

inline constexpr std::size_t kLongestClusterConfig = std::size_t{1} << 20;  // as config.json's own limit

// The text of DIRECTORY/config.json. Links are followed inside of the directory only, and a few of them; what is no
// regular file at their end is not opened. A directory that is replaced meanwhile is tried again.
// Errors: ENOENT, the directory or the file is not there; EFBIG; ELOOP, links that lead out or in a circle; EINVAL, no
// regular file.
Result<std::string> read_cluster_config(const std::string& directory);

// Says that something in the directory has changed, perhaps.
class ConfigWatch {
 public:
  explicit ConfigWatch(std::string directory) : directory_(std::move(directory)) {}
  // Watches the directory that has the name now, if it does not so already. Errors: there is none, no watch can be had.
  Result<void> renew();
  // Readable when something has changed; -1: nothing is watched.
  int fd() const { return watch_.ok() ? watch_.get() : -1; }
  // Takes what is there to be read.
  void take() const;

 private:
  std::string directory_;
  fabric::UniqueFd watch_;
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
};

}  // namespace hook
