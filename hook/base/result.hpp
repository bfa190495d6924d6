// Errors are values: fabric/result.hpp. Its words, as all of hook has them.
#pragma once

#include "fabric/result.hpp"

namespace hook {

using fabric::Error;
using fabric::make_error;
using fabric::Result;
using fabric::sys_error;

}  // namespace hook
