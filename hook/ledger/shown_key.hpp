// The key of a grant as logs, metrics and commands print it.
#pragma once

#include <string>

namespace hook {

// Returns "token-" and a digest for a token's key, because whoever knows a token can claim its grant; any other key as
// it is. One key always gives the same text, so that a log line, a series and `rdma-hook devices` can be joined.
std::string shown_key(const std::string& key);

}  // namespace hook
