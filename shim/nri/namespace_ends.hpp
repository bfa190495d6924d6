// Ends of pods' network namespaces, told by the files that runtimes keep them with.
//
// containerd tells no plugin of the end of a pod that is older than the containerd that runs: after a restart it knows
// the state of containers only (syncPlugin() in internal/nri/nri.go, 1.7.24 and 2.1.9).
#pragma once

#include <map>
#include <set>
#include <string>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace shim {

class NamespaceEnds {
 public:
  // Errors: root has no inotify instance left, or no memory.
  static fabric::Result<NamespaceEnds> open();
  // Readable: a file went from a directory of those that are watched.
  int fd() const { return events_.get(); }
  // From now on; again costs a lookup. Errors: its directory cannot be watched.
  fabric::Result<void> watch(const std::string& path);
  // Whether one of those has ended since the last call, or may have. It is watched no more.
  bool take();

 private:
  fabric::UniqueFd events_;
  std::map<int, std::string> directories_;  // by watch descriptor
  std::set<std::string> paths_;
};

}  // namespace shim
