// A port's GID table as sysfs shows it (Documentation/ABI/stable/sysfs-class-infiniband;
// drivers/infiniband/core/sysfs.c, Linux 6.12): an empty slot is a GID of zeros without a type.
#pragma once

#include <optional>
#include <string>

#include "fabric/address.hpp"
#include "fabric/attr.hpp"
#include "fabric/sysfs.hpp"

namespace fabric {

class GidSlots {
 public:
  static constexpr unsigned kMost = 65536;  // port_attr.gid_tbl_len is at most 16 bits in every driver

  // port: its directory. nullopt with errno set: it has no `gids`.
  static std::optional<GidSlots> open(const sysfs::Directory& port, bool with_ndevs = false);
  // The errno of `gid_attrs/types`; 0: it is open.
  int types_error() const { return types_error_; }

  bool has(unsigned index) const;
  // Unreadable: ENOENT: no such slot, EBADMSG: it holds no GID.
  Attr<Address> gid(unsigned index) const;
  Attr<std::string> type(unsigned index) const;  // "RoCE v2"
  // nullopt: not asked for, or it has none.
  std::optional<Attr<std::string>> ndev(unsigned index) const;
  // By the highest number that is listed.
  unsigned listed() const;

 private:
  explicit GidSlots(sysfs::Directory gids) : gids_(std::move(gids)) {}
  sysfs::Directory gids_;
  std::optional<sysfs::Directory> types_;
  std::optional<sysfs::Directory> ndevs_;
  int types_error_ = 0;
};

}  // namespace fabric
