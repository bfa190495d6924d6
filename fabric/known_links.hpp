// Keeps the links of /sys/class/infiniband between the processes of a boot.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"

namespace fabric::rdma_sysfs {

// The links of /sys/class/infiniband that an earlier process of this boot has read, as a text. A name with the same
// inode number leads to the same link: the kernel numbers the entries of sysfs without a repetition (kernfs_node of
// include/linux/kernfs.h, Linux 5.5; before, after 2^31 entries), and a link gets no other target. So a survey needs
// one list of the directory in place of a read for each HCA.
class KnownLinks {
 public:
  // text: of text(), or any other text, of which no line is used.
  explicit KnownLinks(std::string text);
  // Begins a survey. directory: the class directory. entries: its names in natural order, with their inode numbers.
  void begin(const base::Directory& directory, std::vector<std::pair<std::string, std::uint64_t>> entries);
  // Returns the link of the next name, in the order of begin(); nullopt: it must be read, and then noted.
  std::optional<std::string> find(const std::string& name);
  void note(const std::string& name, std::string_view link);
  // Returns the text for a later process; empty if the old text serves as well.
  std::string text() const;

 private:
  std::string old_;
  std::size_t at_ = 0;  // in old_: the first line that was not passed
  std::string now_;
  std::vector<std::pair<std::string, std::uint64_t>> entries_;
  std::size_t next_ = 0;  // in entries_
  unsigned read_ = 0;     // links that were not known
};

}  // namespace fabric::rdma_sysfs
