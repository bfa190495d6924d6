// rdma-device-plugin and rdma-dra, the programs that announce HCAs to Kubernetes. They are one file, because gRPC and
// Protocol Buffers are most of each. The name by which it is started decides.
#include <malloc.h>
#include <sys/stat.h>

#include <csignal>
#include <exception>
#include <span>
#include <string_view>

#include "base/log.hpp"
#include "base/text.hpp"
#include "shim/device_plugin/program.hpp"
#include "shim/device_plugin/run.hpp"
#include "shim/dra/driver.hpp"
#include "shim/dra/program.hpp"

int main(int argc, char** argv) {
  // A write to a closed stderr must not end the program.
  std::signal(SIGPIPE, SIG_IGN);
  // Only root may connect to the sockets that this program creates. The kubelet runs as root.
  ::umask(0077);
  ::mallopt(M_ARENA_MAX, 2);  // saves memory: glibc would allocate an arena for each of gRPC's threads
  const bool is_dra = argc > 0 && base::last_component(argv[0]) == shim::kDraProgram;
  try {
    const auto arguments = std::span(argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0));
    return is_dra ? shim::dra_program(arguments) : shim::device_plugin_program(arguments);
  } catch (const std::exception&) {  // bad_alloc: the programs themselves do not throw
    base::Log::to_stderr(is_dra ? shim::kDraProgram : shim::kProgram).error(base::error_of_exception());
    return 1;
  }
}
