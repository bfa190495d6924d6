#include "hook/apply/cdi_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/file.hpp"
#include "base/json/json.hpp"
#include "base/process/identity.hpp"
#include "base/replace_file.hpp"
#include "base/text.hpp"

namespace hook {
namespace {

constexpr std::size_t kLargestSpec = std::size_t{1} << 20;

// The mark in the name of a temporary. "rdma-init.json.rdma-hook-4026531836.123.4567.tmp" has the PID namespace, PID
// and start time of the process that writes it. Engines read only *.json and *.yaml.
constexpr std::string_view kTemporaryMark = ".rdma-hook-";
constexpr std::string_view kTemporaryEnding = ".tmp";

Result<ino_t> own_pid_namespace() {
  constexpr const char* kPath = "/proc/self/ns/pid";
  struct stat info {};
  if (::stat(kPath, &info) != 0) return sys_error(errno, "cannot read `{}`", kPath);
  return info.st_ino;
}

// Returns whether the name belongs to a temporary of a process that has ended. A process of another PID namespace
// cannot be checked and may still write, so its temporary stays.
bool is_left_over(std::string_view name, ino_t own) {
  const std::size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos || !name.ends_with(kTemporaryEnding)) return false;
  name.remove_prefix(mark + kTemporaryMark.size());
  if (name.size() < kTemporaryEnding.size()) return false;
  name.remove_suffix(kTemporaryEnding.size());
  const auto fields = base::split(name, '.');
  if (fields.size() != 3 || base::parse_number<ino_t>(fields[0]) != own) return false;
  const auto pid = base::parse_number<pid_t>(fields[1]);
  const auto start_time = base::parse_number<std::uint64_t>(fields[2]);
  return pid && start_time && is_proven_absent(read_presence(ProcessIdentity{*pid, *start_time}));
}

const char* verb_of(base::FileFailure::Step step) {
  if (step == base::FileFailure::Step::kRename) return "rename";
  return step == base::FileFailure::Step::kCreate ? "create" : "write";
}

}  // namespace

std::string cdi_text(const Json& spec) {
  return spec.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

Result<void> write_cdi(const std::string& path, const Json& spec, mode_t mode) {
  const std::string text = cdi_text(spec);
  const auto before = base::read_file(path, kLargestSpec);
  // An identical file is not replaced, because engines reload their CDI devices at each change of the directory.
  if (base::value_or(before, std::string()) == text) return {};
  // PID and start time in the name identify the process that writes the file, so that a later call can remove the
  // temporary of a killed process.
  const ProcessIdentity self = TRY(identify_self());
  const std::string temporary = fmt::format("{}{}{}.{}.{}{}", path, kTemporaryMark, TRY(own_pid_namespace()), self.pid,
                                            self.start_time, kTemporaryEnding);
  // Engines of other users read the file. It can be in /etc/cdi, so it must be complete after a crash of the node.
  const auto failed =
      base::replace_file({AT_FDCWD, temporary}, {AT_FDCWD, path}, text, {.mode = mode, .is_synced = true});
  if (!failed) return {};
  Error error = sys_error(failed->code, "cannot write `{}`: {}", path, verb_of(failed->step));
  if (error.code == ENOENT) error.hint = "make its directory; engines read /etc/cdi and /var/run/cdi";
  if (error.code == EACCES) error.hint = "run the command as root";
  if (error.code == EISDIR) error.hint = "name a file in that directory";
  return error;
}

void sweep_cdi(const std::string& path, const Log& log) {
  const auto directory = base::Directory::open(path);
  const auto own = own_pid_namespace();
  if (!directory || !own) return;
  for (const std::string& name : directory->list()) {
    if (!is_left_over(name, *own) || ::unlinkat(directory->fd(), name.c_str(), 0) == 0 || errno == ENOENT) continue;
    log.warning(sys_error(errno, "cannot remove `{}/{}`", path, base::printable(name)).message);
  }
}

}  // namespace hook
