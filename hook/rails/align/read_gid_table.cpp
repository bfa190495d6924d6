#include "hook/rails/align/read_gid_table.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"

namespace hook {
namespace {

using fabric::Address;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::size_t kLongestName = 63;   // IB_DEVICE_NAME_MAX
constexpr unsigned kLongestTable = 65536;  // port_attr.gid_tbl_len is at most 16 bits in every driver

bool is_hca_name(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  };
  return !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), allowed);
}

// A slot's file name, without an allocation.
class SlotName {
 public:
  explicit SlotName(unsigned index) { *std::to_chars(text_, text_ + sizeof text_ - 1, index).ptr = '\0'; }
  const char* c_str() const { return text_; }

 private:
  char text_[16];
};

// The attribute without its line end, in one read; its errno when it cannot be read.
struct Attribute {
  int code = 0;
  char buffer[64];
  std::size_t size = 0;
  std::string_view text() const { return fabric::trim(std::string_view(buffer, size)); }
};

void read_attribute(int directory, const char* name, Attribute& attribute) {
  // O_NONBLOCK: a FIFO in place of an attribute must not stop the start of a container.
  const UniqueFd fd(::openat(directory, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  ssize_t count = -1;
  if (fd.ok()) {
    do {
      count = ::read(fd.get(), attribute.buffer, sizeof attribute.buffer);
    } while (count < 0 && errno == EINTR);
  }
  attribute.code = count < 0 ? errno : 0;
  attribute.size = count < 0 ? 0 : static_cast<std::size_t>(count);
}

struct TableDirectories {
  std::string path;  // of the port, below sysfs
  UniqueFd gids;
  UniqueFd types;
};

Result<TableDirectories> open_table(int sysfs, const std::string& hca, unsigned port) {
  if (!is_hca_name(hca)) {
    return fabric::make_error("cannot use HCA `{}`: that is no name of a device", fabric::printable(hca));
  }
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
  TableDirectories table{fmt::format("class/infiniband/{}/ports/{}", hca, port), {}, {}};
  const UniqueFd directory(::openat(sysfs, table.path.c_str(), kFlags));
  if (!directory.ok()) return sys_error(errno, "cannot open `{}`", table.path);
  table.gids = UniqueFd(::openat(directory.get(), "gids", kFlags));
  if (!table.gids.ok()) return sys_error(errno, "cannot open `{}/gids`", table.path);
  table.types = UniqueFd(::openat(directory.get(), "gid_attrs/types", kFlags));
  if (!table.types.ok()) return sys_error(errno, "cannot open `{}/gid_attrs/types`", table.path);
  return table;
}

// nullopt: the table ends before this slot. A zero GID: the slot is empty.
Result<std::optional<Address>> read_gid(const TableDirectories& table, const SlotName& slot) {
  Attribute attribute;
  read_attribute(table.gids.get(), slot.c_str(), attribute);
  if (attribute.code == ENOENT) return std::optional<Address>();
  if (attribute.code != 0) return sys_error(attribute.code, "cannot read `{}/gids/{}`", table.path, slot.c_str());
  const auto gid = fabric::parse_address(attribute.text());
  if (!gid) return fabric::make_error("cannot use `{}/gids/{}`: it holds no GID", table.path, slot.c_str());
  return gid;
}

// The slot's entry; a zero GID for an empty one.
Result<std::optional<GidSlot>> read_slot(const TableDirectories& table, unsigned index) {
  const SlotName name(index);
  const auto gid = TRY(read_gid(table, name));
  if (!gid) return std::optional<GidSlot>();
  GidSlot slot{index, *gid, true};
  if (gid->is_zero()) return std::optional(slot);
  Attribute type;
  read_attribute(table.types.get(), name.c_str(), type);
  if (type.code == 0) {
    slot.v2 = type.text() == "RoCE v2";
    return std::optional(slot);
  }
  // EINVAL: the GID went away between the two readings. Where it is still there, the slot is somebody's.
  const auto again = TRY(read_gid(table, name));
  slot.gid = again ? *again : Address{};
  return std::optional(slot);
}

// Slots are numbered without gaps, so that the first one missing is found by halving. `known` of them exist.
unsigned table_length(const TableDirectories& table, unsigned known) {
  const auto exists = [&](unsigned index) {
    return ::faccessat(table.gids.get(), SlotName(index).c_str(), F_OK, 0) == 0;
  };
  unsigned step = 1;
  unsigned missing = known;
  while (missing < kLongestTable && exists(missing)) {
    known = missing + 1;
    missing += step;
    step *= 2;
  }
  missing = std::min(missing, kLongestTable);
  while (known < missing) {
    const unsigned middle = known + (missing - known) / 2;
    if (exists(middle)) {
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
  const TableDirectories directories = TRY(open_table(sysfs, hca, port));
  std::vector<Address> missing = wanted;
  GidTable table;
  while (table.read < kLongestTable && (table.read < at_least || !missing.empty())) {
    const auto slot = TRY(read_slot(directories, table.read));
    if (!slot) {
      table.length = table.read;
      return table;
    }
    ++table.read;
    if (slot->gid.is_zero()) continue;
    if (slot->v2) std::erase(missing, slot->gid);
    table.slots.push_back(*slot);
  }
  table.length = table_length(directories, table.read);
  return table;
}

}  // namespace hook
