#include "fabric/known_links.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "base/text.hpp"

namespace fabric::rdma_sysfs {

using base::Directory;
using base::last_component;
using base::natural_less;
using base::parse_number;

// Each line is "INODE NAME LINK"; the first one is the device number of the class directory's file system, and the
// ctime of the directory. Device number and inode numbers can be the same after another boot. The ctime of a directory
// of sysfs is the time at which the kernel made its inode in memory (kernfs_init_inode() of fs/kernfs/inode.c, Linux
// 6.12), so it differs.
KnownLinks::KnownLinks(std::string text) : old_(std::move(text)) {}

void KnownLinks::begin(const Directory& directory, std::vector<std::pair<std::string, std::uint64_t>> entries) {
  struct stat info {};
  const bool is_known = ::fstat(directory.fd(), &info) == 0;
  now_ = is_known ? fmt::format("{} {}.{}\n", info.st_dev, info.st_ctim.tv_sec, info.st_ctim.tv_nsec) : "\n";
  at_ = is_known && old_.starts_with(now_) ? now_.size() : old_.size();
  entries_ = std::move(entries);
}

std::optional<std::string> KnownLinks::find(const std::string& name) {
  while (next_ < entries_.size() && entries_[next_].first != name)
    ++next_;
  if (next_ == entries_.size()) return std::nullopt;
  const std::uint64_t inode = entries_[next_].second;
  // Both the lines and the names of the calls are in natural order.
  while (at_ < old_.size()) {
    const std::size_t end = std::min(old_.find('\n', at_), old_.size());
    const std::string_view line(old_.data() + at_, end - at_);
    const std::size_t first = line.find(' ');
    const std::size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
    if (second == std::string_view::npos) return std::nullopt;
    const std::string_view known = line.substr(first + 1, second - first - 1);
    if (known != name && natural_less(name, known)) return std::nullopt;
    at_ = std::min(end + 1, old_.size());
    if (known != name) continue;
    const std::string_view link = line.substr(second + 1);
    if (parse_number<std::uint64_t>(line.substr(0, first)) != inode || last_component(link) != name)
      return std::nullopt;
    now_.append(line).push_back('\n');
    return std::string(link);
  }
  return std::nullopt;
}

void KnownLinks::note(const std::string& name, std::string_view link) {
  ++read_;
  if (next_ == entries_.size() || entries_[next_].first != name) return;
  now_ += fmt::format("{} {} {}\n", entries_[next_].second, name, link);
}

std::string KnownLinks::text() const {
  // To write the text takes as long as some reads.
  constexpr unsigned kFew = 8;
  return read_ > kFew ? now_ : std::string();
}

}  // namespace fabric::rdma_sysfs
