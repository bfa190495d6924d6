#include "base/result.hpp"

#include <cerrno>

namespace base {

Error error_of_exception() {
  return {"not enough memory, or a fault of this program", ENOMEM,
          "raise the memory limit of its cgroup and `ulimit -v`; if that does not help, report the fault"};
}

std::string remedy_of(const Error& error, const char* otherwise) {
  // The kernel also returns ENFILE if an RDMA device with the new name exists already (assign_name(),
  // drivers/infiniband/core/device.c). The message of that error states this cause in place of the text of ENFILE.
  const bool is_limit = (error.code == EMFILE || error.code == ENFILE) &&
                        error.message.find(std::strerror(error.code)) != std::string::npos;
  if (!is_limit) return error.hint.empty() ? std::string(otherwise) : error.hint;
  // inotify_init1(2) has its own limit, of instances, and also returns EMFILE if it is reached.
  if (error.code == EMFILE)
    return "raise the process's limit of open files: LimitNOFILE= of its systemd unit, or `ulimit -n`; if inotify "
           "failed, raise sysctl fs.inotify.max_user_instances";
  return "raise the node's limit of open files: sysctl fs.file-max";
}

std::string with_remedy(const Error& error, const char* otherwise) {
  const std::string remedy = remedy_of(error, otherwise);
  return remedy.empty() ? error.message : error.message + "; remedy: " + remedy;
}

}  // namespace base
