// The state that a runtime writes to a hook's stdin (runtime-spec 1.3.0, "State"; crun adds `root`).
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "hook/base/result.hpp"

namespace hook {

struct OciState {
  std::string id;
  std::string status;      // empty when it is missing
  pid_t pid = 0;           // 0: none (poststop: runc leaves it out, crun writes 0)
  std::string bundle;      // absolute, without ".." components; may be empty at poststop
  bool from_crun = false;  // has `root`: its rlimits are set before the hooks run, runc's after
};

// Errors: no JSON, over 1 MiB, a missing or odd id (1 to 1,024 printable bytes, no space, no '/'), pid 1 or one that no
// process can have, a bundle that is relative or has "..".
Result<OciState> parse_oci_state(std::string_view text);

// stdin to its end: at most 1 MiB, at most timeout_ms milliseconds in all. Errors say which bound was met. Reading to
// the end matters: crun up to 1.16 fails the container when a hook leaves before everything is written.
Result<std::string> read_state_text(int fd, int timeout_ms);

}  // namespace hook
