// Inventories to start from: what a test changes of them is what it is about.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace test_support {

// Aborts on text that is no address.
fabric::Address address(std::string_view text);

fabric::GidEntry v1(unsigned index, std::string_view gid);
fabric::GidEntry v2(unsigned index, std::string_view gid);
// A slot whose type cannot be read, as MLNX_OFED shows those of other network namespaces.
fabric::GidEntry unreadable(unsigned index, std::string_view gid, int code);

// ACTIVE, LinkUp, 400 Gb/s.
fabric::Port ethernet_port(std::vector<fabric::GidEntry> gids, unsigned number = 1);
fabric::Port infiniband_port(unsigned number = 1);
// An mlx5 HCA with its uverbs node open.
fabric::Hca hca(std::string name, unsigned uverbs, std::vector<fabric::Port> ports);
// Up, of this netns.
fabric::Netdev netdev(std::string name, std::initializer_list<std::string_view> addresses);

// Link-local v1 and v2 at 0 and 1, the IPv4 address as v1 at 2 and as v2 at 3: what mlx5 shows on a quiet host.
std::vector<fabric::GidEntry> usual_gids(std::string_view link_local, std::string_view ipv4);

// A node with that many RoCE rails and a front-end eth0: mlx5_I:1 with rail_I, 10.1.I.1 at index 3 of a table with that
// many slots. 400 Gb/s each, all usable.
fabric::Inventory rails(unsigned count, unsigned slots = 256);
// Adds that many VFs of its first HCA, without GIDs.
void add_vfs(fabric::Inventory& node, unsigned count);

}  // namespace test_support
