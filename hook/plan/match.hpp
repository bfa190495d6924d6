// The HCAs among which a plan chooses, before it matters who holds them.
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

// HCAs that one part of the wish names.
struct MatchedGroup {
  std::vector<const NodeHca*> hcas;
  bool any_of_them = false;  // equally near to a GPU: those that are free will do, at least one
};

struct Matched {
  std::vector<MatchedGroup> groups;  // in the order of the wish; an HCA may be in several
  std::optional<unsigned> count;     // so many of them; nullopt: all of them
  std::optional<unsigned> at_most;   // narrowed to so many
  bool is_narrowed = false;          // a list left some out
  std::vector<std::string> warnings;

  std::vector<const NodeHca*> hcas() const;  // of all groups, each once
};

// Whether some HCA would be held in that mode.
bool may_be(Mode mode, const Request& request, const Config& config);
// The names of the HCAs of its virtual functions: who has it alone has these too.
std::vector<std::string> vfs_of(const NodeHca& node, const fabric::Inventory& inventory);
// The names of the HCAs of the physical function whose virtual one it is.
std::vector<std::string> pfs_of(const NodeHca& node, const fabric::Inventory& inventory);

// Found once: a plan is made from the same after the HCAs have been locked. All three arguments have to outlive it.
class Candidates {
 public:
  Candidates(const fabric::Inventory& all, const Request& asked, const Config& admin);

  // What has to be locked before the holdings are read.
  std::vector<std::string> names() const;

  const fabric::Inventory& inventory;
  const Request& request;
  const Config& config;
  const NodeMap node;
  // What the wish means; empty for a wish for none. Errors are refusals: an HCA that does not exist, is in no pool or
  // not in the network's, has no device node; a given node that belongs to none; `gpu` without a GPU; nothing left.
  const Result<Matched> matched;
  // The HCAs of given nodes, by device number. Whether a node of none is a refusal, the wish decides.
  const std::vector<const NodeHca*> given;
};

// Which HCAs are near a container's GPUs: by PCI path, then by NUMA node.

// The GPUs of a container. Errors: it has none, or none that the inventory knows. Its GPUs are the device nodes in
// linux.devices, of which the UUIDs of NVIDIA_VISIBLE_DEVICES leave those that they name, if any; without nodes the
// UUIDs, else its indices, say which are meant. `all` there says nothing: images carry it. In an inventory without GPU
// nodes (a snapshot) nvidiaN and renderD(128+N) are the N-th GPU by PCI address.
Result<std::vector<const fabric::Gpu*>> container_gpus(const fabric::Inventory& inventory, const Request& request);

// All that are as near to the GPU as the nearest; in the order given.
std::vector<const NodeHca*> nearest(const std::vector<const NodeHca*>& hcas, const fabric::Gpu& gpu);

// The same HCAs, those that a container with these GPUs should take first in front: each GPU in turn names its nearest
// of those that are left. Without GPUs the order stays.
std::vector<const NodeHca*> by_nearness(std::vector<const NodeHca*> hcas, const std::vector<const fabric::Gpu*>& gpus);

}  // namespace hook
