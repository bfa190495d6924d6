// Checks whether the image has the libraries that open the HCAs: libibverbs and a provider for each HCA; for EFA also
// libfabric and aws-ofi-nccl; and whether its UCX and libfabric, if it has them, find the HCAs. read_image() reads the
// image; the rest is pure.
//
// libibverbs silently ignores a provider of another private ABI than its own (fabric/libraries.hpp), and the HCA
// is missing.
// The checks identify a library by its file name, which the loader and dlopen(3) use, and not by its SONAME.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/libraries.hpp"
#include "init/decision.hpp"
#include "init/doctor.hpp"
#include "init/lent.hpp"

namespace init {

struct Provider {
  std::string driver;  // driver of the provider: "mlx5"
  unsigned abi = 0;    // private ABI: 34 for libmlx5-rdmav34.so
  fabric::ImageFile file;
};

struct Image {
  std::vector<std::string> distributions;  // ID and ID_LIKE of os-release
  bool ngc = false;                        // the image has NVIDIA's entrypoint
  bool is_static = false;                  // programs are linked statically: no C library in the image loads libraries
  fabric::ImageFile verbs;                 // the image's libibverbs.so.1
  std::optional<unsigned> abi;             // private ABI that libibverbs needs; nullopt: not found in its file
  std::vector<std::string> drivers;        // drivers in /etc/libibverbs.d and the environment
  std::vector<Provider> providers;
  std::string unread;  // directory of drivers or providers that was not read completely; a missing file may be in it
  bool abi_version = true;        // sysfs has infiniband_verbs/abi_version; libibverbs needs it
  fabric::ImageFile fabric;       // the image's libfabric.so.1
  bool lacks_localhost = false;   // certain: programs that use the C library cannot resolve `localhost`
  std::string ucx_without_verbs;  // directory of UCX's modules, if it has modules and no libuct_ib.so; empty: none
  fabric::ImageFile nccl_plugin;  // libnccl-net.so or libnccl-net-ofi.so, for EFA only
};

// Reads the libraries of the image. Loads none, and every read is bounded. root: prefix of a file tree, empty for this
// machine. for_efa: also search the libraries for EFA.
Image read_image(const std::string& root, bool for_efa);

// Returns the checks for the HCAs with device nodes that the image's own libraries must open; none if there are no such
// HCAs.
std::vector<Check> check_image(const fabric::Inventory& inventory, const Decision& decision, const Image& image,
                               const Lent& lent = {});

}  // namespace init
