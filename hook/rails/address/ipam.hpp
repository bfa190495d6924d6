// Calls CNI IPAM plugins for addresses (CNI specification 1.0.0; accepts results of 0.3.1 to 1.1.0). A helper process
// executes them. The helper is forked before the hook restricts its system calls, because the hook itself cannot
// execute programs afterwards.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/json.hpp"
#include "base/process/frame_socket.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// NOLINTNEXTLINE(bugprone-exception-escape): moving a Json throws nothing, although nlohmann does not declare it
struct IpamCall {
  enum class Command { kAdd, kDel };
  Command command = Command::kAdd;
  std::string plugin;        // file name of the plugin
  std::string network;       // the "name" of the network configuration
  Json ipam;                 // the "ipam" object, which includes "type"
  std::string container_id;  // CNI_CONTAINERID: the grant's key; [A-Za-z0-9_.-]
  std::string netns;         // CNI_NETNS: a path; may be empty for kDel
  std::string ifname;        // value of the plugin's variable CNI_IFNAME
  std::string args = {};     // CNI_ARGS as cni_args() returns it; empty: CNI_ARGS is not set
};

struct IpamResult {
  std::vector<RailAddress> addresses;
  // A route that the plugin returned. Without `gateway`, the gateway of the address counts.
  struct Route {
    fabric::Address destination;
    unsigned prefix = 0;
    std::optional<fabric::Address> gateway;
  };
  std::vector<Route> routes;
};

inline constexpr std::size_t kMostOutput = std::size_t{1} << 20;  // limit on the output of a plugin, in bytes
// Parses the output of an ADD. Pure.
// Errors: malformed JSON, a plugin's error object {"code","msg","details"}, no address, a malformed address, a gateway
// of another family.
Result<IpamResult> parse_ipam_result(std::string_view text);
// Returns the message of a plugin's error object; nullopt if the text is no error object. Pure.
std::optional<std::string> cni_error_of(std::string_view text);
// Returns a plugin's output, shortened and printable, for messages. Pure.
std::string quote_output(std::string_view text);
// Returns the configuration that the plugin reads from stdin. Pure.
std::string ipam_config(const IpamCall& call);

// A program that the helper may execute. NOLINTNEXTLINE(bugprone-exception-escape): as IpamCall
struct IpamProgram {
  std::string plugin;
  std::string network;
  Json ipam;
  std::vector<std::string> directories;  // directories in the order of the search
  bool may_allocate = false;  // true: config.json names the plugin, so kAdd is allowed; false: only a record names
                              // the plugin, so only kDel is allowed
};

// Returns CNI_ARGS for a call of an IPAM plugin, with the pod's identity:
// "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=d". Cluster-wide plugins
// refuse calls without this identity. Leaves out a value that is unknown or is no name in Kubernetes. Returns an empty
// text if no value remains. Pure.
// Source: containerd, toCNILabels() in its CRI plugin's sandbox_run.go; CRI-O, buildCNIRuntimeConf() of cri-o/ocicni.
std::string cni_args(const PodIdentity& pod);
// Returns true if the text is not empty and is a possible result of cni_args().
bool is_cni_args(std::string_view text);

// The helper process. start() forks it while the process has one thread and may call execve(2). The helper ends, with
// its plugins, when this object is destroyed or its parent dies. The hook's seccomp filter does not apply to the
// helper. Therefore the helper executes only programs that it gets when it is forked; later requests of the parent
// cannot add a program.
class IpamHelper {
 public:
  // Starts the helper. Call this function after isolate(), which would close the channel to the helper, and before
  // restrict_process().
  static Result<IpamHelper> start(const std::vector<IpamProgram>& programs);
  // Starts a helper if there are programs; returns nullopt if there are none.
  static Result<std::optional<IpamHelper>> start_if_any(const std::vector<IpamProgram>& programs);
  // Executes all calls at once and returns their results in order; the result of kDel is empty.
  // timeout_ms: the limit for each plugin. Output is limited to 1 MiB. The environment has only CNI_* and PATH.
  // Errors of a call name the plugin and its stderr. EPERM: the plugin is not among the programs, or users other than
  // root can change it. After a failed kAdd the caller cannot know whether the plugin allocated an address. The caller
  // must then call kDel, which can be repeated.
  std::vector<Result<IpamResult>> run(const std::vector<IpamCall>& calls, int timeout_ms = 10000);

  IpamHelper(IpamHelper&& other) noexcept;
  IpamHelper& operator=(IpamHelper&& other) noexcept;
  ~IpamHelper();

 private:
  IpamHelper(pid_t pid, base::UniqueFd channel);
  pid_t pid_ = -1;
  base::FrameSocket channel_;
};

// How one plugin ended. This type and run_plugins() are only for the helper process (ipam_plugins.cpp).
struct PluginEnd {
  std::optional<base::Error> refusal;  // why the plugin was not started or was killed; nullopt: it ended by itself
  int status = 0;                      // status that wait(2) returned
  std::string out;
  std::string err;  // the first bytes of its stderr
};

// Executes the plugins of these calls at the same time, each with limits on time and output. Ends the calling process
// (the helper) if the parent closes the channel. SIGCHLD must be blocked and have its default action.
std::vector<PluginEnd> run_plugins(const std::vector<IpamCall>& calls, const std::vector<IpamProgram>& programs,
                                   int timeout_ms, int channel);

}  // namespace hook
