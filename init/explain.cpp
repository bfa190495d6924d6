#include "init/explain.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fabric/remedy.hpp"
#include "fabric/text.hpp"

namespace init {
namespace {

using fabric::printable;

Cause explain_empty(const fabric::Inventory& inventory) {
  if (!inventory.hcas.empty()) return {"the RDMA devices have no port", {}};
  const int error = inventory.rdma_error.value_or(ENOENT);
  if (error == ENODEV) return {"no sysfs: /sys is not mounted", "mount /sys into the container"};
  if (error != ENOENT) {
    const fabric::Error unread{fmt::format("read `/sys/class/infiniband`: {}", std::strerror(error)), error,
                               "mount /sys into the container"};
    return {unread.message, fabric::remedy_of(unread)};
  }
  return {"no RDMA device: /sys/class/infiniband has none", "load the HCA's driver on the node, if it has one"};
}

PortReport describe(const Candidate& candidate, const UsableGid* gid) {
  PortReport report;
  report.device = candidate.hca->name;
  report.port = candidate.port->number;
  report.rate_gbps = candidate.rate();
  report.link_layer = fabric::value_or(candidate.port->link_layer, std::string("unknown"));
  if (gid) {
    report.gid_index = gid->index;
    report.gid = gid->gid;
  }
  return report;
}

}  // namespace

std::string rank_name(GidRank rank) {
  return rank == GidRank::kIpv4 ? "IPv4" : rank == GidRank::kIpv6 ? "IPv6" : "link-local";
}

std::string list_ports(const std::vector<Candidate>& candidates, const std::vector<std::size_t>& ports) {
  std::vector<std::string> names;
  names.reserve(ports.size());
  for (const std::size_t i : ports)
    names.push_back(printable(candidates[i].name()));
  return fabric::join(names, ", ");
}

PortReport report_used(const Candidate& candidate, const UsableGid* gid) {
  PortReport report = describe(candidate, gid);
  report.used = true;
  report.reason = gid ? fmt::format("GID {} is RoCE v2 {} {} of {}", gid->index, rank_name(gid->rank),
                                    to_string(gid->gid), gid->netdev.empty() ? "the node" : printable(gid->netdev))
                      : "InfiniBand, active; no GID index needed";
  return report;
}

PortReport report_unused(const Candidate& candidate, const std::string& reason) {
  PortReport report = describe(candidate, candidate.best());
  report.reason = reason;
  report.remedy = candidate.remedy;
  return report;
}

Cause explain_missing(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates) {
  if (candidates.empty()) return explain_empty(inventory);
  const Candidate* nearest = nullptr;
  for (const Candidate& candidate : candidates) {
    if (!candidate.usable() && (!nearest || candidate.obstacle > nearest->obstacle)) nearest = &candidate;
  }
  if (!nearest) return {};
  const auto alike = std::count_if(candidates.begin(), candidates.end(),
                                   [&](const Candidate& candidate) { return candidate.obstacle == nearest->obstacle; });
  const std::string others =
      alike > 1 ? fmt::format(" (and {} more port{} alike)", alike - 1, alike == 2 ? "" : "s") : "";
  return {fmt::format("{}: {}{}", printable(nearest->name()), nearest->reason, others), nearest->remedy};
}

Cause explain_none(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates, const Choice& choice,
                   const std::optional<fabric::SelectorList>& asked) {
  if (choice.efa) return {"EFA fabric: NCCL reaches it through aws-ofi-nccl, so no NCCL_IB_* is set", {}};
  std::vector<std::size_t> usable;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].usable()) usable.push_back(i);
  }
  if (usable.empty()) {
    Cause cause = explain_missing(inventory, candidates);
    if (!candidates.empty()) cause.reason = fmt::format("no usable port among {}: {}", candidates.size(), cause.reason);
    return cause;
  }
  const bool asked_for_one = asked && std::any_of(usable.begin(), usable.end(), [&](std::size_t i) {
                               return selects(*asked, *candidates[i].hca, *candidates[i].port, candidates[i].netdevs);
                             });
  if (asked && !asked_for_one) {
    const auto meant = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
      return !candidate.usable() && selects(*asked, *candidate.hca, *candidate.port, candidate.netdevs);
    });
    const std::string why =
        meant == candidates.end() ? "" : fmt::format(": {}: {}", printable(meant->name()), meant->reason);
    return {fmt::format("--hca {} selects no usable port{}", printable(asked->text), why),
            "usable are " + list_ports(candidates, usable)};
  }
  const std::size_t first = usable.front();
  return {
      fmt::format("no port is left to use: {}: {}", printable(candidates[first].name()), choice.drop_reasons[first]),
      {}};
}

std::string warn_of_node_gids(std::vector<std::string> uses) {
  constexpr std::size_t kShown = 3;
  if (uses.size() > kShown) {
    uses[kShown] = fmt::format("and {} more", uses.size() - kShown);
    uses.resize(kShown + 1);
  }
  return fmt::format("uses the node's address{} {}: RDMA_CM does not work here, all containers of this node share {}",
                     uses.size() == 1 ? "" : "es", fabric::join(uses, ", "), uses.size() == 1 ? "it" : "them");
}

}  // namespace init
