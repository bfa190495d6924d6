#include "hook/install/put_programs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "fabric/unique_fd.hpp"
#include "hook/base/process/open_program.hpp"
#include "hook/base/write_all.hpp"
#include "hook/config/config.hpp"
#include "hook/install/node_files.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::size_t kPiece = std::size_t{1} << 20;
constexpr mode_t kProgramMode = 0755;

std::string file_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Up to kPiece bytes; fewer than that only at the end. Negative: errno says why.
ssize_t read_piece(int fd, std::string& piece) {
  piece.resize(kPiece);
  std::size_t length = 0;
  while (length < kPiece) {
    const ssize_t count = ::read(fd, piece.data() + length, kPiece - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    length += static_cast<std::size_t>(count);
  }
  piece.resize(length);
  return static_cast<ssize_t>(length);
}

// False as well when one of them cannot be read: it is written then, which says why.
bool have_same_bytes(int one, int other) {
  std::string left;
  std::string right;
  do {
    if (read_piece(one, left) < 0 || read_piece(other, right) < 0 || left != right) return false;
  } while (!left.empty());
  return true;
}

// place: where the program is to be. True: it is there already, with that content, owner and mode.
bool is_put(int from, const std::string& place) {
  const UniqueFd there(::open(place.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat seen {};
  return there.ok() && ::fstat(there.get(), &seen) == 0 && S_ISREG(seen.st_mode) && seen.st_uid == 0 &&
         (seen.st_mode & 07777) == kProgramMode && have_same_bytes(from, there.get());
}

int copy_to(int from, int to) {
  if (::lseek(from, 0, SEEK_SET) != 0) return errno;
  std::string piece;
  for (;;) {
    const ssize_t count = read_piece(from, piece);
    if (count < 0) return errno;
    if (count == 0) break;
    if (const int code = write_all(to, piece); code != 0) return code;
  }
  if (::fchown(to, 0, 0) != 0 || ::fchmod(to, kProgramMode) != 0 || ::fsync(to) != 0) return errno;
  return 0;
}

Error cannot_put(int code, const std::string& path) {
  Error error = sys_error(code, "put `{}` on the node", path);
  if (code == EROFS) error.hint = "name a directory that can be written by --programs, /var/lib/rdma-init/bin say";
  return error;
}

// Whether its temporary was written.
Result<bool> prepare_program(const std::string& root, const std::string& from, const std::string& path) {
  const std::string source = fmt::format("{}/{}", from, file_name(path));
  const UniqueFd program(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
  if (!program.ok()) return sys_error(errno, "open `{}`", source);
  const std::string place = TRY(node_path(root, path));
  if (is_put(program.get(), place)) return false;
  std::error_code failed;
  std::filesystem::create_directories(place.substr(0, place.rfind('/')), failed);
  if (failed) return cannot_put(failed.value(), path);
  const std::string temporary = place + kCandidate;
  ::unlink(temporary.c_str());  // of an install that was killed
  const UniqueFd copy(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!copy.ok()) return cannot_put(errno, path);
  const int code = copy_to(program.get(), copy.get());
  if (code != 0) {
    ::unlink(temporary.c_str());
    return cannot_put(code, path);
  }
  return true;
}

// All temporaries before the first program is replaced: without room the node keeps all of the old ones.
Result<std::vector<std::string>> prepare_programs(const std::string& root, const std::string& from,
                                                  const std::vector<std::string>& put) {
  std::vector<std::string> prepared;
  for (const std::string& path : put) {
    const auto written = prepare_program(root, from, path);
    if (!written.has_value()) {
      for (const std::string& one : prepared)
        static_cast<void>(remove_node_file(root, one + kCandidate));
      return written.error();
    }
    if (*written) prepared.push_back(path);
  }
  return prepared;
}

}  // namespace

std::vector<std::string> programs_to_put(const std::string& from, const std::string& directory) {
  std::vector<std::string> put;
  for (const std::string_view name : std::array<std::string_view, 2>{"rdma-hook", "rdma-runtime"})
    if (::access(fmt::format("{}/{}", from, name).c_str(), X_OK) == 0)
      put.push_back(fmt::format("{}/{}", directory, name));
  return put;
}

Result<std::vector<std::string>> put_programs(const std::string& root, const std::string& from,
                                              const std::vector<std::string>& put) {
  const std::vector<std::string> written = TRY(prepare_programs(root, from, put));
  for (const std::string& path : written)
    TRY_VOID(commit_node_file(root, path));
  for (const std::string& path : put) {
    if (auto safe = open_program(path, root); !safe)
      return fabric::wrap(std::move(safe).error(), fmt::format("no engine may execute `{}` as root", path));
  }
  return written;
}

Result<void> remove_programs(const std::string& root, const std::vector<std::string>& put) {
  for (const std::string& path : put) {
    TRY_VOID(remove_node_file(root, path + kCandidate));
    TRY_VOID(remove_node_file(root, path));
  }
  return {};
}

Result<void> make_ledger_directory(const std::string& root) {
  const std::string place = TRY(node_path(root, kLedgerPath));
  std::error_code failed;
  std::filesystem::create_directories(place.substr(0, place.rfind('/')), failed);
  if (failed) return sys_error(failed.value(), "make the directory of `{}`", kLedgerPath);
  if (::mkdir(place.c_str(), 0700) != 0 && errno != EEXIST) return sys_error(errno, "make `{}`", kLedgerPath);
  return {};
}

Result<void> make_cluster_directory(const std::string& root) {
  for (const std::string& directory : missing_directories(root, kClusterConfigPath)) {
    const std::string place = TRY(node_path(root, directory));
    if (::mkdir(place.c_str(), 0755) != 0 && errno != EEXIST) return sys_error(errno, "make `{}`", directory);
  }
  return {};
}

Result<void> remove_cluster_directory(const std::string& root) {
  const std::string file = kClusterConfigPath;
  TRY_VOID(remove_node_file(root, file + kCandidate));
  TRY_VOID(remove_node_file(root, file));
  // A `config apply` that still runs cannot write into a directory that is removed.
  const std::string directory = file.substr(0, file.rfind('/'));
  remove_empty_directories(root, {directory.substr(0, directory.rfind('/')), directory});
  return {};
}

}  // namespace hook
