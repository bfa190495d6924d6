// rdma-nri: adds RDMA devices to containers of containerd and CRI-O, as an NRI plugin.
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "base/process/daemon_state.hpp"
#include "base/process/sandbox.hpp"
#include "shim/nri/options.hpp"
#include "shim/nri/run.hpp"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int run(int argc, char** argv) {
  const auto arguments = std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0));
  const auto options = shim::parse_nri_options(arguments, [](const char* name) { return std::getenv(name); });
  if (!options) {
    base::Log::to_stderr("rdma-nri").error(options.error());
    return options.error().code == EINVAL ? kExitUsage : kExitFailure;
  }
  if (options->help || options->version) {
    std::fputs(options->help ? shim::nri_help().c_str() : "rdma-nri " RDMA_INIT_VERSION "\n", stdout);
    return 0;
  }
  if (options->probe)
    return base::print_probe(shim::kNriProgram, base::probe_daemon(options->node.ledger, shim::kNriProgram));
  const base::Log log = shim::plugin_log(*options);
  auto done = base::restrict_with_children();
  if (done) done = shim::run_plugin(*options, log);
  if (done) return 0;
  log.error(done.error());
  return kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return run(argc, argv);
  } catch (const std::exception&) {  // bad_alloc: the program itself does not throw
    base::Log::to_stderr("rdma-nri").error(base::error_of_exception());
    return kExitFailure;
  }
}
