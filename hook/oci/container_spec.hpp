// The members of a container's config.json (OCI runtime-spec 1.3.0) that decisions and their application need. The rest
// of the file stays unchanged.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json_fwd.hpp"
#include "base/result.hpp"
#include "hook/oci/engine.hpp"

namespace base {
struct JsonNode;
}

namespace hook {

struct SpecDevice {
  std::string path;
  char type = 'c';
  std::int64_t major = 0;
  std::int64_t minor = 0;
  // N of the node's uverbsN, if this major and minor number is one that the kernel assigned to uverbsN dynamically;
  // nullopt: it is none, or was not checked.
  std::optional<unsigned> dynamic_uverbs = {};
  // Returns N of the uverbsN that has this number, independent of the path; nullopt: there is none, or it is unknown.
  std::optional<unsigned> uverbs() const;
  friend bool operator==(const SpecDevice&, const SpecDevice&) = default;
};

struct SpecMount {
  std::string destination;  // the text of config.json
  bool is_bind = false;     // a bind mount of a path that exists on the node
  std::string source = {};  // absolute; for an overlay its first lower directory; empty: there is none
  friend bool operator==(const SpecMount&, const SpecMount&) = default;
};

struct Rlimit {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
  friend bool operator==(const Rlimit&, const Rlimit&) = default;
};

struct ContainerSpec {
  std::string root_path;  // the text of config.json; may be relative to the bundle
  std::map<std::string, std::string> annotations;
  std::vector<std::string> env;  // "NAME=value", of those with is_read_variable(); an image can set it
  std::vector<SpecDevice> devices;
  // linux.resources.devices allows every device: a privileged container, to which engines add all of the node's /dev.
  bool may_use_all_devices = false;
  std::vector<SpecMount> mounts;
  bool has_netns = false;                 // the container does not use the node's network namespace
  std::optional<std::string> netns_path;  // path of a namespace that the container joins, such as its pod's
  bool has_userns = false;
  std::optional<std::string> userns_path;  // path of a namespace that the container joins
  // The container's user namespace maps the node's uid 0, which owns the files that the node mounts into the container.
  // nullopt: unknown, because config.json names the namespace by path.
  std::optional<bool> maps_node_root;
  bool has_own_pidns = false;  // the container's init is pid 1 of a PID namespace
  std::string cgroups_path;    // linux.cgroupsPath, as written
  // Netdevs of the node that the runtime moves into the container, with their addresses: linux.netDevices of
  // runtime-spec 1.3 (runc 1.4, crun 1.22).
  std::set<std::string> moved_netdevs = {};
  // RLIMIT_MEMLOCK; nullopt: config.json does not list it. If NRI describes the container, the limit of the runtime,
  // which the container inherits; nullopt: unknown.
  std::optional<Rlimit> memlock;
  bool has_rdma_max = false;  // another NRI plugin or the engine sets rdma.max of the container's cgroup
  std::uint32_t uid = 0;      // process.user.uid of config.json
  // The container's first program has CAP_IPC_LOCK. In a user namespace that has no effect, because the kernel checks
  // the capability in the node's user namespace.
  bool has_ipc_lock = false;
  // The container may have CAP_SYS_ADMIN in its user namespace, and so may remount read-only mounts.
  bool may_remount = false;
  friend bool operator==(const ContainerSpec&, const ContainerSpec&) = default;
};

// The next functions describe the members for records (base/packed_record.hpp).
void describe(auto& members, SpecDevice& device) {
  auto& [path, type, major, minor, dynamic_uverbs] = device;
  members("path", path);
  members("type", type);
  members("major", major);
  members("minor", minor);
  members("dynamic_uverbs", dynamic_uverbs);
}
void describe(auto& members, SpecMount& mount) {
  auto& [destination, is_bind, source] = mount;
  members("destination", destination);
  members("is_bind", is_bind);
  members("source", source);
}
void describe(auto& members, Rlimit& limit) {
  auto& [soft, hard] = limit;
  members("soft", soft);
  members("hard", hard);
}
void describe(auto& members, ContainerSpec& spec) {
  // The names of all members: the compiler refuses this line if the list is not complete.
  auto& [root_path, annotations, env, devices, may_use_all_devices, mounts, has_netns, netns_path, has_userns,
         userns_path, maps_node_root, has_own_pidns, cgroups_path, moved_netdevs, memlock, has_rdma_max, uid,
         has_ipc_lock, may_remount] = spec;
  members("root_path", root_path);
  members("annotations", annotations);
  members("env", env);
  members("devices", devices);
  members("may_use_all_devices", may_use_all_devices);
  members("mounts", mounts);
  members("has_netns", has_netns);
  members("netns_path", netns_path);
  members("has_userns", has_userns);
  members("userns_path", userns_path);
  members("maps_node_root", maps_node_root);
  members("has_own_pidns", has_own_pidns);
  members("cgroups_path", cgroups_path);
  members("moved_netdevs", moved_netdevs);
  members("memlock", memlock);
  members("has_rdma_max", has_rdma_max);
  members("uid", uid);
  members("has_ipc_lock", has_ipc_lock);
  members("may_remount", may_remount);
}

// Returns true if a rule of linux.resources.devices allows every device for reading and writing, or denies reading,
// writing or both for every device. The last such rule decides may_use_all_devices.
bool is_of_all_devices(std::string_view type, bool has_major, bool has_minor, std::string_view access, bool allow);

// Reads the bundle's config.json, at most 16 MiB. Errors name the file.
Result<std::string> read_bundle_config(const std::string& bundle);

// Parses config.json. Optional members of the specification may be missing. Errors name the member
// ("linux.devices[2].major: expected a number").
Result<ContainerSpec> read_container_spec(const base::JsonNode& config);
Result<ContainerSpec> read_container_spec(const Json& config);

// Returns whether the container may write to a directory that the node's uid 0 owns and that is mounted read-only into
// it. For this the container must be able to remount the directory, and must have the uid or the capabilities of that
// owner.
enum class MayWrite { kNo, kYes, kUnknown };
MayWrite may_write_to_mounts(const ContainerSpec& spec);

// Returns true if a text of /proc/PID/uid_map maps the reader's uid 0 (user_namespaces(7)).
bool maps_root(std::string_view uid_map);

// Returns true for a variable of a container, "NAME=value", that a request or a grant reads. Most variables are
// those of the image and of the cluster's services, and are not copied at each start.
bool is_read_variable(std::string_view variable);

// Returns the last value of a variable in env, which runc and crun pass on; nullopt: it is not set. CRI-O adds a pod's
// variable behind the image's, and Podman a CDI device's behind the user's.
std::optional<std::string> find_env(const ContainerSpec& spec, std::string_view name);

// The pod, as the engine itself wrote it into annotations. Empty for Podman, Docker and runc, because an image could
// have written the annotations.
struct PodIdentity {
  std::string pod_namespace;
  std::string container_name;
  bool is_sandbox = false;
  std::string pod_name = {};
  std::string pod_uid = {};
  std::string sandbox_id = {};
};
PodIdentity pod_identity(const ContainerSpec& spec, Engine engine);
// Checks for CRI-O that the sandbox's name and the label io.kubernetes.pod.namespace have the same namespace, if both
// are present. Other engines pass. Errors: the namespaces differ.
Result<void> check_pod_namespace(const ContainerSpec& spec, Engine engine);

}  // namespace hook
