// Which ports a trainer in this container could use at all, each with the reason if not: pure, from the inventory.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/node_gids.hpp"

namespace init {

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
