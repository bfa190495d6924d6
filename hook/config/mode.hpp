// How a container holds an HCA.
#pragma once

#include <optional>
#include <string_view>

namespace hook {

enum class Mode {
  kExclusive,    // one holder; with a network, the netdev (and where the kernel isolates them, the RDMA device) moves
  kShared,       // any number of holders, or as many as config.json allows; with a network, one child netdev per HCA
  kSharedMulti,  // as shared, with several child netdevs per HCA and container
  kHca,          // device nodes only, never a netdev
};

// "exclusive", "shared", "shared-multi", "hca" ("host" means the same); nullopt for anything else.
std::optional<Mode> parse_mode(std::string_view text);
std::string_view to_string(Mode mode);

}  // namespace hook
