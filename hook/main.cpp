// rdma-hook: allocates RDMA devices to containers, and releases them.
#include <csignal>
#include <exception>

#include "base/log.hpp"
#include "hook/program/commands.hpp"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

}  // namespace

int main(int argc, char** argv) {
  // If a runtime has closed its end of a pipe, a write must fail and not kill the hook half-way.
  std::signal(SIGPIPE, SIG_IGN);
  // crun runs hooks under the container's limits: a write above RLIMIT_FSIZE must be an error, not a signal.
  std::signal(SIGXFSZ, SIG_IGN);
  // The log is opened only when it is needed, because a stage (createRuntime, poststop) first closes all descriptors.
  const auto log = [&] { return argc > 1 && hook::is_stage(argv[1]) ? base::Log::of_stage() : base::Log(); };
  try {
    const auto options = hook::parse_options({argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
    if (!options) {
      auto log_of_usage = log();
      log_of_usage.set_own_text("the command line is wrong");
      log_of_usage.error(options.error());
      return options.error().code == EINVAL ? kExitUsage : kExitFailure;
    }
    return hook::run_command(*options);
  } catch (const std::exception&) {  // bad_alloc; the program itself throws no exceptions
    log().error(base::error_of_exception());
    return kExitFailure;
  }
}
