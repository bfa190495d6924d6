// Checks of doctor on values of libraries other than NCCL, and on the HCAs of the container.
#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "fabric/port_faults.hpp"
#include "fabric/provider_names.hpp"
#include "init/candidates.hpp"
#include "init/doctor.hpp"
#include "init/kept.hpp"

namespace init {
namespace {

using OneProblem = std::optional<std::string>;

// The form of a library's list of devices.
struct DeviceList {
  std::string_view variable;
  bool ports;     // an entry can be NAME:PORT; otherwise only a name
  bool netdevs;   // the list may name netdevs too; an HCA then needs its port
  bool excludes;  // a leading '^' excludes
  bool trimmed;   // the library ignores blanks around entries
};

constexpr std::array<DeviceList, 4> kLists = {{{"UCX_NET_DEVICES", true, true, true, false},
                                               {"NVSHMEM_HCA_LIST", true, false, true, false},
                                               {"MSCCLPP_HCA_DEVICES", false, false, false, false},
                                               {"MC_TE_FILTERS", false, false, false, true}}};

constexpr std::array<std::string_view, 6> kIndices = {"MSCCLPP_IB_GID_INDEX",    "UCCL_IB_GID_INDEX",
                                                      "UCCL_P2P_RDMA_GID_INDEX", "MC_GID_INDEX",
                                                      "FI_VERBS_GID_IDX",        "OMPI_MCA_btl_openib_gid_index"};

// Returns the problem of one entry. An entry without a port is right if one port of the HCA is usable.
OneProblem wrong_entry(const std::vector<Candidate>& candidates, const DeviceList& list, std::string_view entry,
                       bool exclude) {
  const std::size_t colon = list.ports ? entry.find(':') : std::string_view::npos;
  const std::string_view name = entry.substr(0, colon);
  const Candidate* named = nullptr;
  for (const Candidate& candidate : candidates) {
    if (candidate.hca->name != name) continue;
    if (colon == std::string_view::npos && list.netdevs)
      return fmt::format("names {} without its port: write `{}`, because a name without a port matches nothing",
                         printable(name), printable(candidate.name()));
    if (colon != std::string_view::npos && std::to_string(candidate.port->number) != entry.substr(colon + 1)) continue;
    if (exclude || candidate.usable()) return std::nullopt;
    named = &candidate;
  }
  if (exclude) return std::nullopt;  // excluding a missing device has no effect
  if (named) return fmt::format("names {}, which cannot be used: {}", printable(named->name()), named->reason);
  return fmt::format("names {}, which does not exist here", printable(entry));
}

// Returns the problem of the first wrong entry. The library certainly finds no device if every entry is wrong.
std::optional<Problem> wrong_list(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates,
                                  const DeviceList& list, std::string_view value) {
  const bool exclude = list.excludes && value.starts_with('^');
  if (exclude) value.remove_prefix(1);
  if (value == "all") return std::nullopt;
  OneProblem first;
  bool serves = exclude;
  for (std::string_view entry : base::split(value, ',')) {
    if (list.trimmed) entry = base::trim(entry);
    if (entry.empty()) continue;
    // Patterns are not checked: the libraries differ in their syntax.
    const bool is_checked = entry.find_first_of("[*?") == std::string_view::npos;
    const bool is_netdev = list.netdevs && fabric::find_netdev(inventory, entry);
    auto problem = is_checked && !is_netdev ? wrong_entry(candidates, list, entry, exclude) : std::nullopt;
    serves |= !problem;
    if (!first) first = std::move(problem);
  }
  if (!first) return std::nullopt;
  return Problem{*std::move(first), serves ? Verdict::kSlow : Verdict::kBad};
}

// Mooncake sends with a GID over InfiniBand too (rdma_endpoint.cpp of its transfer engine), so an empty slot fails.
std::optional<Problem> wrong_slot(long index, const std::vector<const Candidate*>& ports) {
  for (const Candidate* one : ports) {
    const fabric::Port& port = *one->port;
    if (!port.is_infiniband() || !port.gids_complete || port.gids.empty()) continue;
    if (std::ranges::find(port.gids, index, &fabric::GidEntry::index) == port.gids.end())
      return Problem{fmt::format("GID {} of {} is empty", index, printable(one->name())), Verdict::kBad};
  }
  return std::nullopt;
}

// Checks GLOO_SOCKET_IFNAME: Gloo makes a device for each name, and ends with an error at a name without an address
// (gloo/transport/tcp/device.cc). It knows none of NCCL's signs.
std::optional<Problem> wrong_netdev(const fabric::Inventory& inventory, std::string_view value) {
  if (inventory.netdevs.empty()) return std::nullopt;
  for (const std::string_view name : base::split(value, ',')) {
    bool found = name.empty();
    for (const fabric::Netdev& netdev : inventory.netdevs)
      found |= netdev.name == name || netdev.socket_name() == name;
    if (!found)
      return Problem{
          fmt::format("Gloo finds no netdev `{}`: it reads exact names, without `^` and `=`", printable(name))};
  }
  return std::nullopt;
}

// Checks whether an HCA fits IBGDA, which drives HCAs of mlx5 only: it skips a device whose name lacks its prefix or
// that answers no command of mlx5 (ibgda.cpp and transport_mlx5_common.cpp of NVSHMEM 2.6 to 3.5). An HCA whose
// provider is not known may fit.
std::optional<Problem> unfit_for_ibgda(const fabric::Inventory& inventory) {
  const fabric::Hca* other = nullptr;
  for (const fabric::Hca& hca : inventory.hcas) {
    const std::string provider = fabric::provider_of(hca);
    if (provider.empty() || provider == "mlx5") return std::nullopt;
    if (hca.is_accessible()) other = &hca;
  }
  if (!other) return std::nullopt;
  return Problem{fmt::format("IBGDA and DeepEP's low-latency kernels need an HCA of the provider mlx5, and {} has {}",
                             printable(other->name), fabric::provider_of(*other))};
}

// Checks settings that break or have no effect over the used link layer.
void check_link_layer(const Settings& settings, const Decision& decision, std::vector<Check>& checks) {
  const bool infiniband = decision.uses([](const PortReport& port) { return port.link_layer == "InfiniBand"; });
  const Setting* traffic_class = find_setting(settings, "NVSHMEM_IB_TRAFFIC_CLASS");
  if (!infiniband || !traffic_class || !uses_ibgda(settings)) return;
  checks.push_back({"library-value", Verdict::kNote,
                    fmt::format("NVSHMEM_IB_TRAFFIC_CLASS={} ({}): IBGDA of NVSHMEM 3.3.9 does not start with it over "
                                "InfiniBand (ibgda_rc_init2rtr failed)",
                                printable(traffic_class->value), printable(traffic_class->source)),
                    "unset NVSHMEM_IB_TRAFFIC_CLASS; NVSHMEM_IB_SL selects the service level"});
}

// Checks for HCAs beside EFA that are visible and cannot be opened. efa_device_list_initialize() of libfabric (before
// pull request 12744) gives up at the first device that does not open.
void check_beside_efa(const fabric::Inventory& inventory, std::vector<Check>& checks) {
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory.hcas)
    if (!hca.is_efa() && !hca.is_accessible()) names.push_back(printable(hca.name));
  if (names.empty()) return;
  checks.push_back({"beside-efa", Verdict::kSlow,
                    fmt::format("{} cannot be opened beside EFA: libfabric's efa provider fails on a visible HCA that "
                                "it cannot open (FI_ENODATA), and NCCL then uses TCP",
                                base::join(names, ", ")),
                    "hide these HCAs: remove a hostPath of /dev/infiniband from the pod, or give it a view of its HCAs "
                    "(rdma-hook); or use a libfabric with ofiwg/libfabric#12744"});
}

// Checks for used functions of one physical port: a PF and its VF, or two VFs.
void check_shared_ports(const fabric::Inventory& inventory, const Decision& decision, std::vector<Check>& checks) {
  const auto card_of = [](const fabric::Hca& hca) { return hca.physfn ? hca.physfn : hca.pci; };
  for (const PortReport& port : decision.ports) {
    if (!port.used) continue;
    const fabric::Hca* hca = fabric::find_hca(inventory, port.device);
    std::vector<std::string> names;
    bool is_vf = false;
    for (const PortReport& other : decision.ports) {
      const fabric::Hca* one = fabric::find_hca(inventory, other.device);
      if (!other.used || other.port != port.port || !card_of(*hca) || card_of(*one) != card_of(*hca)) continue;
      if (names.empty() && one != hca) break;  // the row of the first function has reported the card
      names.push_back(printable(one->name));
      is_vf |= one->physfn.has_value();
    }
    if (names.size() < 2 || !is_vf) continue;
    checks.push_back(
        {"shared-port", Verdict::kNote,
         fmt::format("{} are functions of one port of the PF {}, and share its rate: NCCL puts them on one "
                     "PCI device (NCCL_IB_MERGE_VFS) and counts the rate of each",
                     base::join(names, ", "), printable(*card_of(*hca))),
         "give the container one function of each port, or choose with --hca"});
  }
}

// Checks for used RoCE VFs without GUID.
void check_guids(const fabric::Inventory& inventory, const Decision& decision, std::vector<Check>& checks) {
  std::vector<std::string> names;
  for (const fabric::Hca& hca : inventory.hcas) {
    const auto is_roce = [&](const PortReport& port) {
      return port.device == hca.name && port.link_layer == "Ethernet";
    };
    if (hca.has_zero_guid() && decision.uses(is_roce)) names.push_back(printable(hca.name));
  }
  if (names.empty()) return;
  checks.push_back({"no-guid", Verdict::kNote, fmt::format("{}: {}", base::join(names, ", "), fabric::kZeroGuidEffect),
                    "on the node `ip link set PF vf N mac MAC`, from which mlx5 makes the GUID, then unbind and bind "
                    "the VF"});
}

// Checks for used HCAs on which UCX has no RC transport, because their kernel drivers have no shared receive queues
// (Linux 6.18). UCX 1.18 requires one (issue 9736).
void check_ucx_transports(const fabric::Inventory& inventory, const Policy& policy, const Decision& decision,
                          std::vector<Check>& checks) {
  constexpr std::array<std::string_view, 2> kWithout = {"ionic", "erdma"};
  const bool exports_ucx = std::ranges::find(policy.exports, "ucx") != policy.exports.end();
  for (const fabric::Hca& hca : inventory.hcas) {
    const bool lacks = std::ranges::find(kWithout, hca.driver.value_or("")) != kWithout.end();
    if (!exports_ucx || !lacks || !decision.uses([&](const PortReport& port) { return port.device == hca.name; }))
      continue;
    checks.push_back(
        {"ucx-transports", Verdict::kNote,
         fmt::format("UCX needs a shared receive queue for its RC transport, and the kernel's driver {} has "
                     "none: NIXL over UCX uses TCP",
                     *hca.driver),
         "compare `ucx_info -d`, which lists rc_verbs if this UCX and the vendor's driver can"});
    return;
  }
}

}  // namespace

bool uses_ibgda(const Settings& settings) {
  const Setting* setting = find_setting(settings, "NVSHMEM_IB_ENABLE_IBGDA");
  return setting && std::string_view("0NnFf").find(setting->value.front()) == std::string_view::npos;
}

std::vector<Check> check_other_values(const fabric::Inventory& inventory, const Settings& settings,
                                      const Policy& policy, const Decision& decision) {
  std::vector<Check> checks;
  const auto check = [&](std::string_view name, auto problem_of) {
    const Setting* setting = find_setting(settings, name);
    if (!setting) return;
    if (const std::optional<Problem> problem = problem_of(setting->value)) {
      checks.push_back(
          {"library-value", problem->effect,
           fmt::format("{}={} ({}): {}", name, printable(setting->value), printable(setting->source), problem->text),
           fmt::format("correct or unset {}", name)});
    }
  };
  check("GLOO_SOCKET_IFNAME", [&](std::string_view value) { return wrong_netdev(inventory, value); });
  if (uses_ibgda(settings))
    check("NVSHMEM_IB_ENABLE_IBGDA", [&](std::string_view) { return unfit_for_ibgda(inventory); });
  // With EFA or without HCAs, these variables do not apply.
  if (decision.efa || inventory.hcas.empty()) return checks;
  const auto candidates = find_candidates(inventory, policy.gids);
  std::vector<const Candidate*> used;
  for (const Candidate& candidate : candidates)
    if (decision.uses(candidate)) used.push_back(&candidate);
  bool unknown = false;
  const auto wrong_index = [&](std::string_view value) {
    const auto index = base::parse_number<long>(value);
    // A negative index, or text that is no number, leaves the choice to the library.
    return index && *index >= 0 ? check_gid_index(*index, used, unknown) : std::nullopt;
  };
  for (const std::string_view name : kIndices)
    check(name, wrong_index);
  check("MC_GID_INDEX",
        [&](std::string_view value) { return wrong_slot(base::parse_number<long>(value).value_or(0), used); });
  check("UCCL_IB_HCA", [&](std::string_view value) { return check_hca_list(value, candidates, nccl::kNewest); });
  for (const DeviceList& list : kLists)
    check(list.variable, [&](std::string_view value) { return wrong_list(inventory, candidates, list, value); });
  check_link_layer(settings, decision, checks);
  return checks;
}

std::vector<Check> check_hcas(const fabric::Inventory& inventory, const Policy& policy, const Decision& decision) {
  std::vector<Check> checks;
  if (decision.efa) check_beside_efa(inventory, checks);
  check_shared_ports(inventory, decision, checks);
  check_guids(inventory, decision, checks);
  check_ucx_transports(inventory, policy, decision, checks);
  return checks;
}

}  // namespace init
