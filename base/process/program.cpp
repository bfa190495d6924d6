#include "base/process/program.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "base/process/owner_remedy.hpp"
#include "base/text.hpp"

namespace base {
namespace {

constexpr int kMostLinks = 40;  // MAXSYMLINKS of the kernel

// Returns true if only root, or the caller's user, can change the file. The mode of a symbolic link has no effect.
bool is_roots(const struct stat& status) {
  if (status.st_uid != 0 && status.st_uid != ::geteuid()) return false;
  const bool sticky = S_ISDIR(status.st_mode) && (status.st_mode & S_ISVTX) != 0;
  return S_ISLNK(status.st_mode) || sticky || (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// A component of a path below the root of an installation.
struct Component {
  const std::string& root;
  const std::string& path;  // the component's path below root
};

// Opens a component without following a symbolic link, and checks its owner and mode. name: the component's name in
// `directory`.
Result<UniqueFd> open_step(const UniqueFd& directory, const std::string& name, const Component& at,
                           struct stat& status) {
  UniqueFd fd(::openat(directory.get(), name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  const std::string path = printable(at.path);
  if (!fd.ok() || ::fstat(fd.get(), &status) != 0) return sys_error(errno, "open `{}`", path);
  if (is_roots(status)) return fd;
  return Error{fmt::format("users other than root can change `{}`", path), EACCES,
               owner_remedy(at.path, status, at.root)};
}

// Pushes the components of `path` in reverse order, so that the next step is always the last element.
void put_before(std::vector<std::string>& steps, std::string_view path) {
  const auto parts = split(path, '/');
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    if (!part->empty() && *part != ".") steps.emplace_back(*part);
}

// Opens a path of which only root can change each component. Follows symbolic links below root.
// status: gets the status of the last component. Errors: EACCES, another user can change a component.
Result<UniqueFd> walk(std::string_view path, const std::string& root, struct stat& status) {
  const std::string top = root + "/";
  std::vector<std::string> steps;
  put_before(steps, path);
  const UniqueFd none;
  UniqueFd here = TRY(open_step(none, top, {root, "/"}, status));
  std::string shown;
  for (int links = 0; !steps.empty();) {
    const std::string name = std::move(steps.back());
    steps.pop_back();
    if (name == ".." && shown.empty()) continue;  // at the root directory, ".." is the root directory itself
    const std::string at = name == ".." ? shown.substr(0, shown.rfind('/')) : fmt::format("{}/{}", shown, name);
    UniqueFd next = TRY(open_step(here, name, {root, at}, status));
    if (S_ISLNK(status.st_mode)) {
      char target[PATH_MAX];
      const ssize_t size = ::readlinkat(next.get(), "", target, sizeof target);
      if (size <= 0 || ++links > kMostLinks)
        return sys_error(size < 0 ? errno : ELOOP, "follow the symbolic link `{}`", printable(at));
      const std::string_view leads(target, static_cast<std::size_t>(size));
      put_before(steps, leads);
      if (!leads.starts_with('/')) continue;
      here = TRY(open_step(none, top, {root, "/"}, status));
      shown.clear();
    } else {
      here = std::move(next);
      shown = at;
    }
  }
  return here;
}

}  // namespace

Result<UniqueFd> open_program(std::string_view path, const std::string& root) {
  struct stat status {};
  UniqueFd fd = TRY(walk(path, root, status));
  if (!S_ISREG(status.st_mode)) return Error{fmt::format("`{}` is no regular file", printable(path)), EACCES};
  return fd;
}

Result<void> check_program_directory(std::string_view directory, const std::string& root) {
  struct stat status {};
  auto walked = walk(directory, root, status);
  if (walked || walked.error().code == ENOENT) return {};
  return std::move(walked).error();
}

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts)
    pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

void execute_program(const UniqueFd& program, char* const argv[], char* const envp[]) {
  ::fexecve(program.get(), argv, envp);
  // fexecve(3) of a script fails with ENOENT: the kernel closes the descriptor at exec, before the interpreter opens
  // the script by its path /dev/fd/N.
  if (errno == ENOENT) ::execve(argv[0], argv, envp);
}

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

bool ProgramOutput::read_some(std::size_t keep) {
  static char buffer[65536];
  const ssize_t count = ::read(fd.get(), buffer, sizeof buffer);
  if (count < 0 && errno == EINTR) return true;
  if (count == 0 || (count < 0 && errno != EAGAIN)) fd.reset();
  if (count <= 0) return false;
  const std::size_t room = keep > text.size() ? keep - text.size() : 0;
  text.append(buffer, std::min(room, static_cast<std::size_t>(count)));
  return true;
}

}  // namespace base
