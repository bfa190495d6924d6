#pragma once

#include <sys/types.h>

#include <optional>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/rails/address/ipam.hpp"

namespace hook {

// The helper. Forked by start() in a process that still has one thread and may execve; ends when this goes, or when its
// parent dies, and its plugins with it. It is outside of the filter, so what it may run is fixed when it is forked,
// whatever its parent asks for later.
class IpamHelper {
 public:
  // After isolate(), which would close its channel, and before restrict_process().
  static fabric::Result<IpamHelper> start(const std::vector<IpamProgram>& programs);
  // nullopt: there is nothing that it may run.
  static fabric::Result<std::optional<IpamHelper>> start_if_any(const std::vector<IpamProgram>& programs);
  // All calls at once; their results in order (kDel: empty). Each plugin has timeout_ms, 1 MiB of output, an
  // environment of CNI_* and PATH only. Errors of one call do not stop the others; they name the plugin and what it
  // wrote to stderr; EPERM: it is none of the programs, or others than root may change it. Whether an address was taken
  // by a kAdd that failed is the plugin's secret: follow it by kDel, which may be repeated.
  std::vector<fabric::Result<IpamResult>> run(const std::vector<IpamCall>& calls, int timeout_ms = 10000);

  IpamHelper(IpamHelper&& other) noexcept;
  IpamHelper& operator=(IpamHelper&& other) noexcept;
  ~IpamHelper();

 private:
  IpamHelper(pid_t pid, fabric::UniqueFd channel);
  pid_t pid_ = -1;
  fabric::UniqueFd channel_;
};

}  // namespace hook
