// A port's GID table as sysfs shows it (Documentation/ABI/stable/sysfs-class-infiniband;
// drivers/infiniband/core/sysfs.c, Linux 6.12): an empty slot is a GID of zeros without a type.
#pragma once

#include <optional>
#include <string>

#include "fabric/address.hpp"
#include "fabric/result.hpp"
#include "fabric/sysfs.hpp"

namespace fabric {

class GidSlots {
 public:
  static constexpr unsigned kMost = 65536;  // port_attr.gid_tbl_len is at most 16 bits in every driver

  // port: the port's directory in sysfs. nullopt, with errno set, when its `gids` cannot be opened.
  static std::optional<GidSlots> open(const sysfs::Directory& port, bool with_ndevs = false);
  // The errno of `gid_attrs/types`; 0: it is open.
  int types_error() const { return types_error_; }

  bool has(unsigned index) const;
  // The slot's GID, zeros when it is empty. Unreadable with ENOENT: there is no such slot; with EBADMSG: its text is no
  // GID; else with the errno of the read.
  Attr<Address> gid(unsigned index) const;
  Attr<std::string> type(unsigned index) const;  // "RoCE v2"
  // The netdev's name in its own network namespace. nullopt: with_ndevs was not set, or the slot has none.
  std::optional<Attr<std::string>> ndev(unsigned index) const;
  // How many slots the table has, by the highest number in the listing of `gids`.
  unsigned listed() const;

 private:
  explicit GidSlots(sysfs::Directory gids) : gids_(std::move(gids)) {}
  sysfs::Directory gids_;
  std::optional<sysfs::Directory> types_;
  std::optional<sysfs::Directory> ndevs_;
  int types_error_ = 0;
};

}  // namespace fabric
