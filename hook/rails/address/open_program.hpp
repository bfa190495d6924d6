// Opens a program that root alone can have put where it is. In the helper only; internal to hook/rails/address.
#pragma once

#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {

// For fexecve(3): what is executed is what was looked at. The file, each directory on the way and each link that is
// followed belong to root (or who runs this) and can be changed by nobody else; in a sticky directory nobody else can
// change what is root's. path: absolute. Errors: ENOENT, EPERM with the remedy, others.
fabric::Result<fabric::UniqueFd> open_program(std::string_view path);

}  // namespace hook
