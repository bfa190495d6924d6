// The remedy for a file or directory that users other than root can change.
#pragma once

#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/base.hpp"

namespace base {

// Returns a remedy that does no harm if an administrator follows it to the letter. It has a command only for a
// directory or regular file of the system or of rdma-init, without the sticky bit, whose path needs no quotes. Any
// other path, such as /tmp or a home directory, belongs to other users: then the remedy is to name another place. Pure.
// path: below `root`, the root of an installation; the command has the path with the root. No command changes the root
// of an installation itself.
std::string owner_remedy(std::string_view path, const struct stat& status, std::string_view root = {});

}  // namespace base
