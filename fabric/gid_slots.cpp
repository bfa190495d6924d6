#include "fabric/gid_slots.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/text.hpp"

namespace fabric {
namespace {

Attr<Address> read_gid(const base::Directory& at, const char* path) {
  // sysfs prints a GID with 39 characters.
  char buffer[64];
  const auto text = at.read_into(path, buffer);
  if (const int code = error_of(text); code != 0) return Unreadable{code};
  const auto gid = parse_address(std::get<std::string_view>(text));
  if (!gid) return Unreadable{EBADMSG};
  return *gid;
}

// The path of a slot, without an allocation: a node has thousands of slots. A path that is too long is empty, and an
// empty path does not exist. fmt::format_to_n() would make rdma-init 3 kB larger.
struct SlotPath {
  SlotPath(std::string_view port, std::string_view table, unsigned index) {
    constexpr std::size_t kDigits = 10;  // the largest number of 32 bits has 10 digits
    char* at = text;
    if (port.size() + table.size() + kDigits + sizeof "//" <= sizeof text) {
      for (const std::string_view part : {port, table}) {
        at = std::ranges::copy(part, at).out;
        *at++ = '/';
      }
      at = std::to_chars(at, at + kDigits, index).ptr;
    }
    *at = '\0';
  }
  char text[256];
};

}  // namespace

std::optional<GidSlots> GidSlots::open(const base::Directory& at, const std::string& port, bool with_ndevs) {
  auto gids = at.open_at((port + "/gids").c_str());
  if (!gids) return std::nullopt;
  GidSlots slots(std::move(*gids));
  // Sysfs views and file trees may lack `gid_attrs`. The GIDs are useful without their types, so open() still succeeds.
  slots.types_ = at.open_at((port + "/gid_attrs/types").c_str());
  slots.types_error_ = slots.types_ ? 0 : errno;
  if (with_ndevs) slots.ndevs_ = at.open_at((port + "/gid_attrs/ndevs").c_str());
  return slots;
}

// std::to_string() of an index does not allocate: the digits fit into the string itself.
bool GidSlots::has(unsigned index) const {
  return gids_.contains(std::to_string(index).c_str());
}

Attr<Address> GidSlots::gid_of(const base::Directory& at, const std::string& port, unsigned index) {
  return read_gid(at, SlotPath(port, "gids", index).text);
}

Attr<std::string> GidSlots::type_of(const base::Directory& at, const std::string& port, unsigned index) {
  return at.read(SlotPath(port, "gid_attrs/types", index).text);
}

Attr<Address> GidSlots::gid(unsigned index) const {
  return read_gid(gids_, std::to_string(index).c_str());
}

Attr<std::string> GidSlots::type(unsigned index) const {
  if (!types_) return Unreadable{types_error_};
  return types_->read(std::to_string(index).c_str());
}

std::optional<Attr<std::string>> GidSlots::ndev(unsigned index) const {
  if (!ndevs_) return std::nullopt;
  auto ndev = ndevs_->read(std::to_string(index).c_str());
  // A file tree may lack the file of a slot.
  if (error_of(ndev) == ENOENT) return std::nullopt;
  return ndev;
}

unsigned GidSlots::listed() const {
  // sysfs has no attribute for the length of the table, so the listing is the only source.
  unsigned length = 0;
  for (const std::string& name : gids_.list())
    length = std::max(length, parse_number<unsigned>(name).value_or(0) + 1);
  return length;
}

}  // namespace fabric
