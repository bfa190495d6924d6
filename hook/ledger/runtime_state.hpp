// Reads the state file that runc or crun keeps of a container. If no hook reported the container's init to the ledger,
// this file shows whether the container lives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/presence.hpp"
#include "base/result.hpp"
#include "base/words.hpp"

namespace hook {

struct RuntimeState {
  enum class Kind { kRunc, kCrun };
  Kind kind = Kind::kRunc;
  std::string root;  // absolute: the value of --root, or the runtime's default
  std::uint64_t root_dev = 0;
  std::uint64_t root_ino = 0;
  friend bool operator==(const RuntimeState&, const RuntimeState&) = default;
};

// Reads the identity of a runtime's root. Errors: ENOENT, it does not exist; any other errno: it cannot be read.
Result<RuntimeState> identify_runtime_state(RuntimeState::Kind kind, const std::string& root);

// Looks up a container. Returns kPresent if the state in ROOT/ID names this bundle and an init that lives. Returns
// kAbsent if the state names another bundle or an init that has ended, or if ROOT/ID is missing from the recorded root.
// Call it only after the process of `create` has ended: until then that process may still make ROOT/ID.
// Errors: the root is not the recorded directory; a file cannot be read; ROOT/ID has no state, because `create` was
// killed or still runs. The hint is the remedy.
Result<Presence> read_presence(const RuntimeState& state, const std::string& id, const std::string& bundle);

// Returns the bundle in runc's state.json or crun's status; nullopt: it has none. Pure.
std::optional<std::string> bundle_of_state(RuntimeState::Kind kind, std::string_view text);

// Returns true if both paths lead to one directory. Two paths of one bundle can differ, because a runtime resolves
// links in the path of its working directory.
// Errors: the paths differ, and one of them cannot be read.
Result<bool> is_same_directory(const std::string& left, const std::string& right);

inline constexpr Word<RuntimeState::Kind> kRuntimeKinds[] = {{"runc", RuntimeState::Kind::kRunc},
                                                             {"crun", RuntimeState::Kind::kCrun}};

// Describes the members for records of grants (base/json/record.hpp).
void describe(auto& members, RuntimeState& state) {
  members.word("runtime", state.kind, kRuntimeKinds);
  members.group("root", [&](auto& root) {
    root("path", state.root);
    root("dev", state.root_dev);
    root("ino", state.root_ino);
  });
}

}  // namespace hook
