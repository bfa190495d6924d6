// GIDs of the node's own addresses, in a container that has device nodes and no netdev of any HCA. While the RDMA
// subsystem is shared, the kernel sends by whichever GID of the table a queue pair names (seen with Linux 7.3 and rxe);
// only RDMA_CM looks for the address in the caller's network namespace. A neighbour's GID stands in the same table and
// moves nothing. Pure.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/result.hpp"

namespace init {

// By HCA and port: what the node's netdevs of the granted ports have, as who granted them says.
using NodeAddresses = std::map<std::pair<std::string, unsigned>, std::vector<fabric::Address>>;

// "mlx5_0:1=10.5.0.1,mlx5_0:1=fd00::1".
fabric::Result<NodeAddresses> parse_node_addresses(std::string_view text);

struct NodeGids {
  std::vector<const fabric::GidEntry*> gids;  // of RoCE v2, not link-local; ascending index
  std::string reason;                         // for none, one line; empty where the table says nothing at all
  bool needs_table = false;                   // whole, with the names of netdevs
};

// addresses: what the node said; nullopt: nothing. Then the GIDs are the node's whose netdev is called as the port's
// own is: by its parent (rxe), or by the netdev of the default GID, a link-local one that the kernel puts first
// (drivers/infiniband/core/cache.c, Linux 6.12). Two netdevs of that name, in two network namespaces, cannot be told
// apart, nor can two IPv4 addresses; a netdev with an IPv6 address has a link-local GID of its own, too.
NodeGids find_node_gids(const fabric::Hca& hca, const fabric::Port& port,
                        const std::optional<NodeAddresses>& addresses);

}  // namespace init
