// Which ports a trainer in this container could use at all, each with the reason if not: pure, from the inventory.
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

// GIDs of the node's own addresses, in a container that has device nodes and no netdev of any HCA. While the RDMA
// subsystem is shared, the kernel sends by whichever GID of the table a queue pair names (seen with Linux 7.3 and rxe);
// only RDMA_CM looks for the address in the caller's network namespace. A neighbour's GID stands in the same table and
// moves nothing. Pure.

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

// What the operator allows of a port's GIDs: --cidr, --family, --no-link-local, and what is set of NCCL_IB_ADDR_*.
struct GidFilter {
  std::vector<fabric::Cidr> cidrs;  // any match; empty: all
  std::optional<fabric::Family> family;
  bool link_local = true;
  std::optional<fabric::Cidr> range = {};  // NCCL_IB_ADDR_RANGE, beside cidrs
  // Where no port has a GID of this netns: whether the node's will do, and what the node said of them.
  bool node_gids = true;
  std::optional<NodeAddresses> node_addresses = {};

  bool narrows() const { return !cidrs.empty() || family; }
  bool allows(const fabric::Address& gid) const;
};

// Best first.
enum class GidRank { kIpv4, kIpv6, kLinkLocal };

// A GID whose address is on an up netdev of this netns, or of the node's, of RoCE v2 type.
struct UsableGid {
  unsigned index = 0;
  fabric::Address gid;
  GidRank rank = GidRank::kIpv4;
  std::string netdev;  // of this netns, that has the address; empty: the node has it
};

// What stands between a port and its use.
enum class Obstacle {
  kNone,
  kNoNode,   // no uverbs node in this container
  kRefused,  // open() of it fails
  kNotActive,
  kLinkLayer,  // neither InfiniBand nor Ethernet
  kAddressesUnknown,
  kTableUnreadable,
  kNoNetdev,  // empty table: no netdev of the HCA in this netns
  kForeign,   // every GID belongs to another netns
  kNetdevDown,
  kTypeUnreadable,
  kOnlyV1,
  kFiltered,  // usable GIDs, but none that the options allow
};

struct Candidate {
  const fabric::Hca* hca = nullptr;
  const fabric::Port* port = nullptr;
  Obstacle obstacle = Obstacle::kNone;
  std::string reason;                // one line, for an obstacle
  std::string remedy;                // what would help, maybe empty
  std::vector<UsableGid> gids;       // RoCE, ascending index; what the filter allows
  std::vector<std::string> netdevs;  // names its netdev goes by in this netns, own first
  bool needs_table = false;          // whole, to tell which GIDs are the node's

  bool usable() const { return obstacle == Obstacle::kNone; }
  double rate() const { return port->rate_gbps(); }
  std::string name() const;  // "mlx5_0:1"
  // The lowest-index GID of a rank; nullptr if it has none.
  const UsableGid* best(GidRank rank) const;
  // The same of its best rank.
  const UsableGid* best() const;
};

// Every port of every HCA, once, in inventory order. The inventory must outlive the answer.
std::vector<Candidate> find_candidates(const fabric::Inventory& inventory, const GidFilter& filter);

// HCAs with at least one usable port: what --require counts.
std::size_t count_usable_hcas(const std::vector<Candidate>& candidates);

}  // namespace init
