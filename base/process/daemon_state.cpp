#include "base/process/daemon_state.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.hpp"
#include "base/replace_file.hpp"
#include "base/text.hpp"

namespace base {
namespace {

constexpr std::string_view kReady = "ready: ";
constexpr std::string_view kNotReady = "not ready: ";
constexpr std::size_t kLongestState = 4096;

std::string directory_of(const std::string& ledger) {
  return ledger + "/state";
}

std::string line_of(const ProbedState& state) {
  return std::string(state.is_ready ? kReady : kNotReady) + one_line(state.text).substr(0, kLongestState / 2);
}

// Returns the names "PROGRAM.PID".
std::vector<std::string> names_of(int directory, const std::string& program) {
  std::vector<std::string> names;
  list_names(directory, names);
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(program + "."); });
  std::ranges::sort(names);
  return names;
}

// Returns true if another live process has locked the file. Uses locks of fcntl(2): unlike a lock of flock(2), a child
// process does not inherit them. So the lock ends with its process, even if a child lives on.
bool is_locked(const UniqueFd& file) {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file.get(), F_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void remove_stale(int directory, const std::string& program) {
  for (const std::string& name : names_of(directory, program)) {
    const UniqueFd file = open_to_read(directory, name.c_str(), O_NOFOLLOW);
    if (file.ok() && !is_locked(file)) ::unlinkat(directory, name.c_str(), 0);
  }
}

// The file is locked before the rename, so that a reader never finds the file of a live process without its lock.
Result<UniqueFd> write_state(const std::string& ledger, const std::string& program, bool is_first,
                             const std::string& line) {
  const std::string path = directory_of(ledger);
  const std::string name = fmt::format("{}.{}", program, ::getpid());
  const std::string temporary = "." + name;
  (void)::mkdir(ledger.c_str(), 0700);
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return sys_error(errno, "make `{}`", path);
  const UniqueFd directory = open_to_list(AT_FDCWD, path.c_str());
  if (!directory.ok()) return sys_error(errno, "open `{}`", path);
  if (is_first) remove_stale(directory.get(), program);
  NewFile file = NewFile::write({directory.get(), temporary}, line + "\n");
  if (file.failure() && file.failure()->step == FileFailure::Step::kCreate)
    return sys_error(file.failure()->code, "make `{}/{}`", path, temporary);
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (!file.failure() && ::fcntl(file.fd(), F_SETLK, &lock) != 0) return sys_error(errno, "write `{}/{}`", path, name);
  if (const auto failed = file.put({directory.get(), name}))
    return sys_error(failed->code, "write `{}/{}`", path, name);
  return file.keep();
}

// Returns nullopt for the file of a process that has ended.
std::optional<ProbedState> read_state(int directory, const std::string& name) {
  const UniqueFd file = open_to_read(directory, name.c_str(), O_NOFOLLOW);
  if (!file.ok() || !is_locked(file)) return std::nullopt;
  std::array<char, kLongestState> bytes;
  const ssize_t count = ::read(file.get(), bytes.data(), bytes.size());
  const std::string_view text(bytes.data(), count > 0 ? static_cast<std::size_t>(count) : 0);
  const std::string_view line = text.substr(0, text.find('\n'));
  for (const std::string_view word : {kReady, kNotReady})
    if (line.starts_with(word)) return ProbedState{word == kReady, std::string(line.substr(word.size()))};
  return ProbedState{false, fmt::format("the recorded state `{}` has an unknown format", name)};
}

}  // namespace

void DaemonState::set(ProbedState state) {
  if (file_.ok() && state == recorded_) return;
  auto written = write_state(ledger_, program_, !file_.ok(), line_of(state));
  const std::string message = written ? "" : written.error().message;
  if (std::exchange(last_message_, message) != message && !written)
    log_.warning(fmt::format("cannot record the state for --probe: {}", message));
  if (!written) return;
  file_ = std::move(*written);
  recorded_ = std::move(state);
}

ProbedState probe_daemon(const std::string& ledger, const std::string& program) {
  const std::string path = directory_of(ledger);
  ProbedState found{false, fmt::format("no running process has recorded a state in `{}`: the program does not run, or "
                                       "has just started",
                                       path)};
  const UniqueFd directory = open_to_list(AT_FDCWD, path.c_str());
  if (!directory.ok()) {
    if (errno != ENOENT) found.text = sys_error(errno, "cannot open `{}`", path).message;
    return found;
  }
  for (const std::string& name : names_of(directory.get(), program)) {
    const auto state = read_state(directory.get(), name);
    if (state) found = *state;
    if (state && !state->is_ready) break;
  }
  return found;
}

int print_probe(const std::string& program, const ProbedState& state) {
  const std::string line = fmt::format("{}: {}\n", program, line_of(state));
  std::fwrite(line.data(), 1, line.size(), stdout);
  return state.is_ready ? 0 : 1;
}

}  // namespace base
