"""System calls and instructions of a program, for counts.py. docs: tests/bench/README.md"""
import os
import re
import subprocess
from collections import Counter

STRACE = ["strace", "-f", "-qq", "-yy", "-s", "0", "-e", "signal=none", "-o"]
LINE = re.compile(r"(\d+) +(\w+)\((.*)")
DEADLINE = 120
# Not counted: the number of waits and polls depends on the timing of processes.
WAITS = {"poll", "ppoll", "select", "pselect6", "epoll_wait", "epoll_pwait", "futex", "restart_syscall", "wait4", "waitid",
         "nanosleep", "clock_nanosleep", "sched_yield"}
START = {"execve", "arch_prctl", "set_tid_address", "set_robust_list", "rseq"}
MEMORY = {"brk", "mmap", "munmap", "mremap", "mprotect", "madvise"}
# Phases of the run-time library and its allocator, which differ between library versions: they count only within the sum.
OF_THE_LIBRARY = {"start", "memory"}
MOUNT = {"mount_setattr", "move_mount", "mount", "mknodat"}
ISOLATE = {"seccomp", "prctl", "umask", "rt_sigaction", "rt_sigprocmask", "setns", "unshare", "clone",
           "clone3", "fork", "vfork", "socketpair", "pipe2", "capset", "kill", "chdir", "fchdir", "chroot"}


class Places:
    """Maps system calls to phases. pairs: a phase and a regular expression for the arguments; the first match determines the phase."""

    def __init__(self, *pairs):
        self.pairs = [(phase, re.compile(pattern)) for phase, pattern in pairs]

    def phase(self, name, arguments, before):
        for phase, names in (("start", START), ("memory", MEMORY), ("container", MOUNT), ("cgroup", {"bpf"}), ("exit", {"exit_group"})):
            if name in names:
                return phase
        if name == "prlimit64" and "RLIMIT_MEMLOCK" in arguments:
            return "memlock"
        for phase, pattern in self.pairs:
            if pattern.search(arguments):
                return phase
        if '"/dev/log"' in arguments or name == "write" and arguments[:2] in ("1<", "2<"):
            return "messages"
        if arguments.startswith("0<"):
            return "request"
        if "<UNIX-STREAM" in arguments:
            return "socket"
        if "NETLINK" in arguments:
            return "netlink"
        return "isolate" if name in ISOLATE else before


def phases_of(trace, places):
    """Returns the number of system calls by phase. A call without a known object belongs to the phase of the previous call of its process.
    Calls of a process after its exec are not counted."""
    found, last, others, first = Counter(), {}, set(), None
    for line in trace.splitlines():
        match = LINE.match(line)
        if not match:  # the second half of an interrupted call, or the end of a process
            continue
        pid, name, arguments = match.groups()
        if pid in others or name in WAITS or arguments.endswith("(Resource temporarily unavailable)"):
            continue
        last[pid] = places.phase(name, arguments, last.get(pid, "isolate"))
        found[last[pid]] += 1
        if name == "execve" and first and " = -1 E" not in arguments:
            others.add(pid)
        first = first or pid
    return found


def finish(argv, process, codes=(0,)):
    """Waits for the end and returns standard error. Raises RuntimeError for another exit code."""
    _, errors = process.communicate(timeout=DEADLINE)
    if process.returncode not in codes:
        raise RuntimeError(f"`{' '.join(argv)}`: exit code {process.returncode}: {errors.strip()}")
    return errors


def start(argv, **settings):
    settings.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, **settings)


class Calls:
    """Counts the system calls of a program. drive(process) is called while the program runs."""

    def __init__(self, path, places):
        self.path, self.places = path, places

    def __call__(self, argv, drive=None, **settings):
        just_run([*STRACE, self.path, *argv], drive, **settings)
        return self.read()

    def read(self, begin=0, end=None):
        with open(self.path, encoding="ascii", errors="replace") as file:
            return phases_of(file.read()[begin:end], self.places)

    def size(self):
        return os.path.getsize(self.path)


def just_run(argv, drive=None, **settings):
    process = start(argv, **settings)
    if drive:
        drive(process)
    finish(argv, process)


# valgrind presents the same processor on every machine, so that glibc chooses the same functions.
VALGRIND = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", "--log-fd=2"]


def instructions_in(errors):
    missing = re.findall(r"unhandled \S+ syscall: (\d+)", errors)
    if missing:
        raise RuntimeError(f"valgrind does not support system calls {', '.join(missing)}: the program would count the way around them; "
                           "remedy: calls_by_helper.c")
    found = [int(count) for count in re.findall(r"Collected : (\d+)", errors)]
    if not found:
        raise RuntimeError(f"valgrind counted nothing: {errors.strip()}")
    return sum(found)


def instructions(argv, codes=(0, 1, 127), **settings):
    """Returns the instructions of the program and its children. A program that forks has calls_by_helper.c. An exec would lose valgrind's
    figures, so that it must fail."""
    return instructions_in(finish(argv, start([*VALGRIND, *argv], **settings), codes))
