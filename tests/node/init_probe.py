"""The commands that the process tests run. They report on themselves, one JSON object per line on stdout."""
import ctypes
import json
import os
import resource
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_GET_CHILD_SUBREAPER = 37


def report(**what):
    os.write(1, (json.dumps(what) + "\n").encode())


def identity():
    return {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "session": os.getsid(0)}


def report_signals(count):
    """Reports its process id and group, then each signal, until count of them. Stop signals keep their effect."""
    listened = signal.valid_signals() - {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}
    signal.pthread_sigmask(signal.SIG_BLOCK, listened)
    report(**identity())
    for _ in range(int(count)):
        number = signal.sigwaitinfo(listened).si_signo
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = str(number)
        report(pid=os.getpid(), signal=name)


def leave_group():
    """Moves into the group of a child, so that its own group is empty."""
    helper = os.fork()
    if helper == 0:
        os.setpgid(0, 0)
        signal.pause()
    try:
        os.setpgid(helper, helper)
    except PermissionError:
        pass  # the helper has already done it
    os.setpgid(0, helper)
    report_signals(1)


def report_orphans(count):
    """Makes count orphans, five at a time, and counts them; then stays until stdin ends, and exits with 42. A shell makes them, because
    its fork takes a third of the time of Python's."""
    read_end, write_end = os.pipe()
    script = 'for five in $(seq $(($0 / 5))); do (for orphan in 1 2 3 4 5; do { printf .; exit 3; } & done); done'
    shell = os.posix_spawn("/bin/sh", ["sh", "-c", script, count], os.environ, file_actions=[(os.POSIX_SPAWN_DUP2, write_end, 1)])
    os.waitpid(shell, 0)
    lived = 0
    while lived < int(count):
        lived += len(os.read(read_end, 65536))
    report(orphans=lived, **identity())
    sys.stdin.buffer.read()
    sys.exit(42)


def report_adoption():
    """One orphan that stays and reports its new parent. Ends with 42 itself when stdin ends."""
    middle = os.fork()
    if middle == 0:
        middle = os.getpid()
        if os.fork() != 0:
            os._exit(0)
        while os.getppid() == middle:
            time.sleep(0.001)
        report(orphan=os.getpid(), parent=os.getppid())
        signal.pause()
    os.waitpid(middle, 0)
    sys.stdin.buffer.read()
    sys.exit(42)


def leave_zombie(*argv):
    """Executes argv with a child that has ended and was not reaped."""
    zombie = os.fork()
    if zombie == 0:
        os._exit(3)
    os.waitid(os.P_PID, zombie, os.WEXITED | os.WNOWAIT)
    os.execv(argv[0], argv)


def report_limits():
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    flag = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(flag), 0, 0, 0)
    report(soft=soft, hard=hard, subreaper=flag.value, **identity())


def write_descriptors(path):
    """Writes the open descriptors with their targets to a file, because stdout may be closed."""
    found = {}
    for name in range(0, 64):
        try:
            found[name] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            pass
    with open(path, "w", encoding="utf-8") as file:
        json.dump(found, file)


def launch(death_signal, *argv):
    """A parent for argv; with a death signal other than 0, argv gets it when this process ends."""
    child = os.fork()
    if child == 0:
        if int(death_signal):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        os.execv(argv[0], argv)
    os.waitpid(child, 0)


def echo_line():
    """Reads one line from stdin, and reports it with the size of the terminal."""
    report(**identity())
    line = os.read(0, 1024).decode()
    report(line=line.strip(), columns=os.get_terminal_size(0).columns)


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
