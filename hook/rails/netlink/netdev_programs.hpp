// Programs of bpf(2) that stay with a netdev when it moves, and of which rtnetlink knows nothing: those of tcx (Linux
// 6.6), and XDP ones that a link of bpf(2) holds (Linux 5.9), which outlives its maker where it is pinned. The calling
// process has to be in the netdev's namespace. Needs CAP_NET_ADMIN and, to detach, CAP_SYS_ADMIN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/rails/netlink/link_settings.hpp"

namespace hook {

// IDs of all programs of tcx, both directions, one that is attached twice twice. Empty: none, or an older kernel.
fabric::Result<std::vector<std::uint32_t>> tcx_programs(int ifindex, const std::string& name);
// Detaches the programs of tcx that were not there before. Returns what was refused, and that some of before are not
// there any more, for people.
std::vector<std::string> restore_tcx(int ifindex, const std::string& name, const std::vector<std::uint32_t>& before);
// Whether `now` has XDP programs that were not there before.
bool has_new_xdp(const LinkSettings& before, const LinkSettings& now);
// Detaches one of these if a link holds it: rtnetlink refuses that. A link of another namespace may have the same index
// and program, so that the next call may find one more. False: none was detached.
bool detach_xdp_link(int ifindex, const LinkSettings& before, const LinkSettings& now);

}  // namespace hook
