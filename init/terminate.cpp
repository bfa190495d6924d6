// The last words of an exception that nobody catches. The library's own handler demangles its type, which is 50 kB of a
// static program that throws nothing on purpose; this definition keeps it out of the link.
#include <cstdlib>

namespace __gnu_cxx {

void __verbose_terminate_handler();  // declared in <exception>'s internals (libstdc++ 12, vterminate.cc)
void __verbose_terminate_handler() {
  std::abort();
}

}  // namespace __gnu_cxx
