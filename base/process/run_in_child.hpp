// Runs a function in a forked child and returns its Result: for changes of the whole process, such as setns(2).
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace base {

// The descriptors that the child returns, sent with SCM_RIGHTS. An element without a descriptor stays empty.
inline constexpr std::size_t kChildFiles = 4;
using ChildFiles = std::array<UniqueFd, kChildFiles>;

// Returns the descriptors that `function` has stored in its argument. Errors: the error of `function`, each text cut to
// 1,999 bytes; the child cannot be made, or ends without a report. The child
// is killed if its parent dies. where: place for the message about a child without a report, such as "the container's
// mount namespace".
Result<ChildFiles> run_in_child(std::string_view where, const std::function<Result<void>(ChildFiles&)>& function);

}  // namespace base
