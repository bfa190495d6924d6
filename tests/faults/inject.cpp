// inject RESULT all PROGRAM ARG0 ARGS...: runs PROGRAM and records its system calls.
// inject RESULT POINT DEED PROGRAM ARG0 ARGS...: does one deed at one system call of PROGRAM or of a child.
//
// POINT is PROCESS:CALL:NUMBER, the NUMBERth CALL of that process, from 1; NUMBER 0 is each CALL. `0` is PROGRAM, `0.2`
// its second child. So a point is the same in the next run, independent of other processes and of the number of other
// calls.
// DEED is an errno, which the call returns without being made; `before` or `after`, SIGKILL to the calling process;
// `root`, SIGKILL to PROGRAM before the call; `run=PATH`, which executes PATH before the call and waits for its end;
// `wait=MS`, which delays the call.
// RESULT gets a line "call PROCESS CALL NUMBER ARGUMENTS... OBJECT" for each call, "reached" after the deed, and
// "ended code N" or "ended signal N" of PROGRAM.
//
// Calls after an exec do not count. inject uses ptrace(2), because a second filter of seccomp(2) would change the
// decisions of the filter that the program installs.
#include <fcntl.h>
#include <seccomp.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr long kOptions = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE |
                          PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
constexpr int kSyscallStop = SIGTRAP | 0x80;

// The index of the path argument of a call.
const std::map<std::string, unsigned> kPaths = {
    {"access", 0},   {"chdir", 0},      {"chmod", 0},     {"execve", 0},   {"faccessat", 1}, {"faccessat2", 1},
    {"link", 1},     {"linkat", 3},     {"lstat", 0},     {"mkdir", 0},    {"mkdirat", 1},   {"mknodat", 1},
    {"mount", 1},    {"newfstatat", 1}, {"open", 0},      {"openat", 1},   {"openat2", 1},   {"open_tree", 1},
    {"readlink", 0}, {"readlinkat", 1}, {"rename", 1},    {"renameat", 3}, {"renameat2", 3}, {"rmdir", 0},
    {"stat", 0},     {"statx", 1},      {"symlinkat", 2}, {"umount2", 0},  {"unlink", 0},    {"unlinkat", 1}};

struct Process {
  std::string name;
  unsigned children = 0;
  bool foreign = false;  // executes another program
  bool hit = false;      // its present call is the point
  std::map<std::uint64_t, unsigned> calls;
};

struct Deed {
  std::string process;
  std::string call;
  unsigned number = 0;
  enum class Kind { kNone, kErrno, kBefore, kAfter, kRoot, kRun, kWait } kind = Kind::kNone;
  long value = 0;  // kErrno: errno; kWait: milliseconds
  std::string program = {};
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "inject: %s: %s\n", what, std::strerror(errno));
  std::_Exit(125);
}

std::string call_name(std::uint64_t number) {
  char* const name = seccomp_syscall_resolve_num_arch(SCMP_ARCH_NATIVE, static_cast<int>(number));
  std::string result = name ? name : std::to_string(number);
  std::free(name);
  return result;
}

// Replaces spaces and newlines, which separate fields in RESULT.
std::string printable(std::string text) {
  for (char& c : text)
    if (c <= ' ' || c > '~') c = '?';
  return text.empty() ? "-" : text;
}

std::string string_at(pid_t pid, std::uint64_t address) {
  std::array<char, 256> text{};
  // Does not read beyond the page, because the next page may be unmapped.
  const std::size_t size = std::min<std::size_t>(text.size() - 1, 4096 - address % 4096);
  iovec local{text.data(), size};
  iovec remote{reinterpret_cast<void*>(address), size};  // NOLINT(performance-no-int-to-ptr): another process's
  if (::process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0) return "";
  return text.data();
}

std::string descriptor(pid_t pid, std::uint64_t fd) {
  std::array<char, PATH_MAX> text{};
  const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(static_cast<int>(fd));
  return ::readlink(path.c_str(), text.data(), text.size() - 1) < 0 ? "" : text.data();
}

std::string object_of(pid_t pid, const std::string& name, const std::uint64_t* arguments) {
  const auto path = kPaths.find(name);
  if (path == kPaths.end()) return descriptor(pid, arguments[0]);
  const std::string text = string_at(pid, arguments[path->second]);
  const bool relative = !text.starts_with('/') && path->second > 0;
  if (relative && text.empty()) return descriptor(pid, arguments[path->second - 1]);
  return relative ? descriptor(pid, arguments[path->second - 1]) + "/" + text : text;
}

class Tracer {
 public:
  Tracer(std::FILE* result, bool all, Deed deed) : result_(result), all_(all), deed_(std::move(deed)) {}

  int run(char** argv) {
    root_ = ::fork();
    if (root_ < 0) fail("fork");
    if (root_ == 0) become(argv);
    int status = 0;
    if (::waitpid(root_, &status, __WALL) != root_ || !WIFSTOPPED(status)) fail("start");
    if (::ptrace(PTRACE_SETOPTIONS, root_, 0, kOptions) != 0) fail("PTRACE_SETOPTIONS");
    processes_[root_].name = "0";
    processes_[root_].foreign = true;  // until it is PROGRAM
    resume(root_, 0);
    for (pid_t pid = 0; (pid = ::waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;)
      if (pid > 0) handle(pid, status);
    return code_;
  }

 private:
  [[noreturn]] static void become(char** argv) {
    if (::ptrace(PTRACE_TRACEME, 0, 0, 0) != 0 || ::raise(SIGSTOP) != 0) std::_Exit(125);
    ::execv(argv[0], argv + 1);
    std::_Exit(126);
  }

  // Continues a process. It stops at system calls only if its calls count.
  void resume(pid_t pid, int signal) {
    const auto known = processes_.find(pid);
    const bool watched = known != processes_.end() && !known->second.foreign &&
                         (all_ || (!done_ && known->second.name == deed_.process) || known->second.hit);
    ::ptrace(watched ? PTRACE_SYSCALL : PTRACE_CONT, pid, 0, static_cast<long>(signal));
  }

  void handle(pid_t pid, int status) {
    if (!WIFSTOPPED(status)) return end(pid, status);
    const int signal = WSTOPSIG(status);
    const int event = status >> 16;
    if (event == PTRACE_EVENT_EXEC) {
      processes_[pid].foreign = pid != root_ || started_;
      started_ = true;
      return resume(pid, 0);
    }
    if (event == PTRACE_EVENT_FORK || event == PTRACE_EVENT_VFORK || event == PTRACE_EVENT_CLONE) {
      adopt(pid);
      return resume(pid, 0);
    }
    if (processes_.find(pid) == processes_.end()) {
      early_.push_back(pid);  // the event of its parent follows, unless the parent was killed
      if (ended_) ::kill(pid, SIGKILL);
      return;
    }
    if (signal == kSyscallStop) {
      at_call(pid, processes_[pid]);
      return resume(pid, 0);
    }
    resume(pid, signal == SIGSTOP ? 0 : signal);
  }

  void adopt(pid_t parent) {
    unsigned long child = 0;
    ::ptrace(PTRACE_GETEVENTMSG, parent, 0, &child);
    Process& from = processes_[parent];
    Process next;
    next.name = from.name + "." + std::to_string(++from.children);
    next.foreign = from.foreign;
    const auto pid = static_cast<pid_t>(child);
    processes_[pid] = next;
    if (std::erase(early_, pid) > 0) resume(pid, 0);
  }

  void at_call(pid_t pid, Process& process) {
    __ptrace_syscall_info info{};
    if (::ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof info, &info) < 0) return;
    if (info.op == PTRACE_SYSCALL_INFO_EXIT && process.hit) return leave(pid, process);
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY) return;
    const unsigned number = ++process.calls[info.entry.nr];
    const std::string name = call_name(info.entry.nr);
    if (all_) {
      std::array<std::uint64_t, 6> arguments{};
      std::memcpy(arguments.data(), static_cast<const void*>(info.entry.args), sizeof arguments);
      std::fprintf(result_, "call %s %s %u %lx %lx %lx %lx %s\n", process.name.c_str(), name.c_str(), number,
                   arguments[0], arguments[1], arguments[2], arguments[3],
                   printable(object_of(pid, name, arguments.data())).c_str());
    } else if (!done_ && process.name == deed_.process && name == deed_.call &&
               (deed_.number == 0 || number == deed_.number)) {
      reach(pid, process);
    }
  }

  void reach(pid_t pid, Process& process) {
    done_ = deed_.number != 0;
    std::fprintf(result_, "reached\n");
    process.hit = deed_.kind == Deed::Kind::kErrno || deed_.kind == Deed::Kind::kAfter;
    if (deed_.kind == Deed::Kind::kErrno) ::ptrace(PTRACE_POKEUSER, pid, offsetof(user_regs_struct, orig_rax), -1L);
    if (deed_.kind == Deed::Kind::kBefore) ::kill(pid, SIGKILL);
    if (deed_.kind == Deed::Kind::kRoot) ::kill(root_, SIGKILL);
    if (deed_.kind == Deed::Kind::kRun) execute();
    if (deed_.kind == Deed::Kind::kWait) ::usleep(static_cast<useconds_t>(deed_.value * 1000));
  }

  void execute() const {
    const pid_t child = ::fork();
    if (child == 0) {
      ::execl(deed_.program.c_str(), deed_.program.c_str(), nullptr);
      std::_Exit(126);
    }
    int status = 0;
    while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (child < 0 || status != 0) fail(deed_.program.c_str());
  }

  void leave(pid_t pid, Process& process) {
    process.hit = false;
    if (deed_.kind == Deed::Kind::kAfter)
      ::kill(pid, SIGKILL);
    else
      ::ptrace(PTRACE_POKEUSER, pid, offsetof(user_regs_struct, rax), -deed_.value);
  }

  void end(pid_t pid, int status) {
    processes_.erase(pid);
    if (pid != root_) return;
    ended_ = true;
    for (const pid_t child : early_)
      ::kill(child, SIGKILL);
    code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    std::fprintf(result_, "ended %s %d\n", WIFEXITED(status) ? "code" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  }

  std::FILE* result_;
  bool all_;
  Deed deed_;
  pid_t root_ = 0;
  bool started_ = false;
  bool done_ = false;
  bool ended_ = false;
  int code_ = 125;
  std::map<pid_t, Process> processes_;
  std::vector<pid_t> early_;
};

Deed parse(const std::string& point, const std::string& deed) {
  Deed result;
  const auto first = point.find(':');
  const auto last = point.rfind(':');
  if (first == std::string::npos || first == last) return result;
  result.process = point.substr(0, first);
  result.call = point.substr(first + 1, last - first - 1);
  result.number = static_cast<unsigned>(std::strtoul(point.c_str() + last + 1, nullptr, 10));
  result.value = std::strtol(deed.c_str(), nullptr, 10);
  if (result.value > 0) result.kind = Deed::Kind::kErrno;
  if (deed == "before") result.kind = Deed::Kind::kBefore;
  if (deed == "after") result.kind = Deed::Kind::kAfter;
  if (deed == "root") result.kind = Deed::Kind::kRoot;
  if (deed.starts_with("run=")) {
    result.kind = Deed::Kind::kRun;
    result.program = deed.substr(4);
  }
  if (deed.starts_with("wait=")) {
    result.kind = Deed::Kind::kWait;
    result.value = std::strtol(deed.c_str() + 5, nullptr, 10);
  }
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  const bool all = argc > 2 && std::strcmp(argv[2], "all") == 0;
  const int first = all ? 3 : 4;
  const Deed deed = all || argc <= first ? Deed() : parse(argv[2], argv[3]);
  if (argc <= first + 1 || (!all && deed.kind == Deed::Kind::kNone)) {
    std::fprintf(stderr, "usage: inject RESULT all|POINT DEED PROGRAM ARG0 ARGS...\n");
    return 2;
  }
  std::FILE* const result = std::fopen(argv[1], "we");
  if (!result) fail(argv[1]);
  std::setvbuf(result, nullptr, _IOLBF, 0);  // RESULT is complete even if inject is killed
  return Tracer(result, all, deed).run(argv + first);
}
