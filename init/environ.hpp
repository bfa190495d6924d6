// The variables of a container that enroot prepares (enroot 4.1, src/common.sh, envfmt; src/runtime.sh, _do_environ).
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "init/decision.hpp"

namespace init {

// Returns the variables of NAME=value lines as enroot hands them to the container: leading blanks, comments, other
// lines and ENROOT_* are dropped, and one pair of quotes around a value; the last line of a name counts. An image may
// have hostile lines. Pure.
std::map<std::string, std::string> parse_environ(std::string_view text);

// Sets the variables of the file in this process, once. Returns the variables of the environment that the file lacks
// and rdma-init reads: those of libraries, and RDMA_INIT_*. A program that enroot starts in the container sees only the
// file. Left out are empty values, and values that no line of the file can hold. Errors: the file is unreadable, no
// regular file, or has more than 4 MiB.
base::Result<Variables> load_environ(const std::string& path);

}  // namespace init
