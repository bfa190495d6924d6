// What a plugin does at each of the runtime's requests. One at a time, in one thread.
//
// The runtime waits 2 s for an answer (unless configured otherwise). Then it closes the connection and goes on without
// the plugin: a container gets nothing then. An error, in contrast, fails what was asked for: the creation of a
// container or the start of a pod; its message and hint reach the user.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "shim/nri/wire/values.hpp"

namespace shim {

class NriHandler {
 public:
  virtual ~NriHandler() = default;

  // First of all; again if the runtime wishes so. The events to be told, at least one. Synchronize needs none. Errors
  // end the registration.
  virtual fabric::Result<std::vector<Event>> configure(const RuntimeInfo& runtime) = 0;

  // After configure: what runs already, in any number of parts, then the end. Nothing is kept here: a large node has
  // thousands. A second synchronize_begin() drops what the first had found.
  virtual void synchronize_begin() {}
  virtual void found(const NriPod& /*pod*/) {}
  virtual void found(const NriContainer& /*container*/) {}
  virtual fabric::Result<void> synchronize_end() { return {}; }

  // The answer's bytes: to kCreateContainer create_response()'s, to all other events none.
  virtual fabric::Result<std::string> answer(const NriRequest& request) = 0;

  // Once all plugins have been asked about a container's creation, if configure() has subscribed to it. The reason why
  // the runtime is to refuse the container; empty: none.
  virtual std::string refusal(const NriValidation& /*validation*/) { return {}; }
};

}  // namespace shim
