// Matches a request with the HCAs of the node, before their present grants count.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "hook/base/result.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/pools.hpp"
#include "hook/request/request.hpp"

namespace hook {

// The HCAs of one part of the request.
struct MatchedGroup {
  std::vector<const NodeHca*> hcas;
  bool any_of_them = false;  // equally near to a GPU: any free ones, at least one
};

struct Matched {
  std::vector<MatchedGroup> groups;  // in the order of the request; an HCA can be in several
  std::optional<unsigned> count;     // number of requested HCAs; nullopt: all
  std::optional<unsigned> at_most;   // narrowed to this number
  bool is_narrowed = false;          // a list removed some
  std::vector<std::string> warnings;

  std::vector<const NodeHca*> hcas() const;  // of all groups, without duplicates
};

// Returns whether the request can get an HCA in that mode: it is the mode of the request; without one, the default mode
// of a network or pool.
bool may_be(Mode mode, const Request& request, const Config& config);
// Returns the names of the HCAs of its virtual functions. An exclusive owner of the physical function has these too.
std::vector<std::string> vfs_of(const NodeHca& node, const fabric::Inventory& inventory);
// Returns the names of the HCAs of its physical function.
std::vector<std::string> pfs_of(const NodeHca& node, const fabric::Inventory& inventory);

// The candidates of a request. They are computed once, and a plan uses the same ones after the HCAs are locked. All
// three arguments must outlive the object.
class Candidates {
 public:
  Candidates(const fabric::Inventory& all, const Request& asked, const Config& admin);

  // Returns the HCAs to lock before the holdings are read.
  std::vector<std::string> names() const;

  const fabric::Inventory& inventory;
  const Request& request;
  const Config& config;
  const NodeMap node;
  // The HCAs of the request; empty if it requests none. Errors (refusals): an HCA does not exist, is in no pool or
  // not in the network's pool, or has no device node; a given node has the number of another HCA; `gpu` without a
  // GPU; no HCA remains.
  const Result<Matched> matched;
  // The HCAs of given device nodes, by device number.
  const std::vector<const NodeHca*> given;
};

// HCAs near a container's GPUs: by PCI path, then by NUMA node.

// Returns the GPUs of a container. They are the device nodes in linux.devices, narrowed by the UUIDs of
// NVIDIA_VISIBLE_DEVICES if these match any. Without device nodes the UUIDs, else the indices, of that variable count.
// `all` does not count, because images have it. In an inventory without GPU nodes (a snapshot) nvidiaN and
// renderD(128+N) are the N-th GPU by PCI address. Errors: the container has no GPU or none that the inventory knows.
Result<std::vector<const fabric::Gpu*>> container_gpus(const fabric::Inventory& inventory, const Request& request);

// Returns all HCAs that are as near to the GPU as the nearest, in the given order.
std::vector<const NodeHca*> nearest(const std::vector<const NodeHca*>& hcas, const fabric::Gpu& gpu);

// Returns the HCAs in the order of preference for these GPUs: each GPU in turn takes its nearest remaining HCA. Without
// GPUs the order stays.
std::vector<const NodeHca*> by_nearness(std::vector<const NodeHca*> hcas, const std::vector<const fabric::Gpu*>& gpus);

}  // namespace hook
