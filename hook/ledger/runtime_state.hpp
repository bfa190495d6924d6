// What runc or crun itself keeps of a container: it tells whether the container lives where no hook told the ledger who
// its init is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/base/presence.hpp"

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
fabric::Result<RuntimeState> identify_runtime_state(RuntimeState::Kind kind, const std::string& root);

// Present: ROOT/ID names this bundle and an init that lives. Gone: it names another bundle, or an init that has ended;
// or nothing is there, in the root that was noted. For who knows that the process has ended that became `create`: until
// then nothing has to be there. Errors: the root is another one, something cannot be read, or crun has begun and not
// finished.
fabric::Result<Presence> look_at(const RuntimeState& state, const std::string& id, const std::string& bundle);

// Pure: the bundle that runc's state.json or crun's status names. nullopt: none is said.
std::optional<std::string> bundle_of_state(RuntimeState::Kind kind, std::string_view text);

// Two paths may lead to one: a runtime resolves links in that of its working directory. Errors: they differ, and one of
// them cannot be looked at.
fabric::Result<bool> is_same_directory(const std::string& left, const std::string& right);

// As grants keep it: {"runtime": "runc" | "crun", "root": {"path", "dev", "ino"}}.
Json runtime_state_json(const RuntimeState& state);
// Errors: a member is missing or of another type.
fabric::Result<RuntimeState> runtime_state_at(const Json& object, const char* name);

}  // namespace hook
