// NCCL's own rules, restated: which ports NCCL_IB_HCA selects, and which GID index NCCL takes by itself. Pure.
// Source: NVIDIA/nccl src/misc/utils.cc, src/transport/net_ib (connect.cc, init.cc), tags 2.21.5 to 2.30.7.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fabric/inventory.hpp"

namespace init::nccl {

struct Version {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned patch = 0;
  friend auto operator<=>(const Version&, const Version&) = default;
};

inline constexpr Version kNewest{2, 30, 7};
inline constexpr Version kChoosesGid{2, 21, 0};           // before, an unset index is index 0
inline constexpr Version kToleratesUnreadable{2, 26, 0};  // before, an unreadable type aborts the connection
inline constexpr Version kEmptyPortIsAny{2, 30, 5};
inline constexpr Version kIgnoresIndexOnInfiniband{2, 22, 0};  // before, accept() queries it on every port
inline constexpr Version kConfFile{2, 23, 0};                  // NCCL_CONF_FILE
inline constexpr Version kTrimsCr{2, 30, 0};                   // at the end of a line of nccl.conf
inline constexpr Version kThirtyTwoPorts{2, 18, 5};            // 16 before
inline constexpr std::size_t kMaxPorts = 32;                   // MAX_IB_DEVS and the length of the parsed list

// "2.21.5", "2.21.5-1", "2.21"; nullopt for anything else.
std::optional<Version> parse_version(std::string_view text);
std::string to_string(const Version& version);

// How many ports, and entries of a list, a version takes; it ignores more without a word.
constexpr std::size_t max_ports(const Version& version) {
  return version < kThirtyTwoPorts ? 16 : kMaxPorts;
}

// A value of NCCL_IB_HCA, parsed as NCCL does.
struct HcaList {
  struct Entry {
    std::string name;
    long port = -1;  // -1: every port
  };
  bool exclude = false;
  bool exact = false;
  std::vector<Entry> entries;  // at most kMaxPorts

  bool matches(std::string_view hca, unsigned port) const;
};
HcaList parse_hca_list(std::string_view value, const Version& version = kNewest);
// Whether an entry leaves its port empty, as mlx5_0::0 (device, port, rail).
bool has_empty_port(std::string_view value);

// What NCCL makes of a numeric variable: strtoll with base 0, garbage is the leading number or 0, overflow and the
// empty string are the default.
long parse_param(std::string_view value, long fallback);

// A fixed GID index, which NCCL keeps as an int: -4294967293 is 3. Negative: NCCL chooses.
int parse_index(std::string_view value);

// What decides NCCL's choice when NCCL_IB_GID_INDEX is not set.
struct GidRules {
  fabric::Family family = fabric::Family::kIpv4;  // NCCL_IB_ADDR_FAMILY
  std::optional<fabric::Cidr> range;              // NCCL_IB_ADDR_RANGE, of that family
  bool nothing_in_range = false;                  // its length is negative
  long roce_version = 2;                          // NCCL_IB_ROCE_VERSION_NUM
  Version version = kNewest;
};

// The values as NCCL reads them: an unknown family is AF_INET, a range that is not one of that family is ignored,
// and so is what follows the number of its length.
GidRules parse_gid_rules(std::string_view family, std::string_view range, std::string_view roce_version);

struct GidChoice {
  std::optional<unsigned> index;  // nullopt: the connection fails
  // The choice compares with an uninitialised variable (2.26 to 2.30.7, type of the current slot unreadable): the index
  // is the likely one.
  bool uncertain = false;
};

// The index NCCL takes on this port by itself. Needs the table up to the chosen slot; see
// needs_whole_tables() for when that is not enough.
GidChoice choose_gid(const fabric::Port& port, const GidRules& rules);

}  // namespace init::nccl
