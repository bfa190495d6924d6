#include "hook/base/process/open_descriptors.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;
using fabric::sysfs::Directory;

bool is_ended(int code) {
  return code == ENOENT || code == ESRCH;
}

Error cannot_look_at_descriptors(int code, std::string_view process) {
  Error error = fabric::sys_error(code, "cannot look at the descriptors of process `{}`", process);
  if (code == EACCES || code == EPERM) error.hint = "run it as root of the node, with CAP_SYS_PTRACE";
  return error;
}

class DescriptorSearch {
 public:
  DescriptorSearch(const std::vector<DeviceNumber>& devices, const Directory& proc) : devices_(devices), proc_(proc) {}

  void look_at_process(std::string_view name, pid_t pid) {
    if (auto seen = look_at_tables(name, pid); !seen) found_.unseen.emplace(pid, std::move(seen).error());
  }
  FoundDescriptors take() && { return std::move(found_); }

 private:
  // The first thread of a process may have ended: the table is then with the others.
  Result<void> look_at_tables(std::string_view name, pid_t pid) {
    if (TRY(look_at_table(pid, fmt::format("{}/fd", name)))) return {};
    const auto tasks = proc_.open_at(fmt::format("{}/task", name).c_str());
    if (!tasks) return is_ended(errno) ? Result<void>() : cannot_look_at_descriptors(errno, name);
    int error = 0;
    const auto threads = tasks->list(&error);
    if (error != 0 && !is_ended(error)) return cannot_look_at_descriptors(error, name);
    for (const std::string& thread : threads) {
      if (thread != name && TRY(look_at_table(pid, fmt::format("{}/task/{}/fd", name, thread)))) break;
    }
    return {};
  }

  // False: it has no descriptor at all.
  Result<bool> look_at_table(pid_t pid, const std::string& path) {
    const auto table = proc_.open_at(path.c_str());
    if (!table) return is_ended(errno) ? Result<bool>(false) : cannot_look_at_descriptors(errno, std::to_string(pid));
    bool any = false;
    int denied = 0;
    const bool whole = fabric::sysfs::next_names(table->fd(), [&](std::string_view name) {
      any = true;
      denied = look_at_descriptor(table->fd(), name.data(), pid);
      return denied == 0;
    });
    if (!whole && !is_ended(errno)) denied = errno;
    if (denied != 0) return cannot_look_at_descriptors(denied, std::to_string(pid));
    return any;
  }

  // Returns an errno if the kernel does not show it. No file system is asked, neither one of a container (FUSE) nor one
  // whose server is gone: AT_STATX_DONT_SYNC, and no attribute that has to be true. A file of a server that forgot it
  // (ESTALE, ENOTCONN) is no device.
  int look_at_descriptor(int table, const char* name, pid_t pid) {
    struct statx status {};
    if (::statx(table, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, 0, &status) != 0)
      return is_ended(errno) || errno == ESTALE || errno == ENOTCONN ? 0 : errno;
    const DescriptorHolder holder{pid, {status.stx_rdev_major, status.stx_rdev_minor}};
    const bool is_sought =
        S_ISCHR(status.stx_mode) && std::find(devices_.begin(), devices_.end(), holder.device) != devices_.end();
    if (is_sought && std::find(found_.holders.begin(), found_.holders.end(), holder) == found_.holders.end())
      found_.holders.push_back(holder);
    return 0;
  }

  const std::vector<DeviceNumber>& devices_;
  const Directory& proc_;
  FoundDescriptors found_;
};

}  // namespace

Result<FoundDescriptors> find_descriptors(const std::vector<DeviceNumber>& devices, const std::string& proc) {
  const auto directory = Directory::open(proc);
  if (!directory) return fabric::sys_error(errno, "cannot look at the processes in `{}`", proc);
  int error = 0;
  const auto names = directory->list(&error);
  if (error != 0) return fabric::sys_error(error, "cannot look at the processes in `{}`", proc);
  DescriptorSearch search(devices, *directory);
  for (const std::string& name : names) {
    const auto pid = fabric::parse_number<pid_t>(name);
    if (pid && *pid > 0) search.look_at_process(name, *pid);
  }
  return std::move(search).take();
}

}  // namespace hook
