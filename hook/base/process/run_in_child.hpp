// Work in a forked child that answers with a Result: for what changes the whole process, as setns(2) does.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string_view>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Descriptors that the child hands back (SCM_RIGHTS), each at its place; empty: none there.
inline constexpr std::size_t kChildFiles = 4;
using ChildFiles = std::array<fabric::UniqueFd, kChildFiles>;

// The function's error comes back with message, code and hint, cut to 1,999 bytes. The child dies with its parent.
// where: "the container's mount namespace", for the error of a child that ended without a word.
Result<ChildFiles> run_in_child(std::string_view where, const std::function<Result<void>(ChildFiles&)>& function);

}  // namespace hook
