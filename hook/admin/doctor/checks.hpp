// The checks of `rdma-hook doctor`. A read_...() function reads facts from the node; a check_...() function
// returns the findings about these facts and is pure, except check_node_index().
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/process/daemon_state.hpp"
#include "base/result.hpp"
#include "fabric/inventory.hpp"
#include "fabric/kernel_facts.hpp"
#include "hook/admin/install/query_engine.hpp"
#include "hook/admin/install/record.hpp"
#include "hook/admin/install/slurm_conf.hpp"
#include "hook/apply/rdma_cgroup.hpp"
#include "hook/config/config.hpp"
#include "hook/grant/pool_counts.hpp"
#include "hook/ledger/ledger.hpp"
#include "hook/oci/container_spec.hpp"

namespace hook {

enum class Grade { kNote, kWarning, kBroken };

struct Finding {
  Grade grade = Grade::kWarning;
  std::string object;  // "mlx5_3:1", "/dev/infiniband/uverbs0"
  std::string message;
  std::string remedy;
  friend bool operator==(const Finding&, const Finding&) = default;
};

struct Check {
  std::string name;
  std::string summary;  // the state of the node, printed if there is no finding
  std::vector<Finding> findings;
  bool looked = true;  // false: nothing was checked, and the summary has the reason
  // Adds the finding, unless the check already has an equal one: several reads can fail at the same file.
  void add(Finding finding) {
    if (std::ranges::find(findings, finding) == findings.end()) findings.push_back(std::move(finding));
  }
  void add(Grade grade, std::string object, std::string message, std::string remedy) {
    add({grade, std::move(object), std::move(message), std::move(remedy)});
  }
};

// Returns the checks "modules", "nodes" and "qkey". Pure.
std::vector<Check> check_kernel(const fabric::KernelFacts& facts, const fabric::Inventory& inventory,
                                const Config& config);

// Checks of the HCAs in pools: GID tables, ports, rates, MTUs, and the node's own network on them. All are pure.

// The active_mtu in bytes, by HCA and port number. No file in /sys has it.
using ActiveMtus = std::map<std::pair<std::string, unsigned>, unsigned>;
// Parses the output of `ibv_devinfo` of rdma-core. Skips values that it cannot parse.
ActiveMtus parse_ibv_devinfo(std::string_view text);

// Returns the RDMA MTU that the kernel derives from a netdev's MTU (include/rdma/ib_addr.h, iboe_get_mtu(), Linux
// 6.12); 0: too small for RoCE.
unsigned roce_mtu(int netdev_mtu);

// Returns the object of findings about a port, such as "mlx5_0:1".
std::string port_object(const fabric::Hca& hca, const fabric::Port& port);

// Returns a warning for each pool that has no HCA of this node; none if the node has no HCA. Pure.
std::vector<Finding> check_empty_pools(const fabric::Inventory& inventory, const Config& config);

// Returns the checks "netns", "pools", "gids", "ports", "rates", "mtu", "routes" and "addresses".
std::vector<Check> check_rails(const fabric::Inventory& inventory, const Config& config, const ActiveMtus& active_mtus);

// Returns the checks "gpudirect", "acs" and "iommu". Pure.
std::vector<Check> check_gpus(const fabric::GpuFacts& facts, const fabric::Inventory& inventory);

// Flow control of RoCE rails, as `dcb` of iproute2 and sysfs report it. All findings are notes, because the
// configuration of the switches is unknown.

// A traffic class that "env" of config.json gives to containers.
struct MarkQos {
  unsigned traffic_class = 0;
  std::optional<unsigned> priority = {};  // priority of its DSCP; nullopt: unknown
  bool maps_dscp = true;  // false: no DSCP has a priority, so `priority` is that of packets without a VLAN tag
};

struct RailQos {
  std::string netdev;
  std::optional<std::vector<unsigned>> pfc;  // priorities with PFC; nullopt: unknown
  // Whether ECN is on for at least one priority. Only MLNX_OFED's mlx5 has this in sysfs. nullopt: unknown.
  std::optional<bool> ecn;
  std::vector<MarkQos> marks = {};  // the values of NCCL_IB_TC for containers with this rail
  std::string hca = {};             // the HCA of the rail
  // mlx5's global traffic class of the HCA, "236"; only MLNX_OFED has it. Empty: none, or unknown.
  std::string global_class = {};
};

// Returns the priorities that are on in the line "prio-pfc 0:off 3:on" of `dcb pfc show`; nullopt if the text has no
// such line.
std::optional<std::vector<unsigned>> parse_dcb_pfc(std::string_view text);

// The priorities in the lines "dscp-prio 26:3 48:6" and "default-prio 0" of `dcb -N app show`.
struct DcbPriorities {
  std::map<unsigned, unsigned> of_dscp;  // priority by DSCP
  unsigned fallback = 0;                 // priority of other packets without a VLAN tag
};
DcbPriorities parse_dcb_priorities(std::string_view text);

// Adds the priority of each mark of the rail. may_map: the driver may map a DSCP without an entry of `dcb app`; the
// priority of such a DSCP stays unknown. Pure.
void add_priorities(const DcbPriorities& priorities, bool may_map, RailQos& rail);

// Reads the flow control of RoCE rails.
// rails: netdev, and the traffic classes of the site's configuration.
// root: prefix of /sys. `dcb` is executed only if root is empty.
// unasked: gets an error if `dcb` cannot be executed.
std::vector<RailQos> read_qos(const std::string& root, std::vector<RailQos> rails, std::vector<Error>& unasked);

// Returns the check "qos". Pure.
Check check_qos(const std::vector<RailQos>& rails);

// The next checks compare config.json with the node: the node's part of each address range with `per_node`, the size of
// each range, and the limits of RDMA objects. All are pure except check_node_index(), which can read the file that has
// the node's index.

// Returns a warning for each pool that allows shared modes, has HCAs of this node, and has no limit "hca_objects" in
// the administrator's config.json. Returns a further warning if config.json has limits that the node cannot set.
// Returns no warning if config.json has no pools. controller: nullopt if it is unknown.
std::vector<Finding> check_rdma_limits(const fabric::Inventory& inventory, const Config& config,
                                       const std::optional<Result<RdmaController>>& controller);

// Returns a broken finding for each pool with fewer usable HCAs than "expect". Pure.
std::vector<Finding> check_expected(const std::vector<PoolCount>& pools);

struct NodeIndexSources {
  std::optional<std::string> root;  // prefix of the index file's path; nullopt: a snapshot has no files
  bool knows_addresses = false;     // whether the inventory has the addresses of the node's netdevs
  // NODE_NAME of this process; nullopt: this process has none, although the hook on the node may have it.
  std::optional<std::string> name;
};

// Returns a finding for each error of the node's index for which the hook would refuse a container. Returns a note if
// this call cannot determine the index.
std::vector<Finding> check_node_index(const fabric::Inventory& inventory, Config config, const NodeIndexSources& from);

// Returns a warning for each range of MAC addresses or GUIDs that is smaller than the number of virtual functions in
// the pools of its network.
std::vector<Finding> check_vf_ranges(const fabric::Inventory& inventory, const Config& config);

// The ledger and its directory: grants, their owners, and free space.

// The GID index of a container's rail when the container started.
struct PlacedGid {
  std::string owner_label;  // label of the grant's owner
  std::string hca;
  std::vector<fabric::Address> addresses;
  unsigned index = 0;
};

struct MovedGid {
  PlacedGid placed;
  std::optional<unsigned> index;  // the present index; nullopt: none
};

struct LedgerFacts {
  std::string path;
  std::uint64_t free_bytes = UINT64_MAX;  // free space on the ledger's file system
  std::uint64_t free_files = UINT64_MAX;
  bool read_only = false;
  std::vector<Grant> grants;
  // The present names of the node's HCAs; the key is PlannedHca::device.
  std::map<std::string, std::vector<std::string>> names;
  std::vector<PlacedGid> gids;  // recorded GIDs of the rails of grants that are not stale
  std::vector<MovedGid> moved;  // the GIDs whose index changed since containers got them (moved_gids())
  // CDI files of prepared claims that do not exist, by the key of the claim.
  std::map<std::string, std::string> lost_claim_files;
  std::optional<base::ProbedState> claim_driver;  // state of rdma-dra; nullopt: no claim is prepared
  bool is_there = false;                          // false: the node never had a grant
  std::vector<Error> unread;  // errors of grants, of rail records, or of the ledger itself, such as its mode or owner
};

// Reads the ledger; makes and writes no file. Leaves `names` and `moved` empty. root: prefix of the directory with the
// CDI files of claims.
LedgerFacts read_ledger_facts(const std::string& path, const std::string& root = {});

// Returns the GIDs that are no longer at their recorded index. Skips HCAs without a complete GID table. Pure.
std::vector<MovedGid> moved_gids(const std::vector<PlacedGid>& placed, const fabric::Inventory& inventory);

// Returns the check "ledger". Pure.
Check check_ledger(const LedgerFacts& facts);

// The node's container engines, installed or running, and the files of engines that name programs of rdma-init.

struct RunningProcess {
  std::string name;  // "containerd", "crio", "dockerd", "rdma-nri"
  int pid = 0;
  std::optional<std::uint64_t> memlock;  // hard RLIMIT_MEMLOCK in bytes; UINT64_MAX: unlimited; nullopt: unknown
  std::optional<std::uint64_t> start_ticks = {};  // start time, in the unit of WriteTime::ticks
  std::optional<std::int64_t> started = {};       // seconds since the epoch; moves if the clock is set
};

// A file of an engine that names programs of rdma-init, or that `rdma-hook install` wrote.
struct EngineFile {
  std::string path;
  Engine engine = Engine::kContainerd;
  bool read_at_start = false;  // the engine reads it only at its start
  std::int64_t changed = 0;    // mtime, seconds since the epoch
  std::vector<std::string> programs;
  // When install wrote the present text, as WriteTime::ticks; 0: before this boot; nullopt: unknown, or install did not
  // write it.
  std::optional<std::uint64_t> written = {};
};

struct OurProgram {
  std::string path;
  std::string named_in;
  int error = 0;                     // errno of stat(2), or EACCES if the file is not executable; 0: no error
  std::string version;               // output of --version, which begins with "rdma-hook 0.1.0"; empty: unknown
  std::optional<Error> unsafe = {};  // a user other than root can change it, so it was not executed
};

struct NodeEngines {
  bool is_expected = false;  // the caller states that rdma-init is installed
  bool has_slurm = false;    // the node has slurmd
  Result<std::vector<FoundEngine>> found = std::vector<FoundEngine>();
  // Engines that would not start again, or for which this could not be checked; `trouble` has the reason.
  std::vector<FoundEngine> refused;
  Result<std::optional<InstallRecord>> record = std::optional<InstallRecord>();
  // Files of the install record that no longer have the installed text.
  std::vector<std::pair<std::string, EditState>> changed;
  std::vector<EngineFile> files;
  std::vector<std::string> unread;  // messages about files that could not be read
  std::vector<OurProgram> programs;
  std::vector<RunningProcess> processes;
  std::map<std::string, std::uint64_t> unit_memlocks;  // LimitMEMLOCK in bytes, by unit such as "containerd.service"
  std::vector<Error> unasked;                          // why programs, such as `docker`, could not be executed
  bool without_cdi = false;                            // containerd 1 passes over the CDI devices of claims
  std::optional<bool> docker_has_runtime;  // whether dockerd has loaded the runtime `rdma`; nullopt: unknown
};

// Reads the facts about the engines of a node. root: prefix of the node's files.
NodeEngines read_node_engines(const std::string& root);

// Returns the checks "engine", "programs" and "memlock". Pure.
std::vector<Check> check_engines(const NodeEngines& engines);

// Returns a warning for each network whose gateways or addresses must be tested, if rdma-nri runs: it has no time for
// these tests. A gateway_test of "warn", the default, causes none. Pure.
std::vector<Finding> check_rail_tests(const NodeEngines& engines, const Config& config);

// Returns the paths of rdma-init's programs in a text, such as "/usr/local/bin/rdma-hook", without duplicates. Skips
// lines that begin with #.
std::vector<std::string> our_programs_in(std::string_view text);
// Returns RLIMIT_MEMLOCK in the text of /proc/PID/limits, in bytes; UINT64_MAX: unlimited. Returns nullopt if the text
// does not have it.
std::optional<Rlimit> memlock_in(std::string_view limits);

// Slurm: RLIMIT_MEMLOCK that jobs get from slurmd, or from the shell that submits them.

struct SlurmFacts {
  SlurmConf conf;
  std::vector<std::uint64_t>
      memlocks;  // soft RLIMIT_MEMLOCK in bytes of each slurmd; one that cannot be read is left out
};

// Returns nullopt on a node without slurm.conf. root: prefix of the node's files.
std::optional<SlurmFacts> read_slurm_facts(const std::string& root);

// Returns the check "slurm". Pure.
Check check_slurm(const SlurmFacts& facts);

}  // namespace hook
