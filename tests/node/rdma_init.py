"""What the process tests share.

Every test starts the real program with commands that report on themselves (probe.py), waits for conditions with a
generous deadline, and never for a time. The test process is a child subreaper: whatever a test leaves behind becomes
its descendant and is killed at the end of that test.
"""
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.environ.get("TESTED_PROGRAM", "")
PYTHON = [sys.executable, "-I", "-S"]
PROBE = PYTHON + [os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe.py")]
DEADLINE = 120  # seconds; only a failure takes that long
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PR_SET_CHILD_SUBREAPER = 36


def wait_for(condition, what):
    """Polls until the condition is true and returns its value."""
    end = time.monotonic() + DEADLINE
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {DEADLINE} s: {what}")
        time.sleep(0.005)


def status_of(pid):
    """The fields of /proc/PID/status; empty when the process is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}


def state_of(pid):
    """One letter: R, S, D, T, Z; empty when the process is gone."""
    return status_of(pid).get("State", "")[:1]


def is_pending(pid, number):
    fields = status_of(pid)
    pending = int(fields.get("SigPnd", "0"), 16) | int(fields.get("ShdPnd", "0"), 16)
    return bool(pending >> (number - 1) & 1)


def descendants(root):
    """Process id and state letter of all processes below root."""
    children = {}
    for name in os.listdir("/proc"):
        fields = status_of(name) if name.isdigit() else {}
        if "PPid" in fields:
            children.setdefault(int(fields["PPid"]), []).append((int(name), fields["State"][:1]))
    found, queue = [], [root]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += [pid for pid, _ in below]
    return found


class Events:
    """The JSON lines that probes write to one descriptor, whatever else stands between them."""

    def __init__(self, descriptor):
        self.descriptor = descriptor
        self.text = b""
        self.position = 0

    def read_some(self, timeout):
        if not select.select([self.descriptor], [], [], timeout)[0]:
            return False
        try:
            data = os.read(self.descriptor, 65536)
        except OSError:  # EIO: the last process has closed the terminal
            data = b""
        self.text += data
        return bool(data)

    def until(self, find, what):
        """Reads until find(unread text) returns the end of what was looked for."""
        end = time.monotonic() + DEADLINE
        while True:
            length = find(self.text[self.position:])
            if length is not None:
                found = self.text[self.position:self.position + length]
                self.position += length
                return found
            if time.monotonic() > end or not self.read_some(1) and self.at_end():
                raise AssertionError(f"{what} did not come; the output is {self.text!r}")

    def at_end(self):
        """True when select says readable and nothing is there: all writers are gone."""
        return bool(select.select([self.descriptor], [], [], 0)[0]) and not self.read_some(0)

    def expect(self, text):
        """Waits for a text in the output."""
        wanted = text.encode()
        return self.until(lambda rest: rest.index(wanted) + len(wanted) if wanted in rest else None, repr(text))

    def next(self):
        """The next event."""
        def line_end(rest):
            start = rest.find(b"{")
            end = rest.find(b"}", start)
            return end + 1 if start >= 0 and end >= 0 else None
        found = self.until(line_end, "an event")
        return json.loads(found[found.index(b"{"):])


class Started:
    """A started program whose standard output carries events."""

    def __init__(self, process, descriptor):
        self.process = process
        self.pid = process.pid
        self.events = Events(descriptor)

    def next(self):
        return self.events.next()

    def signals(self, count):
        """The names of the next signals that the probe reports."""
        return [self.next()["signal"] for _ in range(count)]

    def wait(self):
        return self.process.wait(DEADLINE)


class Case(unittest.TestCase):
    options = []  # of rdma-init, before "--"

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        os.chmod(directory.name, 0o755)
        self.directory = directory.name
        self.processes = []
        self.addCleanup(self.end_descendants)

    def end_descendants(self):
        def all_gone():
            for pid, _ in descendants(os.getpid()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return True
            return False
        wait_for(all_gone, "end of all processes of the test")
        for process in self.processes:
            process.wait()

    def environment(self, **more):
        """What the program is started with. No exports and no messages: the machine may have RDMA. A program built with
        AddressSanitizer would catch these signals, and so no longer ignore them."""
        return {"PATH": PATH, "LANG": "C", "RDMA_INIT_LOG": "quiet", "RDMA_INIT_EXPORT": "none",
                "RDMA_INIT_WAIT": "0", "ASAN_OPTIONS": "handle_segv=0:handle_sigbus=0:handle_sigfpe=0", **more}

    def through_init(self, command, options=None):
        return [PROGRAM, *(self.options if options is None else options), "--", *command]

    def settings(self, settings):
        """Defaults for subprocess: a session of its own, so that a terminal of the person who tests is left alone."""
        return {"env": self.environment(), "stdin": subprocess.DEVNULL, "start_new_session": True, **settings}

    def run_direct(self, argv, **settings):
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        return subprocess.run(argv, timeout=DEADLINE, check=False, **self.settings(settings))

    def run_init(self, command, options=None, **settings):
        return self.run_direct(self.through_init(command, options), **settings)

    def start_direct(self, argv, **settings):
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, **self.settings(settings))
        self.processes.append(process)
        self.addCleanup(process.stdout.close)
        return Started(process, process.stdout.fileno())

    def start_init(self, command, **settings):
        return self.start_direct(self.through_init(command), **settings)

    def write_program(self, name, content, mode=0o755):
        path = os.path.join(self.directory, name)
        with open(path, "wb") as file:
            file.write(content)
        os.chmod(path, mode)
        return path


def main():
    """Runs the tests of the calling file. 77 when every one of them was skipped."""
    if not os.access(PROGRAM, os.X_OK):
        sys.exit("set TESTED_PROGRAM to the path of rdma-init")
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Whatever started the tests may ignore or block signals; each test starts from the defaults.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGPIPE}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if result.testsRun and len(result.skipped) == result.testsRun else 0)
