// Reads the state that a runtime writes to a hook's stdin (runtime-spec 1.3.0, "State"; crun adds `root`).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace hook {

struct OciState {
  std::string id;
  std::string status;      // empty when it is missing
  pid_t pid = 0;           // 0: there is none (poststop: runc leaves it out, crun writes 0, gVisor's runsc -1)
  std::string bundle;      // absolute, without ".." components; may be empty at poststop
  bool from_crun = false;  // the state has `root`; crun sets rlimits before it runs the hooks, runc after
};

// Parses a state. Errors: the text is no JSON object, or has more than 1 MiB; a member of another type; a missing or
// invalid id (valid: 1 to 1,024 printable bytes, no space, no '/'); pid 1 or one that no process can have, but a
// negative one of a stopped container means none; a bundle that is relative or too long, or has ".." or a NUL byte.
Result<OciState> parse_oci_state(std::string_view text);

// Reads stdin to its end, because crun up to 1.16 fails the container if a hook ends before crun has written
// everything. Errors: more than 1 MiB, more than timeout_ms milliseconds in all; the error names the limit.
Result<std::string> read_state_text(int fd, int timeout_ms);

}  // namespace hook
