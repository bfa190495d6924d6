#include "base/process/owner_remedy.hpp"

#include <algorithm>
#include <array>

namespace base {
namespace {

// Directories that belong to root on every node. Directories below /opt, such as a vendor's, can belong to a service.
constexpr std::array<std::string_view, 7> kRootsOwn = {"/", "/etc", "/opt", "/run", "/usr", "/var", "/var/lib"};
constexpr std::array<std::string_view, 6> kRootsTrees = {"/etc/rdma-init",     "/opt/rdma-init", "/run/rdma-hook",
                                                         "/var/lib/rdma-init", "/usr",           "/opt/cni"};

bool is_below(std::string_view path, std::string_view tree) {
  return path.starts_with(tree) && (path.size() == tree.size() || path[tree.size()] == '/');
}

bool is_roots_place(std::string_view path) {
  // ".." could lead out of the tree.
  if (path.find("..") != std::string_view::npos) return false;
  return std::ranges::find(kRootsOwn, path) != kRootsOwn.end() ||
         std::ranges::any_of(kRootsTrees, [&](std::string_view tree) { return is_below(path, tree); });
}

bool needs_quotes(std::string_view path) {
  return !std::ranges::all_of(path, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '/' || c == '.' ||
           c == '_' || c == '-';
  });
}

}  // namespace

std::string owner_remedy(std::string_view path, const struct stat& status, std::string_view root) {
  const bool directory = S_ISDIR(status.st_mode);
  const bool plain = S_ISREG(status.st_mode) || (directory && (status.st_mode & S_ISVTX) == 0);
  const std::string whole = fmt::format("{}{}", root, path);
  if (plain && is_roots_place(path) && (root.empty() || path != "/") && !needs_quotes(whole))
    return fmt::format("run `chown root {0} && chmod go-w {0}`", whole);
  return directory ? "use a path in which only root can change each directory"
                   : "use a regular file that only root can change, in a directory of root";
}

}  // namespace base
