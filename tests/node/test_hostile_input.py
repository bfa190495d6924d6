"""Hostile states and config.json files, which no correct runtime writes: the hook refuses them or completes its work. It
changes nothing else on the node, in other containers or in the ledger."""
import json
import os
import re
import shutil
import subprocess

import harness
from containers import EXCLUSIVE, Bundle, FakeContainer, fake_container, stopped
from harness import HOOK, must, read, run, wait_for, write
from hostile import MEGABYTE, HostileCase


class HostileInput(HostileCase):
    # --- the state

    def test_grants_and_releases(self):
        self.succeeded(self.create())
        self.assert_granted()
        self.container.end()
        self.succeeded(self.hook("poststop", stopped(self.bundle)))
        self.assert_ledger_empty()

    def test_accepts_runtime_that_has_pivoted(self):
        bundle = Bundle(self, "pivoted", requests="mlx5_1", stages=())
        container = FakeContainer(bundle, pivoted=True)
        self.succeeded(self.hook("createRuntime", container.state()))
        self.assertIn("uverbs1", container.nodes())
        self.assert_node_unchanged()

    def test_refuses_pids_of_other_processes(self):
        other = fake_container(self, "other", requests=None)
        dead = subprocess.Popen(["true"])
        dead.wait()
        zombie = subprocess.Popen(["true"])
        wait_for(lambda: harness.process_state(zombie.pid) == "Z", "a zombie")
        rows = (("1", 1), ("0", 0), ("missing", None), ("negative", -1), ("all processes", -(1 << 31)), ("text", "1"),
                ("fraction", 1.5), ("huge", 1 << 64), ("beyond any pid", 1 << 22),
                ("wraps to a pid", (1 << 32) + other.pid),
                ("ours", os.getpid()), ("dead", dead.pid), ("a zombie", zombie.pid), ("another container's", other.pid))
        for name, pid in rows:
            with self.subTest(name):
                state = self.container.state(pid=pid)
                if pid is None:
                    del state["pid"]
                self.refused(self.hook("createRuntime", state))
                self.assert_untouched()
                self.assert_untouched(other)
        zombie.wait()

    def test_refuses_its_own_pid(self):
        """The state has the hook's own pid: `sh` writes its pid into the state and executes the hook."""
        command = ("printf '%s' \"$STATE\" | sed s/PID/$$/ > \"$1\"; f=$1; shift; exec \"$@\" < \"$f\"")
        state = json.dumps(self.container.state(pid="PID")).replace('"PID"', "PID")
        done = run(["sh", "-c", command, "-", self.work + "/state", HOOK,
                            *self.arguments("createRuntime")[1:]], env={"STATE": state, "PATH": harness.PATH})
        self.refused(done)
        self.assert_untouched()

    def test_releases_grant_of_reused_pid(self):
        """An unrelated process has the pid of the ended container: the grant is stale."""
        self.succeeded(self.create())
        pid = self.container.pid
        tick = read(f"/proc/{pid}/stat").rpartition(")")[2].split()[19]
        self.container.end()

        def reuse():
            with open("/proc/sys/kernel/ns_last_pid", "w", encoding="ascii") as file:
                file.write(str(pid - 1))
            process = self.start(["sleep", "1000"])
            same_tick = read(f"/proc/{process.pid}/stat").rpartition(")")[2].split()[19] == tick
            if process.pid == pid and not same_tick:
                return True
            harness.end_process(process)
            return False
        wait_for(reuse, f"a new process with the number {pid}")
        other = fake_container(self, "other", annotations=EXCLUSIVE)
        # The first container's state now names the unrelated process.
        self.refused(self.create())
        self.succeeded(self.hook("createRuntime", other.state()))
        self.assertEqual(self.holders(), {"mlx5_1": ["container other"]})

    def test_refuses_invalid_bundles(self):
        directory = self.bundle.directory
        os.symlink(directory, self.work + "/link")
        rows = (("dots", f"{self.work}/nowhere/../container"), ("dots at the end", directory + "/rootfs/.."),
                ("relative", "container"), ("dot", "."), ("empty", ""), ("missing", None), ("a number", 7),
                ("nowhere", self.work + "/nowhere"), ("a file", directory + "/config.json"),
                ("a NUL byte", directory + "\0/x"), ("long", "/" + "x" * 100000), ("the root", "/"))
        for name, bundle in rows:
            with self.subTest(name):
                state = self.container.state(bundle=bundle)
                if bundle is None:
                    del state["bundle"]
                self.refused(self.hook("createRuntime", state))
                self.assert_untouched()

    def test_refuses_invalid_states(self):
        whole = json.dumps(self.container.state())
        rows = (("nothing", ""), ("white space", " \n"), ("half", whole[:-5]), ("two", whole + whole), ("a list", "[]"),
                ("a string", '"x"'), ("null", "null"), ("binary", bytes(range(256))), ("latin-1", b'{"id": "\xe4"}'),
                ("zeros", bytes(1000)), ("deep", "[" * 100000), ("deep objects", '{"a":' * 100000),
                ("a key twice", whole[:-1] + ', "pid": 1}'),
                ("no id", json.dumps({k: v for k, v in self.container.state().items() if k != "id"})),
                ("id with a path", json.dumps(self.container.state(id="../../etc"))),
                ("empty id", json.dumps(self.container.state(id=""))),
                ("id with a line", json.dumps(self.container.state(id="a\nb"))),
                ("over a megabyte", json.dumps(self.container.state(annotations={"x": "y" * MEGABYTE}))))
        for name, state in rows:
            with self.subTest(name):
                self.refused(self.hook("createRuntime", state))
                self.assert_untouched()
                # Poststop succeeds for each input, so that it never hinders the removal of a container.
                self.succeeded(self.hook("poststop", state))
                self.assert_untouched()

    def test_accepts_state_of_almost_a_megabyte(self):
        self.succeeded(self.create(annotations={f"key{i}": "y" * 60000 for i in range(16)}))
        self.assert_granted()

    # --- config.json

    def test_refuses_invalid_config_json(self):
        path = self.bundle.directory + "/config.json"
        whole = read(path)
        annotations = '"annotations": {"rdma-init.io/devices": "mlx5_0",'

        def changed(**members):
            return json.dumps({**self.bundle.config, **members})
        rows = (("empty", ""), ("half", whole[:-5]), ("deep", "[" * 100000),
                ("deep inside", whole[:-1] + ',"x":' + "[" * 99999), ("a list", "[]"),
                ("annotations twice", whole.replace('"annotations": {', '"annotations": {}, "annotations": {')),
                ("an annotation twice", whole.replace('"annotations": {', annotations)),
                ("binary", bytes(range(256)) * 10),
                ("annotations of a list", changed(annotations=["rdma-init.io/devices"])),
                ("an annotation of a number", changed(annotations={"rdma-init.io/devices": 1})),
                ("no root", changed(root=None)), ("a root of a number", changed(root={"path": 7})),
                ("linux of a string", changed(linux="x")), ("devices of an object", changed(linux={"devices": {}})),
                ("mounts of a string", changed(mounts="/dev")),
                ("a megabyte in our annotation", changed(annotations={"rdma-init.io/devices": "mlx5_1," * 150000})),
                ("a root that is the node's", changed(root={"path": "/"})),
                ("a root that is another directory", changed(root={"path": self.victim})),
                ("a root that climbs", changed(root={"path": "../../../../../../../.."})))
        for name, text in rows:
            with self.subTest(name):
                write(path, text)
                self.refused(self.create())
                self.assert_untouched()
                self.succeeded(self.hook("poststop", stopped(self.bundle)))
                self.assert_untouched()

    def test_refuses_config_json_of_100_megabytes(self):
        path = self.bundle.directory + "/config.json"
        with open(path, "r+b") as file:
            file.truncate(100 * MEGABYTE)
        done = self.create_limited(address_space=128 * MEGABYTE)
        self.refused(done, "config.json")
        self.assert_untouched()

    def test_reads_config_json_of_16_megabytes_in_little_memory(self):
        """The hook refuses a file with more values than its limit, and accepts one with as many as its limit."""
        path = self.bundle.directory + "/config.json"
        whole = read(path)
        longest, most = 16 * MEGABYTE, 1 << 18
        values = most - 1000
        for name, count, value in (("zeros", 8 * MEGABYTE - 4096, "0"), ("empty objects", 5 * MEGABYTE, "{}"),
                                   ("texts", values, json.dumps("x" * ((longest - 8192) // values - 3)))):
            with self.subTest(name):
                text = f'{whole[:-1]},"x":[{",".join([value] * count)}]}}'
                self.assertLess(len(text), longest)
                self.assertGreater(len(text), longest - 2 * MEGABYTE)
                write(path, text)
                done = self.create_limited(address_space=192 * MEGABYTE)
                if count > most:
                    self.refused(done, f"more than {most} values")
                    self.assert_untouched()
                else:
                    self.succeeded(done)
                    self.assert_granted()

    def test_refuses_config_json_that_is_no_regular_file(self):
        path = self.bundle.directory + "/config.json"
        rows = (("a directory", os.mkdir), ("a FIFO without a writer", os.mkfifo),
                ("an endless device", lambda where: os.symlink("/dev/zero", where)))
        for name, make in rows:
            with self.subTest(name):
                os.unlink(path)
                make(path)
                self.refused(self.create(), "config.json")
                self.assert_untouched()
                if not os.path.isdir(path):
                    continue
                os.rmdir(path)
                write(path, "")

    def test_plans_many_uverbs_nodes_in_linear_time(self):
        """Four times as many nodes take at most five times the instructions; comparing all pairs would take sixteen times."""
        valgrind = shutil.which("valgrind")
        if not valgrind:
            self.skipTest("valgrind is not installed")

        def instructions(many):
            devices = [{"path": f"/dev/infiniband/uverbs{number}", "type": "c", "major": 231, "minor": 192 + number % 4}
                       for number in range(many)]
            bundle = Bundle(self, f"many{many}", devices=devices)
            done = run([valgrind, "--tool=callgrind", "--callgrind-out-file=/dev/null", HOOK, "plan",
                                "--bundle", bundle.directory, "--root", self.node.tree, "--config", self.config,
                                "--ledger", self.ledger_directory])
            self.assertIn("linux.devices", done.stderr)
            return int(re.search(r"Collected : (\d+)", done.stderr).group(1))
        least, few, many = (instructions(count) for count in (4, 504, 2004))
        self.assertLess(many - least, 5 * (few - least))

    def test_accepts_other_annotations_of_a_megabyte(self):
        self.bundle.config["annotations"]["example.org/notes"] = "z" * MEGABYTE
        self.bundle.write()
        self.succeeded(self.create())
        self.assert_granted()

    # --- files of the node's administrator

    def test_refuses_configuration_that_other_users_can_change(self):
        rows = (("another owner", lambda path: os.chown(path, 1000, 0)),
                ("writable by all users", lambda path: os.chmod(path, 0o666)),
                ("writable by its group", lambda path: os.chmod(path, 0o664)))
        for name, spoil in rows:
            with self.subTest(name):
                self.configure({})
                spoil(self.config)
                self.refused(self.create(), self.config)
                self.assert_untouched()
                os.unlink(self.config)

    def test_refuses_ledger_that_other_users_can_change(self):
        elsewhere = self.work + "/elsewhere"
        os.mkdir(elsewhere, 0o700)

        def owned(path):
            os.mkdir(path, 0o700)
            os.chown(path, 1000, 1000)

        def open_to_all(path):
            os.mkdir(path)
            os.chmod(path, 0o777)
        rows = (("another owner", owned), ("writable by all users", open_to_all),
                ("a link", lambda path: os.symlink(elsewhere, path)), ("a file", lambda path: write(path, "")))
        for name, make in rows:
            with self.subTest(name):
                make(self.ledger_directory)
                self.refused(self.create(), self.ledger_directory)
                self.assertEqual(os.listdir(elsewhere), [])
                self.assertEqual(self.container.nodes(), {})
                self.succeeded(self.hook("poststop", stopped(self.bundle)))
                must(["rm", "-rf", self.ledger_directory])


if __name__ == "__main__":
    harness.main_in_own_machine()
