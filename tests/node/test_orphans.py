"""Orphans in --reap mode: adopted and reaped, as PID 1 of a PID namespace and as a child subreaper elsewhere."""
import os
import signal
import subprocess

import rdma_init
from harness import process_state, status_of, wait_for
from rdma_init import PROBE, PROGRAM, descendants


def namespace_command():
    """The command of unshare that can create a PID namespace here, or None."""
    for user in ([], ["--user", "--map-root-user"]):
        command = ["unshare", *user, "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]
        try:
            if subprocess.run([*command, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
                return command
        except FileNotFoundError:
            return None
    return None


class Orphans(rdma_init.Case):
    """rdma-init as a child subreaper."""
    options = ["--reap"]

    def start_orphans(self, *command):
        """Returns the started program and the process id of rdma-init in this PID namespace."""
        started = self.start_probe(*command, stdin=subprocess.PIPE)
        return started, started.pid

    @staticmethod
    def only_command_below(init):
        """Also checks for zombies below the test process, which inherits orphans that rdma-init does not adopt."""
        zombies = [pid for pid, state in descendants(os.getpid()) if state == "Z"]
        return len(descendants(init)) == 1 and not zombies

    def check_orphans(self, count):
        started, init = self.start_orphans("report_orphans", str(count))
        self.assertEqual(started.next()["orphans"], count)
        wait_for(lambda: self.only_command_below(init), f"{count} orphans are reaped while the command runs")
        started.process.stdin.close()
        self.assertEqual(started.wait(), 42)

    def test_reaps_orphans(self):
        self.check_orphans(5)

    def test_reaps_thousand_orphans(self):
        self.check_orphans(1000)

    def test_adopts_orphan_until_command_ends(self):
        started, init = self.start_orphans("report_adoption")
        reported = started.next()
        self.check_adopted(reported, init)
        started.process.stdin.close()
        self.assertEqual(started.wait(), 42)  # at once, while the orphan still runs
        self.check_orphan_after_end(reported["orphan"])

    def check_adopted(self, reported, init):
        self.assertEqual(reported["parent"], init)

    def check_orphan_after_end(self, orphan):
        """Checks that the orphan still runs, below the next subreaper, which is this process."""
        self.assertEqual(status_of(orphan).get("PPid"), str(os.getpid()))
        self.assertIn(process_state(orphan), ("S", "R"))


class EarlierChildren(rdma_init.Case):
    options = ["--reap"]

    def test_reaps_zombie_of_earlier_program(self):
        # Its SIGCHLD was discarded before rdma-init blocked signals.
        started = self.start_direct([*PROBE, "leave_zombie",
                                     *self.through_init([*PROBE, "report_signals", "1"])])
        started.next()
        wait_for(lambda: len(descendants(started.pid)) == 1, "only the command below rdma-init")
        os.kill(started.pid, signal.SIGTERM)
        self.assertEqual(started.wait(), 0)


class OrphansInNamespace(Orphans):
    """rdma-init as PID 1."""
    namespace = namespace_command()

    def setUp(self):
        if self.namespace is None:
            self.skipTest("cannot create a PID namespace (unshare --pid failed)")
        super().setUp()

    def through_init(self, command, options=None):
        return [*self.namespace, *super().through_init(command, options)]

    def start_orphans(self, *command):
        started, unshare = super().start_orphans(*command)
        return started, self.child_of(unshare)

    @staticmethod
    def child_of(pid):
        """Waits until the child of unshare has executed rdma-init. Returns its process id."""
        def find():
            below = [child for child, _ in descendants(pid) if status_of(child).get("PPid") == str(pid)]
            is_init = below and status_of(below[0]).get("Name") == os.path.basename(PROGRAM)[:15]
            return below[0] if is_init else None
        return wait_for(find, "rdma-init below unshare")

    def check_adopted(self, reported, init):
        self.assertEqual(reported["parent"], 1)

    def check_orphan_after_end(self, orphan):
        """Checks that the orphan has ended: the kernel kills it with its namespace, before the parent can reap PID 1."""
        self.assertEqual(descendants(os.getpid()), [])

    def test_returns_exit_code_as_pid_1(self):
        for code, command in ((0, "exit 0"), (77, "exit 77"), (143, "kill -TERM $$")):
            self.assertEqual(self.run_init(["sh", "-c", command]).returncode, code)
        self.assertEqual(self.run_init(["no-such-command"]).returncode, 127)

    def test_forwards_signals_from_outside_as_pid_1(self):
        started = self.start_probe("report_signals", "4")
        self.assertEqual(started.next()["parent"], 1)
        init = self.child_of(started.pid)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGABRT, signal.SIGUSR1):
            os.kill(init, number)
            self.assertEqual(started.signals(1), [number.name])
        self.assertEqual(started.wait(), 0)

    def test_forwards_signal_from_inside_as_pid_1(self):
        # The kernel drops a signal for PID 1 without a handler unless it is blocked, so rdma-init must block it.
        result = self.run_init(["sh", "-c", "trap 'exit 9' TERM; kill -TERM 1; while :; do sleep 0.01; done"])
        self.assertEqual(result.returncode, 9)


if __name__ == "__main__":
    rdma_init.main()
