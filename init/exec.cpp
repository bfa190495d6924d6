#include "init/exec.hpp"

#include <elf.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/file.hpp"
#include "init/log.hpp"

namespace init {
namespace {

// confstr(_CS_PATH), which execvp() uses if PATH is unset.
constexpr std::string_view kDefaultPath = "/bin:/usr/bin";
constexpr std::size_t kNameShown = 256;  // a name may have 128 KiB, and a message must stay short

bool is_entry_of(const char* entry, std::string_view name) {
  return std::strncmp(entry, name.data(), name.size()) == 0 && entry[name.size()] == '=';
}

const char* find_variable(char* const envp[], std::string_view name) {
  for (; *envp != nullptr; ++envp) {
    if (is_entry_of(*envp, name)) return *envp + name.size() + 1;
  }
  return nullptr;
}

// Returns untrusted text for a one-line message.
std::string shown(std::string_view text) {
  std::string result(text.substr(0, kNameShown));
  std::ranges::replace_if(
      result, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text.size() > kNameShown ? result + "..." : result;
}

// Returns the first line of a file, limited to the bytes that the kernel reads. Returns an empty text if the file is
// unreadable.
std::string first_line(const char* path) {
  const base::UniqueFd file = base::open_to_read(AT_FDCWD, path);
  std::array<char, 256> head;  // as long as the kernel's buffer, BINPRM_BUF_SIZE (linux/binfmts.h)
  const ssize_t size = file.ok() ? ::read(file.get(), head.data(), head.size()) : -1;
  const std::string_view text(head.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return std::string(text.substr(0, text.find('\n')));
}

// Returns true if a file without a known format may be a shell script. Returns false for a file with a zero byte: the
// shell would report a syntax error for a binary of another architecture.
bool may_be_script(const char* path) {
  return ::access(path, R_OK) == 0 && first_line(path).find('\0') == std::string::npos;
}

// Returns the type of the file, as S_IFDIR; 0 if the look-up fails.
mode_t type_of(const char* path) {
  struct stat status;
  return ::stat(path, &status) == 0 ? status.st_mode & S_IFMT : 0;
}

bool is_file(const char* path) {
  const mode_t type = type_of(path);
  return type != 0 && type != S_IFDIR;
}

// Executes one file. Returns only on failure, with the errno.
int try_file(const char* path, char* const argv[], char* const envp[]) {
  ::execve(path, argv, envp);
  if (errno != ENOEXEC || !may_be_script(path)) return errno;

  // POSIX requires this fallback of execvp() for a text file without "#!".
  std::vector<char*> shell_argv{const_cast<char*>("/bin/sh"), const_cast<char*>(path)};
  for (char* const* arg = argv + 1; *arg != nullptr; ++arg)
    shell_argv.push_back(*arg);
  shell_argv.push_back(nullptr);
  ::execve(shell_argv[0], shell_argv.data(), envp);
  return errno == E2BIG ? E2BIG : ENOEXEC;
}

// Returns the kernel's limit for all strings and their pointers (fs/exec.c, bprm_stack_limits(), Linux 4.13 and later).
std::size_t exec_space() {
  constexpr std::size_t kMost = 6UL << 20;
  constexpr std::size_t kLeast = 128UL << 10;
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_cur == RLIM_INFINITY) return kMost;
  return std::clamp(static_cast<std::size_t>(stack.rlim_cur / 4), kLeast, kMost);
}

// Explains E2BIG: one string above the limit, or all strings together.
std::string too_big(char* const argv[], char* const envp[]) {
  // The kernel's limit MAX_ARG_STRLEN.
  const std::size_t one_string = 32 * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::size_t total = 0;
  for (char* const* list : {argv, envp}) {
    for (char* const* each = list; *each != nullptr; ++each) {
      const std::string_view text(*each);
      if (text.size() >= one_string) {
        // The message must not quote an argument or a value, which may be a secret, or a string without a name.
        const std::size_t equals = list == envp ? text.find('=') : std::string_view::npos;
        const std::string which = equals != std::string_view::npos ? fmt::format("`{}`", shown(text.substr(0, equals)))
                                  : list == envp                   ? "a variable without a name"
                                                                   : fmt::format("argument {}", each - list);
        return fmt::format("{} has {} bytes and the kernel allows {} for one string; shorten it or pass it in a file",
                           which, text.size(), one_string - 1);
      }
      total += text.size() + 1 + sizeof(char*);
    }
  }
  return fmt::format(
      "environment and arguments are larger than the kernel allows ({} bytes of {}); unset large variables, or raise "
      "the stack limit (ulimit -s): the kernel allows a quarter of it, at most 6 MiB",
      total, exec_space());
}

// Returns the dynamic loader that a program names, an empty text if its first page names none.
std::string loader_of(const char* path) {
  const base::UniqueFd file = base::open_to_read(AT_FDCWD, path);
  std::array<char, 4096> page{};
  Elf64_Ehdr header;
  Elf64_Phdr part;
  if (!file.ok() || ::read(file.get(), page.data(), page.size() - 1) < static_cast<ssize_t>(sizeof header)) return "";
  std::memcpy(&header, page.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64) return "";
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    const std::size_t at = header.e_phoff + i * sizeof part;
    if (header.e_phoff >= page.size() || at > page.size() - sizeof part) return "";
    std::memcpy(&part, page.data() + at, sizeof part);
    // The page ends with a zero byte, so the name does too.
    if (part.p_type == PT_INTERP && part.p_offset < page.size()) return page.data() + part.p_offset;
  }
  return "";
}

// Explains ENOENT, which execve() also returns if the interpreter of an existing file is missing.
std::string describe_missing(const char* path) {
  if (!is_file(path)) return fmt::format("{}; check the path inside the image", std::strerror(ENOENT));
  const std::string head = first_line(path);
  if (!head.starts_with("#!")) {
    const std::string loader = loader_of(path);
    const std::string_view library = loader.find("/ld-linux") != std::string::npos  ? " (glibc)"
                                     : loader.find("/ld-musl") != std::string::npos ? " (musl)"
                                                                                    : "";
    return fmt::format(
        "the file exists, but its dynamic loader{} does not; use an image with the C library{} that it was built for",
        loader.empty() ? "" : fmt::format(" `{}`", shown(loader)), library);
  }
  const bool carriage_return = head.ends_with('\r');
  return fmt::format("the file exists, but its interpreter `{}` does not; {}", shown(head.substr(2)),
                     carriage_return ? "convert the script's line ends from CRLF to LF" : "install it in the image");
}

// Explains EACCES, which execve() also returns for directories, interpreters and noexec mounts.
std::string describe_denied(const char* path) {
  if (type_of(path) == S_IFDIR) return "is a directory; name a program";
  if (is_file(path) && ::access(path, X_OK) == 0) {
    return fmt::format("{}; its interpreter is not executable, or it lies on a noexec mount", std::strerror(EACCES));
  }
  return fmt::format("{}; let uid {} read and execute it (chmod a+rx), and search its directories",
                     std::strerror(EACCES), ::geteuid());
}

std::string describe_format(const char* path) {
  if (may_be_script(path)) return "it has no #! line and /bin/sh cannot be started for it; add an interpreter line";
  utsname machine{};
  ::uname(&machine);
  return fmt::format("{}; it is not a program for this machine ({}), check the image's architecture",
                     std::strerror(ENOEXEC), machine.machine);
}

std::string describe(const char* path, int error, char* const argv[], char* const envp[]) {
  switch (error) {
    case E2BIG:
      return too_big(argv, envp);
    case ENOENT:
      return describe_missing(path);
    case EACCES:
      return describe_denied(path);
    case ENOEXEC:
      return describe_format(path);
    default: {
      const char* remedy = error == ETXTBSY  ? "wait until no process has it open for writing"
                           : error == ENOMEM ? "raise the container's memory limit"
                                             : "check the command and the image";
      return fmt::format("{}; {}", std::strerror(error), remedy);
    }
  }
}

int report(const char* path, int error, char* const argv[], char* const envp[]) {
  write_message(fmt::format("{}: error: exec `{}`: {}", program_name, shown(path), describe(path, error, argv, envp)));
  // dash returns 127 if the path leads to no file, and 126 if the file cannot be executed.
  return error == ENOENT || error == ENOTDIR || error == ELOOP || error == ENAMETOOLONG ? 127 : 126;
}

int report_not_in_path(std::string_view command, const char* path) {
  const std::string where =
      path == nullptr ? fmt::format("{} (PATH is not set)", kDefaultPath) : fmt::format("PATH `{}`", shown(path));
  write_message(
      fmt::format("{}: error: exec `{}`: command not found in {}; name it by its full path, or add "
                  "its directory to PATH",
                  program_name, shown(command), where));
  return 127;
}

// Calls use(path) with each file of this name in PATH, in order, until use() returns false.
template <typename Use>
void each_in_path(std::string_view command, const char* path, const Use& use) {
  std::string_view rest = path == nullptr ? kDefaultPath : std::string_view(path);
  std::string candidate;
  for (bool more = !command.empty(); more;) {
    const std::size_t colon = rest.find(':');
    const std::string_view directory = rest.substr(0, colon);
    more = colon != std::string_view::npos;
    if (more) rest.remove_prefix(colon + 1);
    // An empty entry of PATH is the current directory (POSIX).
    candidate.assign(directory.empty() ? "." : directory).append("/").append(command);
    if (is_file(candidate.c_str()) && !use(candidate)) return;
  }
}

// Executes the first usable file in PATH. Files that cannot be executed are skipped, as in execvp(); the first of them
// is reported if no other file is found. stat() precedes execve(): before Linux 6.9, a failing execve() copies the
// complete environment before it opens the file.
int exec_in_path(char* const argv[], char* const envp[]) {
  const char* const path = find_variable(envp, "PATH");
  std::string failed;
  int failure = 0;
  each_in_path(argv[0], path, [&](const std::string& candidate) {
    const int error = try_file(candidate.c_str(), argv, envp);
    const bool is_last = error != EACCES && error != ENOENT;
    if (is_last || failure == 0) {
      failure = error;
      failed = candidate;
    }
    return !is_last;
  });
  return failure != 0 ? report(failed.c_str(), failure, argv, envp) : report_not_in_path(argv[0], path);
}

}  // namespace

Environment::Environment(char* const environment[]) {
  std::size_t count = 0;
  while (environment[count] != nullptr)
    ++count;
  // The extra room holds the usual exports, so that set() rarely reallocates.
  entries_.reserve(count + 32);
  entries_.assign(environment, environment + count + 1);
}

void Environment::set(std::string_view name, std::string_view value) {
  std::erase_if(entries_, [&](const char* entry) { return entry != nullptr && is_entry_of(entry, name); });
  entries_.back() = strings_.emplace_back(fmt::format("{}={}", name, value)).data();
  entries_.push_back(nullptr);
}

void guard_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    // open() returns the lowest free number, which is fd: all lower numbers are in use. With O_PATH, `/` opens even if
    // the image has no /dev/null.
    if (::fcntl(fd, F_GETFD) == -1 && errno == EBADF && ::open("/", O_PATH | O_CLOEXEC) < 0) return;
  }
}

void raise_memlock() {
  rlimit limit{};
  // An unprivileged process may raise the soft limit up to the hard one.
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_MEMLOCK, &limit);
}

std::string find_command(char* const argv[], char* const envp[]) {
  if (std::strchr(argv[0], '/') != nullptr) return argv[0];
  std::string found;
  each_in_path(argv[0], find_variable(envp, "PATH"), [&](const std::string& candidate) {
    found = candidate;
    return false;
  });
  return found;
}

int exec_command(char* const argv[], char* const envp[]) {
  if (std::strchr(argv[0], '/') == nullptr) return exec_in_path(argv, envp);
  return report(argv[0], try_file(argv[0], argv, envp), argv, envp);
}

}  // namespace init
