// A container with RDMA as it is common on 8-rail RoCE nodes, laid out as files: sys/ and dev/ below a directory, to be
// mounted over the real ones.
#pragma once

#include <string>
#include <vector>

#include "fabric/result.hpp"

namespace bench {

struct Scene {
  unsigned hcas = 8;     // 0: a machine without RDMA
  unsigned slots = 256;  // of every GID table; all are readable files, as in sysfs
};

// A netdev of the container and its addresses, which the network namespace has to have.
struct Rail {
  std::string netdev;
  std::string mac;
  std::string ipv4;  // ADDRESS/PREFIX
  std::string ipv6;  // the link-local one
};

// One per HCA. Its GIDs are in the slots 0 to 3: link-local v1 and v2, IPv4 v1, and the IPv4 v2 one that is wanted.
std::vector<Rail> rails(const Scene& scene);
inline constexpr unsigned kWantedIndex = 3;

// Device nodes are made with the number of /dev/null, which opens as a uverbs node does; where mknod(2) is not
// permitted, regular files do the same.
fabric::Result<void> write_tree(const Scene& scene, const std::string& directory);

}  // namespace bench
