// Who stands still with a lock that another process waits for: for a message, and only looked for when a wait has
// failed. Everything may have changed since, so nothing is decided by it.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "hook/base/process/process_identity.hpp"

namespace hook {

// What the holder writes into the lock file of an HCA, in one write: "PID START CONTAINER\n"; container may be empty.
std::string lock_text(const ProcessIdentity& holder, std::string_view container);

// "process 123 (rdma-hook, container `web-1`, since 12 s) holds it" of the lock file of an HCA, whose last change is
// when the lock was taken; "another process holds it" where the file names no living process.
std::string hca_lock_holder(int fd);

// The same of a lock on one byte (F_OFD_SETLK), with what `since` says of the process: fdinfo of procfs names the
// descriptor, since F_OFD_GETLK names no process (fcntl(2)). Without CAP_SYS_PTRACE others' fdinfo stays unseen.
std::string byte_lock_holder(int fd, off_t offset);

}  // namespace hook
