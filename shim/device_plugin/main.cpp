// rdma-device-plugin: has the kubelet count HCAs as a resource.
#include <malloc.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <exception>

#include "shim/device_plugin/options.hpp"
#include "shim/device_plugin/run.hpp"
#include "shim/device_plugin/wire/kubelet.hpp"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

hook::Log plugin_log() {
  return hook::Log::to_stderr("rdma-device-plugin");
}

int run(int argc, char** argv) {
  const auto arguments = std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0));
  const auto settings = shim::parse_device_plugin_options(arguments);
  if (!settings) {
    plugin_log().error(settings.error());
    return settings.error().code == EINVAL ? kExitUsage : kExitFailure;
  }
  if (settings->help || settings->version) {
    std::fputs(settings->help ? shim::device_plugin_help().c_str() : "rdma-device-plugin " RDMA_INIT_VERSION "\n",
               stdout);
    return 0;
  }
  const hook::Log log = plugin_log();
  shim::silence_grpc();
  const auto done = shim::run_device_plugin(*settings, log);
  if (done) return 0;
  log.error(done.error());
  return kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  ::umask(0077);
  ::mallopt(M_ARENA_MAX, 2);  // gRPC has a dozen threads, each of which would have one of its own
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {  // bad_alloc: nothing else is thrown on purpose
    plugin_log().error({error.what(), 0, {}});
    return kExitFailure;
  }
}
