"""Signals in --reap mode: rdma-init forwards each signal that it can catch to the command's group, and ends after the command."""
import os
import shutil
import signal
import subprocess

import rdma_init
from harness import process_state, status_of, wait_for
from rdma_init import PROBE, PROGRAM, descendants, is_pending

# rdma-init does not forward SIGCHLD, and the two signals that concern its own group on a terminal.
KEPT = {signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU}
# SIGTSTP stops the probe, which therefore does not report it.
FORWARDED = sorted(signal.valid_signals() - KEPT - {signal.SIGKILL, signal.SIGSTOP, signal.SIGTSTP})


def name_of(number):
    return number.name if isinstance(number, signal.Signals) else str(number)


class ReapSignals(rdma_init.Case):
    options = ["--reap"]

    def start_reporting(self, count):
        """Returns a started probe that ends after count signals, and its process id."""
        started = self.start_probe("report_signals", str(count))
        return started, started.next()["pid"]

    def test_forwards_each_signal(self):
        started, _ = self.start_reporting(len(FORWARDED))
        for number in FORWARDED:
            os.kill(started.pid, number)
            self.assertEqual(started.signals(1), [name_of(number)])
        self.assertEqual(started.wait(), 0)

    def test_each_signal_ends_command_with_default_action(self):
        for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 15, 31, 32, 33, 34, 64):
            with self.subTest(signal=number):
                started = self.start_init(["sh", "-c", "echo '{}'; exec sleep 1000"])
                started.next()
                os.kill(started.pid, number)
                self.assertEqual(started.wait(), 128 + number)

    def test_forwards_signal_to_whole_group(self):
        probe = " ".join([*PROBE, "report_signals", "2"])
        started = self.start_init(["sh", "-c", f"{probe} & {probe} & exec {probe}"])
        members = {started.next()["pid"] for _ in range(3)}
        for number in (signal.SIGUSR1, signal.SIGTERM):
            os.kill(started.pid, number)
            reported = [started.next() for _ in range(3)]
            self.assertEqual({event["pid"] for event in reported}, members)
            self.assertEqual({event["signal"] for event in reported}, {number.name})
        self.assertEqual(started.wait(), 0)

    def test_forwards_signal_to_child_of_shell(self):
        # The shell does not pass SIGTERM on: only a signal to the group reaches its child.
        started = self.start_init(["sh", "-c", " ".join([*PROBE, "report_signals", "1"]) + "; exit 3"])
        probe = started.next()
        self.assertNotEqual(probe["parent"], started.pid)
        os.kill(started.pid, signal.SIGTERM)
        self.assertEqual(started.signals(1), ["SIGTERM"])
        self.assertEqual(started.wait(), 128 + signal.SIGTERM)

    def test_forwards_signal_to_command_outside_of_its_group(self):
        started = self.start_probe("leave_group")
        reported = started.next()
        self.assertNotEqual(reported["group"], reported["pid"])
        os.kill(started.pid, signal.SIGUSR2)
        self.assertEqual(started.signals(1), ["SIGUSR2"])
        self.assertEqual(started.wait(), 0)

    def test_keeps_signals_of_its_own_group(self):
        started, probe = self.start_reporting(1)
        for number in KEPT:
            os.kill(started.pid, number)
            self.wait_until_taken(number, started.pid)
        os.kill(started.pid, signal.SIGRTMAX)
        # The probe receives pending signals in the order of their numbers: a forwarded signal would be first.
        self.assertEqual(started.signals(1), ["SIGRTMAX"])
        self.assertNotEqual(probe, started.pid)
        self.assertEqual(started.wait(), 0)

    def test_ignored_signal_stays_ignored(self):
        started = self.start_init(["sh", "-c", "echo '{}'; exec sleep 1000"],
                                  preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        started.next()
        os.kill(started.pid, signal.SIGHUP)
        self.wait_until_taken(signal.SIGHUP, started.pid)
        os.kill(started.pid, signal.SIGTERM)
        self.assertEqual(started.wait(), 128 + signal.SIGTERM)

    def test_continues_stopped_command(self):
        started, probe = self.start_reporting(2)
        for stop, target in ((signal.SIGSTOP, probe), (signal.SIGTSTP, started.pid)):
            os.kill(target, stop)
            self.wait_for_state("T", probe)
            self.assertIn(process_state(started.pid), ("S", "R"))
            os.kill(started.pid, signal.SIGCONT)
            self.assertEqual(started.signals(1), ["SIGCONT"])
        self.assertEqual(started.wait(), 0)

    def test_forwards_pending_signal_when_continued(self):
        started, probe = self.start_reporting(2)
        os.kill(started.pid, signal.SIGSTOP)
        self.wait_for_state("T", started.pid)
        os.kill(started.pid, signal.SIGUSR1)
        self.assertTrue(is_pending(started.pid, signal.SIGUSR1))
        self.assertIn(process_state(probe), ("S", "R"))
        os.kill(started.pid, signal.SIGCONT)
        self.assertEqual(sorted(started.signals(2)), ["SIGCONT", "SIGUSR1"])
        self.assertEqual(started.wait(), 0)

    def test_returns_code_for_killed_command(self):
        started, probe = self.start_reporting(1)
        os.kill(probe, signal.SIGKILL)
        self.assertEqual(started.wait(), 128 + signal.SIGKILL)

    def test_loses_no_signal_during_start(self):
        # SIGTERM at any moment: before the fork it ends rdma-init, after it the command. No signal is lost.
        for _ in range(100):
            started = self.start_init(["sleep", "1000"])
            os.kill(started.pid, signal.SIGTERM)
            self.assertIn(started.wait(), (-signal.SIGTERM, 128 + signal.SIGTERM))

    def test_forwards_signals_after_end_of_parent(self):
        launcher = self.start_direct([*PROBE, "launch", "0",
                                      *self.through_init([*PROBE, "report_signals", "2"])])
        probe = launcher.next()
        os.kill(launcher.pid, signal.SIGKILL)
        wait_for(lambda: status_of(probe["parent"]).get("PPid") == str(os.getpid()), "new parent")
        for number in (signal.SIGUSR1, signal.SIGTERM):
            os.kill(probe["parent"], number)
            self.assertEqual(launcher.signals(1), [number.name])
        self.wait_for_state("Z", probe["parent"])

    def test_death_signal_ends_command_too(self):
        launcher = self.start_direct([*PROBE, "launch", str(int(signal.SIGKILL)),
                                      *self.through_init([*PROBE, "report_signals", "1"])])
        probe = launcher.next()
        os.kill(launcher.pid, signal.SIGKILL)
        for pid in (probe["parent"], probe["pid"]):
            wait_for(lambda pid=pid: process_state(pid) in ("Z", ""), "end with the parent")

    def test_continues_if_it_may_not_signal_command(self):
        if os.geteuid() != 0:
            self.skipTest("needs root to make a set-user-id program")
        self.needs("setpriv")
        if os.statvfs(self.work).f_flag & os.ST_NOSUID:
            self.skipTest("the temporary directory is mounted nosuid")
        program = shutil.copy(PROGRAM, self.work)
        become_root = shutil.copy(shutil.which("setpriv"), self.work)
        os.chmod(program, 0o755)
        os.chmod(become_root, 0o4755)
        nobody = {"user": 65534, "group": 65534, "extra_groups": []}
        if subprocess.run([become_root, "--reuid=0", "true"], check=False, **nobody).returncode != 0:
            self.skipTest("set-user-id programs have no effect")
        started = self.start_direct([program, *self.options, "--", become_root, "--reuid=0", "--regid=0",
                                     "--clear-groups", "sh", "-c", "echo '{}'; exec sleep 1000"], **nobody)
        started.next()
        os.kill(started.pid, signal.SIGTERM)
        self.wait_until_taken(signal.SIGTERM, started.pid)
        (command, _), = descendants(started.pid)
        denied = self.run_direct(["sh", "-c", f"kill -TERM {command}"], **nobody)
        self.assertNotEqual(denied.returncode, 0)  # rdma-init is not permitted to signal the command either
        os.kill(command, signal.SIGUSR1)
        self.assertEqual(started.wait(), 128 + signal.SIGUSR1)


class ExecSignals(rdma_init.Case):
    def test_command_receives_signals_directly(self):
        started = self.start_probe("report_signals", str(len(FORWARDED)))
        self.assertEqual(started.next()["pid"], started.pid)
        for number in FORWARDED:
            os.kill(started.pid, number)
            self.assertEqual(started.signals(1), [name_of(number)])
        self.assertEqual(started.wait(), 0)


if __name__ == "__main__":
    rdma_init.main()
