#include "base/replace_file.hpp"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "base/file.hpp"

namespace base {
namespace {

// No other user can open the file before it has its owner and its mode.
constexpr mode_t kFirstMode = 0600;

int rename_to(const NameAt& from, const NameAt& to) {
  return ::renameat(from.directory, from.name.c_str(), to.directory, to.name.c_str()) == 0 ? 0 : errno;
}

// Calls make(), which makes an entry with the name or sets errno. If the name exists, removes it and calls make()
// again.
bool make_anew(const NameAt& name, auto make) {
  return make() || (errno == EEXIST && ::unlinkat(name.directory, name.name.c_str(), 0) == 0 && make());
}

// Returns 0 or an errno. Some file systems refuse fchown(2) also if it changes nothing.
int change_owner(int fd, const FileOwner& owner) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return errno;
  if (status.st_uid == owner.uid && status.st_gid == owner.gid) return 0;
  return ::fchown(fd, owner.uid, owner.gid) == 0 ? 0 : errno;
}

}  // namespace

NewFile NewFile::write(NameAt temporary, std::string_view text, const FileSettings& settings) {
  NewFile file(std::move(temporary));
  const NameAt& name = file.temporary_;
  const auto create = [&] {
    file.fd_ = create_file(name.directory, name.name.c_str(), kFirstMode);
    return file.fd_.ok();
  };
  if (make_anew(name, create)) {
    file.failure_ = file.fill(text, settings);
  } else {
    file.failure_ = FileFailure{FileFailure::Step::kCreate, errno};
    file.temporary_.name.clear();
  }
  return file;
}

std::optional<FileFailure> NewFile::fill(std::string_view text, const FileSettings& settings) {
  int code = write_all(fd_.get(), text);
  if (code == 0 && settings.owner) code = change_owner(fd_.get(), *settings.owner);
  // The mode is set after the owner, because fchown(2) may clear mode bits.
  if (code == 0 && settings.mode != kFirstMode && ::fchmod(fd_.get(), settings.mode) != 0) code = errno;
  if (code == 0 && settings.is_synced && ::fsync(fd_.get()) != 0) code = errno;
  return code == 0 ? std::nullopt : std::optional(FileFailure{FileFailure::Step::kWrite, code});
}

NewFile::NewFile(NewFile&& other) noexcept
    : temporary_{other.temporary_.directory, std::exchange(other.temporary_.name, {})},
      fd_(std::move(other.fd_)),
      failure_(other.failure_) {}

NewFile::~NewFile() {
  if (!temporary_.name.empty()) ::unlinkat(temporary_.directory, temporary_.name.c_str(), 0);
}

std::optional<FileFailure> NewFile::put(const NameAt& name) {
  if (failure_) return failure_;
  if (const int code = rename_to(temporary_, name)) return FileFailure{FileFailure::Step::kRename, code};
  temporary_.name.clear();
  return std::nullopt;
}

UniqueFd NewFile::keep() {
  temporary_.name.clear();
  return std::move(fd_);
}

std::optional<FileFailure> replace_file(NameAt temporary, const NameAt& name, std::string_view text,
                                        const FileSettings& settings) {
  return NewFile::write(std::move(temporary), text, settings).put(name);
}

int replace_link(const NameAt& temporary, const NameAt& name, const char* target) {
  const auto make = [&] { return ::symlinkat(target, temporary.directory, temporary.name.c_str()) == 0; };
  if (!make_anew(temporary, make)) return errno;
  const int code = rename_to(temporary, name);
  if (code != 0) ::unlinkat(temporary.directory, temporary.name.c_str(), 0);
  return code;
}

}  // namespace base
