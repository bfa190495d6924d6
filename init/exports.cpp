#include "init/exports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fabric/text.hpp"

namespace init {
namespace {

std::string port_list(const ExportInput& input) {
  return nccl_hca_value(input.ports).substr(1);
}

// Adds a name that is not empty and not in the list yet.
void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
}

// Returns the HCAs without ports: "mlx5_0,mlx5_1".
std::string device_list(const ExportInput& input) {
  std::vector<std::string> names;
  for (const ChosenPort& port : input.ports)
    add_once(names, port.candidate->hca->name);
  return fabric::join(names, ",");
}

// Returns the ports and netdevs for UCX_NET_DEVICES. The variable also selects UCX's TCP devices. Over RoCE, UCX aborts
// if it selects no TCP device ("UD endpoint unhandled timeout", 1.13 and 1.18).
std::string ports_and_netdevs(const ExportInput& input) {
  std::vector<std::string> devices;
  for (const ChosenPort& port : input.ports)
    devices.push_back(port.candidate->name());
  for (const ChosenPort& port : input.ports)
    add_once(devices, port.netdev);
  add_once(devices, input.default_netdev);
  return fabric::join(devices, ",");
}

// Returns the HCAs in the order of their PCI functions. MSCCL++ calls the i-th entry IBi, and a job's ranks count the
// GPUs in PCI order too, so entry i serves GPU i.
std::string devices_by_pci(const ExportInput& input) {
  ExportInput sorted = input;
  std::ranges::stable_sort(sorted.ports, {},
                           [](const ChosenPort& port) { return port.candidate->hca->pci.value_or(""); });
  return device_list(sorted);
}

// The variables of a library; empty: the library has no such variable.
struct Library {
  std::string_view name;
  std::string_view list = {};
  std::string (*value)(const ExportInput&) = nullptr;  // value of `list`
  std::string_view index = {};
  std::string_view family = {};
};

constexpr std::array<Library, 10> kLibraries = {{
    {"nccl"},  // the decision writes its variables
    {"ucx", "UCX_NET_DEVICES", ports_and_netdevs, "UCX_IB_GID_INDEX"},
    {"nvshmem", "NVSHMEM_HCA_LIST", port_list, "NVSHMEM_IB_GID_INDEX", "NVSHMEM_IB_ADDR_FAMILY"},
    {"mscclpp", "MSCCLPP_HCA_DEVICES", devices_by_pci, "MSCCLPP_IB_GID_INDEX"},
    {"gloo", "GLOO_SOCKET_IFNAME", [](const ExportInput& input) { return input.default_netdev; }},
    {"uccl", "UCCL_IB_HCA", [](const ExportInput& input) { return nccl_hca_value(input.ports); }, "UCCL_IB_GID_INDEX"},
    {"mooncake", "MC_TE_FILTERS", device_list, "MC_GID_INDEX"},
    {"openmpi", "OMPI_MCA_btl_openib_if_include", port_list, "OMPI_MCA_btl_openib_gid_index"},
    {"libfabric", {}, nullptr, "FI_VERBS_GID_IDX"},
    {"bootstrap", "NCCL_SOCKET_IFNAME",
     [](const ExportInput& input) { return input.default_netdev.empty() ? "" : "=" + input.default_netdev; }},
}};

}  // namespace

std::vector<std::string_view> export_names() {
  std::vector<std::string_view> names(kLibraries.size());
  std::ranges::transform(kLibraries, names.begin(), &Library::name);
  return names;
}

fabric::Result<std::vector<std::string>> parse_exports(std::string_view text) {
  std::vector<std::string> names;
  if (text == "none") return names;
  for (const std::string_view part : fabric::split(text, ',')) {
    const std::string_view name = fabric::trim(part);
    if (std::ranges::find(kLibraries, name, &Library::name) == kLibraries.end()) {
      return fabric::make_error("`{}`: unknown library; --export accepts {} or none", fabric::printable(name),
                                fmt::join(export_names(), ", "));
    }
    names.emplace_back(name);
  }
  return names;
}

Variables library_variables(std::string_view library, const ExportInput& input) {
  Variables variables;
  const auto known = std::ranges::find(kLibraries, library, &Library::name);
  if (known == kLibraries.end()) return variables;
  std::string value = known->value ? known->value(input) : "";
  if (!value.empty()) variables.emplace_back(known->list, std::move(value));
  // The index is exported only if all ports have the same, because each variable is one number for all ports.
  if (input.index && !known->index.empty()) variables.emplace_back(known->index, std::to_string(*input.index));
  if (input.ipv6 && !known->family.empty()) variables.emplace_back(known->family, "AF_INET6");
  return variables;
}

std::string nccl_hca_value(const std::vector<ChosenPort>& ports) {
  std::string value = "=";
  for (const ChosenPort& port : ports)
    value += (value.size() > 1 ? "," : "") + port.candidate->name();
  return value;
}

}  // namespace init
