"""kill_at.py N PROGRAM ARG0 ARGS...: runs PROGRAM and kills it, by SIGKILL, at its Nth stop at a system call (each call
has two: before and after), those of its children counted too. N = 0: lets it end, and prints how many there were.

A kill after so many milliseconds would hit the same few slow calls again and again, and other ones on every machine.
Exit code: 137 when it was killed, else that of the program.
"""
import ctypes
import os
import signal
import sys

TRACEME, SYSCALL, DETACH, SETOPTIONS = 0, 24, 17, 0x4200
OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x100000  # good syscall stops; fork, vfork and clone; end with the tracer
WALL = 0x40000000
SYSCALL_STOP = signal.SIGTRAP | 0x80

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]


def ptrace(request, pid, data=0):
    if libc.ptrace(request, pid, None, data) == -1 and ctypes.get_errno() != 3:  # ESRCH: it is gone
        raise OSError(ctypes.get_errno(), "ptrace")


def start(program, arguments):
    pid = os.fork()
    if pid == 0:
        ptrace(TRACEME, 0)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.execve(program, arguments, {name: value for name, value in os.environ.items() if name.startswith("RDMA_")})
    os.waitpid(pid, WALL)
    ptrace(SETOPTIONS, pid, OPTIONS)
    ptrace(SYSCALL, pid)
    # The rest of the execve belongs to us.
    while True:
        _, status = os.waitpid(pid, WALL)
        if os.WSTOPSIG(status) == signal.SIGTRAP:
            return pid
        ptrace(SYSCALL, pid)


def trace(pid, wanted):
    """The exit code, and how many stops there were."""
    count = 0
    ptrace(SYSCALL, pid)
    while True:
        stopped, status = os.waitpid(-1, WALL)
        if os.WIFSTOPPED(status):
            number = os.WSTOPSIG(status)
            if number == SYSCALL_STOP:
                count += 1
                if count == wanted:
                    os.kill(pid, signal.SIGKILL)
                    if stopped != pid:
                        ptrace(DETACH, stopped)  # goes on, if nobody has arranged for its end
                    os.waitpid(pid, WALL)
                    return 128 + signal.SIGKILL, count
            own = number in (SYSCALL_STOP, signal.SIGTRAP, signal.SIGSTOP)
            ptrace(SYSCALL, stopped, 0 if own else number)
        elif stopped == pid:
            return os.waitstatus_to_exitcode(status) & 0xff, count


def main():
    code, count = trace(start(sys.argv[2], sys.argv[3:]), int(sys.argv[1]))
    if sys.argv[1] == "0":
        print(count, file=sys.stderr)
    os._exit(code)


main()
