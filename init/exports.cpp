#include "init/exports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.hpp"

namespace init {
namespace {

std::string port_list(const ExportInput& input) {
  std::vector<std::string> names;
  for (const ChosenPort& port : input.ports)
    names.push_back(port.candidate->name());
  return base::join(names, ",");
}

// Adds a name that is not empty and not in the list yet.
void add_once(std::vector<std::string>& names, const std::string& name) {
  if (!name.empty() && std::ranges::find(names, name) == names.end()) names.push_back(name);
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
  return base::join(devices, ",");
}

// Returns the HCAs in the order of their PCI functions. MSCCL++ calls the i-th entry IBi, and a job's ranks count the
// GPUs in PCI order too, so entry i serves GPU i.
std::string devices_by_pci(const ExportInput& input) {
  ExportInput sorted = input;
  std::ranges::stable_sort(sorted.ports, {},
                           [](const ChosenPort& port) { return port.candidate->hca->pci.value_or(""); });
  return device_list(sorted);
}

// NVSHMEM's IBGDA and IBDEVX skip devices without the prefix, which is "mlx5" by default (NVSHMEM 3.4.5). Returns an
// empty text if the default is right, or if the names have no common prefix.
std::string prefix_for_nvshmem(const ExportInput& input) {
  constexpr std::string_view kDefault = "mlx5";
  std::string_view prefix = input.ports.front().candidate->hca->name;
  bool is_default = true;
  for (const ChosenPort& port : input.ports) {
    const std::string_view name = port.candidate->hca->name;
    prefix = prefix.substr(0, static_cast<std::size_t>(std::ranges::mismatch(prefix, name).in1 - prefix.begin()));
    is_default &= name.starts_with(kDefault);
  }
  return is_default ? "" : std::string(prefix);
}

// Mooncake uses one port number for all HCAs, 1 by default. Returns an empty text if the default is right, or if the
// numbers differ.
std::string port_for_mooncake(const ExportInput& input) {
  const unsigned number = input.ports.front().candidate->port->number;
  const bool same =
      std::ranges::all_of(input.ports, [&](const ChosenPort& port) { return port.candidate->port->number == number; });
  return same && number != 1 ? std::to_string(number) : "";
}

// The variables for an index have one number for all ports.
std::string index_text(const ExportInput& input) {
  return input.index ? std::to_string(*input.index) : "";
}

struct Export {
  std::string_view library;
  std::string_view variable;
  std::string (*value)(const ExportInput&);  // returns an empty text if the variable is not exported
};

constexpr Export kExports[] = {
    {"ucx", "UCX_NET_DEVICES", ports_and_netdevs},
    {"ucx", "UCX_IB_GID_INDEX", index_text},
    {"nvshmem", "NVSHMEM_HCA_LIST", port_list},
    {"nvshmem", "NVSHMEM_HCA_PREFIX", prefix_for_nvshmem},
    {"nvshmem", "NVSHMEM_IB_GID_INDEX", index_text},
    {"nvshmem", "NVSHMEM_IB_ADDR_FAMILY",
     [](const ExportInput& input) -> std::string { return input.ipv6 ? "AF_INET6" : ""; }},
    {"mscclpp", "MSCCLPP_HCA_DEVICES", devices_by_pci},
    {"mscclpp", "MSCCLPP_IB_GID_INDEX", index_text},
    {"gloo", "GLOO_SOCKET_IFNAME", [](const ExportInput& input) { return input.default_socket; }},
    {"uccl", "UCCL_IB_HCA", [](const ExportInput& input) { return "=" + port_list(input); }},
    {"uccl", "UCCL_IB_GID_INDEX", index_text},
    // Without a list, UCCL takes the HCA that is nearest to the GPU. With a list, each GPU uses all
    // its HCAs, so the list is left out unless the container has other HCAs, which UCCL might take.
    {"uccl", "UCCL_P2P_RDMA_DEV", [](const ExportInput& input) { return input.has_others ? device_list(input) : ""; }},
    {"uccl", "UCCL_P2P_RDMA_GID_INDEX", index_text},
    {"mooncake", "MC_TE_FILTERS", device_list},
    {"mooncake", "MOONCAKE_DEVICE", device_list},
    {"mooncake", "MC_IB_PORT", port_for_mooncake},
    {"mooncake", "MC_GID_INDEX", index_text},
    {"openmpi", "OMPI_MCA_btl_openib_if_include", port_list},
    {"openmpi", "OMPI_MCA_btl_openib_gid_index", index_text},
    {"libfabric", "FI_VERBS_GID_IDX", index_text},
    {"bootstrap", "NCCL_SOCKET_IFNAME",
     [](const ExportInput& input) { return input.default_socket.empty() ? "" : "=" + input.default_socket; }}};

}  // namespace

std::vector<std::string_view> export_names() {
  std::vector<std::string_view> names = {"nccl"};
  for (const Export& one : kExports)
    if (names.back() != one.library) names.push_back(one.library);
  return names;
}

base::Result<std::vector<std::string>> parse_exports(std::string_view text) {
  const auto known = export_names();
  std::vector<std::string> names;
  if (text == "none") return names;
  for (const std::string_view part : base::split(text, ',')) {
    const std::string_view name = base::trim(part);
    if (std::ranges::find(known, name) == known.end()) {
      return base::make_error("`{}`: unknown library; --export accepts {} or none", base::printable(name),
                              fmt::join(known, ", "));
    }
    names.emplace_back(name);
  }
  return names;
}

Variables library_variables(std::string_view library, const ExportInput& input) {
  Variables variables;
  for (const Export& one : kExports) {
    if (one.library != library) continue;
    if (std::string value = one.value(input); !value.empty()) variables.emplace_back(one.variable, std::move(value));
  }
  return variables;
}

std::string exports_mark(const Variables& exports, const Settings& settings) {
  std::vector<std::string> entries;
  const auto add = [&](const std::string& name, const std::string& value) {
    if (value.find(';') == std::string::npos) entries.push_back(fmt::format("{}={}", name, value));
  };
  for (const auto& [name, value] : exports)
    add(name, value);
  for (const auto& [name, setting] : settings) {
    if (setting.own && std::ranges::find(exports, name, &Variables::value_type::first) == exports.end())
      add(name, setting.value);
  }
  return base::join(entries, ";");
}

std::string device_list(const ExportInput& input) {
  std::vector<std::string> names;
  for (const ChosenPort& port : input.ports)
    add_once(names, port.candidate->hca->name);
  return base::join(names, ",");
}

std::string nccl_hca_value(const std::vector<ChosenPort>& ports) {
  std::string value = "=";
  for (const ChosenPort& port : ports)
    value += (value.size() > 1 ? "," : "") + port.candidate->name() + port.rail;
  return value;
}

}  // namespace init
