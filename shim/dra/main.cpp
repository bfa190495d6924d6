// rdma-dra: shows what Dynamic Resource Allocation of Kubernetes gets to know about this node.
#include <cerrno>
#include <cstdio>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "base/text.hpp"
#include "hook/grant/node_options.hpp"
#include "shim/dra/show.hpp"

namespace {

using base::Error;
using base::Result;
using shim::DraSettings;

constexpr const char* kProgram = "rdma-dra";

Result<void> set_version(DraSettings& settings, std::string_view value) {
  const auto version = base::version_of(value);
  if (!version || version->first != 1 || version->second < shim::kFirstDraMinor)
    return base::make_error("--kubernetes `{}`: expected a version from 1.{}, such as 1.36", base::printable(value),
                            shim::kFirstDraMinor);
  settings.cluster.minor = version->second;
  return {};
}

Result<void> set_node(DraSettings& settings, std::string_view value) {
  if (!shim::is_dns_subdomain(value))
    return base::make_error("--node `{}`: expected the name of a node, as `kubectl get nodes` prints it",
                            base::printable(value));
  settings.cluster.node = value;
  return {};
}

Result<void> set_node_uid(DraSettings& settings, std::string_view value) {
  if (!shim::is_uid(value))
    return base::make_error("--node-uid `{}`: expected the UID of the Node object", base::printable(value));
  settings.cluster.node_uid = value;
  return {};
}

constexpr base::Option<DraSettings> kOptions[] = {
    {"slices", "", "print the ResourceSlices of this node as JSON",
     [](DraSettings& settings, std::string_view) {
       settings.slices = true;
       return Result<void>();
     }},
    {"claim", "FILE", "print the HCAs that the ResourceClaim in FILE (- is stdin) has on this node",
     [](DraSettings& settings, std::string_view value) {
       settings.claim = value;
       return Result<void>();
     }},
    {"kubernetes", "VERSION", "version of the cluster, which decides what a slice can have [1.36]", set_version},
    {"node", "NAME", "name of the node [NODE_NAME, else the name of the host]", set_node},
    {"node-uid", "UID", "UID of the Node object, which then owns the slices", set_node_uid},
    hook::kConfigOption<DraSettings>,
    {"snapshot", "FILE", "use the node in FILE, from `rdma-init snapshot`, in place of this node",
     [](DraSettings& settings, std::string_view value) {
       settings.node.snapshot = value;
       return Result<void>();
     }},
    hook::kRootOption<DraSettings>,
    hook::kLedgerOption<DraSettings>,
    hook::kHelpOption<DraSettings>,
    hook::kVersionOption<DraSettings>};

std::string help_text() {
  return base::wrapped(
             "rdma-dra: shows which HCAs of this node Dynamic Resource Allocation of Kubernetes can assign, and reads "
             "claims. It changes nothing.") +
         "\n" + base::help_lines("  rdma-dra --slices [options]", "prints the node's ResourceSlices", 33) +
         base::help_lines("  rdma-dra --claim FILE [options]", "prints the HCAs of a claim", 33) +
         "\nOptions (in brackets the default):\n" +
         base::option_help(std::span<const base::Option<DraSettings>>(kOptions)) +
         "\nExit codes: 0 done; 1 failed; 2 usage.\n";
}

// Errors (EINVAL): an unknown option, a missing or invalid value, options that do not go together.
Result<DraSettings> parse_options(std::span<char* const> arguments) {
  DraSettings settings;
  TRY_VOID(hook::apply_options<DraSettings>(kOptions, arguments, kProgram, settings));
  if (settings.help || settings.version) return settings;
  const std::string remedy = fmt::format("`{} --help` lists the options", kProgram);
  if (settings.slices == settings.claim.has_value())
    return Error{"expected either --slices or --claim", EINVAL, remedy};
  if (settings.node.snapshot && !settings.node.root.empty())
    return Error{"--snapshot and --root exclude each other", EINVAL, remedy};
  return settings;
}

Result<void> work(const DraSettings& settings, const base::Log& log) {
  TRY_VOID(hook::check_root(settings.node.root));
  return settings.claim ? shim::show_claim(settings) : shim::show_slices(settings, log);
}

int run(std::span<char* const> arguments) {
  const base::Log log = base::Log::to_stderr(kProgram);
  const auto settings = parse_options(arguments);
  if (settings && (settings->help || settings->version)) {
    std::fputs(settings->help ? help_text().c_str() : fmt::format("{} {}\n", kProgram, RDMA_INIT_VERSION).c_str(),
               stdout);
    return 0;
  }
  const auto done = settings ? work(*settings, log) : Result<void>(settings.error());
  if (done) return 0;
  log.error(done.error());
  constexpr int kUsage = 2;
  return settings ? 1 : kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)));
  } catch (const std::exception&) {  // bad_alloc: the program itself does not throw
    base::Log::to_stderr(kProgram).error(base::error_of_exception());
    return 1;
  }
}
