// Makes the names of fabric/result.hpp, where errors are values, available in hook.
#pragma once

#include "fabric/result.hpp"

namespace hook {

using fabric::Error;
using fabric::make_error;
using fabric::Result;
using fabric::sys_error;

}  // namespace hook
