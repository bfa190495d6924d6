// GID alignment: rails whose address sits at different indices of their ports' GID tables are brought to one index,
// because NCCL_IB_GID_INDEX is one number for all HCAs.
//
// The kernel puts a new GID into the first free slot of the port's table, for each type (RoCE v1, then v2) that the
// port supports (drivers/infiniband/core/cache.c, __ib_cache_gid_add(); roce_gid_mgmt.c, Linux 6.12). So an address
// that is taken away and added again while placeholders fill the free slots below lands where it is wanted. The first
// slots, one for each type, are kept for the port's own link-local GIDs even while they are free
// (gid_table_reserve_default()).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "fabric/address.hpp"
#include "fabric/result.hpp"

namespace hook {

struct GidSlot {
  unsigned index = 0;
  fabric::Address gid;
  bool v2 = true;
  friend bool operator==(const GidSlot&, const GidSlot&) = default;
};

// A port's table as it was read; slots are in ascending order, those not listed below `read` are free.
struct GidTable {
  unsigned length = 0;         // gid_tbl_len
  std::vector<GidSlot> slots;  // occupied
  unsigned read = 0;           // slots [0, read) were looked at
  friend bool operator==(const GidTable&, const GidTable&) = default;
};

// One rail: the address that moves, as this program put it there, and the table of its port.
struct AlignRail {
  unsigned rail = 0;
  std::string name;         // "rail1"
  fabric::Address address;  // whose v2 entry counts
  GidTable table;
};

// What happens to one rail, in this order: the address goes, `fill` placeholders come, those in `release` go (numbers
// counted from 0 in the order in which they came), the address comes back, all placeholders go. The last placeholder
// holds the place itself, so that no other container's GID gets into it, and is the one that is released.
struct AlignMove {
  std::size_t rail = 0;  // index into the rails given
  unsigned from = 0;     // index of its v2 GID now
  unsigned fill = 0;     // at least 1
  std::vector<unsigned> release;
  friend bool operator==(const AlignMove&, const AlignMove&) = default;
};

struct Alignment {
  unsigned index = 0;            // where all rails are afterwards
  std::vector<AlignMove> moves;  // empty: they agree already
  friend bool operator==(const Alignment&, const Alignment&) = default;
};

// The index of the address's v2 entry; nullopt: it has none in the part that was read.
std::optional<unsigned> v2_index(const GidTable& table, const fabric::Address& address);

// GIDs that each address has in this table: 2 on a port with RoCE v1 and v2, 1 on a port with v2 only.
unsigned gid_types(const GidTable& table);

// Pure. The lowest index that every rail can reach with at most max_placeholders each (256 at most), and no move at all
// for rails that agree. On a port with v1 and v2 an address takes two neighbouring free slots, so it reaches every
// second one only. Takes time in proportion to the slots that were read. Errors: a rail whose address has no v2 GID, or
// more than one; two rails of one port; no common index (full tables), with the figures.
fabric::Result<Alignment> plan_alignment(const std::vector<AlignRail>& rails, unsigned max_placeholders = 256);

// "aligned rails at GID index 7: rail1 5->7, rail3 6->7"; empty without moves.
std::string to_string(const Alignment& alignment, const std::vector<AlignRail>& rails);

// Placeholder number n, below 256: 192.0.2.0/24 as mapped address (RFC 5737: no network has them).
fabric::Address placeholder(unsigned n);

}  // namespace hook
