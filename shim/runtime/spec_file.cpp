#include "shim/runtime/spec_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/rooted.hpp"
#include "base/text.hpp"

namespace shim {
namespace {

constexpr std::string_view kTemporaryPrefix = ".rdma-runtime";

Error write_error(int code, const std::string& name) {
  Error error = sys_error(code, "cannot write the edited `{}`", printable(name));
  if (code == EROFS) error.hint = "put the bundle on a writable file system";
  if (code == ENOSPC || code == EDQUOT) error.hint = "free space on the file system of the bundle";
  if (code == EACCES || code == EPERM) error.hint = "run the runtime as the owner of the bundle";
  return error;
}

// Returns the name of a new temporary file. The random part prevents other users from creating the file first: the
// directory may be /tmp.
Result<std::string> temporary_name(const base::ProcessIdentity& writer) {
  static std::optional<std::uint64_t> random;  // number of the last file of this process
  if (random) {
    ++*random;
  } else {
    random = base::random_bits<std::uint64_t>();
  }
  if (!random) return sys_error(errno, "cannot read random bytes");
  return fmt::format("{}@{}.{}@{:016x}", kTemporaryPrefix, writer.pid, writer.start_time, *random);
}

// Returns the writer of a temporary file; nullopt: the name is not that of a temporary file.
std::optional<base::ProcessIdentity> temporary_writer(std::string_view name) {
  const auto parts = base::split(name, '@');
  if (parts.size() != 3 || parts[0] != kTemporaryPrefix || parts[2].size() != 16) return std::nullopt;
  const auto process = base::split(parts[1], '.');
  if (process.size() != 2) return std::nullopt;
  const auto pid = base::parse_number<pid_t>(process[0]);
  const auto start_time = base::parse_number<std::uint64_t>(process[1]);
  if (!pid || !start_time || *pid <= 0) return std::nullopt;
  return base::ProcessIdentity{*pid, *start_time};
}

Error open_error(int code, const std::string& path) {
  if (code == ELOOP)
    return Error{fmt::format("cannot read `{}`: it is a symbolic link", printable(path)), code,
                 "replace the link by the file itself"};
  return sys_error(code, "cannot read `{}`", printable(path));
}

}  // namespace

FileVersion version_of(const struct stat& status) {
  return {status.st_dev, status.st_ino, std::int64_t{status.st_mtim.tv_sec} * 1000000000 + status.st_mtim.tv_nsec,
          status.st_size};
}

Result<NewSpecFile> NewSpecFile::write(base::NameAt name, std::string_view text, const base::FileSettings& settings,
                                       const base::ProcessIdentity& writer) {
  base::NameAt temporary{name.directory, TRY(temporary_name(writer))};
  NewSpecFile file(std::move(name), base::NewFile::write(std::move(temporary), text, settings));
  if (const auto& failure = file.file_.failure()) return write_error(failure->code, file.name_.name);
  struct stat status {};
  if (::fstat(file.file_.fd(), &status) != 0) return write_error(errno, file.name_.name);
  file.version_ = version_of(status);
  return file;
}

Result<void> NewSpecFile::put_in_place() {
  if (const auto failed = file_.put(name_)) return write_error(failed->code, name_.name);
  return {};
}

Result<std::optional<SpecFile>> SpecFile::open(const std::string& directory, const std::string& name,
                                               const base::JsonLimits& limits) {
  SpecFile file;
  file.name_ = name;
  file.path_ = (directory.empty() || directory == "." ? "" : directory + "/") + name;
  file.directory_.reset(::open(directory.empty() ? "." : directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!file.directory_.ok() && base::is_absent(errno)) return std::optional<SpecFile>();
  if (!file.directory_.ok()) return open_error(errno, directory);
  const int at = file.directory();
  return read_at(at, std::move(file), limits);
}

Result<std::optional<SpecFile>> SpecFile::open_beside(const std::string& name, const base::JsonLimits& limits) const {
  SpecFile file;
  file.name_ = name;
  file.path_ = path_.substr(0, path_.size() - name_.size()) + name;
  return read_at(directory(), std::move(file), limits);
}

Result<std::optional<SpecFile>> SpecFile::read_at(int directory, SpecFile file, const base::JsonLimits& limits) {
  // O_NOFOLLOW is set, because a link in the bundle could name any file of the node.
  const UniqueFd fd = base::open_to_read(directory, file.name_.c_str(), O_NOFOLLOW);
  if (!fd.ok() && base::is_absent(errno)) return std::optional<SpecFile>();
  struct stat status {};
  if (!fd.ok() || ::fstat(fd.get(), &status) != 0) return open_error(errno, file.path_);
  if (!S_ISREG(status.st_mode)) return make_error("cannot read `{}`: it is not a regular file", printable(file.path_));
  file.version_ = version_of(status);
  file.settings_ = {.mode = status.st_mode & 07777, .owner = base::FileOwner{status.st_uid, status.st_gid}};
  file.text_ = TRY(base::read_text_of(fd.get(), status, limits.bytes, "`" + printable(file.path_) + "`"));
  return std::optional<SpecFile>(std::move(file));
}

Result<std::optional<SpecFile>> SpecFile::open(const std::string& path) {
  return open(base::parent_of(path), std::string(base::last_component(path)));
}

Result<NewSpecFile> SpecFile::rewrite(std::string_view text, const base::ProcessIdentity& writer) const {
  return NewSpecFile::write({directory(), name_}, text, settings_, writer);
}

void remove_leftovers(int directory, std::span<const std::string_view> also) {
  const auto self = base::identify_self();
  std::vector<std::string> leftovers;
  base::next_names(directory, [&](std::string_view name) {
    const auto writer = temporary_writer(name);
    // read_presence() compares the start time too, because a later process may have the writer's PID.
    const bool is_own = self && writer == *self;
    const bool is_dead = writer && !is_own && base::is_proven_absent(base::read_presence(*writer));
    if (is_dead || std::ranges::find(also, name) != also.end()) leftovers.emplace_back(name);
    return true;
  });
  for (const std::string& name : leftovers)
    ::unlinkat(directory, name.c_str(), 0);
}

}  // namespace shim
