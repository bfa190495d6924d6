// Runs a function in a forked child and returns its Result: for changes of the whole process, such as setns(2).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string_view>

#include "fabric/unique_fd.hpp"
#include "hook/base/result.hpp"

namespace hook {

// Descriptors that the child returns (SCM_RIGHTS), each at its index; empty: none.
inline constexpr std::size_t kChildFiles = 4;
using ChildFiles = std::array<fabric::UniqueFd, kChildFiles>;

// Returns the descriptors that the function has set. Errors: the function's, with the same message, code and hint, each
// text cut to 1,999 bytes; the child cannot be made or ends without a report. The child is killed if its parent dies.
// where: "the container's mount namespace", for the error of a child that ended without a report.
Result<ChildFiles> run_in_child(std::string_view where, const std::function<Result<void>(ChildFiles&)>& function);

}  // namespace hook
