#include "hook/admin/install/programs.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "base/file.hpp"
#include "base/process/program.hpp"
#include "base/text.hpp"
#include "base/unique_fd.hpp"
#include "hook/admin/install/node_files.hpp"
#include "hook/config/config.hpp"
#include "hook/config/seen_pools.hpp"
#include "hook/ledger/ledger.hpp"

namespace hook {
namespace {

// Reads a whole program at once into a buffer of its size: programs have megabytes, so many small reads would be slow.
Result<std::string> read_program(const std::string& path) {
  const base::UniqueFd fd = base::open_to_read(AT_FDCWD, path.c_str());
  struct stat seen {};
  if (!fd.ok() || ::fstat(fd.get(), &seen) != 0) return sys_error(errno, "open `{}`", path);
  std::string bytes(static_cast<std::size_t>(seen.st_size), '\0');
  const ssize_t count = base::read_bytes(fd.get(), bytes.data(), bytes.size());
  if (count != seen.st_size) return sys_error(count < 0 ? errno : EIO, "read `{}`", path);
  return bytes;
}

// Returns true if the file `place` has this content, owner root and kProgramMode. Returns false if it cannot be read:
// the caller then writes it, and the write reports the error.
bool is_put(const std::string& bytes, const std::string& place) {
  struct stat seen {};
  if (::lstat(place.c_str(), &seen) != 0 || !S_ISREG(seen.st_mode) || seen.st_uid != 0 ||
      (seen.st_mode & 07777) != kProgramMode || static_cast<std::size_t>(seen.st_size) != bytes.size())
    return false;
  const auto there = read_program(place);
  return there && *there == bytes;
}

Error cannot_put(int code, const std::string& path) {
  Error error = sys_error(code, "copy program to `{}`", path);
  if (code == EROFS) error.hint = "select a writable directory, such as --programs /var/lib/rdma-init/bin";
  return error;
}

// Writes the temporary file of a program if the node does not have the same program at `path`. Returns whether it
// wrote.
Result<bool> prepare_program(const std::string& root, const std::string& from, const std::string& path) {
  const std::string bytes = TRY(read_program(from + path.substr(path.rfind('/'))));
  if (is_put(bytes, TRY(node_path(root, path)))) return false;
  const auto prepared = prepare_node_program(root, path, bytes);
  return prepared ? Result<bool>(true) : cannot_put(prepared.error().code, path);
}

// Writes the temporary files of all programs before the first program is replaced, so that the node keeps all old
// programs if there is no space.
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

std::vector<std::string> programs_to_install(const std::string& from, const std::string& directory) {
  std::vector<std::string> put;
  // Only these two programs are copied, because engines execute them on the node. rdma-nri and rdma-device-plugin run
  // in the image's containers.
  for (const std::string_view name : std::array<std::string_view, 2>{"rdma-hook", "rdma-runtime"})
    if (::access(fmt::format("{}/{}", from, name).c_str(), X_OK) == 0)
      put.push_back(fmt::format("{}/{}", directory, name));
  return put;
}

Result<std::vector<std::string>> install_programs(const std::string& root, const std::string& from,
                                                  const std::vector<std::string>& put) {
  const std::vector<std::string> written = TRY(prepare_programs(root, from, put));
  for (const std::string& path : written)
    TRY_VOID(commit_node_file(root, path));
  for (const std::string& path : put) {
    // The engine executes the program as root, so a program that another user can change is refused.
    if (auto safe = open_program(path, root); !safe)
      return base::wrap(std::move(safe).error(), fmt::format("program `{}` is not safe to execute as root", path));
  }
  return written;
}

Result<void> check_places_belong_to_root(const std::string& root, const std::vector<std::string>& put) {
  for (const std::string& path : put)
    if (auto safe = check_program_directory(path.substr(0, path.rfind('/')), root); !safe)
      return base::wrap(std::move(safe).error(), fmt::format("program `{}` is not safe to execute as root", path));
  return {};
}

Result<void> check_programs_belong_to_root(const std::string& root, const std::string& directory) {
  for (const char* name : {"rdma-hook", "rdma-runtime"}) {
    auto safe = open_program(fmt::format("{}/{}", directory, name), root);
    if (safe || safe.error().code != EACCES) continue;
    Error error = base::wrap(std::move(safe).error(), "cannot install");
    error.hint = "copy the programs to a directory that only root can change";
    return error;
  }
  return {};
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
  if (!failed && (::mkdir(place.c_str(), 0700) == 0 || errno == EEXIST)) return {};
  Error error = sys_error(failed ? failed.value() : errno, "make `{}`", place);
  error.hint = "install needs a writable /run; nothing was changed";
  return error;
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
  const std::string directory = base::parent_of(file);
  TRY_VOID(remove_node_file(root, file + kCandidate));
  TRY_VOID(remove_node_file(root, file));
  TRY_VOID(remove_node_file(root, fmt::format("{}/{}", directory, kSeenPoolsFile)));
  // The directory is removed too: a `config apply` that still runs then fails and cannot write the removed file again.
  remove_empty_directories(root, {base::parent_of(directory), directory});
  return {};
}

}  // namespace hook
