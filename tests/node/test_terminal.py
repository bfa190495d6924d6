"""Terminals: the group in the foreground, the receiver of keys, and job control, on a pseudo-terminal."""
import fcntl
import os
import shlex
import signal
import struct
import subprocess
import termios

import rdma_init
from harness import process_state, status_of, wait_for
from rdma_init import PROBE, descendants, is_pending

CTRL_C, CTRL_BACKSLASH, CTRL_Z = b"\x03", b"\x1c", b"\x1a"
PROMPT = "PROMPT>"


class Terminal(rdma_init.Case):
    def start_on_terminal(self, argv, **settings):
        """Starts argv as the leader of a new session on a new terminal without echo. The events are its output on the terminal."""
        self.master, self.slave = os.openpty()
        self.addCleanup(self.close_master)
        attributes = termios.tcgetattr(self.slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(self.slave, termios.TCSANOW, attributes)
        settings = {"stdin": self.slave, "stdout": self.slave, "stderr": self.slave, **settings}
        process = self.start(argv, pass_fds=[self.slave], **self.settings(settings),
                             preexec_fn=lambda: fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0))
        os.close(self.slave)
        return rdma_init.Started(process, self.master)

    def close_master(self):
        if self.master is not None:
            os.close(self.master)
            self.master = None

    def start_probe(self, *command, **settings):
        """Starts a probe below rdma-init as session leader, as in a container with a terminal. Returns it with its first event."""
        started = self.start_on_terminal(self.through_init([*PROBE, *command]), **settings)
        return started, started.next()

    def press(self, keys):
        os.write(self.master, keys)

    def foreground(self):
        return os.tcgetpgrp(self.master)

    def check_no_other_signal(self, started):
        """Sends the last signal: the probe receives pending signals in the order of their numbers, so another one would be first."""
        os.kill(started.pid, signal.SIGRTMAX)
        self.assertEqual(started.signals(1), ["SIGRTMAX"])


class AnyModeOnTerminal(Terminal):
    def test_command_is_in_foreground(self):
        _, reported = self.start_probe("report_signals", "1")
        self.assertEqual(self.foreground(), reported["group"])

    def test_command_receives_each_key_once(self):
        for key, name in ((CTRL_C, "SIGINT"), (CTRL_BACKSLASH, "SIGQUIT")):
            with self.subTest(signal=name):
                started, _ = self.start_probe("report_signals", "2")
                self.press(key)
                self.assertEqual(started.signals(1), [name])
                self.check_no_other_signal(started)
                self.assertEqual(started.wait(), 0)

    def test_command_receives_change_of_window_size(self):
        started, _ = self.start_probe("report_signals", "2")
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 123, 0, 0))
        self.assertEqual(started.signals(1), ["SIGWINCH"])
        self.check_no_other_signal(started)
        self.assertEqual(started.wait(), 0)

    def test_command_reads_after_ctrl_z(self):
        # No process could continue a stopped command in this session, so Ctrl-Z must have no effect.
        started, _ = self.start_probe("echo_line")
        self.press(CTRL_Z)
        self.press(b"typed\n")
        self.assertEqual(started.next()["line"], "typed")
        self.assertEqual(started.wait(), 0)

    def test_ends_when_terminal_hangs_up(self):
        started = self.start_on_terminal(self.through_init(["sh", "-c", "echo '{}'; exec sleep 1000"]))
        started.next()
        self.close_master()
        self.assertIn(started.wait(), (-signal.SIGHUP, 128 + signal.SIGHUP))

    def test_shell_reads_terminal_after_end(self):
        # A shell without job control reads from the terminal after its command has ended.
        script = '"$@"; read -r line; echo "{\\"line\\": \\"$line\\"}"'
        started = self.start_on_terminal(["sh", "-c", script, "sh", *self.through_init(["true"])])
        self.press(b"typed\n")
        self.assertEqual(started.next()["line"], "typed")
        self.assertEqual(started.wait(), 0)

    def test_command_is_in_foreground_of_terminal_without_standard_stream(self):
        read_end, write_end = self.pipe()
        self.start_on_terminal(self.through_init([*PROBE, "report_signals", "1"]), stdin=subprocess.DEVNULL,
                               stdout=write_end, stderr=subprocess.DEVNULL)
        write_end.close()
        events = rdma_init.Events(read_end.fileno())
        reported = events.next()
        self.assertEqual(self.foreground(), reported["group"])
        self.press(CTRL_C)
        self.assertEqual(events.next()["signal"], "SIGINT")


class ReapOnTerminal(AnyModeOnTerminal):
    options = ["--reap"]

    def test_command_has_its_own_group(self):
        started, reported = self.start_probe("report_signals", "1")
        self.assertEqual(reported["group"], reported["pid"])
        self.assertEqual(reported["session"], started.pid)

    def test_ctrl_z_stops_and_continues_command(self):
        started, reported = self.start_probe("report_signals", "10")
        for _ in range(10):
            self.press(CTRL_Z)
            self.assertEqual(started.signals(1), ["SIGCONT"])
        self.assertEqual(started.wait(), 0)
        self.assertNotEqual(reported["pid"], started.pid)

    def test_does_not_continue_command_stopped_by_sigstop(self):
        started, reported = self.start_probe("report_signals", "2")
        os.kill(reported["pid"], signal.SIGSTOP)
        self.wait_for_state("T", reported["pid"])
        os.kill(started.pid, signal.SIGWINCH)  # rdma-init receives it after SIGCHLD, which has a lower number
        wait_for(lambda: is_pending(reported["pid"], signal.SIGWINCH), "SIGWINCH is forwarded")
        self.assertEqual(process_state(reported["pid"]), "T")
        os.kill(started.pid, signal.SIGCONT)
        self.assertEqual(started.signals(2), ["SIGCONT", "SIGWINCH"])
        self.assertEqual(started.wait(), 0)


class UnderAShell(Terminal):
    """rdma-init as a job of an interactive shell."""
    options = ["--reap"]

    def setUp(self):
        self.needs("bash")
        super().setUp()
        self.shell = self.start_on_terminal(["bash", "--norc", "--noprofile", "--noediting", "-i"],
                                            env=self.environment(PS1=PROMPT, TERM="dumb", HISTFILE=""))
        self.shell.events.expect(PROMPT)

    def job(self, *command, after=""):
        """Types a command line. Returns the first event of the probe and the process id of rdma-init."""
        self.press(f"{shlex.join(self.through_init([*PROBE, *command]))} {after}\n".encode())
        reported = self.shell.next()
        return reported, reported["parent"]

    def wait_for_states(self, state, *pids):
        for pid in pids:
            self.wait_for_state(state, pid)

    def wait_for_foreground(self, group):
        wait_for(lambda: self.foreground() == group, f"foreground of group {group}")

    def end_of_job(self, code):
        self.press(b"echo code=$?.\n")
        self.shell.events.expect(f"code={code}.")

    def test_fg_continues_stopped_job(self):
        reported, init = self.job("report_signals", "4")
        self.wait_for_foreground(reported["group"])
        for _ in range(2):
            self.press(CTRL_Z)
            self.shell.events.expect("Stopped")
            self.shell.events.expect(PROMPT)
            self.wait_for_states("T", reported["pid"], init)
            self.assertEqual(self.foreground(), self.shell.pid)
            self.press(b"fg\n")
            self.assertEqual(self.shell.signals(1), ["SIGCONT"])
            self.wait_for_states("S", reported["pid"], init)
            self.assertEqual(self.foreground(), reported["group"])
        self.press(CTRL_C)
        self.assertEqual(self.shell.signals(1), ["SIGINT"])
        os.kill(init, signal.SIGUSR1)
        self.assertEqual(self.shell.signals(1), ["SIGUSR1"])
        self.shell.events.expect(PROMPT)
        self.assertEqual(self.foreground(), self.shell.pid)
        self.end_of_job(0)

    def test_bg_continues_stopped_job(self):
        reported, init = self.job("report_signals", "2")
        self.press(CTRL_Z)
        self.shell.events.expect("Stopped")
        self.press(b"bg\n")
        self.assertEqual(self.shell.signals(1), ["SIGCONT"])
        self.wait_for_states("S", reported["pid"], init)
        self.assertEqual(self.foreground(), self.shell.pid)
        os.kill(init, signal.SIGTERM)
        self.assertEqual(self.shell.signals(1), ["SIGTERM"])
        self.press(b"wait\n")
        self.end_of_job(0)

    def test_sigstop_of_command_stops_job(self):
        reported, init = self.job("report_signals", "1")
        os.kill(reported["pid"], signal.SIGSTOP)
        self.shell.events.expect("Stopped")
        self.wait_for_states("T", reported["pid"], init)
        self.press(b"fg\n")
        self.assertEqual(self.shell.signals(1), ["SIGCONT"])
        self.end_of_job(0)

    def test_ctrl_z_stops_whole_pipeline(self):
        reported, init = self.job("report_signals", "1", after="| cat")
        cat, = [pid for pid, _ in descendants(self.shell.pid) if status_of(pid).get("Name") == "cat"]
        self.press(CTRL_Z)
        self.shell.events.expect("Stopped")
        self.wait_for_states("T", reported["pid"], init, cat)
        self.press(b"fg\n")
        self.assertEqual(self.shell.signals(1), ["SIGCONT"])
        self.end_of_job(0)

    def test_background_job_leaves_terminal_to_shell(self):
        reported, init = self.job("echo_line", after="&")
        self.assertEqual(self.foreground(), self.shell.pid)
        # The command reads from the terminal in the background: the kernel stops its job.
        self.wait_for_states("T", reported["pid"], init)
        self.press(b"\n")
        self.shell.events.expect("Stopped")
        self.press(b"fg\n")
        self.wait_for_foreground(reported["group"])
        self.press(b"typed\n")
        self.assertEqual(self.shell.next()["line"], "typed")
        self.shell.events.expect(PROMPT)
        self.end_of_job(0)


if __name__ == "__main__":
    rdma_init.main()
