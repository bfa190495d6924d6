#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/log.hpp"
#include "hook/request/request.hpp"

namespace hook {

struct Asked {
  std::optional<Request> request;     // nullopt: nothing is asked, or what asks may not
  std::vector<std::string> warnings;  // e.g. that an annotation asked and was not heard
  Note note = {};                     // that a privileged container's nodes are no request
};

// Pure. Errors are refusals: a malformed value, one over 64 KiB, a count that contradicts the given nodes,
// a device number that the kernel would cut.
fabric::Result<Asked> parse_request(const ContainerSpec& spec, const Config& config, Engine engine);

}  // namespace hook
