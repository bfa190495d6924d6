#include "hook_node.hpp"

#include "require.hpp"
#include "support/inventories.hpp"

namespace fuzz {

fabric::Inventory small_node() {
  fabric::Inventory node = test_support::rails(6);
  for (unsigned i = 0; i < 6; ++i) {
    const std::string number = std::to_string(i);
    fabric::Hca& hca = node.hcas[i];
    hca.numa_node = i < 3 ? 0 : 1;
    hca.pci_path = {"0000:00:0" + number + ".0"};
    hca.uverbs_dev = "231:" + std::to_string(192 + i);
    hca.ports[0].netdev = "rail" + number;
  }
  node.hcas[3].ports[0].state = "1: DOWN";
  node.hcas[4].ports[0].link_layer = "InfiniBand";
  node.hcas[5].uverbs.reset();
  node.hcas[5].uverbs_dev.reset();
  node.gpus = {{"0000:20:00.0", 0, std::vector<std::string>{"0000:00:01.0"}},
               {"0000:21:00.0", 1, std::vector<std::string>{"0000:00:04.0"}}};
  return node;
}

void require_kept(const base::Json& before, const base::Json& after, std::string_view limits, std::string_view replaced,
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
