// Finds the ports that a trainer in this container can use, and the reason for each other port. Pure: the input is the
// inventory.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"

namespace init {

// A container with device nodes but without the netdevs of its HCAs can use the GIDs of the node's addresses. In the
// shared mode of the RDMA subsystem (rdma-system(8)), a queue pair sends with any of these GIDs (tested with Linux 7.3
// and rxe). Only RDMA_CM requires the address in the caller's network namespace. The GID of another container is in the
// same table, but a connection that uses it carries no traffic. All functions here are pure.

// Addresses of the node's netdevs by HCA and port, from the program that granted the HCAs.
using NodeAddresses = std::map<std::pair<std::string, unsigned>, std::vector<fabric::Address>>;

// Parses "mlx5_0:1=10.5.0.1,mlx5_0:1=fd00::1". Errors: an entry that is not HCA:PORT=ADDRESS.
base::Result<NodeAddresses> parse_node_addresses(std::string_view text);

struct NodeGids {
  std::vector<const fabric::GidEntry*> gids;  // type RoCE v2, not link-local; ascending index
  std::string reason;                         // why there is no GID, one line; empty: the table shows no cause
  bool needs_table = false;                   // the caller must read the complete table, with names of netdevs
};

// Finds the GIDs of the node's addresses on a port. addresses: addresses that the node reported; nullopt: none were
// reported. If none were reported, the GIDs that name the port's netdev are used. That netdev is the parent of an rxe
// device, or the netdev of the default GID: a link-local GID that the kernel places first
// (drivers/infiniband/core/cache.c, Linux 6.12). The result is empty if netdevs of two network namespaces may have the
// name: the GIDs with this name include two link-local GIDs (each netdev with IPv6 has one), or two IPv4 addresses and
// no IPv6 address.
NodeGids find_node_gids(const fabric::Hca& hca, const fabric::Port& port,
                        const std::optional<NodeAddresses>& addresses);

// The GIDs of a port that the administrator allows: --cidr, --family, --no-link-local, and NCCL_IB_ADDR_* if they are
// set.
struct GidFilter {
  std::vector<fabric::Cidr> cidrs;  // a GID must match one of them; empty: all GIDs match
  std::optional<fabric::Family> family;
  bool link_local = true;
  std::optional<fabric::Cidr> range = {};  // NCCL_IB_ADDR_RANGE, in addition to cidrs
  // Whether GIDs of the node are accepted if no port has a GID of this network namespace, and the addresses that the
  // node reported.
  bool node_gids = true;
  std::optional<NodeAddresses> node_addresses = {};

  bool narrows() const { return !cidrs.empty() || family; }
  bool allows(const fabric::Address& gid) const;
};

// Ranks of GIDs, best first.
enum class GidRank { kIpv4, kIpv6, kLinkLocal };

// A GID of type RoCE v2 with an address on an up netdev of this network namespace, or on the node.
struct UsableGid {
  unsigned index = 0;
  fabric::Address gid;
  GidRank rank = GidRank::kIpv4;
  std::string netdev;  // the netdev of this netns that has the address; empty: the address is on the node
  bool deprecated = false;
};

// Why a port cannot be used. The order matters: the later an obstacle is in the list, the less is missing to a usable
// port (explain_missing()).
enum class Obstacle {
  kNone,
  kNoNode,   // the HCA has no uverbs node in this container
  kRefused,  // open() of the node fails
  kNotActive,
  kNoGuid,     // an InfiniBand VF without GUID, which the subnet manager does not activate
  kLinkLayer,  // the link layer is neither InfiniBand nor Ethernet
  kProvider,   // libibverbs rejects the HCA's provider; the node opens and the port is active
  kAddressesUnknown,
  kTableUnreadable,
  kNoNetdev,   // no netdev of the HCA is in this netns
  kForeign,    // every GID belongs to another netns, and the port's netdev is not here
  kNoAddress,  // the port's netdev is here, and has no address or no GID for one
  kNetdevDown,
  kAddress,  // the port's address does not serve: a peer, a duplicate, or not tested yet
  kTypeUnreadable,
  kOnlyV1,
  kIndexTooHigh,
  kFiltered,  // the port has usable GIDs, but the options allow none of them
};

// Returns the stable name of an obstacle for programs, such as "no-address"; empty for kNone.
std::string_view cause_of(Obstacle obstacle);

// Remedy for an HCA whose provider the image lacks (Obstacle::kProvider).
inline constexpr const char* kProviderRemedy =
    "install in the image the provider of the node's driver: from the package of the driver's vendor in "
    "the driver's release, or from the distribution for a driver of the kernel";

struct Candidate {
  const fabric::Hca* hca = nullptr;
  const fabric::Port* port = nullptr;
  Obstacle obstacle = Obstacle::kNone;
  std::string reason;                // the obstacle in one line; empty: there is none
  std::string remedy;                // remedy of the obstacle, may be empty
  std::vector<UsableGid> gids;       // RoCE: GIDs that the filter allows, ascending index
  std::vector<std::string> netdevs;  // names of the port's netdev in this netns, and of its bond
  bool needs_table = false;          // the complete GID table must be read to find the node's GIDs

  bool usable() const { return obstacle == Obstacle::kNone; }
  double rate() const { return port->rate_gbps(); }
  std::string name() const;  // "mlx5_0:1"
  // Returns the GID of this rank with the lowest index, nullptr if there is none. A deprecated address comes last.
  const UsableGid* best(GidRank rank) const;
  // Returns the GID of the best rank with the lowest index, nullptr if there is none.
  const UsableGid* best() const;
};

// Returns every port of every HCA once, in inventory order. The inventory must outlive the result.
std::vector<Candidate> find_candidates(const fabric::Inventory& inventory, const GidFilter& filter);

// Returns the number of HCAs with at least one usable port, which --require compares.
std::size_t count_usable_hcas(const std::vector<Candidate>& candidates);

}  // namespace init
