// rdma-init: ENTRYPOINT ["rdma-init", "--"] of training images.
#include <unistd.h>

#include <exception>

#include "init/commands.hpp"
#include "init/exec.hpp"

int main(int argc, char** argv) {
  init::guard_standard_descriptors();
  const init::Log log(init::LogLevel::kInfo);
  try {
    const auto options = init::parse_options(argc, argv, environ);
    if (!options) {
      log.error(options.error().message, options.error().hint);
      return init::kExitUsage;
    }
    return init::run_command(*options, environ);
  } catch (const std::exception& error) {  // bad_alloc: nothing else is thrown on purpose
    log.error(error.what());
    return init::kExitFailure;
  }
}
