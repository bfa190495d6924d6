// The decision: which HCAs a container gets and what follows from that. One plan, applied by edit_spec() (config.json),
// live_steps() (a live container) or nri_adjustment() (NRI).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fabric/result.hpp"
#include "hook/base/json/json_fwd.hpp"
#include "hook/config/config.hpp"

namespace fabric {
struct Inventory;
}

namespace hook {

class Candidates;

// The number of a character device.
struct DeviceNumber {
  std::uint32_t major = 0;
  std::uint32_t minor = 0;
  friend bool operator==(const DeviceNumber&, const DeviceNumber&) = default;
};

struct PlannedNode {
  std::string path;  // in the container, and on the node
  // nullopt: a snapshot does not say, and the number is dynamic. Never for a live node.
  std::optional<std::uint32_t> major;
  std::optional<std::uint32_t> minor;
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  friend bool operator==(const PlannedNode&, const PlannedNode&) = default;
};

struct PlannedNetdev {
  std::string host;  // the netdev on the node that moves or gets a child; empty: a snapshot does not say
  std::string name;  // inside
  Mode mode = Mode::kShared;
  std::string hca;
  unsigned rail = 0;
  std::string network = {};  // of config.json
  friend bool operator==(const PlannedNetdev&, const PlannedNetdev&) = default;
};

struct PlannedMount {
  std::string destination;
  std::string source;
  std::string type = "bind";
  std::vector<std::string> options;
  friend bool operator==(const PlannedMount&, const PlannedMount&) = default;
};

// What the container may allocate of an HCA that others may hold too.
struct PlannedRdmaLimit {
  std::string hca;  // the name of the RDMA device, by which the kernel's controller knows it in every namespace
  RdmaLimits limits;
  friend bool operator==(const PlannedRdmaLimit&, const PlannedRdmaLimit&) = default;
};

// What a prepared directory holds that stands in for a class directory of sysfs. Entries of one directory follow each
// other.
struct ViewEntry {
  std::string directory;  // "infiniband", "infiniband_verbs", "infiniband_mad"
  std::string name;       // "mlx5_0"; empty: only the directory itself
  std::string target;     // as the kernel's own link: "../../devices/pci0000:00/..."; empty: a file with the text
  std::string text = {};
  friend bool operator==(const ViewEntry&, const ViewEntry&) = default;
};

// How an HCA of mode exclusive that stays on the node was open when it was granted. It tells contexts that its holder
// left behind from those before.
struct OpenState {
  std::optional<std::uint32_t> index;   // of its RDMA device; nullopt: the kernel was not asked, or cannot tell
  std::vector<std::uint32_t> contexts;  // their numbers, ascending (RdmaContext::id)
  std::optional<DeviceNumber> node;     // of its uverbs node
  friend bool operator==(const OpenState&, const OpenState&) = default;
};

// What is booked in the ledger.
struct PlannedHca {
  std::string name;
  Mode mode = Mode::kHca;
  unsigned units = 1;  // child netdevs in shared-multi, else 1
  std::optional<unsigned> limit;
  bool held_only = false;  // kept from others, as Plan::also_open, and not granted
  // As the ledger knows it, whatever it is called by then; empty: by its name. The ledger sets it when it books.
  std::string device = {};
  std::optional<OpenState> open = {};  // nullopt: its return does not depend on that
  friend bool operator==(const PlannedHca&, const PlannedHca&) = default;
};

inline const std::string& booked_as(const PlannedHca& hca) {
  return hca.device.empty() ? hca.name : hca.device;
}

// The name of the directory that holds a view of these entries, whatever their order: "set-", and digits that no other
// view has. Of a view of nothing "none".
std::string view_name(const std::vector<ViewEntry>& view);

struct Plan {
  std::vector<PlannedHca> hcas;  // empty: nothing is asked, nothing changes
  // HCAs that the container can open because linux.devices has their nodes, though it is narrowed to others: booked, so
  // that no other container gets one of them alone, and nothing else. Likewise, in mode exclusive, the virtual
  // functions of what it has in this mode, which no other container gets at all.
  std::vector<PlannedHca> also_open;
  std::vector<PlannedNode> nodes;
  std::optional<std::uint64_t> memlock;  // bytes; UINT64_MAX: unlimited; nullopt: leave it
  std::vector<std::string> capabilities;
  std::vector<PlannedRdmaLimit> rdma_limits;  // each has at least one value
  std::vector<PlannedNetdev> netdevs;
  std::vector<std::string> no_rail;  // HCAs for which one was asked that no network of config.json is for
  std::map<std::string, std::string> env;
  std::string no_require;  // why RDMA_INIT_REQUIRE demands nothing, as a word of the log's line; empty: it does
  std::vector<PlannedMount> mounts;
  std::vector<ViewEntry> view;  // what the sources of the mounts hold
  std::vector<std::string> warnings;
};

// Who holds an HCA now, as far as the decision depends on it.
struct Holding {
  bool own = false;                             // the asking container, or its pod, holds it already
  unsigned own_units = 0;                       // of what it was granted; 0: none, it only keeps others from it
  std::optional<std::string> exclusive_holder;  // another owner's label, for the message
  unsigned others = 0;                          // units held by others; exact only up to the limit
  std::string doubtful = {};                    // one of those others that cannot be looked at, for the message
};
using Holdings = std::map<std::string, Holding>;  // by HCA name; missing: not held

// How the view of sysfs is mounted.
enum class ViewMount {
  kBind,     // a read-only bind mount of the directories that all containers with these HCAs share
  kOverlay,  // an overlay of them without an upper directory, for a container that may make a bind mount writable
  kLater,    // not here: only a mount that is made in the node's user namespace will do
};

struct PlanInput {
  const Candidates& among;  // of an inventory as fabric::read_node() gives it, or a snapshot
  const Holdings& holdings;
  std::string view_directory;  // in which the views of sysfs lie: "/run/rdma-hook/views"
  bool host_network = false;   // the container is in the node's network namespace: no netdevs
  ViewMount view_mount = ViewMount::kBind;
  bool variables = false;                    // the container's can still be given
  std::optional<std::string> require = {};   // RDMA_INIT_REQUIRE that it has already, which stays
  std::set<std::string> moved_netdevs = {};  // those that the runtime moves into it: rails that others bring
};

// A uverbs node that got another number when its RDMA device went into the container's network namespace.
struct NewNode {
  std::string hca;
  unsigned uverbs = 0;  // N of uverbsN
  std::string dev;      // "MAJ:MIN"
};
// {"hcas", "nodes", "memlock", "capabilities", "netdevs", "env", "mounts", "warnings"}, as `rdma-hook plan` prints it,
// and "rdma_limits" where there are some.
Json plan_json(const Plan& plan);
// The same for people: one line per thing.
std::string plan_text(const Plan& plan);
// A limit of locked memory: "unlimited" for UINT64_MAX, else "N bytes".
std::string memlock_text(std::uint64_t bytes);

// Pure. Errors are refusals, with the remedy as hint: those of Candidates::matched, an HCA that another container
// holds, a mode that the pool does not allow, fewer HCAs than asked for, a device number or what a view is made of that
// could not be read (Inventory::unread).
fabric::Result<Plan> make_plan(const PlanInput& input);

}  // namespace hook
