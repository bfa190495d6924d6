// The last words of an exception that nobody catches. The library's own handler demangles its type, which is 50 kB of a
// static program that throws nothing on purpose; this definition keeps it out of the link.
#include <cstdlib>

namespace __gnu_cxx {

// The name is the library's (libstdc++ 12, libsupc++/vterminate.cc).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-redundant-declaration)
void __verbose_terminate_handler();
void __verbose_terminate_handler() {
  std::abort();
}
// NOLINTEND(bugprone-reserved-identifier,readability-redundant-declaration)

}  // namespace __gnu_cxx
