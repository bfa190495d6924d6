#include "init/exports.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "fabric/text.hpp"

namespace init {
namespace {

using Writer = void (*)(const ExportInput&, Variables&);

// "dev:port,dev:port"
std::string port_list(const ExportInput& input) {
  std::vector<std::string> names;
  for (const ChosenPort& port : input.ports)
    names.push_back(port.candidate->name());
  return fabric::join(names, ",");
}

// "dev,dev", each once.
std::string device_list(const ExportInput& input) {
  std::vector<std::string> names;
  for (const ChosenPort& port : input.ports) {
    const std::string& name = port.candidate->hca->name;
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  return fabric::join(names, ",");
}

void put_index(const char* name, const ExportInput& input, Variables& variables) {
  if (input.index) variables.emplace_back(name, std::to_string(*input.index));
}

// UCX_NET_DEVICES also selects UCX's TCP devices, and over RoCE UCX aborts without one ("UD endpoint unhandled
// timeout", 1.13 and 1.18), hence the netdevs.
void ucx(const ExportInput& input, Variables& variables) {
  std::vector<std::string> devices;
  for (const ChosenPort& port : input.ports)
    devices.push_back(port.candidate->name());
  const auto add = [&](const std::string& netdev) {
    if (!netdev.empty() && std::find(devices.begin(), devices.end(), netdev) == devices.end())
      devices.push_back(netdev);
  };
  for (const ChosenPort& port : input.ports)
    add(port.netdev);
  add(input.default_netdev);
  variables.emplace_back("UCX_NET_DEVICES", fabric::join(devices, ","));
  put_index("UCX_IB_GID_INDEX", input, variables);
}

void nvshmem(const ExportInput& input, Variables& variables) {
  variables.emplace_back("NVSHMEM_HCA_LIST", port_list(input));
  put_index("NVSHMEM_IB_GID_INDEX", input, variables);
  if (input.ipv6) variables.emplace_back("NVSHMEM_IB_ADDR_FAMILY", "AF_INET6");
}

// The i-th entry is the library's IBi, so the order is that of the PCI functions, as ranks count GPUs.
void mscclpp(const ExportInput& input, Variables& variables) {
  ExportInput sorted = input;
  std::stable_sort(sorted.ports.begin(), sorted.ports.end(), [](const ChosenPort& left, const ChosenPort& right) {
    return left.candidate->hca->pci.value_or("") < right.candidate->hca->pci.value_or("");
  });
  variables.emplace_back("MSCCLPP_HCA_DEVICES", device_list(sorted));
  put_index("MSCCLPP_IB_GID_INDEX", input, variables);
}

void gloo(const ExportInput& input, Variables& variables) {
  if (!input.default_netdev.empty()) variables.emplace_back("GLOO_SOCKET_IFNAME", input.default_netdev);
}

void uccl(const ExportInput& input, Variables& variables) {
  variables.emplace_back("UCCL_IB_HCA", nccl_hca_value(input.ports));
  put_index("UCCL_IB_GID_INDEX", input, variables);
}

void mooncake(const ExportInput& input, Variables& variables) {
  variables.emplace_back("MC_TE_FILTERS", device_list(input));
  put_index("MC_GID_INDEX", input, variables);
}

void openmpi(const ExportInput& input, Variables& variables) {
  variables.emplace_back("OMPI_MCA_btl_openib_if_include", port_list(input));
  put_index("OMPI_MCA_btl_openib_gid_index", input, variables);
}

void libfabric(const ExportInput& input, Variables& variables) {
  put_index("FI_VERBS_GID_IDX", input, variables);
}

struct Library {
  std::string_view name;
  Writer write;
};

constexpr std::array<Library, 9> kLibraries = {{{"nccl", nullptr},
                                                {"ucx", ucx},
                                                {"nvshmem", nvshmem},
                                                {"mscclpp", mscclpp},
                                                {"gloo", gloo},
                                                {"uccl", uccl},
                                                {"mooncake", mooncake},
                                                {"openmpi", openmpi},
                                                {"libfabric", libfabric}}};

}  // namespace

const std::vector<std::string_view>& export_names() {
  static const std::vector<std::string_view> names = [] {
    std::vector<std::string_view> all;
    all.reserve(kLibraries.size());
    for (const Library& library : kLibraries)
      all.push_back(library.name);
    return all;
  }();
  return names;
}

fabric::Result<std::vector<std::string>> parse_exports(std::string_view text) {
  std::vector<std::string> names;
  if (text == "none") return names;
  for (const std::string_view part : fabric::split(text, ',')) {
    const std::string_view name = fabric::trim(part);
    const auto& known = export_names();
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return fabric::make_error("`{}` is no library that --export knows: {} or none", fabric::printable(name),
                                fmt::join(known, ", "));
    }
    names.emplace_back(name);
  }
  return names;
}

Variables library_variables(std::string_view library, const ExportInput& input) {
  Variables variables;
  for (const Library& known : kLibraries) {
    if (known.name == library && known.write) known.write(input, variables);
  }
  return variables;
}

std::string nccl_hca_value(const std::vector<ChosenPort>& ports) {
  std::string value = "=";
  for (const ChosenPort& port : ports)
    value += (value.size() > 1 ? "," : "") + port.candidate->name();
  return value;
}

}  // namespace init
