"""The state that the command inherits, in both modes: the same as without rdma-init."""
import ctypes
import errno
import itertools
import os
import resource
import signal
import subprocess

import rdma_init
from harness import read_json, wait_for
from rdma_init import PROBE, PROGRAM

KIB = 1 << 10
MIB = 1 << 20


class Inheritance(rdma_init.Case):
    def check_same(self, command, **settings):
        """Checks that the command has the same output without and with rdma-init. Returns the output."""
        direct = self.run_direct(command, **settings)
        through = self.run_init(command, **settings)
        self.assertEqual((through.returncode, through.stdout, through.stderr),
                         (direct.returncode, direct.stdout, direct.stderr))
        self.assertEqual(direct.returncode, 0, direct.stderr)
        return direct.stdout

    def test_command_is_leader_of_its_session_or_group(self):
        started = self.start_probe("report_limits")
        reported = started.next()
        self.check_process(started.pid, reported)
        self.assertEqual(reported["subreaper"], 0)
        self.assertEqual(started.wait(), 0)

    def check_process(self, pid, reported):
        self.assertEqual(reported["pid"], pid)
        self.assertEqual(reported["group"], pid)  # the test starts each program in a new session
        self.assertEqual(reported["session"], pid)

    def test_passes_arguments_unchanged(self):
        arguments = [b"", b" ", b"two\nlines", bytes(range(1, 256)), b"x" * 100000, b"$HOME", b""]
        written = self.check_same([b"cat", b"/proc/self/cmdline", b"--", b"/dev/null"])
        self.assertEqual(written, b"cat\0/proc/self/cmdline\0--\0/dev/null\0")
        written = self.run_init(["sh", "-c", "cat /proc/$$/cmdline", *arguments]).stdout
        self.assertTrue(written.endswith(b"\0".join(arguments) + b"\0"))

    def test_passes_environment_unchanged(self):
        odd = {"": "no name", "A B": "c", "X": "", "LINES": "two\nlines", "EQUALS": "=a=b="}
        environment = {os.fsencode(name): os.fsencode(value) for name, value in self.environment(**odd).items()}
        environment[b"BYTES"] = bytes(range(1, 256))
        written = self.check_same(["cat", "/proc/self/environ"], env=environment)
        self.assertIn(b"BYTES=" + bytes(range(1, 256)) + b"\0", written)

    def test_passes_directory_and_umask_unchanged(self):
        self.check_same(["sh", "-c", "pwd; umask"], cwd=self.work, preexec_fn=lambda: os.umask(0o137))

    def test_passes_descriptors_unchanged(self):
        ends = [end.fileno() for end in self.pipe()]
        for end in ends:
            os.set_inheritable(end, True)

        def place():
            os.dup2(ends[1], 7)
            os.dup2(ends[0], 61)

        direct = self.check_same_descriptors(preexec_fn=place, close_fds=False, stdin=None, stdout=None, stderr=None)
        self.assertEqual(direct["7"], direct["61"])

    def check_same_descriptors(self, **settings):
        """Checks that the command has the same descriptors without and with rdma-init. Returns the descriptors."""
        path = self.work + "/found"
        found = []
        for run in (self.run_direct, self.run_init):
            self.assertEqual(run([*PROBE, "write_descriptors", path], **settings).returncode, 0)
            found.append(read_json(path))
        self.assertEqual(found[1], found[0])
        return found[0]

    def test_passes_pipe_at_descriptor_7(self):
        read_end, write_end = self.pipe()
        result = self.run_init(["sh", "-c", "echo through >&7"], pass_fds=[7],
                               preexec_fn=lambda: os.dup2(write_end.fileno(), 7))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(read_end.read(100), b"through\n")

    def test_keeps_standard_descriptors_closed(self):
        environment = self.environment_with_messages()  # messages must not reach a descriptor that rdma-init has opened
        for closed in itertools.chain.from_iterable(itertools.combinations((0, 1, 2), n) for n in (1, 2, 3)):
            def close(closed=closed):
                for fd in closed:
                    os.close(fd)

            with self.subTest(closed=closed):
                found = self.check_same_descriptors(preexec_fn=close, env=environment, stdout=subprocess.DEVNULL,
                                                    stderr=subprocess.DEVNULL)
                self.assertTrue(all(str(fd) not in found for fd in closed), found)

    def test_runs_command_with_broken_stderr(self):
        environment = self.environment_with_messages()
        for ignored in (False, True):
            read_end, write_end = self.pipe()
            read_end.close()
            with self.subTest(sigpipe_ignored=ignored):
                result = self.run_init(
                    ["sh", "-c", "exit 7"], stderr=write_end, env=environment,
                    preexec_fn=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN if ignored else signal.SIG_DFL))
                self.assertEqual(result.returncode, 7)
                missing = self.run_init(["no-such-command"], stderr=write_end, env=environment)
                self.assertEqual(missing.returncode, 127)

    def test_runs_command_with_full_stderr(self):
        _, write_end = self.pipe()
        os.set_blocking(write_end.fileno(), False)
        while write_end.write(bytes(KIB)):
            pass
        result = self.run_init(["sh", "-c", "exit 7"], stderr=write_end, env=self.environment_with_messages())
        self.assertEqual(result.returncode, 7)

    def test_passes_signal_mask_unchanged(self):
        for blocked in ([], [signal.SIGCHLD, signal.SIGTERM], [signal.SIGPIPE, signal.SIGTTOU, 34, 64], range(1, 65)):
            def block(blocked=blocked):
                mask_signals(blocked)

            with self.subTest(blocked=[int(number) for number in blocked]):
                written = self.check_same(["sed", "-n", "/SigBlk/p", "/proc/self/status"], preexec_fn=block)
                self.assertEqual(int(written.split()[1], 16), mask_of(set(blocked) - {9, 19}))

    def test_passes_ignored_signals_unchanged(self):
        everything = {int(number) for number in signal.valid_signals()} - {signal.SIGKILL, signal.SIGSTOP}
        for ignored in (set(), {signal.SIGPIPE}, {signal.SIGHUP, signal.SIGCHLD, signal.SIGTTOU}, everything):
            def ignore(ignored=ignored):
                for number in ignored:
                    signal.signal(number, signal.SIG_IGN)

            with self.subTest(ignored=sorted(int(number) for number in ignored)):
                # Python would restore SIGPIPE and SIGXFSZ; ignore() runs later.
                written = self.check_same(["sed", "-n", "/SigIgn/p", "/proc/self/status"], preexec_fn=ignore)
                self.assertEqual(int(written.split()[1], 16), mask_of(ignored))

    def test_returns_exit_code_if_sigchld_is_ignored(self):
        result = self.run_init(["sh", "-c", "exit 7"], preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
        self.assertEqual(result.returncode, 7)

    def test_raises_memlock_to_hard_limit(self):
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        most = hard if hard != resource.RLIM_INFINITY else 1 << 40
        if most == 0:
            self.skipTest("the hard limit of locked memory is 0")

        def lower():
            resource.setrlimit(resource.RLIMIT_MEMLOCK, (most // 2, most))

        reported = self.start_probe("report_limits", preexec_fn=lower).next()
        self.assertEqual((reported["soft"], reported["hard"]), (most, most))

    def test_passes_environment_of_5_megabytes(self):
        environment = self.environment()
        for number in range(5 * MIB // (100 * KIB)):
            environment[f"FILL_{number}"] = str(number) * (100 * KIB // len(str(number)))
        command = ["sh", "-c", "cat /proc/self/environ | md5sum"]
        try:
            direct = self.run_direct(command, env=environment, preexec_fn=raise_stack)
        except OSError as error:
            self.assertEqual(error.errno, errno.E2BIG)
            self.skipTest("the hard limit of the stack does not allow an environment of 5 MiB")
        through = self.run_init(command, env=environment, preexec_fn=raise_stack)
        self.assertEqual((through.returncode, through.stdout), (0, direct.stdout), through.stderr)

    def test_reports_environment_too_large_for_command(self):
        # The largest environment with which rdma-init starts leaves no room for a command with a much longer file name.
        long_name = os.path.join(self.work, *["d" * 200] * 15)
        os.makedirs(long_name)
        os.symlink("/bin/true", os.path.join(long_name, "t"))
        program = self.work + "/i"
        os.symlink(PROGRAM, program)

        def run(size):
            environment = self.environment(PATH=long_name)
            for number in range(size // (64 * KIB)):
                environment[f"FILL_{number:05}"] = "x" * (64 * KIB)
            environment["REST"] = "x" * (size % (64 * KIB))
            return self.run_direct([program, *self.options, "--", "t"], env=environment)

        def starts(size):
            try:
                run(size)
                return True
            except OSError as error:
                self.assertEqual(error.errno, errno.E2BIG)
                return False

        fits, too_big = 0, 16 * MIB
        self.assertTrue(starts(fits))
        self.assertFalse(starts(too_big))
        while too_big - fits > 1:
            middle = (fits + too_big) // 2
            fits, too_big = (middle, too_big) if starts(middle) else (fits, middle)
        result = run(fits)
        self.assertEqual(result.returncode, 126, result.stderr)
        self.assertRegex(result.stderr, rb"^rdma-init: error: exec .*larger than the kernel allows \(\d+ bytes")
        self.assertEqual(result.stderr.count(b"\n"), 1)


class ReapInheritance(Inheritance):
    options = ["--reap"]

    def check_process(self, pid, reported):
        self.assertNotEqual(reported["pid"], pid)
        self.assertEqual(reported["parent"], pid)
        self.assertEqual(reported["group"], reported["pid"])
        self.assertEqual(reported["session"], pid)

    def test_parent_closes_inherited_descriptors(self):
        _, write_end = self.pipe()
        started = self.start_probe("report_signals", "1", pass_fds=[write_end.fileno()])
        command = started.next()["pid"]
        self.assertIn(str(write_end.fileno()), os.listdir(f"/proc/{command}/fd"))
        wait_for(lambda: set(os.listdir(f"/proc/{started.pid}/fd")) == {"0", "1", "2"},
                         "only standard descriptors in rdma-init")


def mask_of(signals):
    return sum(1 << (number - 1) for number in {int(number) for number in signals})


def mask_signals(signals):
    """Sets the signal mask without the C library, which excludes its own signals 32 and 33."""
    set_on_x86_64_and_aarch64 = {"x86_64": 14, "aarch64": 135}[os.uname().machine]
    mask = ctypes.c_uint64(mask_of(signals))
    ctypes.CDLL(None).syscall(set_on_x86_64_and_aarch64, signal.SIG_SETMASK, ctypes.byref(mask), None, 8)


def raise_stack():
    """The kernel allows a quarter of the stack limit for arguments and environment, at most 6 MiB."""
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    wanted = 64 * MIB
    resource.setrlimit(resource.RLIMIT_STACK, (wanted if hard == resource.RLIM_INFINITY else min(hard, wanted), hard))


if __name__ == "__main__":
    rdma_init.main()
