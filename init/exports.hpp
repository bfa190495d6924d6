// The same choice in the syntax of each communication library. Pure. Facts per library: docs/rdma-init.md, "What is
// exported".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fabric/result.hpp"
#include "init/candidates.hpp"

namespace init {

// Names of --export, in the order they are documented.
std::vector<std::string_view> export_names();
// "nccl,ucx" or "none". Errors name the unknown library and list the known ones.
fabric::Result<std::vector<std::string>> parse_exports(std::string_view text);

struct ChosenPort {
  const Candidate* candidate = nullptr;
  std::string netdev;  // the one with the GID's address, or the IPoIB netdev; empty if there is none
};

struct ExportInput {
  std::vector<ChosenPort> ports;
  std::optional<unsigned> index;  // when all ports agree
  bool ipv6 = false;
  std::string default_netdev;  // of the default route, empty if unknown
};

using Variables = std::vector<std::pair<std::string, std::string>>;

// The variables of one library; never an empty value. None for "nccl", whose variables decide() writes itself.
Variables library_variables(std::string_view library, const ExportInput& input);

// "=mlx5_0:1,mlx5_1:1": exact match, because NCCL otherwise compares prefixes.
std::string nccl_hca_value(const std::vector<ChosenPort>& ports);

}  // namespace init
