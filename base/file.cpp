#include "base/file.hpp"

#include <sys/stat.h>
#include <sys/syscall.h>

#include <algorithm>
#include <utility>

#include "base/text.hpp"

namespace base {
namespace {

constexpr std::size_t kPage = 4096;
// Descriptors that wait for their close. A container's limit of open files may be 64; a hook without CAP_SYS_RESOURCE,
// and rdma-init, have that limit.
constexpr std::size_t kMostLate = 24;

// Set while a LateClose lives; its memory stays, because it is small.
thread_local std::vector<int>* late_fds = nullptr;

}  // namespace

void close_all(std::vector<int>& fds) {
  // An insertion, because the list is short and nearly sorted, and std::sort() would make rdma-init 1 kB larger.
  for (std::size_t i = 1; i < fds.size(); ++i)
    for (std::size_t at = i; at > 0 && fds[at - 1] > fds[at]; --at)
      std::swap(fds[at - 1], fds[at]);
  for (std::size_t first = 0; first < fds.size();) {
    std::size_t last = first;
    while (last + 1 < fds.size() && fds[last + 1] == fds[last] + 1)
      ++last;
    const bool are_closed = last > first && ::syscall(SYS_close_range, static_cast<unsigned>(fds[first]),
                                                      static_cast<unsigned>(fds[last]), 0) == 0;
    for (; first <= last; ++first)
      if (!are_closed) ::close(fds[first]);
  }
  fds.clear();
}

LateClose::LateClose() : is_outermost_(!late_fds) {
  if (is_outermost_) late_fds = new std::vector<int>();
}

LateClose::~LateClose() {
  if (!is_outermost_) return;
  close_all(*late_fds);
  delete std::exchange(late_fds, nullptr);
}

void LateClose::close(UniqueFd fd) {
  if (!late_fds || !fd.ok()) return;  // the descriptor closes itself
  const int before = errno;
  late_fds->push_back(fd.release());
  if (late_fds->size() == kMostLate) close_all(*late_fds);
  errno = before;
}

ChangeStep::ChangeStep() {
  // Without the clock, no time is before it.
  if (::clock_gettime(CLOCK_REALTIME_COARSE, &step_) != 0) step_ = {};
}

bool ChangeStep::is_after(const timespec& time) const {
  return time.tv_nsec != 0 &&
         (time.tv_sec < step_.tv_sec || (time.tv_sec == step_.tv_sec && time.tv_nsec < step_.tv_nsec));
}

std::optional<Directory> Directory::open(const std::string& path) {
  return open(AT_FDCWD, path.c_str());
}

std::optional<Directory> Directory::open(int at, const char* path) {
  UniqueFd fd(::openat(at, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return std::nullopt;
  return Directory(std::move(fd));
}

Attr<std::string_view> read_into(int directory, const char* name, std::span<char> buffer) {
  UniqueFd fd = open_to_read(directory, name);
  if (!fd.ok()) return Unreadable{errno};
  // One read() returns the complete attribute: the kernel formats it at the first read.
  const ssize_t count = TEMP_FAILURE_RETRY(::read(fd.get(), buffer.data(), buffer.size()));
  LateClose::close(std::move(fd));
  if (count < 0) return Unreadable{errno};
  return trim(std::string_view(buffer.data(), static_cast<std::size_t>(count)));
}

Attr<std::string> read_attribute(int directory, const char* name) {
  char buffer[kPage] RDMA_INIT_UNSET;
  const auto text = read_into(directory, name, buffer);
  if (const auto* failed = std::get_if<Unreadable>(&text)) return *failed;
  return std::string(std::get<std::string_view>(text));
}

std::optional<std::string> Directory::read_text(const char* name) const {
  auto value = read(name);
  auto* text = std::get_if<std::string>(&value);
  if (!text || text->empty()) return std::nullopt;
  return std::move(*text);
}

std::optional<int> Directory::read_int(const char* name) const {
  const auto text = read_text(name);
  return text ? parse_number<int>(*text) : std::nullopt;
}

std::optional<std::string> Directory::read_link_name(const char* name) const {
  auto target = read_link(name);
  if (!target) return std::nullopt;
  return std::string(last_component(*target));
}

bool Directory::contains(const char* name) const {
  return ::faccessat(fd_.get(), name, F_OK, 0) == 0;
}

bool Directory::has_one_directory(const char* name) const {
  struct stat info {};
  return ::fstatat(fd_.get(), name, &info, 0) == 0 && S_ISDIR(info.st_mode) && info.st_nlink == 3;
}

std::vector<std::string> Directory::list(int* error) const {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    names.emplace_back(name);
    return true;
  };
  // next_names() starts at the current position of the descriptor. At the first listing this is the start, so no
  // lseek() is needed.
  const bool again = std::exchange(listed_, true);
  const bool whole = again ? each_name(fd_.get(), add) : next_names(fd_.get(), add);
  if (!whole && error) *error = errno;
  // Sorts views, because the sort moves its elements often, and a string is expensive to move.
  std::vector<std::string_view> order(names.begin(), names.end());
  std::ranges::sort(order, natural_less);
  return {order.begin(), order.end()};
}

int write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = TEMP_FAILURE_RETRY(::write(fd, text.data(), text.size()));
    if (count <= 0) return count < 0 ? errno : EIO;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

// The target of a link in sysfs is far shorter than one page.
std::optional<std::string> read_link(int directory, const char* name) {
  char buffer[kPage] RDMA_INIT_UNSET;
  const ssize_t length = ::readlinkat(directory, name, buffer, sizeof buffer);
  if (length <= 0) return std::nullopt;
  return std::string(buffer, static_cast<std::size_t>(length));
}

bool list_names(int directory, std::vector<std::string>& names) {
  return each_name(directory, [&](std::string_view name) {
    names.emplace_back(name);
    return true;
  });
}

ssize_t read_bytes(int fd, char* to, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = TEMP_FAILURE_RETRY(::read(fd, to + done, size - done));
    if (count < 0) return -1;
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  return static_cast<ssize_t>(done);
}

Attr<std::string> read_all(int fd, std::size_t limit) {
  std::string text;
  char buffer[16 * kPage] RDMA_INIT_UNSET;
  for (;;) {
    // read(2) of a directory fails with EISDIR (generic_read_dir() of fs/libfs.c), so a directory is not taken for an
    // empty file.
    const ssize_t count = TEMP_FAILURE_RETRY(::read(fd, buffer, sizeof buffer));
    if (count < 0) return Unreadable{errno};
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    // The size that fstat() returns is 0 for procfs, so the limit is checked while reading.
    if (text.size() > limit) return Unreadable{EFBIG};
  }
}

Attr<std::string> read_file(const std::string& path, std::size_t limit) {
  const UniqueFd fd = open_to_read(AT_FDCWD, path.c_str());
  if (!fd.ok()) return Unreadable{errno};
  return read_all(fd.get(), limit);
}

std::optional<bool> is_in_initial_userns() {
  const auto map = read_attribute("/proc/self/uid_map");
  const auto* text = std::get_if<std::string>(&map);
  return text ? std::optional(text->ends_with(" 4294967295")) : std::nullopt;
}

}  // namespace base
