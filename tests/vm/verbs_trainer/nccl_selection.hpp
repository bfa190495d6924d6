// NCCL's choice of ports and GID by its environment variables: a second, independent implementation of NCCL's rules
// (2.30: src/misc/utils.cc, src/transport/net_ib). It shares no code with rdma-init, whose exports it tests.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainer {

// NCCL_IB_HCA: `[^][=]name[:port],...`. Names are prefixes unless `=` is there.
struct HcaList {
  struct Entry {
    std::string name;
    int port = -1;  // -1: every port
  };
  bool exclude = false;
  bool exact = false;
  std::vector<Entry> entries;
};

HcaList parse_hca_list(std::string_view text);

// Returns true if the list selects the port. An empty list contains every port, so that `^` alone selects no port.
bool selects(const HcaList& list, std::string_view device, int port);

using Gid = std::array<std::uint8_t, 16>;

// A slot of a port's GID table. version: 1 or 2 for RoCE v1 and v2; no value if the kernel does not report it.
struct GidSlot {
  Gid gid{};
  std::optional<int> version;
};

// The four variables that determine the choice of a GID. index: no value if NCCL chooses by itself.
struct GidRules {
  struct Range {
    Gid prefix{};
    int bits = 0;  // bits of 128, IPv4 as ::ffff:a.b.c.d
  };
  std::optional<int> index;
  bool ipv6 = false;
  int version = 2;
  std::optional<Range> range;
};

// Reads NCCL_IB_GID_INDEX, _ADDR_FAMILY, _ROCE_VERSION_NUM and _ADDR_RANGE with `get`, which returns nullptr for an
// unset name.
GidRules read_gid_rules(const char* (*get)(const char* name));

// Returns the index that NCCL uses on a RoCE port with this table. NCCL always uses an index, even if no GID is
// suitable.
int choose_gid(const std::vector<GidSlot>& table, const GidRules& rules);

}  // namespace trainer
