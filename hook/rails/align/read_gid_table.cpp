#include "hook/rails/align/read_gid_table.hpp"

#include <algorithm>
#include <cerrno>

#include "fabric/gid_slots.hpp"
#include "hook/ledger/files.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::GidSlots;
using fabric::Result;
using fabric::sys_error;
using fabric::Unreadable;

Result<GidSlots> open_slots(int sysfs, const std::string& path) {
  const auto port = fabric::sysfs::Directory::open(sysfs, path.c_str());
  if (!port) return sys_error(errno, "cannot open `{}`", path);
  auto slots = GidSlots::open(*port);
  if (!slots) return sys_error(errno, "cannot open `{}/gids`", path);
  if (slots->types_error() != 0) return sys_error(slots->types_error(), "cannot open `{}/gid_attrs/types`", path);
  return *std::move(slots);
}

// nullopt: the table ends before this slot. A zero GID: the slot is empty.
Result<std::optional<Address>> read_gid(const GidSlots& slots, const std::string& path, unsigned index) {
  const auto gid = slots.gid(index);
  if (const auto* address = std::get_if<Address>(&gid)) return std::optional(*address);
  const int code = std::get<Unreadable>(gid).code;
  if (code == ENOENT) return std::optional<Address>();
  if (code == EBADMSG) return fabric::make_error("cannot use `{}/gids/{}`: it holds no GID", path, index);
  return sys_error(code, "cannot read `{}/gids/{}`", path, index);
}

// The slot's entry; a zero GID for an empty one.
Result<std::optional<GidSlot>> read_slot(const GidSlots& slots, const std::string& path, unsigned index) {
  const auto gid = TRY(read_gid(slots, path, index));
  if (!gid) return std::optional<GidSlot>();
  GidSlot slot{index, *gid, true};
  if (gid->is_zero()) return std::optional(slot);
  const auto type = slots.type(index);
  if (const auto* text = std::get_if<std::string>(&type)) {
    slot.v2 = *text == "RoCE v2";
    return std::optional(slot);
  }
  // EINVAL: the GID went away between the two readings, and the slot is empty now. If it is still there, it is taken.
  const auto again = TRY(read_gid(slots, path, index));
  slot.gid = again ? *again : Address{};
  return std::optional(slot);
}

// Slots are numbered without gaps, so that the first one missing is found by halving. `known` of them exist.
unsigned table_length(const GidSlots& slots, unsigned known) {
  unsigned step = 1;
  unsigned missing = known;
  while (missing < GidSlots::kMost && slots.has(missing)) {
    known = missing + 1;
    missing += step;
    step *= 2;
  }
  missing = std::min(missing, GidSlots::kMost);
  while (known < missing) {
    const unsigned middle = known + (missing - known) / 2;
    if (slots.has(middle)) {
      known = middle + 1;
    } else {
      missing = middle;
    }
  }
  return known;
}

}  // namespace

Result<GidTable> read_gid_table(int sysfs, const std::string& hca, unsigned port, const std::vector<Address>& wanted,
                                unsigned at_least) {
  TRY_VOID(check_hca_name(hca));
  const std::string path = fmt::format("class/infiniband/{}/ports/{}", hca, port);
  const GidSlots slots = TRY(open_slots(sysfs, path));
  std::vector<Address> missing = wanted;
  GidTable table;
  while (table.read < GidSlots::kMost && (table.read < at_least || !missing.empty())) {
    const auto slot = TRY(read_slot(slots, path, table.read));
    if (!slot) {
      table.length = table.read;
      return table;
    }
    ++table.read;
    if (slot->gid.is_zero()) continue;
    if (slot->v2) std::erase(missing, slot->gid);
    table.slots.push_back(*slot);
  }
  table.length = table_length(slots, table.read);
  return table;
}

}  // namespace hook
