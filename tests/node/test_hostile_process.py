"""Hostile environments, descriptors, limits and times of the hook's process. The hook refuses or completes its work; it changes
nothing else on the node or in the ledger."""
import json
import os
import subprocess
import threading

import harness
from containers import Bundle, fake_container, stopped
from harness import HOOK, run, write
from hostile import MEGABYTE, HostileCase


class HostileProcess(HostileCase):
    def test_ignores_hostile_environment(self):
        """A static program ignores LD_PRELOAD; the variables that the C library reads must have no effect either."""
        trace = self.work + "/victim/trace"
        hostile = {"LD_PRELOAD": self.victim + "/a-file", "LD_LIBRARY_PATH": self.victim,
                   "LD_AUDIT": self.victim + "/a-file",
                   "LD_DEBUG": "all", "LD_DEBUG_OUTPUT": trace, "GCONV_PATH": self.victim, "LOCPATH": self.victim,
                   "NLSPATH": self.victim + "/%N", "LC_ALL": "xx_XX.UTF-8", "LANGUAGE": "xx", "MALLOC_TRACE": trace,
                   "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "85", "MALLOC_ARENA_MAX": "0",
                   "GLIBC_TUNABLES": "x=y:" * 1000,
                   "TMPDIR": self.victim, "HOME": self.victim, "TZ": self.victim + "/a-file", "PATH": self.victim,
                   "RDMA_VISIBLE_DEVICES": "all", "IFS": "/", "BASH_ENV": self.victim + "/a-file", "LISTEN_FDS": "9",
                   "NOTIFY_SOCKET": "/run/x", "RDMA_HOOK_LEDGER": self.victim, "GMON_OUT_PREFIX": trace,
                   "RESOLV_HOST_CONF": "/etc/shadow", "LLVM_PROFILE_FILE": trace, "GCOV_PREFIX": self.victim}
        done = self.succeeded(self.hook("createRuntime", self.container.state(), env=hostile))
        self.assertNotIn("calling init", done.stderr)
        self.assertNotIn("ld.so", done.stderr)
        self.assert_granted()
        self.succeeded(self.hook("poststop", stopped(self.bundle), env=hostile))
        self.assert_node_unchanged()

    def begin(self, stage, **settings):
        return self.start([HOOK, *self.arguments(stage)[1:]], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={},
                          **settings)

    def test_ends_when_stdin_never_ends(self):
        """Input without data, in small pieces, and without end, at each stage at once: each hook ends by itself."""
        stages = ("createRuntime", "poststop")
        silent = [self.begin(stage, stdin=subprocess.PIPE) for stage in stages]
        trickled = [self.begin(stage, stdin=subprocess.PIPE) for stage in stages]
        with open("/dev/zero", "rb") as zeros:
            flooded = [self.begin(stage, stdin=zeros) for stage in stages]
        stop = threading.Event()

        def trickle():
            while not stop.wait(0.2):
                for process in trickled:
                    try:
                        os.write(process.stdin.fileno(), b" ")
                    except OSError:  # the process has ended
                        pass
        writer = threading.Thread(target=trickle)
        writer.start()
        try:
            for processes in (silent, trickled, flooded):
                codes = [process.wait(harness.DEADLINE) for process in processes]
                self.assertEqual(codes, [1, 0])
        finally:
            stop.set()
            writer.join()
        self.assert_untouched()

    def shell(self, redirections, stage="createRuntime", state=None):
        write(self.work + "/state", json.dumps(state or self.container.state()))
        return run(["sh", "-c", f'exec "$@" < "$0" {redirections}', self.work + "/state", HOOK,
                            *self.arguments(stage)[1:]])

    def test_refuses_closed_stdin(self):
        self.refused(self.shell("<&-"))
        self.assert_untouched()
        self.succeeded(self.shell("<&-", "poststop"))

    def test_grants_with_closed_or_full_outputs(self):
        """Files that the hook opens must not become its stdout or stderr: messages would go into the ledger."""
        for number, redirections in enumerate((">&-", "2>&-", ">&- 2>&-", "> /dev/full 2> /dev/full")):
            with self.subTest(redirections):
                self.container = fake_container(self, f"c{number}")
                self.succeeded(self.shell(redirections))
                self.assert_granted()
                self.container.end()
                self.succeeded(self.shell(redirections, "poststop", stopped(self.container.bundle)))
                self.assert_ledger_empty()
                # A refusal writes a message as well.
                self.refused(self.shell(redirections, state=self.container.state(bundle="/nowhere")))
                self.assert_ledger_empty()
        self.assert_node_unchanged()

    def test_refuses_closed_stdin_and_outputs(self):
        self.refused(self.shell("<&- >&- 2>&-"))
        self.assert_untouched()

    def test_grants_with_64_descriptors(self):
        """crun runs hooks with the limits of the container."""
        self.succeeded(self.create_limited(files=64))
        self.assert_granted()

    def test_grants_completely_or_refuses_with_low_limits(self):
        """With too low a limit the hook refuses, and leaves no partial grant."""
        # The limit includes the program, which is larger in a build without optimization: otherwise the kernel cannot start it.
        little = os.path.getsize(HOOK) + 2 * MEGABYTE
        rows = (("no file may grow", {"file_size": 0}), ("no process may be made", {"processes": 1}),
                ("no descriptors", {"files": 4}), ("sixteen descriptors", {"files": 16}),
                ("little memory", {"address_space": little}), ("little stack", {"stack": 256 << 10}),
                ("no locks", {"locks": 0}), ("no memory locked", {"memlock": 0}))
        for number, (name, limits) in enumerate(rows):
            with self.subTest(name):
                self.container = fake_container(self, f"c{number}", "all")
                done = self.create_limited(**limits)
                if done.returncode == 0:
                    self.assertEqual(len(self.container.nodes()), self.node.HCAS + 1)
                else:
                    self.refused(done)
                self.container.end()
                self.succeeded(self.hook("poststop", stopped(self.container.bundle)))
                self.assert_nothing_left()

    def test_grants_in_removed_working_directory(self):
        gone = self.work + "/gone"
        os.mkdir(gone)
        self.succeeded(self.create_by("sh", "-c", 'cd "$0"; rmdir "$0"; exec "$@"', gone))
        self.assert_granted()

    def test_grants_with_strict_umask(self):
        self.succeeded(self.create_by("sh", "-c", 'umask 777; exec "$@"', "-"))
        self.assert_granted()

    def test_concurrent_calls_grant_once(self):
        started = [self.begin("createRuntime", stdin=subprocess.PIPE) for _ in range(4)]
        outputs = [None] * len(started)

        def feed(number):
            outputs[number] = started[number].communicate(json.dumps(self.container.state()).encode())[1]
        threads = [threading.Thread(target=feed, args=(number,)) for number in range(len(started))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual([process.returncode for process in started], [0] * len(started), outputs)
        self.assert_granted()

    def test_second_call_keeps_grant(self):
        for _ in range(2):
            self.succeeded(self.create())
            self.assert_granted()

    def test_accepts_early_poststop_and_refuses_late_create(self):
        """Calls poststop before createRuntime, and twice, and createRuntime after the container's end."""
        for _ in range(2):
            self.succeeded(self.hook("poststop", stopped(self.bundle)))
            self.assert_untouched()
        state = self.container.state()
        self.container.end()
        self.refused(self.hook("createRuntime", state), str(state["pid"]))
        self.assert_ledger_empty()

    def test_poststop_with_another_bundle_keeps_grant(self):
        """A state with the id of a container and another bundle does not release the container's HCA."""
        self.succeeded(self.create())
        other = Bundle(self, "other", stages=())
        self.succeeded(self.hook("poststop", {**stopped(other), "id": self.bundle.id}))
        self.assert_granted()

    def test_poststop_without_bundle_releases_grant(self):
        """The engine may remove the bundle's files before poststop."""
        self.succeeded(self.create())
        self.container.end()
        os.unlink(self.bundle.directory + "/config.json")
        self.succeeded(self.hook("poststop", stopped(self.bundle)))
        self.assert_ledger_empty()


if __name__ == "__main__":
    harness.main_in_own_machine()
