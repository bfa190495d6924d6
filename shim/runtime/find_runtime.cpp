#include "shim/runtime/find_runtime.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

#include "fabric/text.hpp"

namespace shim {
namespace {

using fabric::Error;
using fabric::Result;

constexpr std::string_view kUsualPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr const char* kRemedy = R"(set "runtime": {"runtimes": ["/usr/sbin/runc"]} in /etc/rdma-init/config.json)";

enum class Candidate { kUsable, kSelf, kUnusable };

Candidate examine(const std::string& path, const ProgramId& self) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return Candidate::kUnusable;
  if (ProgramId{status.st_dev, status.st_ino} == self) return Candidate::kSelf;
  return ::faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) == 0 ? Candidate::kUsable : Candidate::kUnusable;
}

class Search {
 public:
  explicit Search(const ProgramId& self) : self_(self) {}

  bool finds(const std::string& path) {
    const Candidate candidate = examine(path, self_);
    met_self_ = met_self_ || candidate == Candidate::kSelf;
    return candidate == Candidate::kUsable;
  }

  std::optional<std::string> find(const std::string& name, std::string_view directories) {
    for (const std::string_view directory : fabric::split(directories, ':')) {
      if (!directory.starts_with('/')) continue;
      std::string path = std::string(directory) + "/" + name;
      if (finds(path)) return path;
    }
    return std::nullopt;
  }

  bool met_self() const { return met_self_; }

 private:
  const ProgramId& self_;
  bool met_self_ = false;
};

}  // namespace

Result<ProgramId> own_id() {
  struct stat status {};
  if (::stat("/proc/self/exe", &status) != 0) {
    Error error = fabric::sys_error(errno, "stat `/proc/self/exe`");
    error.hint = "mount procfs at /proc";
    return error;
  }
  return ProgramId{status.st_dev, status.st_ino};
}

Result<std::string> find_runtime(const std::vector<std::string>& configured, std::string_view path,
                                 const ProgramId& self) {
  Search search(self);
  for (const std::string& runtime : configured) {
    if (runtime.starts_with('/')) {
      if (search.finds(runtime)) return runtime;
      continue;
    }
    if (runtime.empty() || runtime.find('/') != std::string::npos) {
      return Error{fmt::format("runtime `{}`: expected a name or an absolute path", fabric::printable(runtime)), EINVAL,
                   kRemedy};
    }
    if (auto found = search.find(runtime, path)) return *found;
    if (auto found = search.find(runtime, kUsualPath)) return *found;
  }
  return Error{fmt::format("no runtime to pass the command on to: looked for `{}`{}", fabric::join(configured, "`, `"),
                           search.met_self() ? ", and what was found is rdma-runtime itself" : ""),
               ENOENT, kRemedy};
}

}  // namespace shim
