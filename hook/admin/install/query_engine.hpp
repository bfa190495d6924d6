// Finds the container engines of a node. Executes the engine's own program to read its version and configuration, and
// to check a configuration file.
#pragma once

#include <string>
#include <vector>

#include "base/process/query_program.hpp"
#include "base/result.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct FoundEngine {
  Engine engine = Engine::kContainerd;
  std::string program;
  int major = 0;
  int minor = 0;
  std::string trouble;      // why the version is unknown, printable; empty: it is known
  std::string remedy = {};  // the remedy for `trouble`; empty: none is known
};

// Returns those of containerd, CRI-O, Docker and Podman that are installed. An engine that does not print its version
// is in the list too; `trouble` has the reason. Errors: EPERM, the caller cannot enter root.
Result<std::vector<FoundEngine>> find_engines(const std::string& root);

// Makes the engine check its own configuration. For containerd and CRI-O, returns the configuration that the engine
// prints. For other engines the returned text has no meaning. Succeeds for Docker before 23, which cannot check a
// configuration.
// why_refused: the first part of the error's message.
// Errors: EINVAL, the engine refuses the configuration. The message is why_refused and the last line that the engine
// prints.
Result<std::string> check_engine_config(const std::string& root, const FoundEngine& engine,
                                        const std::string& why_refused);
// Makes the engine check `file` in place of its own configuration. Returns the same as check_engine_config(), with the
// same errors.
Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine, const std::string& file);

}  // namespace hook
