// Restricts the process that a runtime started: drops all that it inherited from the caller, then limits its system
// calls.
#pragma once

#include "hook/base/result.hpp"

namespace hook {

// The only environment variable that a stage keeps: the administrator sets the node's name in the hook's entry.
inline constexpr const char* kNodeName = "NODE_NAME";

// Removes inherited state; the first call of a stage. Afterwards: an environment with kNodeName only, "/" as working
// directory, umask 077, no descriptors but 0 to 2 (closed ones become /dev/null), no core dump, no tracing
// (PR_SET_DUMPABLE), no new privileges. Descriptors opened before are closed. Errors: a closed descriptor of 0 to 2
// cannot be opened; another step fails.
Result<void> isolate();

// Restricts the process and its children for good. First drops the capabilities that no step needs (list: sandbox.cpp)
// and makes none inheritable. Works also in a process that lacks some of the kept ones. Then sets a seccomp filter.
// libseccomp makes the filter when this program is built (sandbox_filter_gen.cpp): at run time that would take 0.35 ms,
// while the kernel loads the filter in 0.1 ms.
// A forbidden call fails with EPERM, and the kernel logs it if audit is on. A call that no hook makes (execve, ptrace,
// kernel modules, kexec, unshare, chroot, ...) kills the process. Open the log before this call, because the filter
// allows no new socket to another process. Errors: a kernel without seccomp filters.
Result<void> restrict_process();

// Restricts a process with children that restrict themselves more, or that execute IPAM plugins: no new privileges, and
// a filter of calls that no such program makes (ptrace, kernel modules, kexec, io_uring, ...), which fail with EPERM.
// Errors: as restrict_process().
Result<void> restrict_with_children();

// Restricts `config apply`: no capability but CAP_CHOWN and CAP_DAC_OVERRIDE. The filter allows reading files,
// replacing one, inotify, and netlink sockets for links and RDMA devices. Any other call fails with EPERM; a call that
// kills under restrict_process() kills here too. Block the signals to wait for before this call. Errors: as
// restrict_process().
Result<void> restrict_to_config();

// Restricts the process that serves HTTP: no capability. The filter allows its calls on open sockets and on memory. Any
// other call kills the process. Errors: as restrict_process().
Result<void> restrict_to_serving();

// Closes all descriptors from this one on; one by one before Linux 5.9, which has no close_range(2).
void close_from(int first);

}  // namespace hook
