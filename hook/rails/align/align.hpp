// GID alignment: moves the GIDs of rails to the same index in the GID tables of their ports, because NCCL_IB_GID_INDEX
// is one number for all HCAs.
//
// The kernel puts a new GID into the first free slot of the port's table, once for each type (RoCE v1, then v2) that
// the port supports (drivers/infiniband/core/cache.c, __ib_cache_gid_add(); roce_gid_mgmt.c, Linux 6.12). To get
// another slot, the address is removed, placeholder addresses fill the free slots below the wanted one, and the address
// is added again. The kernel reserves the first slots, one for each type, for the port's own link-local GIDs
// (gid_table_reserve_default()).
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "fabric/address.hpp"

namespace hook {

struct GidSlot {
  unsigned index = 0;
  fabric::Address gid;
  bool v2 = true;
  friend bool operator==(const GidSlot&, const GidSlot&) = default;
};

// A port's GID table. A slot that was read and is not in `slots` counts as free.
struct GidTable {
  unsigned length = 0;         // number of slots (gid_tbl_len)
  std::vector<GidSlot> slots;  // the slots in use, by ascending index
  unsigned read = 0;           // number of slots that were read, beginning with slot 0
  friend bool operator==(const GidTable&, const GidTable&) = default;
};

// One rail: its address, which rdma-hook has added, and the GID table of its port.
struct AlignRail {
  unsigned rail = 0;
  std::string name;         // name of the rail for messages: "rail1"
  fabric::Address address;  // the address whose v2 GID is aligned
  GidTable table;
};

// The steps for one rail: remove the address, add `fill` placeholders, remove the placeholders in `release` (numbered
// from 0 in the order of adding), add the address, remove all placeholders. The last placeholder is in the target slot
// until the address replaces it, so that no other container's GID gets this slot. `release` has only that placeholder.
struct AlignMove {
  std::size_t rail = 0;  // position in the list of rails
  unsigned from = 0;     // index of the v2 GID before the move
  unsigned fill = 0;     // number of placeholders; at least 1
  std::vector<unsigned> release;
  friend bool operator==(const AlignMove&, const AlignMove&) = default;
};

struct Alignment {
  unsigned index = 0;            // common index of all rails afterwards
  std::vector<AlignMove> moves;  // empty: all rails have this index already
  friend bool operator==(const Alignment&, const Alignment&) = default;
};

// Returns the index of the address's v2 GID; nullopt if the slots that were read do not have it. Pure.
std::optional<unsigned> v2_index(const GidTable& table, const fabric::Address& address);

// Returns the number of GIDs that each address has in this table: 2 on a port with RoCE v1 and v2, 1 on a port with v2
// only. Pure.
unsigned gid_types(const GidTable& table);

// Plans moves to the lowest index that every rail can reach with at most max_placeholders placeholders (256 at most).
// Plans no moves if all rails already have the same index. On a port with v1 and v2 an address takes two free slots,
// the second one for its v2 GID. The v2 GID can therefore reach only every second free slot. The time is proportional
// to the slots that were read. Pure.
// Errors: an address has no v2 GID, or more than one; two rails with different addresses are on one port; all rails can
// have no common index, because the tables are too full (the message has the numbers of slots).
Result<Alignment> plan_alignment(const std::vector<AlignRail>& rails, unsigned max_placeholders = 256);

// Returns "aligned rails at GID index 7: rail1 5->7, rail3 6->7"; an empty text without moves.
std::string to_string(const Alignment& alignment, const std::vector<AlignRail>& rails);

// Returns the placeholder address with number n, below 256: 192.0.2.n, as an IPv4-mapped IPv6 address. Such addresses
// are free on each network (RFC 5737).
fabric::Address placeholder(unsigned n);

// Moves the address of one rail to a GID index: one method for each step of AlignMove.
// rail: position in the list of rails that run_alignment() gets.
class AlignLink {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~AlignLink() = default;
  // remove_address() removes the address of the rail; the kernel then removes the routes that depend on the address.
  // add_address() adds the address, and its routes and rules. Both succeed if there is nothing to change.
  virtual Result<void> remove_address(std::size_t rail) = 0;
  virtual Result<void> add_address(std::size_t rail) = 0;
  // Adds the placeholders with the numbers `from` to `to` - 1, in ascending order.
  virtual Result<void> add_placeholders(std::size_t rail, unsigned from, unsigned to) = 0;
  // Removes one placeholder. A missing placeholder is no error.
  virtual Result<void> remove_placeholder(std::size_t rail, unsigned number) = 0;
  // Reads the GID table of the rail's port as read_gid_table() does.
  virtual Result<GidTable> read(std::size_t rail, const std::vector<fabric::Address>& wanted, unsigned at_least) = 0;
  // Pauses for about a millisecond between two reads.
  virtual void wait() = 0;
  virtual Clock::time_point now() { return Clock::now(); }
};

// Upper bounds of an alignment on live rails: placeholders, rounds and time. The bounds are needed because other
// containers of the node start and end during the alignment, and change the same tables.
//
// The kernel changes a GID table some time after the netlink call that changed an address, but in the order of the
// calls: one ordered work queue serves the whole node (roce_gid_mgmt.c, gid_cache_wq, Linux 6.12). Therefore all calls
// for all rails come first. Then each table is read until it has the rail's last placeholder address, which proves that
// all earlier changes are done. A placeholder is then in the target slot of the table, until the address replaces it. A
// slot can read as empty although it is in use: by a deleted GID that a process still uses, or by a GID that MLNX_OFED
// hides. The kernel puts no placeholder into such a slot, and this shows that the slot is in use.
struct AlignLimits {
  unsigned max_placeholders = 256;  // most placeholders of a rail at one time
  unsigned rounds = 3;
  // Limit on waiting for the kernel in all rounds together. Restoring the addresses after this limit can take up to
  // half of `time` in addition.
  std::chrono::milliseconds time{2000};
};

struct AlignReport {
  Alignment done;             // the moves of all rounds together; empty: all rails had the same index already
  std::string text;           // to_string(done)
  unsigned rounds = 0;        // rounds that changed a table
  unsigned slots_moved = 0;   // GIDs of addresses that now have another index
  unsigned placeholders = 0;  // placeholders that were added and removed
};

// Moves the GIDs of live rails to one index. Ignores the tables in `rails`: reads the tables with link.read().
// Afterwards, even after an error, no placeholder is left and every address has a GID, at its old index or at another
// one. The exception is an error that names addresses or placeholders that could not be restored or removed.
// Errors: those of plan_alignment(); any error of `link`; the rails do not get the same index in time. The message has
// the index of every rail, and the addresses that could not be restored.
Result<AlignReport> run_alignment(std::vector<AlignRail> rails, AlignLink& link, const AlignLimits& limits = {});

}  // namespace hook
