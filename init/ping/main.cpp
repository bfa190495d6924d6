// rdma-ping: tests all rails between all ranks of a job with exactly the choices of its NCCL.
#include <fmt/core.h>
#include <sys/auxv.h>
#include <unistd.h>

#include <exception>

#include "base/result.hpp"
#include "init/exec.hpp"
#include "init/log.hpp"
#include "init/ping/job.hpp"
#include "init/ping/options.hpp"

int main(int argc, char** argv) {
  init::guard_standard_descriptors();
  init::program_name = "rdma-ping";
  const init::Log log(init::LogLevel::kInfo);
  // A privileged program must not read variables that its unprivileged caller controls.
  if (::getauxval(AT_SECURE) != 0) {
    log.error("does not run set-user-ID, set-group-ID or with file capabilities", "chmod u-s,g-s; setcap -r");
    return init::ping::kExitFailure;
  }
  try {
    const auto options = init::ping::parse_options(argc, argv, environ);
    if (!options) {
      log.error(options.error().message, base::remedy_of(options.error(), "see rdma-ping --help"));
      return init::ping::kExitUsage;
    }
    return init::ping::run(*options, environ, log);
    // Only bad_alloc is expected here.
  } catch (const std::exception&) {
    log.error("not enough memory", "raise the memory limit");
    return init::ping::kExitFailure;
  }
}
