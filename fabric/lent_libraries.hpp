// The node's libraries that open its HCAs: libibverbs, providers, and the libraries that both need, except the C
// library, which is always the image's. A container can use them if its image lacks them or has another version.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace fabric {

// Directories in the container: libibverbs with its providers; the other libraries that libibverbs and the providers
// need; the topology file. Programs can use the image's own libnl, too, so the directory of other libraries can be left
// out of LD_LIBRARY_PATH.
inline constexpr const char* kLentDirectory = "/run/rdma-init/lib";
inline constexpr const char* kNeededDirectory = "/run/rdma-init/needed";
inline constexpr const char* kTopologyDirectory = "/run/rdma-init/topology";
inline constexpr const char* kTopologyName = "topology.xml";

inline constexpr long kLargestLent = 64 << 20;  // bytes; libmlx5 of rdma-core 56 has 0.5 MB

struct LentFile {
  std::string name;       // "libibverbs.so.1": the name by which the loader or libibverbs searches the file
  std::string path;       // path on the node, below the root of its file tree
  std::string identity;   // file_identity() of the file when it was found
  bool of_verbs = false;  // libibverbs, or a library that needs it; a container uses all such libraries or none
  friend bool operator==(const LentFile&, const LentFile&) = default;
};

// Returns "DEVICE.INODE.SIZE.SECONDS.NANOSECONDS" (st_mtim) of an open file, which a replaced file does not share.
// Errors: the file is not regular, has more than kLargestLent bytes, or users other than root can change it.
Result<std::string> file_identity(int file, const std::string& path);

// Returns the files for these providers ("mlx5", "bnxt_re"), in the order of their names.
// root: prefix of a file tree, empty for this machine. from: a directory that is searched first; empty: none. Reads the
// ELF headers of about five files. Errors, with the remedy: a library is missing, of another architecture, or can be
// changed by users other than root.
Result<std::vector<LentFile>> find_lent_libraries(const std::string& root, const std::string& from,
                                                  const std::set<std::string>& providers);

// Returns the administrator's topology file under the name kTopologyName. root: as in find_lent_libraries(). Errors,
// with the remedy: the file cannot be opened, is not regular, or can be changed by users other than root.
Result<LentFile> find_topology_file(const std::string& root, const std::string& path);

}  // namespace fabric
