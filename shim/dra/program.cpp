#include "shim/dra/program.hpp"

#include <cerrno>
#include <span>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "hook/grant/node_options.hpp"
#include "shim/dra/driver.hpp"
#include "shim/dra/show.hpp"

namespace {

using base::Error;
using base::Result;
using shim::DraSettings;

using shim::kDraProgram;

constexpr std::size_t kLongestSocketName = 76;  // "/plugins_registry/rdma-init.io-POD_UID-reg.sock"

Result<void> set_version(DraSettings& settings, std::string_view value) {
  // `kubectl version` prints "v1.36.1+k3s1".
  const auto version = base::version_of(value.starts_with('v') ? value.substr(1) : value);
  if (!version || version->first != 1 || version->second < shim::kFirstDraMinor)
    return base::make_error("--kubernetes `{}`: expected a version from 1.{}, such as 1.36", base::printable(value),
                            shim::kFirstDraMinor);
  settings.cluster.minor = version->second;
  settings.minor_is_named = true;
  return {};
}

Result<void> set_node(DraSettings& settings, std::string_view value) {
  if (!shim::is_dns_subdomain(value))
    return base::make_error("--node `{}`: expected the name of a node, as `kubectl get nodes` prints it",
                            base::printable(value));
  settings.cluster.node = value;
  return {};
}

Result<void> set_kubelet(DraSettings& settings, std::string_view value) {
  if (!value.starts_with('/'))
    return base::make_error("--kubelet `{}`: expected an absolute path", base::printable(value));
  if (value.size() + kLongestSocketName > base::kLongestSocketPath)
    return base::make_error(
        "--kubelet `{}`: the path of a socket has at most {} bytes, and names in this directory take {}: make a "
        "symbolic link to the directory on the node, with a path of at most {} bytes, and pass that",
        base::printable(value), base::kLongestSocketPath, kLongestSocketName,
        base::kLongestSocketPath - kLongestSocketName);
  settings.kubelet = value;
  return {};
}

constexpr base::Option<DraSettings> kOptions[] = {
    {"slices", "", "print the ResourceSlices of this node as JSON",
     [](DraSettings& settings, std::string_view) {
       settings.slices = true;
       return Result<void>();
     }},
    {"kubernetes", "VERSION",
     "version of the cluster, which decides what a slice can have (that of the API server, 1.36 for --slices)",
     set_version},
    {"node", "NAME", "name of the node (NODE_NAME, else the name of the host)", set_node},
    hook::kConfigOption<DraSettings>,
    {"snapshot", "FILE", "use the node in FILE, from `rdma-init snapshot`, in place of this node",
     [](DraSettings& settings, std::string_view value) {
       settings.node.snapshot = value;
       return Result<void>();
     }},
    hook::kRootOption<DraSettings>,
    hook::kLedgerOption<DraSettings>,
    {"kubelet", "DIR", "directory of the kubelet (/var/lib/kubelet)", set_kubelet},
    {"api", "ADDRESS", "IP address and port of the API server (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT)",
     [](DraSettings& settings, std::string_view value) {
       settings.api = value;
       return Result<void>();
     }},
    {"credential", "DIR", "directory of token and ca.crt (/var/run/secrets/kubernetes.io/serviceaccount)",
     [](DraSettings& settings, std::string_view value) {
       settings.credential = value;
       return Result<void>();
     }},
    hook::kProbeOption<DraSettings>,
    hook::kHelpOption<DraSettings>,
    hook::kVersionOption<DraSettings>};

std::string help_text() {
  return base::wrapped(
             "rdma-dra: the node's driver for Dynamic Resource Allocation of Kubernetes 1.34 and later. It publishes "
             "HCAs "
             "in ResourceSlices, and prepares the claims of pods.") +
         "\n" + base::help_lines("  rdma-dra [options]", "runs the driver", 33) +
         base::help_lines("  rdma-dra --probe", "prints whether the driver is ready", 33) +
         base::help_lines("  rdma-dra --slices [options]", "prints the node's ResourceSlices, and changes nothing",
                          33) +
         "\nOptions (in brackets the default):\n" +
         base::option_help(std::span<const base::Option<DraSettings>>(kOptions)) +
         "\nExit codes: 0 done, or ended by SIGTERM; 1 failed, or not ready; 2 usage.\n";
}

// Errors (EINVAL): an unknown option, a missing or invalid value, options that do not go together.
Result<DraSettings> parse_options(std::span<char* const> arguments) {
  DraSettings settings;
  TRY_VOID(hook::apply_options<DraSettings>(kOptions, arguments, kDraProgram, settings));
  if (settings.help || settings.version) return settings;
  const std::string remedy = fmt::format("`{} --help` lists the options", kDraProgram);
  if (settings.node.snapshot && !settings.slices)
    return Error{"--snapshot needs --slices: a driver runs on a node", EINVAL, remedy};
  if (settings.node.snapshot && !settings.node.root.empty())
    return Error{"--snapshot and --root exclude each other", EINVAL, remedy};
  return settings;
}

bool work(const DraSettings& settings) {
  const base::Log log = base::Log::to_stderr(kDraProgram);
  auto done = hook::check_root(settings.node.root);
  if (done) done = settings.slices ? shim::show_slices(settings, log) : shim::run_driver(settings, log);
  if (!done) log.error(done.error());
  return done.has_value();
}

}  // namespace

int shim::dra_program(std::span<char* const> arguments) {
  return hook::run_daemon(kDraProgram, parse_options(arguments), help_text, work);
}
