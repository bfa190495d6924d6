#include "init/doctor.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"
#include "fabric/provider_names.hpp"
#include "init/candidates.hpp"
#include "init/kept.hpp"

namespace init {
namespace {

using Problem = std::optional<std::string>;

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
Problem wrong_entry(const std::vector<Candidate>& candidates, const DeviceList& list, std::string_view entry,
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

Problem wrong_list(const fabric::Inventory& inventory, const std::vector<Candidate>& candidates, const DeviceList& list,
                   std::string_view value) {
  const bool exclude = list.excludes && value.starts_with('^');
  if (exclude) value.remove_prefix(1);
  if (value == "all") return std::nullopt;
  for (std::string_view entry : base::split(value, ',')) {
    if (list.trimmed) entry = base::trim(entry);
    // Patterns are not checked: the libraries differ in their syntax.
    if (entry.empty() || entry.find_first_of("[*?") != std::string_view::npos) continue;
    if (list.netdevs && fabric::find_netdev(inventory, entry)) continue;
    if (auto problem = wrong_entry(candidates, list, entry, exclude)) return problem;
  }
  return std::nullopt;
}

// Checks GLOO_SOCKET_IFNAME: Gloo makes a device for each name, and ends with an error at a name without an address
// (gloo/transport/tcp/device.cc). It knows none of NCCL's signs.
Problem wrong_netdev(const fabric::Inventory& inventory, std::string_view value) {
  if (inventory.netdevs.empty()) return std::nullopt;
  for (const std::string_view name : base::split(value, ',')) {
    bool found = name.empty();
    for (const fabric::Netdev& netdev : inventory.netdevs)
      found |= netdev.name == name || netdev.socket_name() == name;
    if (!found)
      return fmt::format("Gloo finds no netdev `{}`: it reads exact names, without `^` and `=`", printable(name));
  }
  return std::nullopt;
}

// Checks whether an HCA fits IBGDA, which drives HCAs of mlx5 only: it skips a device whose name lacks its prefix or
// that answers no command of mlx5 (ibgda.cpp and transport_mlx5_common.cpp of NVSHMEM 2.6 to 3.5). An HCA whose
// provider is not known may fit.
Problem unfit_for_ibgda(const fabric::Inventory& inventory) {
  const fabric::Hca* other = nullptr;
  for (const fabric::Hca& hca : inventory.hcas) {
    const std::string provider = fabric::provider_of(hca);
    if (provider.empty() || provider == "mlx5") return std::nullopt;
    if (hca.is_accessible()) other = &hca;
  }
  if (!other) return std::nullopt;
  return fmt::format("IBGDA and DeepEP's low-latency kernels need an HCA of the provider mlx5, and {} has {}",
                     printable(other->name), fabric::provider_of(*other));
}

}  // namespace

bool uses_ibgda(const Settings& settings) {
  const Setting* setting = find_setting(settings, "NVSHMEM_IB_ENABLE_IBGDA");
  return setting && std::string_view("0NnFf").find(setting->value.front()) == std::string_view::npos;
}

std::vector<Check> check_other_values(const fabric::Inventory& inventory, const Settings& settings,
                                      const Policy& policy, const Decision& decision) {
  std::vector<Check> checks;
  const auto add = [&](std::string_view name, const Setting& setting, const Problem& problem) {
    if (!problem) return;
    checks.push_back(
        {"kept", Verdict::kNote,
         fmt::format("{}={} ({}): {}", name, printable(setting.value), printable(setting.source), *problem),
         fmt::format("correct or unset {}", name)});
  };
  const auto check = [&](std::string_view name, auto problem_of) {
    if (const Setting* setting = find_setting(settings, name)) add(name, *setting, problem_of(setting->value));
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
  check("UCCL_IB_HCA", [&](std::string_view value) { return check_hca_list(value, candidates, nccl::kNewest); });
  for (const DeviceList& list : kLists)
    check(list.variable, [&](std::string_view value) { return wrong_list(inventory, candidates, list, value); });
  return checks;
}

}  // namespace init
