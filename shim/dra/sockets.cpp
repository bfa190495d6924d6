#include "shim/dra/sockets.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <vector>

#include "base/file.hpp"
#include "base/text.hpp"
#include "base/unix_socket.hpp"
#include "shim/dra/names.hpp"

namespace shim {
namespace {

constexpr std::string_view kRegistrationEnding = "-reg.sock";
constexpr std::string_view kServiceStart = "dra";
constexpr std::string_view kServiceEnding = ".sock";
constexpr std::chrono::milliseconds kLockTime{2000};

// Returns whether the name is `start`, then "-" and a UID or nothing, then `ending`.
bool is_name_of_pod(std::string_view name, std::string_view start, std::string_view ending) {
  if (name.size() < start.size() + ending.size() || !name.starts_with(start) || !name.ends_with(ending)) return false;
  name = name.substr(start.size(), name.size() - start.size() - ending.size());
  return name.empty() || (name.starts_with('-') && is_uid(name.substr(1)));
}

bool is_socket(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) == 0 && S_ISSOCK(status.st_mode);
}

void remove_abandoned(const std::string& directory, bool (*is_own)(std::string_view), const base::Log& log) {
  const auto opened = base::Directory::open(directory);
  if (!opened) return;
  for (const std::string& name : opened->list()) {
    const std::string path = fmt::format("{}/{}", directory, name);
    if (!is_own(name) || !is_socket(path)) continue;
    const auto is_abandoned = base::is_abandoned_socket(path);
    if (!is_abandoned.has_value() || !*is_abandoned) continue;
    if (::unlink(path.c_str()) == 0) {
      log.info(fmt::format("removed `{}`: no process listens there", base::printable(path)));
    } else if (errno != ENOENT) {
      log.warning(sys_error(errno, "cannot remove `{}`, at which no process listens", base::printable(path)).message);
    }
  }
}

}  // namespace

Sockets sockets_in(const std::string& kubelet, std::string_view pod) {
  const std::string suffix = is_uid(pod) ? fmt::format("-{}", pod) : "";
  Sockets sockets{kubelet + "/plugins_registry", {}, fmt::format("{}/plugins/{}", kubelet, kDraDriver), {}};
  sockets.registration = fmt::format("{}/{}{}{}", sockets.registry, kDraDriver, suffix, kRegistrationEnding);
  sockets.service = fmt::format("{}/{}{}{}", sockets.directory, kServiceStart, suffix, kServiceEnding);
  return sockets;
}

bool is_registration_name(std::string_view name) {
  return is_name_of_pod(name, kDraDriver, kRegistrationEnding);
}

bool is_service_name(std::string_view name) {
  return is_name_of_pod(name, kServiceStart, kServiceEnding);
}

Result<base::LockFile> take_sockets(const Sockets& sockets, const base::Log& log) {
  struct stat status {};
  if (::stat(sockets.registry.c_str(), &status) != 0)
    return sys_error(errno, "the kubelet has no directory `{}`", base::printable(sockets.registry));
  for (const std::string& made : {base::parent_of(sockets.directory), sockets.directory})
    if (::mkdir(made.c_str(), 0750) != 0 && errno != EEXIST)
      return sys_error(errno, "cannot make `{}`", base::printable(made));
  auto lock = TRY(base::LockFile::take(sockets.directory + "/rdma-dra.lock", kLockTime));
  remove_abandoned(sockets.registry, is_registration_name, log);
  remove_abandoned(sockets.directory, is_service_name, log);
  for (const std::string& own : {sockets.registration, sockets.service})
    if (is_socket(own))
      return Error{fmt::format("another process listens at `{}`", base::printable(own)), EADDRINUSE,
                   "stop the other rdma-dra, or start each with its own POD_UID"};
  return lock;
}

}  // namespace shim
