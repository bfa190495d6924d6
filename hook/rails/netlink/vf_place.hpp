// Where a virtual function is configured: at its physical function, by number.
#pragma once

#include <optional>
#include <string>

namespace hook {

struct VfPlace {
  std::string pf;   // the physical function's netdev
  unsigned vf = 0;  // N of virtfnN
};

// sys: "/sys", or a file tree's. vf_address, pf_address: PCI addresses ("0000:1a:00.2"). nullopt: it is no VF of that
// function, or the function has no netdev on the node.
std::optional<VfPlace> find_vf_place(const std::string& sys, const std::string& vf_address,
                                     const std::string& pf_address);

}  // namespace hook
