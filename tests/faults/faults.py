"""Tests that node and ledger stay valid if a system call of a command fails, or if a process is killed there: one run for each
system call and each likely errno, and one for each kill before and after a call. docs: tests/faults/README.md"""
import argparse
import errno
import fnmatch
import hashlib
import os
import re
import subprocess
import sys
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))

# System calls that neither change nor read state outside of the process, and close(2), whose failure has no effect.
QUIET = set("""brk mmap munmap mprotect mremap madvise futex rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack getpid getppid
    gettid getuid geteuid getgid getegid clock_gettime clock_nanosleep nanosleep gettimeofday arch_prctl set_tid_address
    set_robust_list rseq exit exit_group close close_range uname sysinfo getrandom sched_yield umask lseek poll ppoll
    restart_syscall epoll_wait epoll_pwait getsockname getsockopt shutdown""".split())
LOOK = "EIO EACCES ENOMEM"
MAKE = "ENOSPC EROFS EACCES EDQUOT"
# Without ENOENT, ESRCH and ENODEV: with these errnos the kernel reports that an object does not exist, and it does not report that of
# an existing object.
ERRNOS = {
    "openat": "EIO EACCES EMFILE ENFILE ENOMEM", "read": "EIO EINTR", "pread64": "EIO EINTR", "getdents64": "EIO ENOMEM",
    "write": "ENOSPC EIO EINTR", "pwrite64": "ENOSPC EIO", "writev": "ENOSPC EIO", "sendto": "EAGAIN ENOBUFS EINTR",
    "sendmsg": "EAGAIN ENOBUFS EINTR ENOMEM", "recvmsg": "EINTR ENOMEM ENOBUFS", "recvfrom": "EINTR ENOMEM ENOBUFS",
    "mkdirat": MAKE, "mkdir": MAKE, "symlinkat": MAKE, "symlink": MAKE, "linkat": MAKE, "link": MAKE, "mknodat": MAKE,
    "renameat": "EBUSY " + MAKE, "renameat2": "EBUSY " + MAKE, "rename": "EBUSY " + MAKE,
    "unlinkat": "EBUSY EROFS EIO EACCES", "unlink": "EBUSY EROFS EIO EACCES", "rmdir": "EBUSY EROFS EIO EACCES",
    "fchmod": "EROFS EPERM", "fchown": "EROFS EPERM", "fchmodat": "EROFS EPERM", "fchownat": "EROFS EPERM",
    "utimensat": "EROFS EPERM", "ftruncate": "EIO ENOSPC", "fsync": "EIO ENOSPC", "flock": "ENOLCK EINTR",
    "fcntl": "ENOLCK EMFILE", "clone": "EAGAIN ENOMEM", "clone3": "EAGAIN ENOMEM", "fork": "EAGAIN ENOMEM",
    "vfork": "EAGAIN ENOMEM", "pipe2": "EMFILE ENFILE", "socketpair": "EMFILE ENFILE", "socket": "EMFILE ENOBUFS",
    "dup": "EMFILE", "dup2": "EMFILE", "dup3": "EMFILE", "pidfd_open": "EMFILE ENOMEM", "eventfd2": "EMFILE", "signalfd4": "EMFILE",
    "epoll_create1": "EMFILE", "epoll_ctl": "ENOMEM", "connect": "EAGAIN EACCES ECONNREFUSED", "bind": "ENOMEM EADDRINUSE",
    "setsockopt": "ENOMEM ENOBUFS", "setns": "ENOMEM EPERM", "unshare": "ENOMEM EPERM", "chdir": "EACCES EIO",
    "fchdir": "EACCES EIO", "mount": "EBUSY ENOMEM EPERM", "umount2": "EBUSY EPERM", "open_tree": "ENOMEM EMFILE EPERM",
    "move_mount": "EBUSY ENOMEM EPERM", "mount_setattr": "EBUSY ENOMEM EPERM", "fsopen": "EMFILE EPERM", "fsconfig": "ENOMEM EPERM",
    "fsmount": "ENOMEM EPERM", "bpf": "EPERM ENOMEM", "prlimit64": "EPERM", "setfsuid": "", "setfsgid": "", "prctl": "EINVAL",
    "seccomp": "ENOMEM EINVAL", "execve": "ENOMEM EIO EACCES", "wait4": "EINTR", "kill": "EPERM", "ioctl": "EIO", "personality": "",
}
CREATES = 0o100
TOLD = 40  # most failures of a scene that are printed
TURNS = 3  # attempts to reach a point: processes end in no fixed order
RECORDINGS = 10  # of a scene whose point was not reached: under load a call that depends on time is missing from few of them
ROOM = 16  # most free files or pages of the ledger's file system: no call makes more

# Points that a run may fail to reach: scene, point, reason.
REASONS = (
    ("nri .*", r"0:(read|write|recvmsg|openat|newfstatat|fstat|wait4|kill):.*",
     "the last calls of rdma-nri depend on the order of SIGTERM, the runtime's last message and the end of its worker"),
)


class Point:
    """A system call, as inject names it, and the deed: an errno or a kill."""

    def __init__(self, process, call, number, deed, arguments):
        self.process, self.call, self.number, self.deed, self.arguments = process, call, number, deed, arguments

    @property
    def how(self):
        deed = str(getattr(errno, self.deed)) if self.deed.startswith("E") else self.deed
        return [f"{self.process}:{self.call}:{self.number}", deed]

    @property
    def speaks(self):
        """True if the point can suppress an error message of the command."""
        return self.call in ("write", "writev", "sendto") and self.arguments[0] in ("1", "2")

    def __str__(self):
        return f"{self.process}:{self.call}:{self.number} {self.deed} ({self.arguments[-1]})"


class Harm:
    """A fault that is not at a system call: the ledger's file system has no room, or a record is damaged."""
    speaks = False

    def __init__(self, *how):
        self.how = [str(word) for word in how]

    def __str__(self):
        return " ".join(self.how)


def deeds(process, call, arguments, first):
    names = ERRNOS.get(call, LOOK)
    if call == "openat" and int(arguments[2], 16) & CREATES:
        names += " ENOSPC EROFS EDQUOT"
    yield from names.split()
    if first:  # for every other call this is the same as after the previous one
        yield "before"
    if call != "execve":  # afterwards the process is another program
        yield "after"
    if process != "0":
        yield "root"


KILLS = ("before", "after", "root")


def points_of(calls, own_deeds=None):
    """own_deeds: returns the deeds of a call with this object; None: those of its errnos and kills."""
    if own_deeds:
        return [Point(process, call, number, deed, arguments) for process, call, number, *arguments in calls
                if call not in QUIET for deed in own_deeds(process, arguments[-1])]
    points, seen = [], set()
    for process, call, number, *arguments in calls:
        if call in QUIET:
            continue
        points += [Point(process, call, number, deed, arguments) for deed in deeds(process, call, arguments, process not in seen)]
        seen.add(process)
    return points + [Harm(what, left) for what in ("inodes", "pages") for left in range(ROOM)] + [Harm("read-only", 0)]


def sample(points, most):
    """Returns the same points each time, from all parts of a scene."""
    return sorted(points, key=lambda point: hashlib.sha256(str(point.how).encode()).digest())[:most] if most else points


def reason(scene, point):
    return next((why for name, where, why in REASONS if re.fullmatch(name, scene) and re.match(where, str(point))), None)


def absence(scene, point):
    """Returns the reason if a new recording lacks the call, because the call depends on time, such as a repeated poll. Returns
    None if every recording has it."""
    for _ in range(RECORDINGS):
        if str(point) not in {str(other) for other in points_of(scene.calls(), scene.own_deeds)}:
            return "a new recording of the scene has no such call"
    return None


class Row:
    """The results of a scene."""

    def __init__(self, name, calls, points):
        self.name, self.calls, self.points = name, calls, points
        self.tried = self.reached = 0
        self.excused, self.unreached, self.failed, self.why = [], [], [], {}
        self.began, self.took = time.monotonic(), 0.0

    def cells(self):
        return (self.name, self.calls, self.points, self.tried, self.reached, len(self.excused), len(self.unreached),
                len(self.failed), f"{self.took:.0f} s")


HEAD = ("scene", "calls", "points", "tried", "reached", "excused", "unreached", "failed", "took")


def progress(row, last=False):
    """Prints one line: on a terminal after each point, otherwise at the end of the scene."""
    if sys.stderr.isatty() or last:
        print(f"{row.name}: {row.tried} tried, {row.reached} reached, {len(row.failed)} failed", end="\n" if last else "\r",
              file=sys.stderr, flush=True)


def told(error):
    """Returns the place in the scene and the message; of a long difference only the lines that differ."""
    place = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.endswith("scenes.py")][-1]
    lines = str(error).splitlines()
    different = [line for line in lines if re.match(r"[-+] ", line)]
    return f"{place.name}:{place.lineno}: " + "\n    ".join([line[:300] for line in lines[:1] + different[:12]])


def disturb(make, most, only, kills, row_of):
    scene = make()
    calls = [] if hasattr(scene, "damages") else scene.calls()
    points = points_of(calls, scene.own_deeds) if calls else [Harm(*how) for how in scene.damages()]
    if kills:
        points = [point for point in points if getattr(point, "deed", None) in KILLS]
    row = row_of(Row(scene.label, len([call for call in calls if call[1] not in QUIET]), len(points)))
    for point in [point for point in points if str(point).startswith(only)] if only else sample(points, most):
        row.tried += 1
        try:
            for _ in range(TURNS):
                outcome = scene.run_turn(point.how, quiet=point.speaks)
                reached = isinstance(point, Harm) or outcome.reached
                if reached:
                    break
            row.reached += reached
            if not reached:
                row.why[point] = reason(row.name, point) or absence(scene, point)
                (row.excused if row.why[point] else row.unreached).append(point)
        except (AssertionError, OSError, EOFError, ValueError, subprocess.SubprocessError) as error:
            row.failed.append(point)
            if len(row.failed) <= TOLD:
                print(f"FAILED {row.name}, {point}: {told(error)}", flush=True)
            scene.put_right()
            scene = make()
        progress(row)
    scene.end()
    row.took = time.monotonic() - row.began
    progress(row, True)
    return row


def show(rows):
    cells = [HEAD, *([str(cell) for cell in row.cells()] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    for line in cells:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(line, widths))))


def options():
    parser = argparse.ArgumentParser(prog="tests/faults/run", description=__doc__.split(". docs")[0] + ".")
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--quick", action="store_true", help="run a sample of the points, the same points each time")
    many.add_argument("--sample", metavar="N", type=int, help="run a sample of N points of each scene")
    parser.add_argument("--scene", metavar="PATTERN", action="append", default=[], help="run only scenes of this name, with *; see --list")
    parser.add_argument("--point", metavar="POINT", help="run only points that begin with this text, in the form of a failure")
    parser.add_argument("--kills", action="store_true", help="run only points at which a process is killed")
    parser.add_argument("--list", action="store_true", help="print the names of all scenes")
    parser.add_argument("--beginnings", metavar="TEXT", nargs="+", help="only check that the name of each scene begins with one of these texts")
    return parser.parse_args()


def main():
    parsed = options()
    import scenes
    if parsed.beginnings:
        others = [scene.name for scene in scenes.ALL if not scene.name.startswith(tuple(parsed.beginnings))]
        sys.exit("no test runs these scenes: " + ", ".join(others) if others else 0)

    def is_chosen(name):
        return not parsed.scene or any(fnmatch.fnmatchcase(name, pattern) for pattern in parsed.scene)

    chosen = [scene for scene in scenes.all_scenes() if is_chosen(scene[0])]
    if parsed.list:
        print("\n".join(name for name, *_ in chosen))
        return 0
    left_out = [scene for scene in scenes.ALL if not scene.holds and is_chosen(scene.name)]
    for scene in left_out:
        print(f"skipped {scene.name}: {scene.lacks}")
    if not chosen and left_out:
        return 77
    if not chosen:
        sys.exit("no scene has that name; remedy: see --list")
    scenes.enter_own_machine()
    rows = []
    for name, make, quick in chosen:
        most = quick if parsed.quick else parsed.sample
        disturb(make, most, parsed.point, parsed.kills, lambda row: rows.append(row) or row)
    show(rows)
    for row in rows:
        for point in row.unreached:
            print(f"UNREACHED {row.name}, {point}")
        for point in row.excused:
            print(f"excused {row.name}, {point}: {row.why[point]}")
    return 1 if any(row.failed or row.unreached for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
