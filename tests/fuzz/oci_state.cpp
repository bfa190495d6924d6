// Any text as the state that a runtime writes to the stdin of a hook.
#include "hook/oci/state.hpp"

#include "require.hpp"

void fuzz::run(std::string_view text, FuzzedDataProvider) {
  const auto state = hook::parse_oci_state(text);
  if (!state) return fuzz::require_refusal(state.error(), "the refusal of a state");
  fuzz::require(!state->id.empty() && state->id.find('/') == std::string::npos, "an id is a name", state->id);
  fuzz::require(state->pid == 0 || state->pid > 1, "a pid is 0, or not the node's init");
  fuzz::require(state->bundle.empty() || state->bundle.front() == '/', "a bundle is absolute", state->bundle);
  fuzz::require(("/" + state->bundle + "/").find("/../") == std::string::npos, "a bundle has no `..`", state->bundle);
}
