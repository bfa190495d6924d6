// What runc or crun itself keeps of a container: it tells whether the container lives where no hook told the ledger who
// its init is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "hook/base/presence.hpp"
#include "hook/base/result.hpp"
#include "hook/base/words.hpp"

namespace hook {

struct RuntimeState {
  enum class Kind { kRunc, kCrun };
  Kind kind = Kind::kRunc;
  std::string root;  // absolute: of --root, or the runtime's own
  std::uint64_t root_dev = 0;
  std::uint64_t root_ino = 0;
  friend bool operator==(const RuntimeState&, const RuntimeState&) = default;
};

// Errors: there is no such directory (ENOENT), or it cannot be looked at.
Result<RuntimeState> identify_runtime_state(RuntimeState::Kind kind, const std::string& root);

// Returns kPresent if ROOT/ID names this bundle and an init that lives. Returns kGone if it names another bundle or an
// init that has ended, or if ROOT/ID is missing from the root that was noted. Call it only once the process of `create`
// has ended: until then ROOT/ID may still be made. Errors: the root is another one, something cannot be read, or
// ROOT/ID has no state, because `create` was killed or still goes on; the hint is the remedy.
Result<Presence> look_at(const RuntimeState& state, const std::string& id, const std::string& bundle);

// Pure: the bundle that runc's state.json or crun's status names. nullopt: none is said.
std::optional<std::string> bundle_of_state(RuntimeState::Kind kind, std::string_view text);

// Two paths may lead to one: a runtime resolves links in that of its working directory. Errors: they differ, and one of
// them cannot be looked at.
Result<bool> is_same_directory(const std::string& left, const std::string& right);

inline constexpr Word<RuntimeState::Kind> kRuntimeKinds[] = {{"runc", RuntimeState::Kind::kRunc},
                                                             {"crun", RuntimeState::Kind::kCrun}};

// As grants keep it.
template <typename Members>
void describe(Members& members, RuntimeState& state) {
  members.word("runtime", state.kind, kRuntimeKinds);
  members.group("root", [&](auto& root) {
    root("path", state.root);
    root("dev", state.root_dev);
    root("ino", state.root_ino);
  });
}

}  // namespace hook
