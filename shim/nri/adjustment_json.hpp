// An adjustment on its way from a child process. Pure.
#pragma once

#include <string>
#include <string_view>

#include "fabric/result.hpp"
#include "shim/nri/wire/values.hpp"

namespace shim {

std::string adjustment_text(const ContainerAdjustment& adjustment);
// Errors: not what adjustment_text() writes.
fabric::Result<ContainerAdjustment> parse_adjustment(std::string_view text);

}  // namespace shim
