// rdma-ping: tests all rails between all ranks of a job with exactly the choices of its NCCL.
#include <sys/auxv.h>

#include <cstdio>
#include <exception>
#include <string_view>

#include "init/exec.hpp"
#include "init/log.hpp"
#include "init/ping/job.hpp"
#include "init/ping/options.hpp"

namespace {

int print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  return written ? 0 : init::ping::kExitFailure;
}

}  // namespace

int main(int argc, char** argv) {
  // This is the first call, because every later call may open descriptors.
  init::guard_standard_descriptors();
  init::program_name = "rdma-ping";
  const init::Log log(init::LogLevel::kInfo);
  // A privileged program must not read variables that its unprivileged caller controls.
  if (::getauxval(AT_SECURE) != 0) {
    log.error("does not run set-user-ID, set-group-ID or with file capabilities", "chmod u-s,g-s; setcap -r");
    return init::ping::kExitFailure;
  }
  try {
    const auto options = init::ping::parse_options(argc, argv);
    if (!options) {
      log.error(options.error().message, fabric::remedy_of(options.error()));
      return init::ping::kExitUsage;
    }
    if (options->command == init::ping::Command::kVersion) return print("rdma-ping " RDMA_INIT_VERSION "\n");
    return print(init::ping::help_text());
    // Only bad_alloc is expected here.
  } catch (const std::exception& error) {
    log.error(error.what());
    return init::ping::kExitFailure;
  }
}
