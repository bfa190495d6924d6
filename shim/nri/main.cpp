// rdma-nri: adds RDMA devices to containers of containerd and CRI-O, as an NRI plugin.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>

#include "base/process/sandbox.hpp"
#include "hook/grant/node_options.hpp"
#include "shim/nri/options.hpp"
#include "shim/nri/run.hpp"

namespace {

bool work(const shim::NriPluginOptions& options) {
  const base::Log log = shim::plugin_log(options);
  auto done = base::restrict_with_children();
  if (done) done = shim::run_plugin(options, log);
  if (!done) log.error(done.error());
  return done.has_value();
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  try {
    const auto arguments = std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0));
    const auto options = shim::parse_nri_options(arguments, [](const char* name) { return std::getenv(name); });
    return hook::run_daemon(shim::kNriProgram, options, shim::nri_help, work);
  } catch (const std::exception&) {  // bad_alloc: the program itself does not throw
    base::Log::to_stderr(shim::kNriProgram).error(base::error_of_exception());
    return 1;
  }
}
