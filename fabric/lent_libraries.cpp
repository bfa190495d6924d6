#include "fabric/lent_libraries.hpp"

#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "base/rooted.hpp"
#include "fabric/elf_file.hpp"
#include "fabric/libraries.hpp"

namespace fabric {
namespace {

constexpr const char* kVerbs = "libibverbs.so.1";
constexpr std::size_t kMostFiles = 64;

// Libraries of glibc and of the compiler, which a process takes from one installation.
constexpr std::array<std::string_view, 11> kOfImage = {
    "libstdc++.so.6",       "libgcc_s.so.1", "libz.so.1",  "libc.so.6",    "libm.so.6",
    "libpthread.so.0",      "libdl.so.2",    "librt.so.1", "libmvec.so.1", "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1"};

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.front() != '.' && name.find('/') == std::string_view::npos;
}

class Finder {
 public:
  Finder(const std::string& root, const std::string& from) : root_(root), libraries_(root) {
    if (!from.empty()) places_ = {from, from + "/libibverbs"};
    places_.insert(places_.end(), libraries_.places().begin(), libraries_.places().end());
  }

  Result<std::vector<LentFile>> find(const std::set<std::string>& providers) {
    TRY_VOID(add(kVerbs));
    const Verbs verbs = libraries_.verbs_in(found_.at(kVerbs).path);
    if (!verbs.abi) {
      return Error{
          fmt::format("`{}` has no version for provider libraries (IBVERBS_PRIVATE_...)", found_.at(kVerbs).path), 0,
          "install libibverbs of rdma-core or of the vendor"};
    }
    if (!verbs.directory.empty()) {
      const auto first_of_node = places_.end() - static_cast<std::ptrdiff_t>(libraries_.places().size());
      places_.insert(first_of_node, verbs.directory);
    }
    for (const std::string& provider : providers)
      TRY_VOID(add(provider_file(provider, *verbs.abi)));
    std::vector<LentFile> files;
    for (auto& [name, file] : found_) {
      file.path.insert(0, root_);
      files.push_back(std::move(file));
    }
    return files;
  }

 private:
  // Adds the file and the files that it needs.
  Result<void> add(const std::string& name) {
    if (found_.contains(name) || std::ranges::find(kOfImage, name) != kOfImage.end()) return {};
    if (found_.size() >= kMostFiles) return Error{fmt::format("more than {} libraries are needed", kMostFiles), 0, ""};
    for (const std::string& place : places_) {
      const std::string path = fmt::format("{}/{}", place, name);
      const ImageFile file = libraries_.at(path);
      if (file.path.empty() && file.problem.empty()) continue;
      if (!file.problem.empty()) return Error{fmt::format("cannot lend `{}`: {}", path, file.problem), 0, ""};
      return take(name, path);
    }
    return Error{fmt::format("cannot lend `{}`: it is not on the node", name), 0,
                 "install rdma-core's libibverbs and providers on the node, or name their directory in "
                 "\"lend_from\" of config.json"};
  }

  Result<void> take(const std::string& name, const std::string& path) {
    const auto opened = libraries_.files().open(path);
    if (const int code = error_of(opened); code != 0) return sys_error(code, "cannot lend `{}`", path);
    const int file = std::get<UniqueFd>(opened).get();
    const std::string identity = TRY(file_identity(file, path));
    ElfFile library(file);
    const auto needed_by_it = library.needed();
    const bool of_verbs = name == kVerbs || std::ranges::find(needed_by_it, kVerbs) != needed_by_it.end();
    found_[name] = {name, path, identity, of_verbs};
    // Programs of the image may load a provider by its SONAME, too, as NCCL does (libmlx5.so.1).
    if (const std::string soname = library.soname(); is_plain_name(soname))
      found_.try_emplace(soname, LentFile{soname, path, identity, of_verbs});
    for (const std::string& needed : needed_by_it)
      TRY_VOID(add(needed));
    return {};
  }

  std::string root_;
  Libraries libraries_;
  std::vector<std::string> places_;
  std::map<std::string, LentFile> found_;
};

}  // namespace

Result<std::string> file_identity(int file, const std::string& path) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return sys_error(errno, "cannot read `{}`", path);
  if (info.st_size > kLargestLent)
    return Error{fmt::format("cannot lend `{}`: it has more than 64 MiB", path), EFBIG, "name a smaller file"};
  if (!S_ISREG(info.st_mode) || info.st_uid != 0 || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{fmt::format("cannot lend `{}`: users other than root can change it", path), EPERM,
                 "make root its owner and remove the write permission of others"};
  return fmt::format("{}.{}.{}.{}.{}", info.st_dev, info.st_ino, info.st_size, info.st_mtim.tv_sec,
                     info.st_mtim.tv_nsec);
}

Result<std::vector<LentFile>> find_lent_libraries(const std::string& root, const std::string& from,
                                                  const std::set<std::string>& providers) {
  return Finder(root, from).find(providers);
}

Result<LentFile> find_topology_file(const std::string& root, const std::string& path) {
  const auto opened = Rooted(root).open(path);
  if (const int code = error_of(opened); code != 0) {
    Error error = sys_error(code, "cannot lend `{}`", path);
    error.hint = "name a readable file in \"topology_file\" of config.json";
    return error;
  }
  const std::string identity = TRY(file_identity(std::get<UniqueFd>(opened).get(), path));
  return LentFile{kTopologyName, root + path, identity};
}

}  // namespace fabric
