// How a container holds an HCA.
#pragma once

#include <optional>
#include <string_view>

#include "hook/base/words.hpp"

namespace hook {

enum class Mode {
  kExclusive,    // one holder; with a network, the netdev (and where the kernel isolates them, the RDMA device) moves
  kShared,       // any number of holders, or as many as config.json allows; with a network, one child netdev per HCA
  kSharedMulti,  // as shared, with several child netdevs per HCA and container
  kHca,          // device nodes only, never a netdev
};

inline constexpr Word<Mode> kModeWords[] = {{"exclusive", Mode::kExclusive},
                                            {"shared", Mode::kShared},
                                            {"shared-multi", Mode::kSharedMulti},
                                            {"hca", Mode::kHca},
                                            {"host", Mode::kHca}};

inline std::optional<Mode> parse_mode(std::string_view text) {
  return from_word(kModeWords, text);
}
inline std::string_view to_string(Mode mode) {
  return to_word(kModeWords, mode);
}

}  // namespace hook
