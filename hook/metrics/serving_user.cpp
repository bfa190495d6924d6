#include "hook/metrics/serving_user.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "fabric/sysfs.hpp"
#include "fabric/text.hpp"

namespace hook {
namespace {

using fabric::Error;
using fabric::Result;

constexpr std::size_t kLargestUserFile = std::size_t{64} << 20;

// By the files alone: a name service would load others' libraries into root's process.
Result<void> check_unused(const char* path) {
  const auto text = fabric::sysfs::read_file(path, kLargestUserFile);
  if (const auto* failed = std::get_if<fabric::Unreadable>(&text)) {
    if (failed->code == ENOENT) return {};
    return fabric::sys_error(failed->code, "cannot read `{}`", path);
  }
  const auto name = name_of_id(std::get<std::string>(text), kServingUser);
  if (!name) return {};
  return Error{fmt::format("number {}, as which the process that serves runs, belongs to `{}` in `{}`", kServingUser,
                           fabric::printable(*name), path),
               EEXIST, "give that entry another number"};
}

}  // namespace

std::optional<std::string> name_of_id(std::string_view text, id_t id) {
  constexpr std::size_t kId = 2;  // NAME:PASSWORD:ID:...
  for (const std::string_view line : fabric::split(text, '\n')) {
    const auto fields = fabric::split(line, ':');
    if (fields.size() > kId && fabric::parse_number<id_t>(fields[kId]) == id) return std::string(fields[0]);
  }
  return std::nullopt;
}

// A root that keeps a way back would be root to whoever takes the process over.
Result<void> become_serving_user() {
  if (::geteuid() != 0 && ::getuid() != 0) return {};
  TRY_VOID(check_unused("/etc/passwd"));
  TRY_VOID(check_unused("/etc/group"));
  if (::setgroups(0, nullptr) != 0 || ::setresgid(kServingUser, kServingUser, kServingUser) != 0 ||
      ::setresuid(kServingUser, kServingUser, kServingUser) != 0) {
    return Error{fmt::format("cannot become user {}, and root does not serve: {}", kServingUser, std::strerror(errno)),
                 errno, "start it with the capabilities SETUID and SETGID"};
  }
  if (::setresuid(0, 0, 0) == 0 || ::geteuid() != kServingUser || ::getegid() != kServingUser)
    return fabric::make_error("it is still root, who does not serve");
  return {};
}

}  // namespace hook
