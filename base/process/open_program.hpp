// Opens a program that only root can have placed there.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// Opens a program for fexecve(3), so that the checked file is the executed one. Requires that root or the caller's user
// owns the file and each directory and link on the way, and that no other user can write to them. A sticky directory
// may be writable: other users cannot replace root's files there.
// path: absolute. root: directory that the path, its links and its ".." cannot leave, as with chroot(2); "": none.
// Errors: ENOENT; EACCES, the file is not regular, or another user can change it or a directory or link on the way; any
// other errno of open(2).
Result<UniqueFd> open_program(std::string_view path, const std::string& root = {});

// Checks that only root can change the directory, and each directory on the way to it. A missing directory is no error.
// Errors: as open_program().
Result<void> check_program_directory(std::string_view directory, const std::string& root);

}  // namespace base
