#include "fabric/remedy.hpp"

#include <cerrno>

namespace fabric {

std::string remedy_of(const Error& error) {
  // inotify_init1(2) says EMFILE of its own limit.
  if (error.code == EMFILE)
    return "raise the process's limit of open files: LimitNOFILE= of its systemd unit, or `ulimit -n`; for a watch, "
           "sysctl "
           "fs.inotify.max_user_instances";
  if (error.code == ENFILE) return "raise the node's limit of open files: sysctl fs.file-max";
  return error.hint;
}

}  // namespace fabric
