// The GID table of a port in sysfs. The kernel prints an empty slot as a GID of zeros, and its type cannot be read.
// Source: Documentation/ABI/stable/sysfs-class-infiniband; drivers/infiniband/core/sysfs.c, Linux 6.12.
#pragma once

#include <optional>
#include <string>

#include "base/file.hpp"
#include "base/result.hpp"
#include "fabric/address.hpp"

namespace fabric {

class GidSlots {
 public:
  static constexpr unsigned kMost = 65536;  // port_attr.gid_tbl_len is at most 16 bits in every driver

  // Opens the table of a port. port: path of the port's directory in sysfs, below `at`. with_ndevs: also open the names
  // of the netdevs. Returns nullopt, and sets errno, if `gids` cannot be opened.
  static std::optional<GidSlots> open(const base::Directory& at, const std::string& port, bool with_ndevs = false);
  // Returns the GID and the type of one slot without opening the table: the result of gid(), and of type(). at, port:
  // those of open().
  static Attr<Address> gid_of(const base::Directory& at, const std::string& port, unsigned index);
  static Attr<std::string> type_of(const base::Directory& at, const std::string& port, unsigned index);
  // Returns the errno of opening `gid_attrs/types`, 0 if it is open.
  int types_error() const { return types_error_; }

  // Returns true if the table has a slot with that index, empty or not.
  bool has(unsigned index) const;
  // Returns the GID of the slot, zeros if the slot is empty. Unreadable codes: ENOENT if the table has no such slot,
  // EBADMSG if the text is not a GID, otherwise the errno of the read.
  Attr<Address> gid(unsigned index) const;
  // Returns the type of the GID, such as "RoCE v2".
  Attr<std::string> type(unsigned index) const;
  // Returns the name of the slot's netdev, as in the netdev's own network namespace. Returns nullopt if with_ndevs was
  // false, `gid_attrs/ndevs` could not be opened, or the slot has no file there.
  std::optional<Attr<std::string>> ndev(unsigned index) const;
  // Returns the number of slots: one more than the highest number in the listing of `gids`.
  unsigned listed() const;

 private:
  explicit GidSlots(base::Directory gids) : gids_(std::move(gids)) {}
  base::Directory gids_;
  std::optional<base::Directory> types_;
  std::optional<base::Directory> ndevs_;
  int types_error_ = 0;
};

}  // namespace fabric
