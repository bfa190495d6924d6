// Whether the image has what opens the HCAs: libibverbs and a provider for each, or for EFA libfabric and aws-ofi-nccl.
// What was found comes from read_image(); the rest is pure.
//
// How libibverbs finds a provider (rdma-core, libibverbs/dynamic_driver.c): each `driver NAME` line of
// /etc/libibverbs.d is loaded as libNAME-rdmavNN.so from its own directory, else from the library paths. NN is the
// private ABI, which must be its own; a provider of another NN is not even looked at, and the HCA is missing without a
// word.
// A library is known by its file's name, by which the loader and dlopen(3) look for it, and not by the SONAME in it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "fabric/inventory.hpp"
#include "init/decision.hpp"
#include "init/doctor.hpp"

namespace init {

// One library by its name.
struct ImageFile {
  std::string path;     // empty: it is in none of the places
  std::string problem;  // one line: there, but nothing that could be loaded, or a place could not be looked into
};

struct Provider {
  std::string driver;  // "mlx5"
  unsigned abi = 0;    // 34 of libmlx5-rdmav34.so
  ImageFile file;
};

struct Image {
  std::vector<std::string> distributions;  // ID and ID_LIKE of os-release
  bool ngc = false;                        // NVIDIA's entrypoint lies in it
  bool is_static = false;                  // it has no C library, which loads others: what runs there was linked whole
  ImageFile verbs;                         // libibverbs.so.1
  std::optional<unsigned> abi;             // the private ABI that it looks for; nullopt: its file does not say
  std::vector<std::string> drivers;        // of /etc/libibverbs.d and RDMAV_DRIVERS
  std::vector<Provider> providers;
  std::string unread;  // a directory of drivers or providers that was not read to its end: nothing is proven absent
  bool abi_version = true;  // sysfs has infiniband_verbs/abi_version, without which libibverbs finds no device
  ImageFile fabric;         // libfabric.so.1, for EFA only
  ImageFile nccl_plugin;    // libnccl-net.so or libnccl-net-ofi.so, for EFA only
};

// root: empty for this machine. for_efa: look for EFA's libraries too. Nothing is loaded; every look has a bound.
Image read_image(const std::string& root, bool for_efa);

// Findings for the HCAs whose nodes open; none without such.
std::vector<Check> check_image(const fabric::Inventory& inventory, const Decision& decision, const Image& image);

}  // namespace init
