// Restricts the process that a runtime started: removes the state that the process inherited from its caller, then
// limits its system calls.
#pragma once

#include "base/result.hpp"

namespace base {

// The only environment variable that a stage keeps: the node's name, set by the administrator in "env" of the hook's
// JSON file.
inline constexpr const char* kNodeName = "NODE_NAME";

// Removes the state that the process inherited. Each stage calls this function first. Afterwards the process has only
// kNodeName in its environment, "/" as working directory, umask 077, only the descriptors 0 to 2 (/dev/null replaces a
// closed one), no core dump, no tracing (PR_SET_DUMPABLE) and no new privileges. Errors: /dev/null cannot be opened;
// another step fails.
Result<void> isolate();

// Returns true if the descriptors 0 to 2 are open.
bool has_standard_descriptors();

// Restricts the process and its children for good. First drops the capabilities that no step needs (list: sandbox.cpp)
// and makes none inheritable. Works also if the process lacks a needed capability. Then sets a seccomp filter.
// libseccomp makes the filter when this program is built (sandbox_filter_gen.cpp): at run time that would take 0.35 ms,
// while the kernel loads the filter in 0.1 ms.
// A forbidden call fails with EPERM, and the kernel logs it if audit is on. A call that no hook makes (execve, ptrace,
// kernel modules, kexec, unshare, chroot, ...) kills the process. Open the log before this call, because the filter
// allows no new socket to another process. Errors: a kernel without seccomp filters.
Result<void> restrict_process();

// Restricts a process whose children restrict themselves further, or execute IPAM plugins: no new privileges, and a
// filter that forbids calls that no such program makes (ptrace, kernel modules, kexec, io_uring, ...). These calls fail
// with EPERM. Errors: those of restrict_process().
Result<void> restrict_with_children();

// Restricts `config apply`: keeps only the capabilities CAP_CHOWN and CAP_DAC_OVERRIDE. The filter allows reading
// files, replacing a file, inotify, and netlink sockets for links and RDMA devices. Any other call fails with EPERM; a
// call that kills the process under restrict_process() kills it here too. Block signals before this call, because the
// filter forbids sigprocmask(2). Errors: those of restrict_process().
Result<void> restrict_to_config();

// Restricts the process that serves metrics over HTTP: drops all capabilities. The filter allows only memory calls, and
// calls on sockets that are open already or accepted from them. Any other call kills the process. Errors: those of
// restrict_process().
Result<void> restrict_to_serving();

// Restricts the process that talks to an API server: drops all capabilities. The filter allows memory calls, and
// sockets that connect to IP addresses. The process can open no file. Any other call kills it. Errors: those of
// restrict_process().
Result<void> restrict_to_client();

// Closes all descriptors with this number or a higher one. Before Linux 5.9, which has no close_range(2), closes them
// one by one.
void close_from(int first);

}  // namespace base
