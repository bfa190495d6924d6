// The plan: the HCAs of a container and the changes that follow. One plan serves all ways (hook/apply/adjustment.hpp).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "fabric/lent_libraries.hpp"
#include "hook/config/config.hpp"
#include "hook/plan/context_ids.hpp"

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
  std::string path;  // the same in the container and on the node
  // Device number. nullopt: the number is dynamic and the snapshot lacks it. A live node always has it.
  std::optional<std::uint32_t> major;
  std::optional<std::uint32_t> minor;
  std::uint32_t mode = 0666;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  friend bool operator==(const PlannedNode&, const PlannedNode&) = default;
};

struct PlannedNetdev {
  std::string host;  // netdev on the node that moves or gets a child netdev; empty: the snapshot has no netdevs
  std::string name;  // name in the container
  Mode mode = Mode::kShared;
  std::string hca;
  unsigned rail = 0;
  std::string network = {};  // name of the network in the administrator's config.json
  friend bool operator==(const PlannedNetdev&, const PlannedNetdev&) = default;
};

struct PlannedMount {
  std::string destination;
  std::string source;
  std::string type = "bind";
  std::vector<std::string> options;
  friend bool operator==(const PlannedMount&, const PlannedMount&) = default;
};

// Limits of RDMA objects on an HCA that other containers can use too.
struct PlannedRdmaLimit {
  std::string hca;  // name of the RDMA device, which the rdma cgroup controller uses in every namespace
  RdmaLimits limits;
  friend bool operator==(const PlannedRdmaLimit&, const PlannedRdmaLimit&) = default;
};

// An entry of a directory of the view. A directory replaces a class directory of sysfs in the container; "lib" has lent
// libraries, "topology" the administrator's topology file. Entries of one directory are consecutive.
struct ViewEntry {
  std::string directory;  // "infiniband", "infiniband_verbs", "infiniband_mad", "lib", "topology"
  std::string name;       // "mlx5_0"; empty: only the directory itself
  std::string target;     // target of the kernel's link: "../../devices/..."; empty: the entry is a file with `text`
  std::string text = {};
  std::string copy = {};  // a file of the node whose copy this is; `text` is then its fabric::file_identity()
  friend bool operator==(const ViewEntry&, const ViewEntry&) = default;
};

// The contexts that processes had open at the time of the grant, for an exclusive HCA that stays in the node's network
// namespace. When the grant is released, the contexts that are open then are compared with this record: only contexts
// that are not in the record can belong to the owner of the grant.
struct OpenState {
  std::optional<std::uint32_t> index;  // index of the RDMA device; nullopt: it was not read, or is not supported
  ContextIds contexts;
  std::optional<DeviceNumber> node;  // number of the uverbs node
  friend bool operator==(const OpenState&, const OpenState&) = default;
};

// An HCA as the ledger records it.
struct PlannedHca {
  std::string name;
  Mode mode = Mode::kHca;
  unsigned units = 1;  // number of child netdevs in mode shared-multi, otherwise 1
  std::optional<unsigned> limit;
  bool held_only = false;  // booked, which restricts other owners, but not granted (Plan::also_open)
  // Identity of the HCA in the ledger, independent of renames; empty: its name. The ledger sets it when it books.
  std::string device = {};
  std::optional<OpenState> open = {};  // nullopt: the release of the HCA ignores open contexts
  // The key of the claim through which the owner uses the HCA (Owner::claims): only the claim's grant holds the HCA.
  // Empty: this grant holds it. The ledger sets it when it books.
  std::string claim = {};
  friend bool operator==(const PlannedHca&, const PlannedHca&) = default;
};

inline const std::string& booked_as(const PlannedHca& hca) {
  return hca.device.empty() ? hca.name : hca.device;
}

// Returns the name of the directory for a view of these entries, in any order: "set-" and a digest, or "lent-" and a
// digest if the view has copies of the node's files. Returns "none" for an empty view.
std::string view_name(const std::vector<ViewEntry>& view);
// Returns true for the name of a view with copies. An older version gave the name "set-DIGEST" to such views, too.
bool is_lending_view(std::string_view name);

struct Plan {
  std::vector<PlannedHca> hcas;  // empty if the container requests nothing: then the plan has only variables in `env`
  // HCAs that are booked but not granted. There are two kinds. The container can open HCAs of the first kind by nodes
  // in linux.devices, although its request does not select them: no other container may get them exclusively. The
  // second kind are the VFs of exclusive HCAs: no other container may get them at all.
  std::vector<PlannedHca> also_open;
  std::vector<PlannedNode> nodes;
  std::optional<std::uint64_t> memlock;  // bytes; UINT64_MAX: unlimited; nullopt: unchanged
  std::vector<std::string> capabilities;
  std::vector<PlannedRdmaLimit> rdma_limits;  // limits of HCAs, each with at least one limit
  std::vector<PlannedNetdev> netdevs;
  std::vector<std::string> no_rail;  // HCAs without a network although a rail was requested
  std::map<std::string, std::string> env;
  std::string no_require;  // why RDMA_INIT_REQUIRE is not set, as a word for the log line; empty: it is set
  std::vector<PlannedMount> mounts;
  std::vector<ViewEntry> view;                  // the content of the mounts' sources
  std::string view_name = hook::view_name({});  // the view_name() of `view`
  std::vector<std::string> warnings;
};

// The numbers of units of other owners at which a decision about an HCA changes: the ledger counts exactly from `least`
// to `most`. 0: the decision does not depend on the number.
struct UnitBounds {
  unsigned least = 0;
  unsigned most = 0;
  friend bool operator==(const UnitBounds&, const UnitBounds&) = default;
};

// The present grants of an HCA, as far as a plan depends on them.
struct Holding {
  bool own = false;                            // the requesting container or its pod has the HCA
  unsigned own_units = 0;                      // granted units; 0: only booked (PlannedHca::held_only)
  std::optional<std::string> exclusive_owner;  // label of another owner, for the message
  unsigned others = 0;                         // units of other owners; below UnitBounds::least, stale grants count too
  std::string doubtful = {};                   // describes another owner of unknown state, for the message
  friend bool operator==(const Holding&, const Holding&) = default;
};
using Holdings = std::map<std::string, Holding>;  // holdings by HCA name; an HCA without grants is missing

// The libraries that open the HCAs of a provider, or why they cannot be lent, by provider. A provider whose libraries
// are not lent is missing.
using Lendable = std::map<std::string, base::Result<std::vector<fabric::LentFile>>>;

// The mount of the sysfs view.
enum class ViewMount {
  kBind,     // a read-only bind mount of directories that all containers with the same HCAs share
  kOverlay,  // a read-only overlay of the shared directories: the container could remount a bind mount writable
  kLater,    // config.json has the mount already, or createRuntime makes it later; the plan does not list it
};

struct PlanInput {
  const Candidates& among;  // candidates of fabric::read_node() or a snapshot
  const Holdings& holdings;
  std::string view_directory;  // directory of the sysfs views: "/run/rdma-hook/views"
  bool host_network = false;   // the container is in the node's network namespace and gets no netdevs
  ViewMount view_mount = ViewMount::kBind;
  bool variables = false;                    // variables can still be added to the container
  std::string pod_note = {};                 // value of RDMA_INIT_NOTE, see plan_without_hcas(); needs `variables`
  std::optional<std::string> require = {};   // the container's own RDMA_INIT_REQUIRE, which is kept
  std::set<std::string> moved_netdevs = {};  // netdevs that the runtime moves into the container
  Lendable lendable = {};
  std::optional<base::Result<fabric::LentFile>> topology = {};  // nullopt: config.json names none
};

// A uverbs node that got a new number when its RDMA device moved into the container's network namespace.
struct NewNode {
  std::string hca;
  unsigned uverbs = 0;  // the number N of uverbsN
  std::string dev;      // "MAJ:MIN"
};
// Returns {"hcas", "nodes", "memlock", "capabilities", "netdevs", "env", "mounts", "warnings"}, and "rdma_limits" if
// there are any, as `rdma-hook plan --json` prints it.
Json plan_json(const Plan& plan);
// Returns the plan as text, one line per entry.
std::string plan_text(const Plan& plan);
// Returns a limit of locked memory: "unlimited" for UINT64_MAX, otherwise "N bytes".
std::string memlock_text(std::uint64_t bytes);

// Returns the plan of a container that gets no HCA. The plan sets RDMA_INIT_NOTE to `pod_note`, by which rdma-init
// reports to the pod's author why an annotation has no effect. An empty value sets no variable, and the plan changes
// nothing.
Plan plan_without_hcas(const std::string& pod_note);

// Makes the plan. Pure. Errors are refusals, most of them with the remedy as hint: the errors of choose() and
// plan_netdevs(); a device node in linux.devices although another owner has its HCA exclusively; a device number or
// an entry of the view that was not read (Inventory::unread).
base::Result<Plan> make_plan(const PlanInput& input);

}  // namespace hook
