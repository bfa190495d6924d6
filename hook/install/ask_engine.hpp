// The node's engines, asked by their own programs: which there are, of which version, what their configuration says,
// and whether they would take another one.
#pragma once

#include <string>
#include <vector>

#include "hook/base/result.hpp"
#include "hook/install/ask_program.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct FoundEngine {
  Engine engine = Engine::kContainerd;
  std::string program;
  int major = 0;
  int minor = 0;
  std::string trouble;      // why it does not tell its version, as Podman where its configuration is wrong; printable;
                            // empty: it does
  std::string remedy = {};  // of the trouble; empty: not known
};

// containerd, CRI-O, Docker and Podman, those of them that are there. Errors: root cannot be entered.
Result<std::vector<FoundEngine>> find_engines(const std::string& root);

// Has the engine read its own configuration as it is; of containerd and CRI-O the result is what they print of it.
// Errors: it refuses it: why_refused, and its words. Docker before 23 has no check, and passes.
Result<std::string> check_engine_config(const std::string& root, const FoundEngine& engine,
                                        const std::string& why_refused);
// Has the engine read a file in place of its own.
Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine, const std::string& file);

}  // namespace hook
