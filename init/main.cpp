// rdma-init: ENTRYPOINT ["rdma-init", "--"] of training images.
#include <sys/auxv.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>

#include "fabric/remedy.hpp"
#include "init/commands.hpp"
#include "init/exec.hpp"

// Runs when an exception is not caught. The library's own handler demangles the exception's type, which is 50 kB of a
// static program that throws nothing on purpose; this definition keeps that out of the link.
namespace __gnu_cxx {

// The name is the library's (libstdc++ 12, libsupc++/vterminate.cc).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-redundant-declaration)
void __verbose_terminate_handler();
void __verbose_terminate_handler() {
  std::abort();
}
// NOLINTEND(bugprone-reserved-identifier,readability-redundant-declaration)

}  // namespace __gnu_cxx

int main(int argc, char** argv) {
  init::guard_standard_descriptors();  // first: from here on descriptors are opened
  const init::Log log(init::LogLevel::kInfo);
  // With rights that its caller lacks, every variable that it reads would be the caller's way to them.
  if (::getauxval(AT_SECURE) != 0) {
    log.error("does not run set-user-ID, set-group-ID or with file capabilities", "chmod u-s,g-s; setcap -r");
    return init::kExitFailure;
  }
  try {
    const auto options = init::parse_options(argc, argv, environ);
    if (!options) {
      log.error(options.error().message, fabric::remedy_of(options.error()));
      return init::kExitUsage;
    }
    return init::run_command(*options, environ);
  } catch (const std::exception& error) {  // bad_alloc: nothing else is thrown on purpose
    log.error(error.what());
    return init::kExitFailure;
  }
}
