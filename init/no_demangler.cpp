// Keeps the demangler of the static libstdc++ out of a program.
#include <cstdlib>

namespace __gnu_cxx {  // NOLINT(bugprone-reserved-identifier)

// Handles an uncaught exception (libstdc++ 12, libsupc++/vterminate.cc). The library's handler demangles the type of
// the exception: 50 kB. The program throws nothing on purpose.
void __verbose_terminate_handler();   // NOLINT(bugprone-reserved-identifier)
void __verbose_terminate_handler() {  // NOLINT(bugprone-reserved-identifier)
  std::abort();
}

}  // namespace __gnu_cxx
