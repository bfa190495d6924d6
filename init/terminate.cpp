// The last words of an exception that nobody catches. The library's own handler demangles its type, which is 50 kB of a
// static program that throws nothing on purpose; this definition keeps it out of the link.
#include <cstdlib>

namespace __gnu_cxx {

// NOLINTBEGIN(bugprone-reserved-identifier): the name is the library's (libstdc++ 12, libsupc++/vterminate.cc).
void __verbose_terminate_handler();
void __verbose_terminate_handler() {
  std::abort();
}
// NOLINTEND(bugprone-reserved-identifier)

}  // namespace __gnu_cxx
