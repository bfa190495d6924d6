// Finds the container engines of a node, reads their versions and their configuration, and has an engine check a
// configuration file. Each answer comes from the engine's own program.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/query_program.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct FoundEngine {
  Engine engine = Engine::kContainerd;
  std::string program;
  int major = 0;
  int minor = 0;
  std::string trouble;      // why the version is unknown; printable; empty: it is known
  std::string remedy = {};  // for the trouble; empty: no remedy is known
};

// Returns those of containerd, CRI-O, Docker and Podman that are installed. An engine that does not answer is returned
// with its trouble. Errors: EPERM, the caller cannot enter root.
Result<std::vector<FoundEngine>> find_engines(const std::string& root);

// Has the engine check its own configuration. Returns the text that containerd and CRI-O print of it; for Docker the
// text has no meaning. Docker before 23 cannot check a configuration: then the text is empty.
// why_refused: first part of the error's message.
// Errors: EINVAL, the engine refuses the configuration: why_refused and the last line that the engine prints.
Result<std::string> check_engine_config(const std::string& root, const FoundEngine& engine,
                                        const std::string& why_refused);
// Has the engine check `file` in place of its own configuration. Returns and errors as check_engine_config().
Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine, const std::string& file);

}  // namespace hook
