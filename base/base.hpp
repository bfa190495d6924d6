// The names of base are names of every layer above it.
#pragma once

namespace base {}

namespace fabric {
using namespace base;
}

namespace hook {
using namespace base;
}

namespace init {
using namespace base;
}

namespace shim {
using namespace base;
}
