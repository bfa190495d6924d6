// Makes the names of fabric/result.hpp, where errors are values, available in shim.
#pragma once

#include "fabric/result.hpp"

namespace shim {

using fabric::Error;
using fabric::make_error;
using fabric::Result;
using fabric::sys_error;

}  // namespace shim
