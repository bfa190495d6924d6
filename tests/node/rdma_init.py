"""Shared parts of the tests of rdma-init.

Every test starts the real program with commands that report on themselves (init_probe.py). The test process is a child
subreaper: every process that a test leaves behind becomes its descendant, and the end of that test kills it.
"""
import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time

import harness
from harness import HERE, PATH, process_state, status_of, wait_for

PROGRAM = os.environ.get("TESTED_PROGRAM", "")
PROBE = [sys.executable, "-I", "-S", HERE + "/init_probe.py"]
PR_SET_CHILD_SUBREAPER = 36


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
    """The JSON lines that probes write to one descriptor; other text between them is ignored."""

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
        """Reads until find(unread text) returns the end of the match."""
        end = time.monotonic() + harness.DEADLINE
        while True:
            length = find(self.text[self.position:])
            if length is not None:
                found = self.text[self.position:self.position + length]
                self.position += length
                return found
            if time.monotonic() > end or not self.read_some(1) and self.at_end():
                raise AssertionError(f"no {what} in the output {self.text!r}")

    def at_end(self):
        """Returns true if the descriptor is readable and empty: all writers have closed it."""
        return bool(select.select([self.descriptor], [], [], 0)[0]) and not self.read_some(0)

    def expect(self, text):
        """Waits for a text in the output."""
        wanted = text.encode()
        return self.until(lambda rest: rest.index(wanted) + len(wanted) if wanted in rest else None, repr(text))

    def next(self):
        """Waits for the next event."""
        def line_end(rest):
            start = rest.find(b"{")
            end = rest.find(b"}", start)
            return end + 1 if start >= 0 and end >= 0 else None
        found = self.until(line_end, "event")
        return json.loads(found[found.index(b"{"):])


class Started:
    """A started program that writes events to its standard output."""

    def __init__(self, process, descriptor):
        self.process = process
        self.pid = process.pid
        self.events = Events(descriptor)

    def next(self):
        return self.events.next()

    def signals(self, count):
        """Waits for this number of signals that the probe reports. Returns their names."""
        return [self.next()["signal"] for _ in range(count)]

    def wait(self):
        return self.process.wait(harness.DEADLINE)


class Case(harness.Case):
    options = []  # options of rdma-init before "--"

    def setUp(self):
        super().setUp()
        self.addCleanup(self.end_descendants)

    @staticmethod
    def end_descendants():
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

    def environment(self, **more):
        """The environment of the program. It disables exports and messages, because the machine may have RDMA. A
        program built with AddressSanitizer would catch these signals and not ignore them."""
        return {"PATH": PATH, "LANG": "C", "RDMA_INIT_LOG": "quiet", "RDMA_INIT_EXPORT": "none",
                "RDMA_INIT_WAIT": "0", "ASAN_OPTIONS": "handle_segv=0:handle_sigbus=0:handle_sigfpe=0", **more}

    def environment_with_messages(self):
        environment = self.environment()
        del environment["RDMA_INIT_LOG"]
        return environment

    def through_init(self, command, options=None):
        return [PROGRAM, *(self.options if options is None else options), "--", *command]

    def settings(self, settings):
        """Defaults for subprocess: a new session, so that the tests do not affect the terminal of the developer."""
        return {"env": self.environment(), "stdin": subprocess.DEVNULL, "start_new_session": True, **settings}

    def run_direct(self, argv, **settings):
        settings = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **settings}
        return subprocess.run(argv, timeout=harness.DEADLINE, check=False, **self.settings(settings))

    def run_init(self, command, options=None, **settings):
        return self.run_direct(self.through_init(command, options), **settings)

    def pipe(self):
        """Both ends of a pipe, as files."""
        ends = [os.fdopen(end, mode, 0) for end, mode in zip(os.pipe(), ("rb", "wb"))]
        for end in ends:
            self.addCleanup(end.close)
        return ends

    def start_direct(self, argv, **settings):
        process = self.start(argv, **self.settings({"stdout": subprocess.PIPE, "stderr": None, **settings}))
        return Started(process, process.stdout.fileno())

    def start_init(self, command, **settings):
        return self.start_direct(self.through_init(command), **settings)

    def start_probe(self, *command, **settings):
        return self.start_init([*PROBE, *command], **settings)

    def wait_for_state(self, state, pid):
        wait_for(lambda: process_state(pid) == state, f"state {state} of {pid}")

    def wait_until_taken(self, number, pid):
        """Returns true if the process has removed this signal from its pending ones."""
        wait_for(lambda: not is_pending(pid, number), f"{pid} takes signal {int(number)}")

    def write_program(self, name, content, mode=0o755):
        return harness.write(f"{self.work}/{name}", content, mode)


def main():
    """Runs the tests of the calling file."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # The parent of the tests may ignore or block signals; each test starts from the defaults.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGINT, signal.SIGPIPE}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    harness.main(PROGRAM)
