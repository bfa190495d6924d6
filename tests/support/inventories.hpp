// Example inventories, which a test changes only where its subject requires it.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace test_support {

// Parses an address. Aborts if the text is no address.
fabric::Address address(std::string_view text);

fabric::GidEntry v1(unsigned index, std::string_view gid);
fabric::GidEntry v2(unsigned index, std::string_view gid);
// A slot with an unreadable type, like the slots of other network namespaces with MLNX_OFED.
fabric::GidEntry unreadable(unsigned index, std::string_view gid, int code);

// A port that is ACTIVE, LinkUp, 400 Gb/s.
fabric::Port ethernet_port(std::vector<fabric::GidEntry> gids, unsigned number = 1);
fabric::Port infiniband_port(unsigned number = 1);
// An mlx5 HCA with an accessible uverbs node.
fabric::Hca hca(std::string name, unsigned uverbs, std::vector<fabric::Port> ports);
// A netdev of this netns that is up.
fabric::Netdev netdev(std::string name, std::initializer_list<std::string_view> addresses);

// Link-local v1 and v2 at 0 and 1, the IPv4 address as v1 at 2 and as v2 at 3: the table of mlx5 on a host without
// containers.
std::vector<fabric::GidEntry> usual_gids(std::string_view link_local, std::string_view ipv4);

// A node with `count` RoCE rails and a front-end eth0: mlx5_I:1 with railI, 10.1.I.1 at index 3 of a table with `slots`
// slots. 400 Gb/s each, all usable.
fabric::Inventory rails(unsigned count, unsigned slots = 256);
// Adds `count` VFs of the first HCA, without GIDs.
void add_vfs(fabric::Inventory& node, unsigned count);

}  // namespace test_support
