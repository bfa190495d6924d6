// rdma-hook without its system call filter, because valgrind does not support seccomp(2): the function for the linker's
// --wrap.
#include "base/process/sandbox.hpp"

namespace bench {

base::Result<void> no_filter() asm("__wrap__ZN4base16restrict_processEv");

base::Result<void> no_filter() {
  return {};
}

}  // namespace bench
