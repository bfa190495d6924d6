// Programs of bpf(2) that stay with a netdev when it moves, and of which rtnetlink knows nothing: those of tcx (Linux
// 6.6), and XDP ones that a link of bpf(2) holds (Linux 5.9), which outlives its maker where it is pinned. The calling
// process has to be in the netdev's namespace. Needs CAP_NET_ADMIN and, to detach, CAP_SYS_ADMIN.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "hook/rails/netlink/link_settings.hpp"

namespace hook {

// IDs of all programs of tcx, both directions. Empty: none, or an older kernel. nullopt: it cannot be asked.
std::optional<std::vector<std::uint32_t>> tcx_programs(int ifindex);
// Detaches the programs of tcx but these. Returns what was refused, for people.
std::vector<std::string> detach_tcx(int ifindex, const std::string& name, const std::vector<std::uint32_t>& keep);
// Detaches the XDP programs that were not there before, if a link holds them: rtnetlink refuses that. Links of other
// namespaces may have the same index and program: then none is detached.
void detach_xdp_links(int ifindex, const LinkSettings& before, const LinkSettings& now);

}  // namespace hook
