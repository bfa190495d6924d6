#include "hook/ledger/copies.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/file.hpp"
#include "base/unique_fd.hpp"
#include "fabric/lent_libraries.hpp"

namespace hook {
namespace {

constexpr const char* kCopies = "copies";
// A file is read in blocks of this size, because it can have 64 MiB, and rdma-nri has a limit of memory.
constexpr std::size_t kCopyBlock = std::size_t{1} << 16;

struct Content {
  std::uint64_t size = 0;  // bytes
  std::uint64_t sum = kChecksumOfNothing;

  void add(std::string_view block) {
    size += block.size();
    sum = checksum(block, sum);
  }
  std::string name() const { return fmt::format("{}{:016x}", prefix(size), sum); }
  // The beginning of the names of copies of this size.
  static std::string prefix(std::uint64_t size) { return fmt::format("{}-", size); }
};

// Calls use(block, offset) for each block of a file until it returns an errno. Returns this errno, that of a failed
// read, or 0.
int each_block(int file, auto use) {
  std::string buffer(kCopyBlock, '\0');
  for (off_t at = 0;;) {
    const ssize_t count = ::pread(file, buffer.data(), buffer.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : 0;
    if (at + count > fabric::kLargestLent) return EFBIG;  // the file grows while it is copied
    if (const int code = use(std::string_view(buffer.data(), static_cast<std::size_t>(count)), at); code != 0)
      return code;
    at += count;
  }
}

Result<std::uint64_t> size_of(int from, const ViewEntry& entry) {
  struct stat info {};
  if (::fstat(from, &info) != 0) return sys_error(errno, "cannot read `{}`", entry.copy);
  return static_cast<std::uint64_t>(info.st_size);
}

Error stale(const ViewEntry& entry, const char* what) {
  Error error = sys_error(ESTALE, "cannot lend `{}`: it was {}", entry.copy, what);
  error.hint = "start the container again";
  return error;
}

// Checks that the open file is the one that was found, and was not written since.
Result<void> check_same(int from, const ViewEntry& entry, const char* what) {
  if (TRY(fabric::file_identity(from, entry.copy)) == entry.text) return {};
  return stale(entry, what);
}

// Checks the file as check_same() does after `size` bytes of it were read, and that they are the whole file.
Result<void> check_read(int from, const ViewEntry& entry, std::uint64_t size) {
  constexpr const char* kChanged = "changed while it was copied";
  if (TRY(size_of(from, entry)) == size) return check_same(from, entry, kChanged);
  return stale(entry, kChanged);
}

// Returns whether the file of this name is a copy of `from`, byte by byte: another content can have the same size, and
// a process of root can have changed the copy. size: the size of `from`.
bool is_copy(int directory, const std::string& name, int from, std::uint64_t size) {
  const UniqueFd fd = base::open_to_read(directory, name.c_str(), O_NOFOLLOW);
  struct stat info {};
  if (!fd.ok() || ::fstat(fd.get(), &info) != 0 || !is_ours(info) || info.st_mode != (S_IFREG | kViewFileMode) ||
      static_cast<std::uint64_t>(info.st_size) != size) {
    return false;
  }
  std::string buffer(kCopyBlock, '\0');
  std::uint64_t compared = 0;
  const int code = each_block(from, [&](std::string_view block, off_t at) {
    compared += block.size();
    const ssize_t count = ::pread(fd.get(), buffer.data(), block.size(), at);
    const bool is_same = count >= 0 && block == std::string_view(buffer.data(), static_cast<std::size_t>(count));
    return is_same ? 0 : ESTALE;
  });
  return code == 0 && compared == size;
}

// Returns the content that was written. Errors: those of Copies::add().
Result<Content> write_copy(int directory, const ViewEntry& entry, const std::string& path, int from) {
  const UniqueFd to = base::create_file(directory, entry.name.c_str(), kViewFileMode);
  if (!to.ok()) return sys_error(errno, "cannot make `{}`", path);
  Content written;
  bool has_read = true;
  const int code = each_block(from, [&](std::string_view block, off_t) {
    written.add(block);
    const int failed = write_all(to.get(), block);
    has_read = failed == 0;
    return failed;
  });
  if (code != 0 && has_read) return sys_error(code, "cannot read `{}`", entry.copy);
  if (code != 0) {
    Error error = sys_error(code, "cannot copy `{}` to `{}`", entry.copy, path);
    if (code == ENOSPC || code == EDQUOT) error.hint = "make room on the file system of /run";
    return error;
  }
  // Sets the mode with fchmod(2), because the umask changes the mode that open(2) sets.
  return ::fchmod(to.get(), kViewFileMode) == 0 ? Result<Content>(written) : sys_error(errno, "cannot make `{}`", path);
}

}  // namespace

Result<Copies> Copies::open(const LedgerFiles& files, int timeout_ms) {
  auto directory = TRY(open_directory(files.root.fd.get(), kCopies, files.root.path + "/" + kCopies, true));
  return Copies(std::move(directory), TRY(KeyLock::take(files, {kCopies}, timeout_ms)));
}

Result<void> Copies::remove_unused(const LedgerFiles& files, int timeout_ms) {
  struct stat info {};
  if (::fstatat(files.root.fd.get(), kCopies, &info, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT) return {};
  return TRY(open(files, timeout_ms)).remove_unused();
}

Result<void> Copies::add(int directory, const ViewEntry& entry, const std::string& path) const {
  const UniqueFd from = base::open_to_read(AT_FDCWD, entry.copy.c_str());
  if (!from.ok()) return sys_error(errno, "cannot read `{}`", entry.copy);
  TRY_VOID(check_same(from.get(), entry, "replaced just now"));
  const std::uint64_t size = TRY(size_of(from.get(), entry));
  const int copies = directory_.fd.get();
  for (const std::string& name : TRY(list_names(directory_))) {
    if (name.starts_with(Content::prefix(size)) && is_copy(copies, name, from.get(), size) &&
        ::linkat(copies, name.c_str(), directory, entry.name.c_str(), 0) == 0)
      return check_read(from.get(), entry, size);
  }
  const Content content = TRY(write_copy(directory, entry, path, from.get()));
  TRY_VOID(check_read(from.get(), entry, content.size));
  // Best effort: a view keeps a copy of its own if it cannot be shared. A file that has this name already is damaged,
  // or has another content.
  const std::string name = content.name();
  (void)remove_tree(directory_, name).has_value();
  (void)!::linkat(directory, entry.name.c_str(), copies, name.c_str(), 0);
  return {};
}

Result<void> Copies::remove_unused() const {
  for (const std::string& name : TRY(list_names(directory_))) {
    struct stat info {};
    if (::fstatat(directory_.fd.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (S_ISREG(info.st_mode) && info.st_nlink == 1) TRY_VOID(remove_file(directory_, name));
  }
  return {};
}

}  // namespace hook
