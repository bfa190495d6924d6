#include "hook_node.hpp"

#include "require.hpp"

namespace fuzz {

fabric::Inventory small_node() {
  fabric::Inventory node;
  for (unsigned i = 0; i < 6; ++i) {
    const std::string number = std::to_string(i);
    fabric::Hca hca;
    hca.name = "mlx5_" + number;
    hca.node_guid = "a088:c203:0010:f0a" + number;
    hca.pci = "0000:1" + number + ":00.0";
    hca.numa_node = i < 3 ? 0 : 1;
    hca.driver = "mlx5_core";
    hca.pci_path = {"0000:00:0" + number + ".0"};
    if (i != 5) hca.uverbs = i;
    if (i != 5) hca.uverbs_dev = "231:" + std::to_string(192 + i);
    hca.accessible = true;
    fabric::Port port;
    port.state = i == 3 ? "1: DOWN" : "4: ACTIVE";
    port.link_layer = i == 4 ? "InfiniBand" : "Ethernet";
    port.rate = "400 Gb/sec (4X NDR)";
    port.netdev = "rail" + number;
    hca.ports.push_back(port);
    node.hcas.push_back(hca);
    fabric::Netdev netdev;
    netdev.name = "rail" + number;
    netdev.carrier = 1;
    netdev.in_this_netns = true;
    netdev.pci = hca.pci;
    node.netdevs.push_back(netdev);
  }
  node.rdma_cm = true;
  node.gpus = {{"0000:20:00.0", 0, std::vector<std::string>{"0000:00:01.0"}},
               {"0000:21:00.0", 1, std::vector<std::string>{"0000:00:04.0"}}};
  return node;
}

void require_kept(const hook::Json& before, const hook::Json& after, std::string_view limits, std::string_view replaced,
                  const std::string& path) {
  if (before.is_object()) {
    for (const auto& [name, value] : before.items()) {
      const std::string place = path + "/" + name;
      require(after.is_object() && after.contains(name), "a member is kept", place);
      if (!value.is_null() && place != replaced) require_kept(value, after.at(name), limits, replaced, place);
    }
  } else if (before.is_array()) {
    require(after.is_array() && after.size() >= before.size(), "a list only grows", path);
    if (path == limits) return;
    for (std::size_t i = 0; i < before.size(); ++i)
      require(after[i] == before[i], "an entry is kept", path);
  } else {
    require(before == after, "a value is kept", path);
  }
}

}  // namespace fuzz
