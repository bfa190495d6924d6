#include "init/topo.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "init/format_env.hpp"

namespace init {
namespace {

using fabric::Gpu;
using fabric::Hca;
using fabric::Inventory;

// Names in the order of Distance.
constexpr std::array kNames = {"PIX", "PXB", "PHB", "NODE", "SYS", "?"};

// Returns the place of a GPU or an HCA.
PciPlace place_of(const auto& device) {
  return {std::optional(device.pci).value_or(""), device.numa_node.value_or(-1),
          device.pci_path ? &*device.pci_path : nullptr};
}

// The lines of a NUMA node by path and address, so that devices below the same bridge are adjacent.
using Leaves = std::multimap<std::string, std::string>;

std::string path_key(const PciPlace& place) {
  return (place.path ? base::join(*place.path, "/") + "/" : std::string()) + place.pci;
}

std::string hca_line(const Hca& hca, const Decision& decision) {
  std::string text = fmt::format("HCA  {:<16} {}", printable(hca.name), printable(hca.pci.value_or("software")));
  std::optional<RailPlace> rail;
  for (const fabric::Port& port : hca.ports) {
    const auto report = std::ranges::find_if(
        decision.ports, [&](const PortReport& one) { return one.device == hca.name && one.port == port.number; });
    if (report != decision.ports.end()) rail = report->rail;
    const bool used = report != decision.ports.end() && report->used;
    text += fmt::format("  {} port {} {} {:g} Gb/s{}", used ? "●" : "○", port.number,
                        printable(base::value_or(port.link_layer, std::string("?"))), port.rate_gbps(),
                        port.netdev ? " " + printable(*port.netdev) : "");
    if (used && report->gid_index) text += fmt::format(" GID {}", *report->gid_index);
  }
  if (rail) text += "  " + to_string(*rail);
  return text;
}

std::map<int, Leaves> leaves_by_node(const Inventory& inventory, const Decision& decision) {
  std::map<int, Leaves> nodes;
  std::size_t number = 0;
  for (const Gpu& gpu : inventory.gpus.value_or(std::vector<Gpu>())) {
    nodes[gpu.numa_node.value_or(-1)].emplace(path_key(place_of(gpu)),
                                              fmt::format("GPU  GPU{:<13} {}", number++, printable(gpu.pci)));
  }
  for (const Hca& hca : inventory.hcas) {
    nodes[hca.numa_node.value_or(-1)].emplace(path_key(place_of(hca)), hca_line(hca, decision));
  }
  return nodes;
}

// Returns the matrix of distances between GPUs and HCAs.
std::string matrix_text(const std::vector<Gpu>& gpus, const std::vector<Hca>& hcas) {
  std::size_t width = 4;
  for (const Hca& hca : hcas)
    width = std::max(width, printable(hca.name).size());
  std::string text = fmt::format("\n{:<6}", "");
  for (const Hca& hca : hcas)
    text += fmt::format("  {:>{}}", printable(hca.name), width);
  text += "\n";
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    text += fmt::format("GPU{:<3}", i);
    for (const Hca& hca : hcas) {
      const Distance distance = distance_between(place_of(gpus[i]), place_of(hca));
      text += fmt::format("  {:>{}}", kNames[static_cast<std::size_t>(distance)], width);
    }
    text += "\n";
  }
  return text +
         "\nPIX one PCIe bridge, PXB several, PHB same host bridge, NODE same NUMA node, SYS across nodes, ? not "
         "known\n";
}

using Json = nlohmann::ordered_json;

// Returns the names of the HCAs that have a used port.
std::vector<const Hca*> used_hcas(const Inventory& inventory, const Decision& decision) {
  std::vector<const Hca*> used;
  for (const Hca& hca : inventory.hcas) {
    if (decision.uses([&](const PortReport& port) { return port.device == hca.name; })) used.push_back(&hca);
  }
  return used;
}

// Adds the NUMA nodes, 0 if none is known, as Mooncake itself does: the HCAs of the node are near, the other HCAs are
// not.
void add_nodes(std::map<int, Leaves> nodes, const std::vector<const Hca*>& hcas, Json& mooncake) {
  nodes.erase(-1);
  if (nodes.empty()) nodes[0];
  for (const auto& [node, leaves] : nodes) {
    Json lists = Json::array({Json::array(), Json::array()});
    for (const Hca* hca : hcas)
      lists[hca->numa_node == node ? 0 : 1].push_back(hca->name);
    mooncake[fmt::format("cpu:{}", node)] = lists;
  }
}

}  // namespace

Distance distance_between(const PciPlace& left, const PciPlace& right) {
  if (left.pci.empty() || right.pci.empty()) return Distance::kUnknown;
  const bool same_domain = left.pci.substr(0, left.pci.find(':')) == right.pci.substr(0, right.pci.find(':'));
  const bool comparable = same_domain && left.path && right.path && !left.path->empty() && !right.path->empty();
  if (comparable && left.path->front() == right.path->front()) {
    // Two devices below one root port are as far apart as the number of bridges that their paths do not share.
    const auto parting = std::ranges::mismatch(*left.path, *right.path).in1;
    const auto common = static_cast<std::size_t>(parting - left.path->begin());
    const std::size_t between = left.path->size() - common + right.path->size() - common;
    return between <= 2 ? Distance::kPix : Distance::kPxb;
  }
  const bool known = left.numa_node >= 0 && right.numa_node >= 0;
  if (known && left.numa_node != right.numa_node) return Distance::kSys;
  // Root ports on one root bus have one host bridge. The first seven characters, such as "0000:16", are domain and bus.
  if (comparable && left.path->front().substr(0, 7) == right.path->front().substr(0, 7)) return Distance::kPhb;
  return known ? Distance::kNode : Distance::kUnknown;
}

std::string topo_text(const Inventory& inventory, const Decision& decision) {
  const auto nodes = leaves_by_node(inventory, decision);
  if (nodes.empty()) return "no GPU and no RDMA device\n";
  std::string text;
  for (const auto& [node, leaves] : nodes) {
    text += node < 0 ? "┌─ no NUMA node\n" : fmt::format("┌─ NUMA node {}\n", node);
    for (auto leaf = leaves.begin(); leaf != leaves.end(); ++leaf)
      text += fmt::format("{}── {}\n", std::next(leaf) == leaves.end() ? "└" : "├", leaf->second);
  }
  text += "● used by the trainer, ○ not used (rdma-init doctor prints the reason)\n";
  if (inventory.gpus && !inventory.gpus->empty() && !inventory.hcas.empty()) {
    text += matrix_text(*inventory.gpus, inventory.hcas);
  }
  return text;
}

std::string topo_json(const Inventory& inventory, const Decision& decision) {
  const auto gpus = inventory.gpus.value_or(std::vector<Gpu>());
  const auto used = used_hcas(inventory, decision);
  Json sglang = Json::object();
  Json mooncake = Json::object();
  for (std::size_t i = 0; i < gpus.size() && !used.empty(); ++i) {
    const auto distance_to = [&](const Hca* hca) { return distance_between(place_of(gpus[i]), place_of(*hca)); };
    const Distance nearest = distance_to(*std::ranges::min_element(used, {}, distance_to));
    std::vector<std::string> names;
    Json others = Json::array();
    for (const Hca* hca : used) {
      if (distance_to(hca) == nearest) {
        names.push_back(hca->name);
      } else {
        others.push_back(hca->name);
      }
    }
    sglang[std::to_string(i)] = base::join(names, ",");
    mooncake[fmt::format("cuda:{}", i)] = Json::array({names, others});
  }
  if (!used.empty()) add_nodes(leaves_by_node(inventory, decision), used, mooncake);
  Json json{{"sglang", sglang}, {"mooncake", mooncake}};
  for (const PortReport& port : decision.ports) {
    if (!port.rail) continue;
    Json& place = json["rails"][port.device];
    place["rail"] = port.rail->rail;
    if (port.rail->plane) place["plane"] = *port.rail->plane;
  }
  return dump_json(json);
}

}  // namespace init
