// The layers above use the names of base without its prefix.
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
