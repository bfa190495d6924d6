// A port's GID table, as far as aligning needs it.
#pragma once

#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "hook/rails/align/align.hpp"

namespace hook {

// sysfs: a descriptor of /sys, or of a detached mount of it. Reads slots from 0 on until the v2 GID of each wanted
// address was seen and at least `at_least` slots were read, or the table ends; without wanted addresses, exactly
// at_least slots. The reading is no snapshot: the kernel may change the table meanwhile.
// Errors name the file below sysfs: a name that is no HCA's, no such HCA or port (ENOENT), an attribute that cannot be
// read (ENODEV while the device is unplugged) or holds no GID.
fabric::Result<GidTable> read_gid_table(int sysfs, const std::string& hca, unsigned port,
                                        const std::vector<fabric::Address>& wanted, unsigned at_least);

}  // namespace hook
