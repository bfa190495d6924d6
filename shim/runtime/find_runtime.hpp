// The program that rdma-runtime becomes.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/result.hpp"

namespace shim {

struct ProgramId {
  std::uint64_t dev = 0;
  std::uint64_t ino = 0;
  friend bool operator==(const ProgramId&, const ProgramId&) = default;
};
// The id of the running program (/proc/self/exe).
fabric::Result<ProgramId> own_id();

// The first of these that is there and executable. An absolute path is that file; a name is looked for in the
// directories of path (as $PATH has them; relative ones are left out) and then in those where distributions put
// runtimes, because the PATH of a service often lacks one. self is passed over, whatever name it has. Errors: none is
// there; a relative path.
fabric::Result<std::string> find_runtime(const std::vector<std::string>& configured, std::string_view path,
                                         const ProgramId& self);

}  // namespace shim
