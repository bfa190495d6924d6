// An existing CNI IPAM plugin gives the addresses: the CNI protocol (spec 1.0.0; results of 0.3.1 to 1.1.0 are read)
// spoken by a helper process that is forked before the hook's system calls are restricted, because a hook that may
// execute programs is another hook.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/unique_fd.hpp"
#include "hook/base/json/json.hpp"
#include "hook/base/result.hpp"
#include "hook/oci/container_spec.hpp"
#include "hook/rails/plan/rail.hpp"

namespace hook {

// NOLINTNEXTLINE(bugprone-exception-escape): moving a Json throws nothing, nlohmann only does not say so
struct IpamCall {
  enum class Command { kAdd, kDel };
  Command command = Command::kAdd;
  std::string plugin;        // its file name
  std::string network;       // "name" of the network configuration
  Json ipam;                 // the "ipam" object, "type" included
  std::string container_id;  // CNI_CONTAINERID: the grant's key; [A-Za-z0-9_.-]
  std::string netns;         // CNI_NETNS: a path, may be empty for kDel
  std::string ifname;        // CNI_IFNAME
  std::string args = {};     // CNI_ARGS, of cni_args(); empty: not set
};

struct IpamResult {
  std::vector<RailAddress> addresses;
  // Routes that the plugin asks for: destination/prefix by gateway (nullopt: the address's own).
  struct Route {
    fabric::Address destination;
    unsigned prefix = 0;
    std::optional<fabric::Address> gateway;
  };
  std::vector<Route> routes;
};

inline constexpr std::size_t kMostOutput = std::size_t{1} << 20;  // of a plugin, bytes
// Pure. Errors: no JSON, {"code","msg","details"} as a plugin reports errors, no address at all, an address that does
// not parse, a gateway of another family.
Result<IpamResult> parse_ipam_result(std::string_view text);
// Pure. Returns the message of an error as plugins report them; nullopt: the text is none.
std::optional<std::string> cni_error_of(std::string_view text);
// Pure. Returns a plugin's output, shortened and printable, for messages.
std::string quote_output(std::string_view text);
// Pure: what goes to the plugin's stdin.
std::string ipam_config(const IpamCall& call);

// What a helper may run. NOLINTNEXTLINE(bugprone-exception-escape): as IpamCall
struct IpamProgram {
  std::string plugin;
  std::string network;
  Json ipam;
  std::vector<std::string> directories;  // where it is looked for, in this order; of the configuration only
  bool may_give = false;                 // the configuration has it; what only a record has may take back
};

// CNI_ARGS of an IPAM plugin's call: whose addresses these are, in the words in which containerd (toCNILabels() of its
// CRI plugin's sandbox_run.go) and CRI-O (buildCNIRuntimeConf() of cri-o/ocicni) tell their own CNI plugins. Plugins
// for whole clusters refuse without. Pure.
// "IgnoreUnknown=1;K8S_POD_NAMESPACE=a;K8S_POD_NAME=b;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=d". What is not known,
// or has a character that no name, id or uid of Kubernetes has, is left out; empty: nothing is left.
std::string cni_args(const PodIdentity& pod);
// Whether cni_args() can have made this, which is not empty.
bool is_cni_args(std::string_view text);

// The helper. Forked by start() in a process that still has one thread and may execve; ends when this goes, or when its
// parent dies, and its plugins with it. It is outside of the filter, so what it may run is fixed when it is forked,
// whatever its parent asks for later.
class IpamHelper {
 public:
  // After isolate(), which would close its channel, and before restrict_process().
  static Result<IpamHelper> start(const std::vector<IpamProgram>& programs);
  // nullopt: there is nothing that it may run.
  static Result<std::optional<IpamHelper>> start_if_any(const std::vector<IpamProgram>& programs);
  // All calls at once; their results in order (kDel: empty). Each plugin has timeout_ms, 1 MiB of output, an
  // environment of CNI_* and PATH only. Errors of one call do not stop the others; they name the plugin and what it
  // wrote to stderr; EPERM: it is none of the programs, or others than root may change it. Whether an address was taken
  // by a kAdd that failed is the plugin's secret: follow it by kDel, which may be repeated.
  std::vector<Result<IpamResult>> run(const std::vector<IpamCall>& calls, int timeout_ms = 10000);

  IpamHelper(IpamHelper&& other) noexcept;
  IpamHelper& operator=(IpamHelper&& other) noexcept;
  ~IpamHelper();

 private:
  IpamHelper(pid_t pid, fabric::UniqueFd channel);
  pid_t pid_ = -1;
  fabric::UniqueFd channel_;
};

// What became of one plugin. Here and below: in the helper only, ipam_plugins.cpp.
struct PluginEnd {
  std::string refusal;  // why it was not run, or not to its end; empty: it ended by itself
  std::string hint;
  int code = 0;    // errno of that
  int status = 0;  // as of wait(2)
  std::string out;
  std::string err;  // its beginning
};

// Runs programs side by side, each bounded in time and output. Ends the process if the channel does. SIGCHLD has to be
// blocked and at its default.
std::vector<PluginEnd> run_plugins(const std::vector<IpamCall>& calls, const std::vector<IpamProgram>& programs,
                                   int timeout_ms, int channel);

}  // namespace hook
