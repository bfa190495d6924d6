// What the hook leaves itself of the process that a runtime started: nothing of the caller's, then few system calls.
#pragma once

#include "hook/base/result.hpp"

namespace hook {

// The one variable that a stage keeps: the administrator, who writes the entry of the hook, tells it the node's name.
inline constexpr const char* kNodeName = "NODE_NAME";

// First thing in a stage: no other environment, "/" as working directory, umask 077, no descriptors but 0 to 2 (those
// that are closed become /dev/null), no core dump, not to be traced (PR_SET_DUMPABLE), no new privileges. Descriptors
// opened before are lost. Errors: 0 to 2 cannot be had.
Result<void> isolate();

// For the rest of the process and its children. First the capabilities: what no step needs is dropped (sandbox.cpp has
// the list), nothing is inheritable; none has to be there. Then a seccomp filter, made by libseccomp when this program
// was built (sandbox_filter_gen.cpp): at run time libseccomp needs 0.35 ms to make it, the kernel 0.1 ms to take it.
// What is not allowed fails with EPERM and is logged by the kernel where audit is on; what no hook ever does (execve,
// ptrace, kernel modules, kexec, unshare, chroot, ...) kills the process. The log has to be open before: there are no
// sockets but to the kernel. Errors: a kernel without seccomp filters.
Result<void> restrict_process();

// For a process whose children are restricted more, or execute IPAM plugins: no new privileges, and a filter of what no
// such program does (ptrace, kernel modules, kexec, io_uring, ...), which fails with EPERM. Errors: as above.
Result<void> restrict_with_children();

// For `config apply`: no capability but CAP_CHOWN and CAP_DAC_OVERRIDE, and a filter of reading files, replacing one,
// inotify, and netlink sockets for links and RDMA devices. Any other call fails with EPERM; what restrict_process()
// kills for kills here, too. Signals to be waited for are blocked before. Errors: as above.
Result<void> restrict_to_config();

// For the process that serves HTTP: no capability, and a filter of what it does with the sockets that it has, and of
// memory. Any other call kills the process. Errors: as above.
Result<void> restrict_to_serving();

// Closes every descriptor from this one on, one by one before Linux 5.9, which has no close_range(2).
void close_from(int first);

}  // namespace hook
