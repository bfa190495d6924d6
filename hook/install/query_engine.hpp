// Finds the container engines of a node, reads their versions and their configuration, and makes an engine check a
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
  std::string trouble;      // why the version is unknown; printable; empty: the version is known
  std::string remedy = {};  // the remedy for `trouble`; empty: no remedy is known
};

// Returns the installed engines out of containerd, CRI-O, Docker and Podman. An engine that does not answer is in the
// list, and its `trouble` has the reason. Errors: EPERM, the caller cannot enter root.
Result<std::vector<FoundEngine>> find_engines(const std::string& root);

// Makes the engine check its own configuration. Returns the configuration that containerd and CRI-O print; the text of
// Docker has no meaning. Returns an empty text for Docker before 23, which cannot check a configuration.
// why_refused: the first part of the error's message.
// Errors: EINVAL, the engine refuses the configuration. The message is why_refused and the last line that the engine
// prints.
Result<std::string> check_engine_config(const std::string& root, const FoundEngine& engine,
                                        const std::string& why_refused);
// Makes the engine check `file` in place of its own configuration. Returns and errors: as check_engine_config().
Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine, const std::string& file);

}  // namespace hook
