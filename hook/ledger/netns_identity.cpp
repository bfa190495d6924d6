#include "hook/ledger/netns_identity.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <utility>

#include "fabric/text.hpp"
#include "fabric/unique_fd.hpp"
#include "hook/base/json/json.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sys_error;
using fabric::UniqueFd;

constexpr std::string_view kProc = "/proc/";

bool is_missing(int code) {
  return code == ENOENT || code == ENOTDIR || code == ESRCH;
}

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);
}

Error cannot_look(int code, const std::string& path) {
  return sys_error(code, "cannot look at the network namespace `{}`", fabric::printable(path));
}

// The directory where the namespace was seen. The ledger is used in one PID namespace only (LedgerFiles::open()): there
// any procfs has its processes.
Result<UniqueFd> open_noted_directory(const NetnsIdentity& netns) {
  const bool in_proc = netns.path.starts_with(kProc);
  const std::string directory = in_proc ? std::string(kProc) : directory_of(netns.path);
  UniqueFd fd(::open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.ok()) return cannot_look(errno, netns.path);
  struct statfs system {};
  if (in_proc && ::fstatfs(fd.get(), &system) != 0) return cannot_look(errno, netns.path);
  if (in_proc)
    return system.f_type == PROC_SUPER_MAGIC ? Result<UniqueFd>(std::move(fd)) : cannot_look(ENODEV, netns.path);
  struct stat status {};
  if (::fstat(fd.get(), &status) != 0) return cannot_look(errno, netns.path);
  const bool noted = netns.directory_dev != 0 || netns.directory_ino != 0;
  if (!noted || (status.st_dev == netns.directory_dev && status.st_ino == netns.directory_ino)) return fd;
  Error error = cannot_look(ESTALE, netns.path);
  error.message += ": its directory is another one here";
  error.hint = "run it in the node's mount namespace, or with the node's directory mounted";
  return error;
}

}  // namespace

Result<NetnsIdentity> identify_netns(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return cannot_look(errno, path);
  NetnsIdentity netns{.dev = status.st_dev, .ino = status.st_ino, .path = path};
  if (path.starts_with(kProc)) return netns;
  if (::stat(directory_of(path).c_str(), &status) != 0) return cannot_look(errno, path);
  netns.directory_dev = status.st_dev;
  netns.directory_ino = status.st_ino;
  return netns;
}

Result<Presence> look_at(const NetnsIdentity& netns) {
  struct stat status {};
  const auto is_it = [&] { return status.st_dev == netns.dev && status.st_ino == netns.ino; };
  if (::stat(netns.path.c_str(), &status) == 0 && is_it()) return Presence::kPresent;
  // Below one descriptor: a directory that comes back between two looks has it.
  const UniqueFd directory = TRY(open_noted_directory(netns));
  const std::size_t above = netns.path.starts_with(kProc) ? kProc.size() : directory_of(netns.path).size();
  if (::fstatat(directory.get(), netns.path.c_str() + above, &status, 0) == 0) {
    return is_it() ? Presence::kPresent : Presence::kGone;
  }
  return is_missing(errno) ? Result<Presence>(Presence::kGone) : cannot_look(errno, netns.path);
}

Json netns_json(const NetnsIdentity& netns) {
  Json object{{"dev", netns.dev}, {"ino", netns.ino}, {"path", netns.path}};
  if (netns.directory_ino != 0) object["directory"] = Json{{"dev", netns.directory_dev}, {"ino", netns.directory_ino}};
  return object;
}

Result<NetnsIdentity> netns_at(const Json& object, const char* name) {
  const Json* value = member(object, name);
  if (!value) return wrong_member(name);
  TRY_VOID(check_members(*value, {"dev", "ino", "path", "directory"}));
  NetnsIdentity netns{.dev = TRY(number_at(*value, "dev", UINT64_MAX)),
                      .ino = TRY(number_at(*value, "ino", UINT64_MAX)),
                      .path = TRY(text_at(*value, "path"))};
  const Json* directory = member(*value, "directory");
  if (!directory) return netns;
  TRY_VOID(check_members(*directory, {"dev", "ino"}));
  netns.directory_dev = TRY(number_at(*directory, "dev", UINT64_MAX));
  netns.directory_ino = TRY(number_at(*directory, "ino", UINT64_MAX));
  return netns;
}

}  // namespace hook
