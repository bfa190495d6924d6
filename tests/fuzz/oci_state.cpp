// The state that a runtime writes to a hook's stdin.
#include "hook/oci/state.hpp"

#include <cstdint>

#include "require.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto state = hook::parse_oci_state(text);
  if (!state) {
    fuzz::require(!state.error().message.empty(), "a refusal says why");
    fuzz::require_one_line(state.error().message, "the refusal of a state");
    return 0;
  }
  fuzz::require(!state->id.empty() && state->id.find('/') == std::string::npos, "an id is a name", state->id);
  fuzz::require(state->pid == 0 || state->pid > 1, "a pid is none, or nobody's init of the node");
  fuzz::require(state->bundle.empty() || state->bundle.front() == '/', "a bundle is absolute", state->bundle);
  fuzz::require(("/" + state->bundle + "/").find("/../") == std::string::npos, "a bundle goes nowhere up",
                state->bundle);
  return 0;
}
