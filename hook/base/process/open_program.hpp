// Opens a program that root alone can have put where it is.
#pragma once

#include <string>
#include <string_view>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Opens a program for fexecve(3): what is executed is what was checked. The file, each directory on the way and each
// link that is followed belong to root, or to the caller's user, and nobody else can change them; in a sticky directory
// nobody else can change what is root's.
// path: absolute. root: the directory that the path, its links and its ".." stay below, as with chroot(2); "": none.
// Errors: ENOENT; EACCES, no regular file, or others can change it, with the remedy; others.
Result<fabric::UniqueFd> open_program(std::string_view path, const std::string& root = {});

}  // namespace hook
