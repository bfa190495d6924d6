// Settings with which a library uses no RDMA, or may ignore the exports. The user may want them, so they are remarks
// and no problems. Pure. Source: NVIDIA/nccl src/plugin/{net,env}.cc and src/transport/net_ib/connect.cc, 2.18.3
// to 2.30.7; openucx/ucx src/ucp/core/ucp_context.c and src/ucs/config/parser.c, 1.12 to 1.17.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "init/candidates.hpp"
#include "init/check.hpp"
#include "init/nccl_rules.hpp"
#include "init/settings.hpp"

namespace init {

// Returns a check for each such setting, with its value and source. Only settings of the libraries in `exports`.
// version: NCCL's, nullopt if it is unknown. candidates: the ports that UCX_NET_DEVICES can exclude.
//
// NCCL compares the names of networks without case. NCCL_NET names the only network that it tries. NCCL_NET_PLUGIN
// names libraries that it tries before its own networks, unless NCCL_NET names another network.
//
// UCX compares complete entries and trims no blanks. An alias such as `rc` stands for transports, `\` before a name
// switches aliases off, and an entry with `:aux` carries no data. A list with `^` excludes. A list with `all` first
// allows everything; with `all` elsewhere, older versions do, and such a list is not reported.
std::vector<Check> settings_without_rdma(const Settings& settings, const std::vector<std::string>& exports,
                                         const std::optional<nccl::Version>& version,
                                         const std::vector<Candidate>& candidates);

}  // namespace init
