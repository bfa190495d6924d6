// Which ports and which GID NCCL takes, from its environment variables: a second, independent reading of NCCL's rules
// (2.30: src/misc/utils.cc, src/transport/net_ib), so that what rdma-init exports is tried by a reader that shares no
// code with its writer.
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

// An empty list holds every port, also when it is an exclude list: `^` alone selects nothing.
bool selects(const HcaList& list, std::string_view device, int port);

using Gid = std::array<std::uint8_t, 16>;

// A slot of a port's GID table. version: 1 or 2 for RoCE v1 and v2; no value when the kernel does not tell.
struct GidSlot {
  Gid gid{};
  std::optional<int> version;
};

// The four variables that steer the choice of a GID. index: no value when NCCL chooses by itself.
struct GidRules {
  struct Range {
    Gid prefix{};
    int bits = 0;  // of the 128, IPv4 as ::ffff:a.b.c.d
  };
  std::optional<int> index;
  bool ipv6 = false;
  int version = 2;
  std::optional<Range> range;
};

// Reads NCCL_IB_GID_INDEX, _ADDR_FAMILY, _ROCE_VERSION_NUM and _ADDR_RANGE with `get`, which returns nullptr for an
// unset name.
GidRules read_gid_rules(const char* (*get)(const char* name));

// The index that NCCL takes on a RoCE port with this table. It never finds "nothing suitable": the answer may be a bad
// one.
int choose_gid(const std::vector<GidSlot>& table, const GidRules& rules);

}  // namespace trainer
