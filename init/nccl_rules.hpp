// NCCL's own rules: the ports that NCCL_IB_HCA selects, and the GID index that NCCL chooses. Pure.
// Source: NVIDIA/nccl src/misc/utils.cc, src/transport/net_ib (connect.cc, init.cc), tags 2.21.5 to 2.30.7.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"
#include "fabric/nccl_marks.hpp"

namespace init::nccl {

struct Version {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  friend auto operator<=>(const Version&, const Version&) = default;
};

// All versions of which the simulation knows the rules, and from which on a rule holds. Messages and documents name the
// same versions in words.
inline constexpr Version kNewest{2, 30, 7};
inline constexpr Version kChoosesGid{2, 21, 0};  // earlier versions read an unset index as 0, and -1 as -1
// In earlier versions a GID type that cannot be read aborts the connection.
inline constexpr Version kToleratesUnreadable{2, 26, 0};
inline constexpr Version kEmptyPortIsAny{2, 30, 5};  // earlier versions read an empty port as port 0, which no HCA has
inline constexpr Version kReadsRails{2, 30, 5};      // NCCL reads NCCL_IB_HCA=dev:port:rail:plane
// Earlier versions query the GID at the index on InfiniBand too.
inline constexpr Version kIgnoresIndexOnInfiniband{2, 22, 0};
inline constexpr Version kConfFile{2, 23, 0};           // from here on, NCCL reads NCCL_CONF_FILE
inline constexpr Version kTrimsCr{2, 30, 0};            // NCCL trims CR at the end of a line in nccl.conf
inline constexpr Version kHomeVariable{2, 30, 0};       // ~/.nccl.conf is in $HOME; before, see getpwuid(3)
inline constexpr Version kTimeout18{2, 14, 0};          // in earlier versions an unset NCCL_IB_TIMEOUT is 14
inline constexpr Version kTimeout20{2, 23, 0};          // in earlier versions an unset NCCL_IB_TIMEOUT is 18
inline constexpr Version kEnvPlugin{2, 29, 0};          // from here on, NCCL reads NCCL_ENV_PLUGIN
inline constexpr Version kMinusOneIsDefault{2, 26, 0};  // NCCL_IB_TC and _SL: -1 is the default; before, -1 is 255
// From here to kRightSubnet, NCCL inverts its rule for NCCL_COMM_ID (PR 2047).
inline constexpr Version kInvertsSubnet{2, 29, 2};
inline constexpr Version kRightSubnet{2, 30, 3};
// NCCL's bootstrap takes netdevs without carrier only in the subnet of NCCL_COMM_ID, and virbr last (issue 1798).
// Before, it takes any netdev with an address.
inline constexpr Version kTakesRunning{2, 28, 0};
inline constexpr Version kTakesDown{2, 27, 0};       // the last before kTakesRunning
inline constexpr Version kThirtyTwoPorts{2, 18, 5};  // earlier versions use at most 16 ports
inline constexpr std::size_t kMaxPorts = 32;         // MAX_IB_DEVS; NCCL reads as many entries of a list
inline constexpr std::size_t kMaxInterfaces = 16;    // NCCL's constant MAX_IFS

// Parses "2.21.5", "2.21.5-1" or "2.21". Returns nullopt for any other text.
std::optional<Version> parse_version(std::string_view text);
std::string to_string(const Version& version);

// Returns the number of ports, and of list entries, that a version uses. NCCL silently ignores more.
constexpr std::size_t max_ports(const Version& version) {
  return version < kThirtyTwoPorts ? 16 : kMaxPorts;
}

// A value of NCCL_IB_HCA, parsed as NCCL does.
struct HcaList {
  struct Entry {
    std::string name;
    long port = -1;          // -1: every port
    bool is_prefix = false;  // the name is the begin of names
    std::string rail = {};   // ":RAIL:PLANE" after the port, which NCCL 2.30.5 reads; may be empty
    bool matches(std::string_view hca, unsigned number) const {
      return (is_prefix ? hca.starts_with(name) : hca == name) && (port == -1 || port == static_cast<long>(number));
    }
  };
  bool exclude = false;
  bool exact = false;
  std::vector<Entry> entries;  // at most kMaxPorts entries

  // Returns true if NCCL uses this port under the list.
  bool matches(std::string_view hca, unsigned port) const;
};
HcaList parse_hca_list(std::string_view value, const Version& version = kNewest);
// Parses a list of NCCL_SOCKET_IFNAME, which names netdevs: matches(NAME, 0). NCCL reads 16 entries and ignores ports.
HcaList parse_interface_list(std::string_view value);
// Returns true if an entry has an empty port, such as mlx5_0::0 (device, port, rail).
bool has_empty_port(std::string_view value);

using fabric::parse_param;

// Returns a fixed GID index, which NCCL stores in an int: -4294967293 is 3. A negative index means that NCCL chooses.
int parse_index(std::string_view value);

// The rules of NCCL's choice if NCCL_IB_GID_INDEX is not set.
struct GidRules {
  fabric::Family family = fabric::Family::kIpv4;  // value of NCCL_IB_ADDR_FAMILY
  std::optional<fabric::Cidr> range;              // NCCL_IB_ADDR_RANGE, only of that family
  bool nothing_in_range = false;                  // the prefix length is negative, so NCCL finds no GID in the range
  long roce_version = 2;                          // value of NCCL_IB_ROCE_VERSION_NUM
  Version version = kNewest;
};

// Returns the rules as NCCL reads them. An unknown family is AF_INET. A range that is not a network of the family is
// ignored, and so is text after its prefix length.
GidRules parse_gid_rules(std::string_view family, std::string_view range, std::string_view roce_version);

struct GidChoice {
  std::optional<unsigned> index;  // nullopt: the connection fails
  // NCCL compares with an uninitialised variable (2.26 to 2.30.7, if the type of the current slot is unreadable). The
  // index is the likely result.
  bool uncertain = false;
};

// Returns the index that NCCL chooses on this port. Needs the table up to the chosen slot; needs_whole_tables() reports
// the cases that need more.
GidChoice choose_gid(const fabric::Port& port, const GidRules& rules);

}  // namespace init::nccl
