// The fields of NRI's requests and answers that rdma-nri uses, without protobuf. Strings are UTF-8.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/plan/plan.hpp"

namespace shim {

// Paths by type: "network", "pid", ... An empty path is a new namespace.
using LinuxNamespaces = std::map<std::string, std::string>;

struct NriPod {
  std::string id;
  std::string name;
  std::string uid;            // Kubernetes' pod uid
  std::string pod_namespace;  // Kubernetes' namespace
  std::map<std::string, std::string> annotations;
  LinuxNamespaces namespaces;
  friend bool operator==(const NriPod&, const NriPod&) = default;
};

// A rule of the device cgroup.
struct DeviceRule {
  std::string type;  // "c", "b", "a" or empty: all
  bool has_major = false;
  bool has_minor = false;
  bool allow = false;
  std::string access = {};  // letters of "rwm"
  friend bool operator==(const DeviceRule&, const DeviceRule&) = default;
};

struct NriContainer {
  std::string id;
  std::string pod_id;
  std::string name;
  bool stopped = false;
  std::map<std::string, std::string> annotations;
  std::vector<std::string> env;           // NAME=value, of those with hook::is_read_variable()
  std::vector<hook::SpecMount> mounts;    // the mounts, without their sources
  std::vector<hook::SpecDevice> devices;  // devices of the container, with those that earlier plugins added
  std::vector<DeviceRule> device_rules;
  std::map<std::string, std::string> unified = {};  // cgroup v2 files of the container, and their values
  std::optional<hook::Rlimit> memlock;  // RLIMIT_MEMLOCK; always nullopt before containerd 2.3 and CRI-O 1.36
  LinuxNamespaces namespaces;
  std::uint32_t pid = 0;                      // PID of the first process; 0: not started
  std::vector<std::string> cdi_devices = {};  // such as "rdma-init.io/hca=mlx5_0"; empty before NRI 0.10
  std::set<std::string> net_devices = {};     // netdevs that the runtime moves in; empty before NRI 0.11
  friend bool operator==(const NriContainer&, const NriContainer&) = default;
};

// Changes to a container that is being created. A runtime refuses the container if two plugins, or one plugin twice,
// set the same item: a device's path, an rlimit's type, a variable, a mount's destination. A name that begins with "-"
// removes the item; rlimits cannot be removed. The runtime allows access to the devices by itself.
struct ContainerAdjustment {
  std::map<std::string, std::string> annotations;
  std::vector<hook::PlannedMount> mounts;
  std::map<std::string, std::string> env;
  std::vector<hook::PlannedNode> devices;  // the device nodes, with their numbers
  std::optional<hook::Rlimit> memlock;
  // Values for files of the container's cgroup (v2), by file name. A value should have one line: runc before 1.2 and
  // crun write several lines with one write(2), which the kernel refuses for rdma.max.
  std::map<std::string, std::string> unified = {};
  friend bool operator==(const ContainerAdjustment&, const ContainerAdjustment&) = default;
};

// The devices of a container after all plugins have adjusted it.
struct NriValidation {
  std::string container_id;
  std::map<std::string, hook::SpecDevice> devices;  // final devices by path
  std::map<std::string, std::string> owners;        // the plugin that set or removed a device, "INDEX-NAME", by path
};

// Content of a Configure request.
struct RuntimeInfo {
  std::string name;
  std::string version;
  std::string nri_version;              // empty before NRI 0.12.0
  std::int64_t request_timeout_ms = 0;  // 0: not reported
  friend bool operator==(const RuntimeInfo&, const RuntimeInfo&) = default;
};

// Event numbers of NRI. All runtimes since NRI 0.2.0 know them, except the last one: a runtime before NRI 0.10 closes
// the connection to a plugin that subscribes to it.
enum class Event : std::int32_t {
  kStateChange = 0,  // the method StateChange before NRI 0.12.0, whose message names the event
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

// A request about a pod, or about one of its containers.
struct NriRequest {
  Event event = Event::kStateChange;
  NriPod pod = {};
  NriContainer container = {};  // empty for events of a pod

  bool of_pod() const { return event <= Event::kRemovePodSandbox; }
  // The event gives HCAs to a pod or container. The other events release them, or change nothing.
  bool allocates() const { return event == Event::kRunPodSandbox || event == Event::kCreateContainer; }
};

// Errors of the parsers below. EINVAL: the bytes are not a message of this type. EMSGSIZE: pod and container have more
// than 4 MiB, which no kernel can start; one message has more than 262,144 fields.

// If a map has a key twice, the last value counts, as in protobuf.
Result<NriPod> parse_pod(std::string_view bytes);
Result<NriContainer> parse_container(std::string_view bytes);
Result<RuntimeInfo> parse_configure(std::string_view payload);
// method: the event that is the method's name, or kStateChange. The event in the message of kStateChange may be none of
// enum Event.
Result<NriRequest> parse_nri_request(Event method, std::string_view payload);

Result<NriValidation> parse_validation(std::string_view payload);
// Returns the devices of an answer to CreateContainer.
Result<std::vector<hook::SpecDevice>> devices_of_response(std::string_view response);

// Returns the answer to CreateContainer.
std::string create_response(const ContainerAdjustment& adjustment);

}  // namespace shim
