// What the program got from its caller and hands on to the runtime: rdma-runtime must work with it without changing it.
#pragma once

#include <csignal>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/process/identity.hpp"

namespace shim {

// While it lives, a pipe without a reader and a file that becomes too large are errors of a write, not the end of the
// process. The dispositions come back afterwards: exec(2) passes on what is ignored.
class IgnoredSignals {
 public:
  IgnoredSignals();
  IgnoredSignals(const IgnoredSignals&) = delete;
  IgnoredSignals& operator=(const IgnoredSignals&) = delete;
  ~IgnoredSignals();

 private:
  struct sigaction pipe_ {};
  struct sigaction file_size_ {};
};

// Where the caller closed one of the descriptors 0 to 2, a file of ours would get its number, and with it what is
// written to stderr. Until exec(2) they are /dev/null.
std::vector<fabric::UniqueFd> hold_standard_descriptors();

// Set for the runtime: "PID.STARTTIME" of this process. The runtime is the same process, so an rdma-runtime that finds
// its own there was reached by its own exec(2).
inline constexpr const char* kGuardVariable = "RDMA_RUNTIME_GUARD";
// Error: the runtime that was called led back here.
fabric::Result<void> refuse_loop(const hook::ProcessIdentity& self);

// Becomes the runtime: argv[0] is its path, the rest is argv's, the environment the caller's and the guard's variable.
// Returns only with the error.
fabric::Error become(const std::string& runtime, char* const* argv, const hook::ProcessIdentity& self);

}  // namespace shim
