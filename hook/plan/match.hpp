// Matches a request with the HCAs of the node, whatever their present grants.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/request.hpp"

namespace hook {

// The HCAs that one selector matches (`gpu`: one group for each GPU), or all HCAs of a request without such selectors.
struct MatchedGroup {
  std::vector<const NodeHca*> hcas;
  // The HCAs are equally near to a GPU: HCAs without free units are skipped, but at least one must have free units.
  bool any_of_them = false;
};

struct Matched {
  std::vector<MatchedGroup> groups;  // groups in the order of the request; an HCA can be in several groups
  std::optional<unsigned> count;     // number of requested HCAs; nullopt: all
  std::optional<unsigned> at_most;   // the lowest count that narrows the request
  bool is_narrowed = false;          // a list that narrows the request removed at least one HCA
  std::vector<std::string> warnings;

  std::vector<const NodeHca*> hcas() const;  // returns the HCAs of all groups, without duplicates
};

// Returns whether the request can get an HCA in that mode: the request names the mode; or it names none, and the mode
// is the default of a network or pool.
bool may_be(Mode mode, const Request& request, const Config& config);
// Returns the names of the HCAs on the virtual functions of `node`. A container that has `node` exclusively controls
// them too.
std::vector<std::string> vfs_of(const NodeHca& node, const fabric::Inventory& inventory);
// Returns the names of the HCAs on the physical function of `node`, if `node` is a VF.
std::vector<std::string> pfs_of(const NodeHca& node, const fabric::Inventory& inventory);

// Returns the warning about an HCA that is skipped because a container cannot open it.
std::string no_node_warning(std::string_view hca);

// Returns the warning about an HCA that is skipped because its pool is unknown. node.pool_unread must not be nullptr.
std::string pool_warning(const NodeHca& node);

// Returns the HCAs that a request with a count can get by their pools, in the order of rails. Their device nodes need
// not be read.
std::vector<const NodeHca*> countable(const NodeMap& node, const Request& request, const Config& config);

// The candidates of a request: the HCAs that it can get. The candidates are computed once, before the HCAs are locked,
// and a plan uses them after that. All arguments of the constructor must outlive the object. shortlist: the only HCAs
// from which a count chooses (rank.hpp); nullptr: all.
class Candidates {
 public:
  Candidates(const fabric::Inventory& all, const Request& asked, const Config& admin,
             const std::vector<std::string>* shortlist = nullptr);

  // Returns the HCAs to lock before their present grants (Holdings) are read.
  std::vector<std::string> names() const;

  const fabric::Inventory& inventory;
  const Request& request;
  const Config& config;
  const NodeMap node;
  // The HCAs of the request; empty if it requests none. Errors (refusals): an HCA does not exist, is in no pool or
  // not in the network's pool, or has no device node; a node in linux.devices has the name of one HCA and the number of
  // another; `gpu` without a GPU; no HCA remains.
  const Result<Matched> matched;
  // The HCAs of the device nodes in linux.devices, identified by device number.
  const std::vector<const NodeHca*> granted;
};

// HCAs near a container's GPUs: by PCI path, then by NUMA node.

// Returns the GPUs of a container. If linux.devices has GPU nodes, these are the GPUs; UUIDs in NVIDIA_VISIBLE_DEVICES
// narrow them if at least one matches. Without GPU nodes, the variable names the GPUs, by UUIDs or, if it has none, by
// indices. `all` does not count, because images set it. If the inventory has no GPU nodes (a snapshot), nvidiaN and
// renderD(128+N) stand for the N-th GPU by PCI address, from 0. Errors: the container has no GPU, or none that the
// inventory knows.
Result<std::vector<const fabric::Gpu*>> container_gpus(const fabric::Inventory& inventory, const Request& request);

// Returns the GPUs that a count prefers to be near: container_gpus() if GPU nodes or UUIDs name them, otherwise none.
std::vector<const fabric::Gpu*> gpus_to_be_near(const fabric::Inventory& inventory, const Request& request);

// Returns the nearest HCA of the GPU and all HCAs that are equally near, in the given order.
std::vector<const NodeHca*> nearest(const std::vector<const NodeHca*>& hcas, const fabric::Gpu& gpu);

// Returns true if `left` is nearer to one of the GPUs than `right`.
bool is_nearer(const NodeHca& left, const NodeHca& right, const std::vector<const fabric::Gpu*>& gpus);

// Returns the HCAs in the order of preference for these GPUs: each GPU in turn takes its nearest remaining HCA. Without
// GPUs the order stays.
std::vector<const NodeHca*> by_nearness(const std::vector<const NodeHca*>& hcas,
                                        const std::vector<const fabric::Gpu*>& gpus);
// Returns the first `most` HCAs in the order of preference of those that accept() takes. Calls accept() once for each
// HCA at most, and for no HCA after the last that is returned.
std::vector<const NodeHca*> first_near(const std::vector<const NodeHca*>& hcas,
                                       const std::vector<const fabric::Gpu*>& gpus, std::size_t most,
                                       const std::function<bool(const NodeHca&)>& accept);

}  // namespace hook
