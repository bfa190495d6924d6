// rdma-hook: gives containers their RDMA devices, and takes them back.
#include <csignal>
#include <cstdio>
#include <exception>

#include "hook/base/log.hpp"
#include "hook/program/commands.hpp"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

}  // namespace

int main(int argc, char** argv) {
  // A runtime that has closed its end of a pipe must not end the hook half-way.
  std::signal(SIGPIPE, SIG_IGN);
  // crun's hooks run under the container's limits: RLIMIT_FSIZE is then an error of a write.
  std::signal(SIGXFSZ, SIG_IGN);
  // Made where it is needed: a stage closes all descriptors first.
  const auto log = [&] { return argc > 1 && hook::is_stage(argv[1]) ? hook::Log::of_stage() : hook::Log(); };
  try {
    const auto options = hook::parse_options({argv + 1, static_cast<std::size_t>(argc > 0 ? argc - 1 : 0)});
    if (!options) {
      log().error(options.error());
      return options.error().code == EINVAL ? kExitUsage : kExitFailure;
    }
    return hook::run_command(*options);
  } catch (const std::exception& error) {  // bad_alloc: nothing else is thrown on purpose
    log().error({error.what(), 0, {}});
    return kExitFailure;
  }
}
