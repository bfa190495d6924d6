// Programs of the node that install asks: which engines there are, of which version, what their configuration says, and
// whether they would take another one. They run with the node's root as theirs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct Answer {
  bool done = false;     // it ended with 0
  std::string text;      // its standard output
  std::string messages;  // its standard error, else its standard output
};

inline constexpr int kPatienceMs = 30'000;

// variable: NAME=VALUE for it, or empty. Errors: it cannot be started, gives more than 16 MiB, or takes longer than
// that.
fabric::Result<Answer> ask_program(const std::string& root, const std::vector<std::string>& arguments,
                                   const std::string& variable = {}, int patience_ms = kPatienceMs);

// Where a program is in the node: by PATH if the node is this one, then where programs are. nullopt: nowhere.
std::optional<std::string> find_program(const std::string& root, const std::string& name);

struct FoundEngine {
  Engine engine = Engine::kContainerd;
  std::string program;
  int major = 0;
  int minor = 0;
  std::string trouble;  // why it does not tell its version, as Podman where its configuration is wrong; empty: it does
};

// containerd, CRI-O, Docker and Podman, those of them that are there. Errors: root cannot be entered.
fabric::Result<std::vector<FoundEngine>> find_engines(const std::string& root);

// Has the engine read its own configuration as it is; of containerd and CRI-O the result is what they print of it.
// Errors: it refuses it: why_refused, and its words. Docker before 23 has no check, and passes.
fabric::Result<std::string> check_engine_config(const std::string& root, const FoundEngine& engine,
                                                const std::string& why_refused);
// Has the engine read a file in place of its own.
fabric::Result<std::string> check_engine_candidate(const std::string& root, const FoundEngine& engine,
                                                   const std::string& file);

}  // namespace hook
