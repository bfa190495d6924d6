#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "base/result.hpp"
#include "base/text.hpp"
#include "fabric/pci_sysfs.hpp"
#include "init/deciding.hpp"
#include "init/starter.hpp"

namespace init {
namespace {

// Explains an inventory without ports.
base::Error explain_empty(const fabric::Inventory& inventory) {
  if (!inventory.hcas.empty()) return {"the RDMA devices have no port"};
  const int error = inventory.rdma_error.value_or(ENOENT);
  if (error == ENODEV) return {"no sysfs: /sys is not mounted", 0, kSysRemedy};
  if (inventory.netns_mode == fabric::NetnsMode::kExclusive) {
    return {
        "no RDMA device in this network namespace (exclusive RDMA mode)", 0,
        "run `rdma dev` on the node, and move an HCA here (rdma-hook, rdma-cni); an HCA that it lacks is in another "
        "container, or was not moved back"};
  }
  if (error != ENOENT)
    return {fmt::format("read `/sys/class/infiniband`: {}", std::strerror(error)), error, kSysRemedy};
  return {"no RDMA device in /sys/class/infiniband", 0, kDriverRemedy};
}

std::string rank_name(GidRank rank) {
  return rank == GidRank::kIpv4 ? "IPv4" : rank == GidRank::kIpv6 ? "IPv6" : "link-local";
}

// Explains the unusable ports by the obstacle that is nearest to a usable port, because its remedy helps most. Returns
// no message if all ports are usable.
base::Error explain_missing(const Deciding& d) {
  if (d.candidates.empty()) return explain_empty(d.inventory);
  const Candidate* nearest = nullptr;
  for (const Candidate& candidate : d.candidates) {
    if (!candidate.usable() && (!nearest || candidate.obstacle > nearest->obstacle)) nearest = &candidate;
  }
  if (!nearest) return {};
  const auto alike = std::ranges::count_if(d.candidates, [](const Candidate& c) { return !c.usable(); });
  const std::string others =
      alike > 1 ? fmt::format(" (and {} more unusable port{})", alike - 1, alike == 2 ? "" : "s") : "";
  return {fmt::format("{}: {}{}", printable(nearest->name()), nearest->reason, others), 0, nearest->remedy};
}

// Explains why no port was chosen.
base::Error explain_none(const Deciding& d) {
  if (d.choice.efa) return {"EFA fabric: NCCL reaches it through aws-ofi-nccl, so no NCCL_IB_* is set"};
  std::vector<std::size_t> usable;
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    if (d.at(i).usable()) usable.push_back(i);
  }
  if (usable.empty()) {
    base::Error cause = explain_missing(d);
    if (d.candidates.empty()) return cause;
    return base::wrap(std::move(cause), fmt::format("no usable port among {}", d.candidates.size()));
  }
  const auto& asked = d.policy.hcas;
  const auto is_meant = [&](const Candidate& c) { return selects(*asked, *c.hca, *c.port, c.netdevs); };
  if (asked && std::ranges::none_of(usable, [&](std::size_t i) { return is_meant(d.at(i)); })) {
    const auto meant = std::ranges::find_if(d.candidates, is_meant);
    const std::string why =
        meant == d.candidates.end() ? "" : fmt::format(": {}: {}", printable(meant->name()), meant->reason);
    return {fmt::format("--hca {} selects no usable port{}", printable(asked->text), why), 0,
            "select from " + d.list(usable)};
  }
  const std::size_t first = usable.front();
  const Check& drop = d.choice.drops[first];
  if (drop.name == "list" && d.kept.find("NCCL_IB_HCA")) {
    return {"no port is left to use: NCCL_IB_HCA, which is already set, excludes all usable ports", 0,
            "correct or unset NCCL_IB_HCA"};
  }
  return {fmt::format("no port is left to use: {}: {}", printable(d.at(first).name()), drop.message), 0, drop.remedy};
}

bool is_exported(const Deciding& d, std::string_view name) {
  return std::ranges::find(d.decision.env, name, &Variables::value_type::first) != d.decision.env.end();
}

// Warns about ports with different indices: NCCL before 2.21 cannot use them together.
void warn_about_difference(Deciding& d, const std::vector<WantedGid>& gids) {
  std::vector<std::string> indices;
  bool differ = false;
  for (const WantedGid& one : gids) {
    indices.push_back(fmt::format("{} {}", printable(one.candidate->name()), one.gid.index));
    differ |= one.gid.index != gids.front().gid.index;
  }
  if (!differ) return;
  nccl::GidRules rules = d.effective_rules(true);
  if (d.plan.range) rules.range = d.plan.range;
  const auto named = d.named_version();
  rules.version = named.value_or(nccl::kNewest);
  const std::string versions = named && wrong_ports(gids, rules).empty()
                                   ? fmt::format("{} chooses", nccl::to_string(*named))
                                   : "2.26 and later choose";
  d.warn("index-per-port", Verdict::kNote,
         fmt::format("NCCL_IB_GID_INDEX {} because the ports differ ({}); NCCL {} the right one per port{}",
                     d.kept.in_effect("NCCL_IB_GID_INDEX") ? "keeps its value" : "is left unset",
                     base::join(indices, ", "), versions, d.plan.range ? " with the exported NCCL_IB_ADDR_RANGE" : ""));
}

// Warns about empty slots before a port's GID. MLNX_OFED shows slots of other network namespaces as empty, but NCCL
// gets their GIDs from the kernel, and 2.21 to 2.25 fail at the type of such a slot, which cannot be read.
void warn_about_hidden_slots(Deciding& d, const std::vector<WantedGid>& gids, const nccl::Version& version) {
  if (version < nccl::kChoosesGid || version >= nccl::kToleratesUnreadable) return;
  std::vector<std::size_t> ports;
  for (const WantedGid& one : gids) {
    const auto is_before = [&](const fabric::GidEntry& entry) { return entry.index < one.gid.index; };
    if (std::ranges::count_if(one.candidate->port->gids, is_before) < one.gid.index) ports.push_back(one.port);
  }
  if (ports.empty()) return;
  d.warn("hidden-slots", Verdict::kSlow,
         fmt::format("NCCL {} fails on {} if the empty slots before its GID belong to other containers (NVIDIA's OFED "
                     "drivers hide them); NCCL 2.26 and later do not",
                     nccl::to_string(version), d.list(ports)));
}

// Warns if the exports are wrong for the version of NCCL that the image declares.
void check_versions(Deciding& d) {
  const auto gids = d.wanted();
  if (gids.empty() || d.plan.index) return;  // every version uses a fixed index unchanged
  d.simulates = true;
  warn_about_difference(d, gids);
  if (const auto named = d.named_version()) warn_about_hidden_slots(d, gids, *named);
  const auto image = d.image_version();
  if (!image) return;
  nccl::GidRules rules = d.effective_rules(true);
  if (d.plan.range) rules.range = d.plan.range;
  rules.version = *image;
  d.decision.needs_full |= needs_whole_tables(gids, rules.version);
  const auto wrong = wrong_ports(gids, rules);
  if (wrong.empty()) return;
  const char* cause = *image < nccl::kChoosesGid ? "does not choose a GID per port (2.21 and later do)"
                                                 : "fails at unreadable GID types (2.26 and later do not)";
  d.warn("nccl-version", Verdict::kBad,
         fmt::format("NCCL {} (NCCL_VERSION) {}: {} will not connect", nccl::to_string(*image), cause, d.list(wrong)));
}

// Exports NCCL's variables. An index that serves all ports is right in every version, so it is exported even if NCCL
// would choose it.
void export_nccl(Deciding& d) {
  if (!d.kept.writes_for("nccl")) return;
  d.put("NCCL_IB_HCA", nccl_hca_value(d.chosen_ports()),
        fmt::format("{} port{} chosen; `=` makes the names exact", d.choice.ports.size(),
                    d.choice.ports.size() == 1 ? "" : "s"));
  if (d.plan.index) {
    d.put("NCCL_IB_GID_INDEX", std::to_string(*d.plan.index), "every port has its address at this index");
  }
  if (d.is_ipv6()) d.put(kGidRuleNames[0], "AF_INET6", "the chosen addresses are IPv6");
  if (d.plan.range) {
    d.put(kGidRuleNames[1], to_string(*d.plan.range),
          "NCCL would choose a GID of another network namespace without it");
  }
  check_versions(d);
}

// NVSHMEM chooses GIDs with NCCL's algorithm and variables of its own (NVSHMEM 3.5.1). If no index serves all ports,
// exports the range with which it chooses right. exports_index: NVSHMEM_IB_GID_INDEX is exported, unless the user has
// set it.
void export_range_for_nvshmem(Deciding& d, bool exports_index) {
  const auto value = [&](std::string_view name) {
    const Setting* setting = d.kept.find(name);
    return setting && !setting->own ? std::string_view(setting->value) : std::string_view();
  };
  constexpr std::string_view kRange = "NVSHMEM_IB_ADDR_RANGE";
  const auto gids = d.wanted();
  const Setting* index = d.kept.in_effect(kIndexNames[2]);
  if (gids.empty() || (index ? nccl::parse_param(index->value, -1) >= 0 : exports_index)) return;
  const std::string_view family = value("NVSHMEM_IB_ADDR_FAMILY");
  const nccl::GidRules rules = nccl::parse_gid_rules(family.empty() && d.is_ipv6() ? "AF_INET6" : family, value(kRange),
                                                     value("NVSHMEM_IB_ROCE_VERSION_NUM"));
  const IndexPlan plan = plan_nccl_choice(gids, rules, value(kRange).empty());
  d.simulates = true;
  d.decision.needs_full |= plan.needs_tables;
  if (plan.range) {
    d.put(kRange, to_string(*plan.range), "NVSHMEM would choose a GID of another network namespace without it");
  }
  if (!plan.wrong.empty()) {
    d.warn("nvshmem-gid", Verdict::kNote,
           fmt::format("NVSHMEM would choose another GID on {}, and no setting of its own prevents it",
                       d.list(plan.wrong)));
  }
}

// Exports the same choice for the other libraries.
void export_others(Deciding& d) {
  ExportInput input;
  input.ports = d.chosen_ports();
  input.index = d.index_for_others();
  input.ipv6 = d.is_ipv6();
  if (const fabric::Netdev* netdev = fabric::default_route_netdev(d.inventory)) {
    input.default_netdev = netdev->name;
    input.default_socket = netdev->socket_name();
  }
  input.has_others = std::ranges::any_of(d.inventory.hcas, [&](const fabric::Hca& hca) {
    return hca.is_accessible() &&
           std::ranges::none_of(d.choice.ports, [&](std::size_t i) { return d.at(i).hca == &hca; });
  });
  for (const std::string& library : d.policy.exports) {
    for (auto& [name, value] : library_variables(library, input)) {
      // UCX refuses an index together with this variable of the user.
      if (name == kIndexNames[1] && d.kept.find("UCX_IB_ROCE_SUBNETS")) continue;
      d.put(name, std::move(value), fmt::format("the same choice for {}", library));
    }
  }
  if (d.kept.writes_for("nvshmem")) export_range_for_nvshmem(d, input.index.has_value());
  if (!d.policy.exports.empty()) d.put(kDevicesName, device_list(input), "the chosen HCAs, for a command line");
}

// Replaces wrong values that no export has replaced (--override).
void neutralize_wrong_values(Deciding& d) {
  for (const auto& [name, kept] : d.kept.values()) {
    if (!kept.problem || !d.kept.may_replace(name) || is_exported(d, name)) continue;
    // The default of a range depends on the family that will be in effect.
    const Setting* family = name == kGidRuleNames[0] ? nullptr : d.kept.in_effect(kGidRuleNames[0]);
    std::string value = neutral_value(name, d.is_ipv6() || (family && family->value == "AF_INET6"),
                                      d.named_version().value_or(d.version()));
    if (!value.empty()) d.put(name, std::move(value), "the default instead of a wrong value");
  }
}

// Warns about GIDs of the node's addresses, which all containers of the node can use.
void warn_about_node_gids(Deciding& d) {
  std::vector<std::string> uses;
  for (const std::size_t i : d.choice.ports) {
    const UsableGid* gid = d.effective_gid(i);
    if (gid && gid->netdev.empty()) uses.push_back(fmt::format("{} (index {})", to_string(gid->gid), gid->index));
  }
  if (uses.empty()) return;
  const bool one = uses.size() == 1;
  constexpr std::size_t kShown = 3;
  const auto leaves = [](const fabric::InterfaceAddress& own) { return !own.address.is_loopback(); };
  const bool is_alone = std::ranges::none_of(d.inventory.netdevs, [&](const fabric::Netdev& netdev) {
    return netdev.is_here() && std::ranges::any_of(netdev.addresses, leaves);
  });
  d.warn("node-gids", Verdict::kNote,
         fmt::format(
             "RDMA uses the node's address{} {}: RDMA_CM does not work here, all containers of this node share {}{}",
             one ? "" : "es", base::join_first(uses, kShown, ", ", ", "), one ? "it" : "them",
             is_alone ? "; only lo has an address here, so that a job cannot span nodes" : ""));
}

// Returns true if the HCA belongs to this container and does not work. An HCA that does not open belongs to it if its
// netdev is here. With the host's network all netdevs are here, so a list or a stated number of HCAs decides instead.
bool is_broken(const Deciding& d, std::size_t i) {
  const Candidate& candidate = d.at(i);
  switch (candidate.obstacle) {
    case Obstacle::kNone:
      return d.choice.drops[i].name == "link-local" || d.choice.drops[i].name == "gid-index";
    case Obstacle::kNoNode:
    case Obstacle::kRefused:
      return d.policy.require == 0 && d.policy.require_used == 0 && !d.kept.in_effect("NCCL_IB_HCA") &&
             candidate.port->is_ethernet() && candidate.port->is_active() && !candidate.netdevs.empty();
    case Obstacle::kProvider:
      return candidate.port->is_infiniband() || !candidate.netdevs.empty();
    case Obstacle::kNotActive:
    case Obstacle::kNoGuid:
      return true;
    default:
      return candidate.obstacle >= Obstacle::kNoAddress && candidate.obstacle != Obstacle::kFiltered;
  }
}

bool is_listed(const Deciding& d, const Candidate& candidate) {
  if (d.meant) return d.meant->matches(candidate.hca->name, candidate.port->number);
  const Setting* list = d.kept.in_effect("NCCL_IB_HCA");
  // A list of an earlier run has the ports that worked.
  if (list && !list->own) {
    return nccl::parse_hca_list(list->value, d.version()).matches(candidate.hca->name, candidate.port->number);
  }
  return !d.policy.hcas || selects(*d.policy.hcas, *candidate.hca, *candidate.port, candidate.netdevs);
}

// Returns true if the HCAs are of one model. If an HCA does not open although its netdev is here, and a snapshot has no
// models, driver and rate decide.
bool is_equal(const Candidate& left, const Candidate& right) {
  if (left.port->is_infiniband() != right.port->is_infiniband()) return false;
  if (!right.hca->device_id) return left.hca->driver == right.hca->driver && left.rate() == right.rate();
  return left.hca->vendor == right.hca->vendor && left.hca->device_id == right.hca->device_id;
}

// Finds HCAs of the same PCI vendor, device and link layer as a used HCA that a repair would make usable: the port is
// down, or its GID, netdev or provider is wrong, or its netdev is here and its node is not. An HCA of a PCI slot with a
// used function does not count, because one port of such a card is often without a cable, nor does an HCA that the
// user's or administrator's list leaves out, or that is not granted to this container. Returns the candidates, one for
// each HCA. Sets the numbers of rails in the decision, and needs_models if the result depends on models that were not
// read.
std::vector<std::size_t> find_unused_rails(Deciding& d) {
  std::vector<std::size_t> unused;
  std::set<std::string_view> slots;
  for (const std::size_t i : d.choice.ports)
    if (d.at(i).hca->pci) slots.insert(fabric::pci::slot_of(*d.at(i).hca->pci));
  std::set<const fabric::Hca*> equal;
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    const Candidate& candidate = d.at(i);
    if (!candidate.hca->pci || !is_broken(d, i) || !is_listed(d, candidate)) continue;
    d.decision.needs_models |= !candidate.hca->device_id;
    if (!candidate.hca->device_id && candidate.hca->is_accessible()) continue;
    if (!slots.insert(fabric::pci::slot_of(*candidate.hca->pci)).second) continue;
    bool has_equal = false;
    for (const std::size_t used : d.choice.ports) {
      if (!is_equal(d.at(used), candidate)) continue;
      equal.insert(d.at(used).hca);
      has_equal = true;
    }
    if (has_equal) unused.push_back(i);
  }
  d.decision.unused_rails = unused.size();
  d.decision.equal_rails = equal.size() + unused.size();
  return unused;
}

// Warns about HCAs of the same model as the chosen ones that cannot be used: the rails of one node are usually equal.
void warn_about_unused_rails(Deciding& d) {
  const auto unused = find_unused_rails(d);
  if (unused.empty()) return;
  const Check& first = d.choice.drops[unused.front()];
  d.warn("unused-rails", Verdict::kSlow,
         fmt::format("{} of {} equal rails {} not used ({}: {}): NCCL hangs or is slow if the counts of the ranks "
                     "differ; --require-used {} refuses such a container",
                     unused.size(), d.decision.equal_rails, unused.size() == 1 ? "is" : "are",
                     printable(d.at(unused.front()).name()), first.message, d.decision.equal_rails));
}

// Warns about chosen ports that work with restrictions.
void warn_about_ports(Deciding& d) {
  std::ranges::move(d.choice.warnings, std::back_inserter(d.decision.warnings));
  if (d.choice.rank == GidRank::kLinkLocal) {
    d.warn("link-local", Verdict::kNote,
           "only link-local GIDs: works inside one subnet at best; assign IPv4 or global IPv6 addresses to the ports");
  }
  warn_about_node_gids(d);
  const bool software = std::ranges::any_of(d.choice.ports, [&](std::size_t i) { return d.at(i).hca->is_software(); });
  if (software) d.warn("software", Verdict::kSlow, "software RDMA (rxe or siw) is used: functional, but slow");
}

// Reports the values that the user has set, and wrong values as warnings. --strict refuses a wrong value.
void keep_the_rest(Deciding& d) {
  d.kept.keep_related();
  for (const auto& [name, value] : d.kept.values()) {
    const std::string text =
        fmt::format("{}={} ({})", printable(name), printable(value.value), printable(value.source));
    if (value.problem && is_exported(d, name)) {
      d.decision.notes.push_back(fmt::format("{} was replaced: {}", text, *value.problem));
      continue;
    }
    d.decision.kept.emplace(name, value);
    if (!value.problem) continue;
    const bool is_final = d.policy.override_wrong || value.irreplaceable;
    const char* outlook = value.of_node ? "correct its \"env\""
                          : is_final    ? "no replacement is known"
                                        : "--override replaces it";
    d.warn(value.cause, value.effect, fmt::format("{}: {}; kept, {}", text, *value.problem, outlook));
    if (d.policy.strict) {
      d.refuse(fmt::format("--strict: {}: {}", text, *value.problem),
               value.of_node ? "correct \"env\" in config.json of the node"
                             : fmt::format("correct or unset {}", printable(name)));
    }
  }
}

// Reports every port with its GID and the reason for its use.
void report_ports(Deciding& d) {
  for (std::size_t i = 0; i < d.candidates.size(); ++i) {
    const Candidate& candidate = d.at(i);
    PortReport& report = d.decision.ports.emplace_back();
    report.device = candidate.hca->name;
    report.port = candidate.port->number;
    report.used = std::ranges::find(d.choice.ports, i) != d.choice.ports.end();
    report.rate_gbps = candidate.rate();
    report.link_layer = base::value_or(candidate.port->link_layer, std::string("unknown"));
    const auto stated = d.policy.rails.find(report.device);
    if (stated != d.policy.rails.end()) report.rail = stated->second;
    const UsableGid* gid = report.used ? d.effective_gid(i) : candidate.best();
    // NCCL uses an index that the user has set on each port, also if this port has no GID of its own there.
    const unsigned fixed = d.kept.fixed_index().value_or(0);
    const bool is_fixed = report.used && !candidate.port->is_infiniband() && d.kept.fixed_index();
    if (is_fixed && gid && gid->index != fixed) gid = nullptr;
    if (gid) {
      report.gid_index = gid->index;
      report.gid = gid->gid;
    }
    const Check& drop = d.choice.drops[i];
    if (!report.used) {
      report.cause = drop.name;
      report.reason = drop.message;
      // An HCA beside the used ones was perhaps not granted to this container on purpose.
      const bool is_granted = candidate.obstacle > Obstacle::kRefused || d.choice.ports.empty() || is_broken(d, i);
      if (is_granted) report.remedy = drop.remedy;
    } else if (gid) {
      report.reason = fmt::format("GID {} is RoCE v2 {} {} of {}", gid->index, rank_name(gid->rank),
                                  to_string(gid->gid), gid->netdev.empty() ? "the node" : printable(gid->netdev));
    } else if (is_fixed) {
      report.reason = fmt::format("NCCL uses GID {}, which is not an address of this port", fixed);
    } else {
      report.reason = "InfiniBand, active; no GID index needed";
    }
  }
}

// Writes the summary of the chosen ports.
void summarize(Deciding& d) {
  const Candidate& first = d.at(d.choice.ports.front());
  std::string gids;
  if (d.choice.rank) {
    const auto index = d.agreed_index();
    const auto fixed = d.kept.fixed_index();
    gids = fixed   ? fmt::format(", GID index {} (set already)", *fixed)
           : index ? fmt::format(", GID index {} ({})", *index, rank_name(*d.choice.rank))
                   : fmt::format(", GID index per port ({})", rank_name(*d.choice.rank));
  }
  d.decision.summary =
      fmt::format("{} of {} ports: {} {} Gb/s{}: {}", d.choice.ports.size(), d.candidates.size(),
                  first.port->is_infiniband() ? "InfiniBand" : "RoCE", first.rate(), gids, d.list(d.choice.ports));
}

// Refuses the container if fewer HCAs are usable or used than --require and --require-used demand. Such a refusal
// replaces a refusal by --strict, which concerns only the ports that exist.
void require(Deciding& d) {
  if (d.decision.usable_hcas < d.policy.require) {
    base::Error cause = explain_missing(d);
    if (cause.message.empty()) cause = {"no other HCAs here", 0, "request more HCAs, or lower --require"};
    d.decision.refusal = fmt::format("--require {}: only {} HCA{} with a usable port: {}", d.policy.require,
                                     d.decision.usable_hcas, d.decision.usable_hcas == 1 ? "" : "s", cause.message);
    d.decision.refusal_remedy = base::remedy_of(cause);
    return;
  }
  std::set<const fabric::Hca*> used;
  for (const std::size_t i : d.choice.ports)
    used.insert(d.at(i).hca);
  if (used.size() >= d.policy.require_used) return;
  base::Error cause{"no other HCAs here", 0, "request more HCAs, or lower --require-used"};
  const auto left = std::ranges::find_if(d.decision.ports, [](const PortReport& port) { return !port.used; });
  if (used.empty()) {
    cause = {d.decision.summary, 0, d.decision.remedy};
  } else if (left != d.decision.ports.end()) {
    cause = {fmt::format("{}:{}: {}", printable(left->device), left->port, left->reason), 0, left->remedy};
  }
  d.decision.refusal = fmt::format("--require-used {}: only {} HCA{} chosen: {}", d.policy.require_used, used.size(),
                                   used.size() == 1 ? " is" : "s are", cause.message);
  d.decision.refusal_remedy = std::move(cause.hint);
}

// Sets the status, the summary and a refusal by --require or --require-used.
void finish(Deciding& d) {
  d.decision.usable_hcas = count_usable_hcas(d.candidates);
  report_ports(d);
  if (d.choice.ports.empty()) {
    d.decision.status = Status::kNone;
    d.decision.efa = d.choice.efa;
    base::Error cause = explain_none(d);
    d.decision.remedy = base::remedy_of(cause);
    d.decision.summary = std::move(cause.message);
    d.decision.asides = std::exchange(d.decision.warnings, {});
    d.decision.env.clear();  // removes exports that were made before the last port was dropped
    if (d.choice.efa && d.kept.writes_for("libfabric")) d.put("FI_PROVIDER", "efa", "the fabric of this machine");
  } else {
    d.decision.status = d.decision.warnings.empty() ? Status::kOk : Status::kOkWarn;
    summarize(d);
  }
  require(d);
}

}  // namespace

void report(Deciding& d, bool exports) {
  if (exports) {
    export_nccl(d);
    export_others(d);
    check_numbers(d);
    if (d.kept.writes_for("nccl")) check_pkey(d);
    neutralize_wrong_values(d);
    warn_about_ports(d);
    warn_about_unused_rails(d);
  }
  report_older(d);
  keep_the_rest(d);
  finish(d);
}

}  // namespace init
