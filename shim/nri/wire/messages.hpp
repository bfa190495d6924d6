// What a runtime tells a plugin and a plugin answers, without protobuf, as far as rdma-nri needs it. Strings are UTF-8.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "shim/result.hpp"

namespace shim {

struct LinuxNamespace {
  std::string type;  // "network", "pid", ...
  std::string path;  // empty: a new one
  friend bool operator==(const LinuxNamespace&, const LinuxNamespace&) = default;
};

struct NriPod {
  std::string id;
  std::string name;
  std::string uid;            // of Kubernetes
  std::string pod_namespace;  // of Kubernetes
  std::map<std::string, std::string> annotations;
  std::vector<LinuxNamespace> namespaces;
  friend bool operator==(const NriPod&, const NriPod&) = default;
};

struct Mount {
  std::string destination;
  std::string type;
  std::string source;                // of a container that is told: empty
  std::vector<std::string> options;  // likewise
  friend bool operator==(const Mount&, const Mount&) = default;
};

struct Device {
  std::string path;  // in the container
  std::string type;  // "c" or "b"
  std::int64_t major_number = 0;
  std::int64_t minor_number = 0;
  // nullopt: the runtime's default; of a container that is told: always.
  std::optional<std::uint32_t> file_mode;
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  friend bool operator==(const Device&, const Device&) = default;
};

// Of the device cgroup.
struct DeviceRule {
  std::string type;  // "c", "b", "a" or empty: all
  bool has_major = false;
  bool has_minor = false;
  bool allow = false;
  std::string access = {};  // of "rwm"
  friend bool operator==(const DeviceRule&, const DeviceRule&) = default;
};

inline constexpr std::uint64_t kUnlimited = ~std::uint64_t{0};

struct Rlimit {
  std::string type;  // "RLIMIT_MEMLOCK"
  std::uint64_t hard = 0;
  std::uint64_t soft = 0;
  friend bool operator==(const Rlimit&, const Rlimit&) = default;
};

struct NriContainer {
  std::string id;
  std::string pod_id;
  std::string name;
  bool stopped = false;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> env;  // NAME=value
  std::vector<Mount> mounts;
  std::vector<Device> devices;  // those of earlier plugins included
  std::vector<DeviceRule> device_rules;
  std::map<std::string, std::string> unified = {};  // files of its cgroup (v2) and what is written there
  std::vector<Rlimit> rlimits;                      // always empty before containerd 2.3 and CRI-O 1.36
  std::vector<LinuxNamespace> namespaces;
  std::uint32_t pid = 0;                      // 0: not started
  std::vector<std::string> cdi_devices = {};  // "rdma-init.io/hca=mlx5_0"; empty before NRI 0.10
  std::set<std::string> net_devices = {};     // of the node, moved into it by the runtime; empty before NRI 0.11
  friend bool operator==(const NriContainer&, const NriContainer&) = default;
};

// What to change of a container that is being created. A runtime refuses the container when something is set twice, by
// this plugin or by another one: a device's path, an rlimit's type, a variable, a mount's destination. A name that
// begins with "-" removes what has it; rlimits cannot be removed. The runtime allows access to the devices by itself.
struct ContainerAdjustment {
  std::map<std::string, std::string> annotations;
  std::vector<Mount> mounts;
  std::map<std::string, std::string> env;
  std::vector<Device> devices;
  std::vector<Rlimit> rlimits;
  std::map<std::string, std::string> unified =
      {};  // as the container's; runc before 1.2 and crun write a value at once
  friend bool operator==(const ContainerAdjustment&, const ContainerAdjustment&) = default;
};

// What all plugins together make of a container's devices.
struct NriValidation {
  std::string container_id;
  std::map<std::string, Device> devices;      // as the container will have them, by path
  std::map<std::string, std::string> owners;  // by path: the plugin that set or removed it, "INDEX-NAME"
};

// Configure.
struct RuntimeInfo {
  std::string name;
  std::string version;
  std::string nri_version;              // empty before NRI 0.12.0
  std::int64_t request_timeout_ms = 0;  // 0: not said
  friend bool operator==(const RuntimeInfo&, const RuntimeInfo&) = default;
};

// NRI's numbers, known to every runtime since NRI 0.2.0 but for the last: a runtime before NRI 0.10 closes the
// connection to a plugin that subscribes to it.
enum class Event : std::int32_t {
  kStateChange = 0,  // no event: the method whose message says which one it is (before NRI 0.12.0)
  kRunPodSandbox = 1,
  kStopPodSandbox = 2,
  kRemovePodSandbox = 3,
  kCreateContainer = 4,
  kPostCreateContainer = 5,
  kStartContainer = 6,
  kPostStartContainer = 7,
  kUpdateContainer = 8,
  kPostUpdateContainer = 9,
  kStopContainer = 10,
  kRemoveContainer = 11,
  kValidateContainerAdjustment = 14,
};

// A request about a pod or one of its containers.
struct NriRequest {
  Event event = Event::kStateChange;
  NriPod pod = {};
  NriContainer container = {};  // of a pod's events: empty
  // As it came, for another process: what parse_nri_request() made this of. The bytes are the caller's.
  Event method = Event::kStateChange;
  std::string_view payload = {};

  bool of_pod() const { return event <= Event::kRemovePodSandbox; }
};

// Errors of all that parse: EINVAL for bytes that are not such a message; EMSGSIZE for a pod and container beyond 4
// MiB, which no kernel could start, or with more than 262,144 fields in one message or options of mounts.

// Where a key comes twice, the last one counts, as in any map of protobuf.
Result<NriPod> parse_pod(std::string_view bytes);
Result<NriContainer> parse_container(std::string_view bytes);
Result<RuntimeInfo> parse_configure(std::string_view payload);
// method: the event, or kStateChange, whose message may say an event that NRI has not.
Result<NriRequest> parse_nri_request(Event method, std::string_view payload);

Result<NriValidation> parse_validation(std::string_view payload);
// Of an answer to CreateContainer.
Result<std::vector<Device>> devices_of_response(std::string_view response);

// The answer to CreateContainer.
std::string create_response(const ContainerAdjustment& adjustment);

}  // namespace shim
