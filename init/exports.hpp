// Writes the choice in the syntax of each communication library. Pure. docs/rdma-init.md, "What is exported", has the
// facts about each library.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "init/candidates.hpp"
#include "init/settings.hpp"

namespace init {

// Returns the names that --export accepts, in the order of the documentation.
std::vector<std::string_view> export_names();
// Parses "nccl,ucx" or "none". Errors: an unknown library; the message lists the known ones.
base::Result<std::vector<std::string>> parse_exports(std::string_view text);

struct ChosenPort {
  const Candidate* candidate = nullptr;
  std::string netdev;     // netdev with the GID's address, or the IPoIB netdev; empty if there is none
  std::string rail = {};  // ":RAIL:PLANE" of the user's NCCL_IB_HCA or of the node, for NCCL only
};

struct ExportInput {
  std::vector<ChosenPort> ports;
  std::optional<unsigned> index;  // GID index; nullopt: the ports differ in it or have no GID
  bool ipv6 = false;
  std::string default_netdev;  // netdev of the default route; empty: not known
  std::string default_socket;  // Netdev::socket_name() of the netdev
  bool has_others = false;     // the container has further HCAs that open
};

// The chosen HCAs without ports, "mlx5_0,mlx5_1", for programs that take names of devices as arguments.
inline constexpr std::string_view kDevicesName = "RDMA_INIT_DEVICES";
std::string device_list(const ExportInput& input);

using Variables = std::vector<std::pair<std::string, std::string>>;

// Returns the variables of one library, without empty values. Returns none for "nccl": decide() writes its variables.
// input: at least one port.
Variables library_variables(std::string_view library, const ExportInput& input);

// Returns the value of kExportsName (settings.hpp), with which a later run of rdma-init recognizes these exports, and
// the exports of earlier runs that stay in the environment.
std::string exports_mark(const Variables& exports, const Settings& settings);

// Returns the value of NCCL_IB_HCA, such as "=mlx5_0:1,mlx5_1:1". "=" requires exact names; otherwise NCCL compares
// prefixes.
std::string nccl_hca_value(const std::vector<ChosenPort>& ports);

}  // namespace init
