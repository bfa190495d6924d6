// What deciding and applying read of a container's config.json (OCI runtime-spec 1.3.0). The rest of the file is
// carried through untouched.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "hook/base/json/json_fwd.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/engine.hpp"

namespace hook {

struct SpecDevice {
  std::string path;
  char type = 'c';
  std::int64_t major = 0;
  std::int64_t minor = 0;
  std::optional<unsigned> dynamic_uverbs = {};  // N, where the node was asked whose this dynamic number is
  // N of the uverbsN that it is by its number, whatever its path; nullopt: none, or not known.
  std::optional<unsigned> uverbs() const;
  friend bool operator==(const SpecDevice&, const SpecDevice&) = default;
};

struct SpecMount {
  std::string destination;  // as written
  bool is_bind = false;     // of something that exists on the node
  std::string source = {};  // absolute; of an overlay its first lower directory; empty: it has none, or none is told
  friend bool operator==(const SpecMount&, const SpecMount&) = default;
};

struct Rlimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
  friend bool operator==(const Rlimit&, const Rlimit&) = default;
};

struct ContainerSpec {
  std::string root_path;  // as written: maybe relative to the bundle
  std::map<std::string, std::string> annotations;
  std::vector<std::string> env;  // "NAME=value"; an image can set it
  std::vector<SpecDevice> devices;
  // linux.resources.devices lets it use every device: a privileged container, to which engines give the node's /dev.
  bool may_use_all_devices = false;
  std::vector<SpecMount> mounts;
  bool has_netns = false;                 // its own or one by path; false: the node's
  std::optional<std::string> netns_path;  // joins this one: a pod
  bool has_userns = false;
  std::optional<std::string> userns_path;  // joins this one
  // Whether its user namespace maps the node's uid 0, which owns what the node mounts into the container. nullopt:
  // config.json does not say, because the namespace is joined by path.
  std::optional<bool> maps_node_root;
  bool has_own_pidns = false;  // its init is the first process of a PID namespace
  std::string cgroups_path;    // linux.cgroupsPath, as written
  // Netdevs of the node that the runtime moves into the container with their addresses: linux.netDevices of
  // runtime-spec 1.3 (runc 1.4, crun 1.22).
  std::set<std::string> moved_netdevs = {};
  std::optional<Rlimit> memlock;  // RLIMIT_MEMLOCK, when listed
  std::uint32_t uid = 0;          // process.user.uid
  // Its first program has CAP_IPC_LOCK. In a user namespace that is no use: the kernel asks the node's.
  bool has_ipc_lock = false;
  // It may have CAP_SYS_ADMIN in its user namespace, and remount what it was given read-only.
  bool may_remount = false;
};

// A rule of the device cgroup is about reading and writing every device, so that the last such rule decides
// may_use_all_devices. To deny one of the two is enough.
bool is_of_all_devices(std::string_view type, bool has_major, bool has_minor, std::string_view access, bool allow);

// Errors name the member ("linux.devices[2].major: expected a number"). What the specification makes optional may be
// missing.
Result<ContainerSpec> read_container_spec(const Json& config);

// How the container may write to a directory of the node's root that is mounted into it read-only: by remounting it, as
// a user who is the node's root or has its capabilities.
enum class MayWrite { kNo, kYes, kUnknown };
MayWrite may_write_to_mounts(const ContainerSpec& spec);

// Whether a text of /proc/PID/uid_map maps the reader's uid 0 (user_namespaces(7)).
bool maps_root(std::string_view uid_map);

// The first value of a variable in env; nullopt: not set.
std::optional<std::string> find_env(const ContainerSpec& spec, std::string_view name);

// What the engine itself wrote about the pod; empty: nothing. Podman, Docker and runc have none, whatever the
// annotations say, because an image could have written them.
struct PodIdentity {
  std::string pod_namespace;
  std::string container_name;
  bool is_sandbox = false;
  std::string pod_name = {};
  std::string pod_uid = {};
  std::string sandbox_id = {};
};
PodIdentity pod_identity(const ContainerSpec& spec, Engine engine);
// The namespace is that of the sandbox's metadata, as NRI tells it. Errors: a container's label names another one.
Result<void> check_pod_namespace(const ContainerSpec& spec, Engine engine);

}  // namespace hook
