"""`rdma-hook config apply` with directories as the kubelet mounts ConfigMaps, and with hostile directories. A valid file replaces
the cluster's file on the node as a whole; after any error the last valid file stays. The tests run in a private mount namespace,
where all directories above /run belong to root."""
import fcntl
import json
import os
import shutil
import signal
import time

import harness
from harness import HOOK, read, read_json, run, status_of, write


class ConfigMap:
    """A directory that is updated as the kubelet does it: make a new directory, link to it, rename the link."""

    def __init__(self, path):
        self.path = path
        self.version = 0
        os.mkdir(path)
        os.chmod(path, 0o777)
        os.symlink("..data/config.json", path + "/config.json")

    def put(self, text):
        self.version += 1
        name = f"..{self.version}"
        write(f"{self.path}/{name}/config.json", text)
        before = os.path.join(self.path, os.readlink(self.path + "/..data")) if self.version > 1 else None
        os.symlink(name, self.path + "/..data_tmp")
        os.rename(self.path + "/..data_tmp", self.path + "/..data")
        if before:
            shutil.rmtree(before)


def is_locked(fd):
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(fd, fcntl.LOCK_UN)
    return False


class Case(harness.Case):
    place = "/run"

    def setUp(self):
        super().setUp()
        self.root = self.work
        self.directory = self.root + "/etc/rdma-init/cluster"
        os.makedirs(self.directory, 0o755)
        self.file = self.directory + "/config.json"
        self.own = self.root + "/etc/rdma-init/config.json"
        self.map = ConfigMap(self.root + "/config")

    def command(self, *options):
        return [HOOK, "config", "apply", self.map.path, "--root", self.root, *options]

    def apply(self, *options, **more):
        return run(self.command(*options), **more)

    def assert_applied(self, code, content, *options, **more):
        """Checks the exit code and the node's file afterwards."""
        done = self.apply(*options, **more)
        self.assertEqual((done.returncode, self.has()), (code, content), done)
        return done

    def watch(self, *before):
        """Starts a watching process, and waits until it has applied {"rails": ["1"]}."""
        self.map.put({"rails": ["1"]})
        child = self.start_logged([*before, *self.command("--watch")], env={"NODE_NAME": "n-7"})
        self.until(lambda: self.has() == {"rails": ["1"]}, "the first configuration")
        return child

    def ends(self, child):
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(harness.DEADLINE), 0)

    def has(self):
        return read_json(self.file) if os.path.exists(self.file) else None


class Once(Case):
    def test_writes_valid_configuration_once(self):
        self.map.put({"rails": ["a"], "$comment": "of the cluster"})
        done = self.assert_applied(0, {"rails": ["a"], "$comment": "of the cluster"})
        status = os.stat(self.file)
        self.assertEqual((status.st_mode & 0o7777, status.st_uid, status.st_gid), (0o644, 0, 0))
        self.assertIn("config_written", done.stderr)
        again = self.apply()
        self.assertEqual((again.returncode, os.stat(self.file).st_ino), (0, status.st_ino), again)
        self.assertIn("unchanged", again.stdout)
        self.assertEqual(os.listdir(self.directory), ["config.json"])

    def test_prints_outcome_and_problems_as_json(self):
        self.map.put({"rails": "a"})
        report = json.loads(self.apply("--json").stdout)
        self.assertEqual((report["ok"], report["outcome"], report["problems"][0]["line"]), (False, "refused", 1))
        self.map.put({"rails": ["a"]})
        report = json.loads(self.apply("--json").stdout)
        self.assertEqual((report["ok"], report["outcome"], report["problems"]), (True, "written", []))

    def test_reports_missing_configuration_after_refusal(self):
        self.map.put("{")
        done = self.assert_applied(1, None)
        self.assertIn("the node keeps its configuration: no configuration: one pool of all HCAs", done.stdout)

    def test_refuses_invalid_configuration_and_keeps_last_valid(self):
        write(self.file, {"rails": ["good"]})
        before = read(self.file)
        bad = {
            "half written": '{"rails": ["a", "b',
            "empty": "",
            "no object": "[]",
            "unknown key": {"rials": []},
            "a key twice": '{"rails": [], "rails": []}',
            "missing pool": {"networks": {"n": {"pool": "p"}}},
            "no UTF-8": b'{"rails": ["\xff"]}',
            "deep": "[" * 100000,
            "programs": {"runtime": {"runtimes": ["/tmp/evil"]}},
            "programs with an escaped key": '{"rails": [], "\\u0072untime": {"hook": "/tmp/evil"}}',
            "a plugin": {"networks": {"n": {"ipam": {"type": "host-local", "dataDir": "/etc/cron.d"}}}},
            "a directory of plugins": {"networks": {"n": {"ipam_dir": "/tmp"}}},
            "a device": {"node_index": "/dev/watchdog"},
            "an index for all": {"node_index": 1},
            "missing file of the index": {"node_index": "/etc/rdma-init/no-such-file", "networks": {
                "n": {"addresses": [{"rail": 0, "subnet": "10.0.0.0/16", "per_node": 24}]}}},
            "missing slice": {"node_index": "NODE_NAME", "networks": {
                "n": {"addresses": [{"rail": 0, "subnet": "10.0.0.0/24", "per_node": 26}]}}},
        }
        for what, text in bad.items():
            with self.subTest(what):
                self.map.put(text)
                done = self.apply(env={"NODE_NAME": "node-4"})
                self.assertEqual((done.returncode, read(self.file)), (1, before), done)
                self.assertIn("error: ", done.stdout)
                self.assertIn("config_refused", done.stderr)
                self.assertEqual(os.listdir(self.directory), ["config.json"])

    def test_lock_of_stranger_stops_nothing(self):
        os.chmod(self.work, 0o755)
        self.start(["flock", "--no-fork", self.directory, "sleep", "1000"], user=65534)
        lock = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, lock)
        self.until(lambda: is_locked(lock), "the lock")
        self.map.put({"rails": ["a"]})
        done = self.assert_applied(0, {"rails": ["a"]})
        self.assertIn(f"has locked `{self.directory}`: this lock is ignored; remedy: end that process", done.stdout)
        self.assertEqual(os.listdir(self.directory), ["config.json"])

    def test_error_of_lock_file_has_remedy(self):
        self.map.put({"rails": ["a"]})
        path = self.directory + "/.rdma-hook-config-apply.lock"
        for make, remove in ((os.mkdir, os.rmdir), (lambda to: os.symlink("/nowhere", to), os.unlink)):
            make(path)
            done = self.apply()
            self.assertEqual(done.returncode, 1, done)
            self.assertRegex(done.stdout, "error: make the lock file `.*; remedy: remove it\n")
            remove(path)
        self.assert_applied(0, {"rails": ["a"]})

    def test_logs_index_of_node(self):
        networks = {"n": {"addresses": [{"rail": 0, "subnet": "10.0.0.0/8", "per_node": 24}]}}
        for index, name, taken in (("NODE_NAME", "gpu-17", "17 from NODE_NAME gpu-17"),
                                   ({"ip-10-0-4-#": 256}, "ip-10-0-4-17", "273 from NODE_NAME ip-10-0-4-17"),
                                   ("address", "gpu-17", "by address: no netdev is visible")):
            self.map.put({"node_index": index, "networks": networks})
            done = self.apply(env={"NODE_NAME": name})
            self.assertEqual(done.returncode, 0, done)
            self.assertIn(f"; node index {taken}\n", done.stdout)
            self.assertIn(f'node_index="{taken}"', done.stderr)
        self.map.put({"node_index": "NODE_NAME", "networks": networks})
        for name, code, words in (("ip-10-0-3-17", 1, 'such as {"ip-10-0-3-#": 0}'), ("gpu-h100-17", 0, "warning: `node_index`: the last number of"),
                                  ("ip-10-0-3-17.ec2.internal", 1, 'such as {"ip-10-0-3-17.ec2.internal": 0}')):
            done = self.apply(env={"NODE_NAME": name})
            self.assertEqual(done.returncode, code, done)
            self.assertIn(words, done.stdout)

    def test_writes_same_bytes(self):
        text = '{"rails" : [ "a" ],\n\n "networks": {}}\n'
        self.map.put(text)
        self.assertEqual((self.apply().returncode, read(self.file)), (0, text))

    def test_keeps_file_of_node_and_refuses_programs_of_cluster(self):
        own = {"runtime": {"hook": "/usr/bin/rdma-hook"}, "node_index": 3, "rails": ["own"],
               "networks": {"n": {"ipam": {"type": "static"}, "ipam_dir": "/opt/cni/bin"}}}
        write(self.own, own)
        self.map.put({"rails": ["new"], "networks": {"m": {}}, "pools": [{"name": "p", "modes": ["shared"], "network": "n"}]})
        done = self.apply()
        self.assertEqual((done.returncode, self.has()["rails"], json.loads(read(self.own))), (0, ["new"], own), done)
        self.map.put({"runtime": {"hook": "/tmp/evil"}})
        refused = self.apply()
        self.assertEqual((refused.returncode, self.has()["rails"], json.loads(read(self.own))), (1, ["new"], own))
        self.assertIn("conf.d", refused.stdout)

    def test_keeps_last_valid_configuration_with_invalid_file_of_node(self):
        self.map.put({"rails": ["good"]})
        self.assertEqual(self.apply().returncode, 0)
        write(self.own, "{")
        self.map.put({"rails": ["new"]})
        self.assert_applied(1, {"rails": ["good"]})

    def test_reads_conf_d_for_validation(self):
        write(self.root + "/etc/rdma-init/conf.d/10-node.json", {"networks": {"n": {"mode": "shared"}}})
        self.map.put({"pools": [{"name": "p", "network": "n"}]})
        self.assertEqual(self.apply().returncode, 0, "the network is in conf.d")

    def test_keeps_last_valid_configuration_with_hostile_directory(self):
        write(self.file, {"rails": ["good"]})
        before = read(self.file)
        config = self.map.path + "/config.json"

        def large():
            with open(config, "wb") as file:
                file.truncate(100 << 20)

        def circle():
            os.symlink("..data", self.map.path + "/..data")
            os.symlink("..data/config.json", config)

        make = {
            "nothing": lambda: None,
            "FIFO": lambda: os.mkfifo(config, 0o666),
            "directory": lambda: os.mkdir(config),
            "100 MB": large,
            "circle of links": circle,
            "link to itself": lambda: os.symlink("config.json", config),
            "link to a file outside": lambda: os.symlink("/etc/hostname", config),
            "link to the node's file": lambda: os.symlink("../etc/rdma-init/cluster/config.json", config),
            "link to a device": lambda: os.symlink("/dev/zero", config),
            "link to nothing": lambda: os.symlink("..data/config.json", config),
            "FIFO behind links": lambda: (os.mkdir(self.map.path + "/d"), os.mkfifo(self.map.path + "/d/config.json"),
                                          os.symlink("d/config.json", config)),
        }
        for what, how in make.items():
            with self.subTest(what):
                shutil.rmtree(self.map.path)
                os.mkdir(self.map.path, 0o777)
                how()
                done = self.apply()
                self.assertEqual((done.returncode, read(self.file)), (1, before), done)
        shutil.rmtree(self.map.path)
        self.assertEqual((self.apply().returncode, read(self.file)), (1, before))

    def test_refuses_files_that_other_users_can_change(self):
        self.map.put({"rails": ["a"]})
        for directory in (self.directory, self.root + "/etc/rdma-init"):
            os.chmod(directory, 0o777)
            done = self.assert_applied(1, None)
            self.assertIn("is writable by users other than root", done.stdout)
            os.chmod(directory, 0o755)
        write(self.file, {"rails": ["old"]})
        os.chown(self.file, 1000, 1000)
        done = self.assert_applied(1, {"rails": ["old"]})
        self.assertIn("belongs to user 1000", done.stdout)

    def test_kill_leaves_old_or_new_file(self):
        self.needs("strace")
        old = {"rails": ["old"]}
        for call in ("fsync:when=1", "rename:when=1", "fchmod:when=1", "fsync:when=2"):
            with self.subTest(call):
                write(self.file, old)
                self.map.put({"rails": ["new"]})
                name, when = call.split(":")
                killed = run(["strace", "-f", "-qq", "-o", "/dev/null", "-e", f"trace={name}",
                              "-e", f"inject={name}:signal=SIGKILL:{when}", *self.command()])
                self.assertNotEqual(killed.returncode, 0)
                self.assertIn(self.has(), (old, {"rails": ["new"]}), "neither the old file nor the new file")
                self.assert_applied(0, {"rails": ["new"]})
                self.assertEqual(os.listdir(self.directory), ["config.json"], "temporary files stay")

    def test_keeps_old_file_on_full_disk(self):
        self.mount(self.directory, "-t", "tmpfs", "-o", "size=64k,mode=755", "none")
        write(self.file, {"rails": ["old"]})
        full = os.open(self.directory + "/full", os.O_WRONLY | os.O_CREAT, 0o600)
        try:
            while True:
                os.write(full, b"x" * 4096)
        except OSError:
            os.close(full)
        self.map.put({"rails": ["new"], "$comment": "x" * 30000})
        done = self.assert_applied(1, {"rails": ["old"]})
        self.assertIn("No space left on device", done.stdout)

    def test_concurrent_calls_write_once(self):
        self.map.put({"rails": ["a"], "$comment": "x" * 100000})
        for _ in range(5):
            write(self.file, {})
            children = [self.start(self.command()) for _ in range(6)]
            self.assertEqual([child.wait(harness.DEADLINE) for child in children], [0] * 6)
            self.assertEqual(self.has()["rails"], ["a"])


class Probe(Case):
    def probe(self, code, words):
        done = self.apply("--probe")
        self.assertEqual((done.returncode, done.stdout.count("\n"), done.stderr), (code, 1, ""), done)
        self.assertIn(words, done.stdout)

    def test_probe_follows_configuration(self):
        self.probe(1, "config apply: not ready: refused: ")
        child = self.watch()
        self.probe(0, "config apply: ready: 1 file; pools: all HCAs")
        # The last valid configuration stays.
        self.map.put({"rails": "1"})
        self.wait_for_log("config_refused")
        self.probe(1, f"not ready: refused: {self.map.path}/config.json:1: error: ")
        self.probe(1, "; the node keeps its configuration: 1 file")
        self.assertEqual(self.has(), {"rails": ["1"]})
        self.map.put({"rails": ["2"]})
        self.until(lambda: self.has() == {"rails": ["2"]})
        self.probe(0, "ready")
        self.ends(child)

    def test_probe_writes_nothing(self):
        self.map.put({"rails": ["a"]})
        self.probe(1, f"not ready: `{self.file}` is not written yet; the node has: no configuration")
        self.assertEqual(os.listdir(self.directory), [])
        # The directory may be locked by `config apply`.
        lock = os.open(self.directory, os.O_RDONLY)
        self.addCleanup(os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX)
        began = time.monotonic()
        self.probe(1, "is not written yet")
        self.assertLess(time.monotonic() - began, 5)

    def test_refuses_subnets_for_documentation(self):
        write(self.file, {"rails": ["good"]})
        for name in ("vke", "spiderpool", "ib-sriov"):
            self.map.put(read(f"{harness.SOURCE}/config/kubernetes/overlays/{name}/config.json"))
            done = self.assert_applied(1, {"rails": ["good"]})
            self.assertRegex(done.stdout, r"error: `networks\.[\w-]+\.addresses\[0\]\.subnet`: `192\.0\.2\.0/2[46]` is in a range for "
                                          r"documentation \(RFC 5737\); remedy: write a subnet of your network")
            self.probe(1, "is in a range for documentation")


class CompromisedContainer(Case):
    """A process of user 0 that can write only the directory of the cluster's file: no file there makes the node run a program."""

    def check_config(self):
        """Runs check-config with the node's files mounted at /etc/rdma-init."""
        script = (f"mount -t tmpfs -o mode=755 none /etc && mkdir -p /etc/rdma-init && "
                  f"mount --bind {self.root}/etc/rdma-init /etc/rdma-init && exec {HOOK} check-config --json")
        return json.loads(run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script]).stdout)

    def test_refuses_links_fifos_and_programs_of_cluster(self):
        os.symlink("../config.json", self.file)
        self.assertIn("is a symbolic link", self.check_config()["problems"][0]["message"])
        os.unlink(self.file)
        os.mkfifo(self.file)
        self.assertIn("is not a regular file", self.check_config()["problems"][0]["message"])
        os.unlink(self.file)
        for text in ({"runtime": {"runtimes": ["/etc/rdma-init/cluster/evil"]}}, {"runtime": {"hook": "/etc/rdma-init/cluster/evil"}},
                     {"networks": {"n": {"ipam": {"type": "evil"}}}}, {"networks": {"n": {"ipam_dir": "/etc/rdma-init/cluster"}}},
                     {"node_index": "/etc/rdma-init/cluster/evil"}, {"node_index": "/dev/watchdog"}, {"node_index": 1}):
            write(self.file, text)
            report = self.check_config()
            self.assertEqual((report["ok"], report["problems"][0]["file"], report["problems"][0]["line"]),
                             (False, "/etc/rdma-init/cluster/config.json", 1), report)
        os.chmod(self.directory, 0o777)
        write(self.file, {})
        self.assertIn("is writable by users other than root", self.check_config()["problems"][0]["message"])
        os.chmod(self.directory, 0o755)

    def test_files_of_node_override_cluster(self):
        for files, pool in (((), "a"), ((self.own,), "b"), ((self.own, self.root + "/etc/rdma-init/conf.d/1.json"), "c")):
            write(self.file, {"pools": [{"name": "a", "modes": ["hca"]}]})
            for file, name in zip(files, "bc"):
                write(file, {"pools": [{"name": name, "modes": ["hca"]}], "runtime": {"runtimes": ["crun"]}})
            self.assertIn(f"{len(files) + 1} file", self.check_config()["summary"])
            self.assertIn(f"pools: {pool} (hca)", self.check_config()["summary"])


class Watch(Case):
    def test_applies_changes_at_once_and_logs_a_refusal_once(self):
        child = self.watch()
        for number in range(2, 6):
            before = time.monotonic()
            self.map.put({"rails": [str(number)]})
            self.until(lambda n=number: self.has() == {"rails": [str(n)]}, "a change")
            self.assertLess(time.monotonic() - before, 8, "applied only by the poll")
        self.map.put({"runtime": {}})
        self.wait_for_log("config_refused")
        for _ in range(3):  # events without a change of config.json
            write(self.map.path + "/other", "x")
            time.sleep(0.3)
        self.assertEqual(read(self.log).count("config_refused"), 1, read(self.log))
        self.assertEqual(self.has(), {"rails": ["5"]})
        self.map.put({"node_index": 4})
        self.wait_for_log("config_refused", 2)
        self.map.put({"rails": ["5"]})
        self.wait_for_log("config_unchanged")
        self.ends(child)

    def test_continues_after_replacement_of_directory(self):
        child = self.watch()
        os.rename(self.map.path + "/..data", self.map.path + "/..gone")
        self.wait_for_log("config_refused")
        shutil.rmtree(self.map.path)
        time.sleep(0.5)
        self.map = ConfigMap(self.map.path)
        self.map.put({"rails": ["2"]})
        self.until(lambda: self.has() == {"rails": ["2"]}, "the new directory's configuration")
        self.map.put({"rails": ["3"]})
        self.until(lambda: self.has() == {"rails": ["3"]}, "a change in the new directory")
        self.ends(child)

    def test_thousand_changes_use_constant_memory(self):
        child = self.watch()

        def descriptors():
            return len(os.listdir(f"/proc/{child.pid}/fd"))

        before = descriptors()
        for number in range(1, 1001):
            self.map.put({"rails": [str(number)], "$comment": "x" * (number % 7 * 1000)} if number % 3 else "{ bad" + str(number))
        self.map.put({"rails": ["last"]})
        self.until(lambda: self.has() == {"rails": ["last"]}, "the last change")
        self.assertLessEqual(descriptors(), before)
        self.assertLess(int(status_of(child.pid)["VmRSS"].split()[0]), 16 * 1024)

    def test_watches_without_capabilities(self):
        self.needs("setpriv")
        self.watch("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")

    def test_sets_filter_and_two_capabilities(self):
        seen = status_of(self.watch().pid)
        self.assertEqual((seen["Seccomp"], seen["NoNewPrivs"]), ("2", "1"))
        self.assertEqual(int(seen["CapPrm"], 16) & ~(1 << 0 | 1 << 1), 0, "CAP_CHOWN and CAP_DAC_OVERRIDE")


LABEL = "/etc/kubernetes/node-feature-discovery/features.d/rdma-init-complete"


class Pools(Case):
    """Pools with "expect": which ones the node has had, and the label of node-feature-discovery."""

    def setUp(self):
        super().setUp()
        self.tree(4)
        os.makedirs(self.root + "/run/rdma-hook", 0o700)
        os.makedirs(self.root + os.path.dirname(LABEL))

    def tree(self, count, down=()):
        """Makes the files of a node with this number of HCAs; the ports of the HCAs `down` are not ACTIVE."""
        for directory in ("sys", "dev"):
            shutil.rmtree(f"{self.root}/{directory}", ignore_errors=True)
        devices = [{"name": f"mlx5_{number}", "node_guid": f"a088:c203:0010:{number:04x}", "node_type": "1: CA", "numa_node": 0,
                    "pci": f"0000:{0x18 + number:02x}:00.0", "driver": "mlx5_core", "vendor": "0x15b3", "device_id": "0x1021",
                    "uverbs": number, "uverbs_dev": f"231:{192 + number}", "accessible": True,
                    "ports": [{"port": 1, "state": "1: DOWN" if number in down else "4: ACTIVE", "phys_state": "5: LinkUp",
                               "link_layer": "InfiniBand", "rate": "400 Gb/sec (4X NDR)", "lid": "0x1", "sm_lid": "0x1",
                               "gid_tbl_len": 16, "gids": []}]} for number in range(count)]
        snapshot = write(self.work + ".json", {"schema": 1, "rdma_cm": True, "devices": devices, "netdevs": []})
        harness.must([harness.MAKE_TREE, snapshot, self.root, "--full"])

    def configure(self, expect=4):
        self.map.put({"pools": [{"name": "rails", "selectors": {"deviceIDs": ["1021"]}, **({"expect": expect} if expect else {})}]})

    def label(self):
        path = self.root + LABEL
        return read(path) if os.path.exists(path) else None

    def seen(self):
        path = self.directory + "/pools-seen.json"
        return read_json(path) if os.path.exists(path) else None

    def apply(self, *options, **more):
        done = super().apply(*options, **more)
        self.assertEqual(done.returncode, 0, done)
        self.assertNotIn("warning", done.stderr)
        return done

    def hook(self, *arguments):
        """Runs rdma-hook with the node's configuration mounted at /etc/rdma-init."""
        script = (f"mount -t tmpfs -o mode=755 none /etc && mkdir -p /etc/rdma-init && mount --bind {self.root}/etc/rdma-init /etc/rdma-init && "
                  f'exec {HOOK} "$@" --root {self.root}')
        return run(["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *arguments])

    def test_label_follows_the_hcas(self):
        self.configure()
        self.apply()
        self.assertEqual((self.label(), self.seen()), ("rdma-init.io/complete=true\n", ["rails"]))
        self.tree(4, down=(2,))
        self.apply()
        self.assertEqual(self.label(), "rdma-init.io/complete=false\n")
        self.assertEqual(sorted(os.listdir(os.path.dirname(self.root + LABEL))), ["rdma-init-complete"])
        # No HCA is left: the node had some.
        self.tree(0)
        self.apply()
        self.assertEqual((self.label(), self.seen()), ("rdma-init.io/complete=false\n", ["rails"]))
        job = self.hook("doctor", "--job")
        self.assertEqual(job.returncode, 2, job)
        self.assertIn("the node has none of 4 expected HCAs, and had some before", " ".join(self.hook("doctor").stdout.split()))
        # Without "expect" there is neither a label nor a list.
        self.configure(expect=0)
        self.apply()
        self.assertEqual((self.label(), self.seen()), (None, []))

    def test_node_that_never_had_an_hca_is_quiet(self):
        self.tree(0)
        self.configure()
        self.apply()
        self.assertEqual((self.label(), self.seen()), (None, None))
        self.assertEqual(self.hook("doctor", "--job").returncode, 0)
        self.assertNotIn("expected HCAs", " ".join(self.hook("doctor").stdout.split()))

    def test_label_stays_if_the_number_is_unknown(self):
        self.configure()
        self.apply()
        self.tree(3)
        os.rmdir(self.root + "/run/rdma-hook")
        self.apply()
        self.assertEqual(self.label(), "rdma-init.io/complete=true\n", "containers may have the HCA")
        os.makedirs(self.root + "/run/rdma-hook", 0o700)
        write(self.directory + "/pools-seen.json", "{")
        done = super().apply()
        self.assertEqual(done.returncode, 0, done)
        self.assertIn("is no list of pools", done.stderr)
        self.assertEqual(self.label(), "rdma-init.io/complete=true\n")

    def test_watch_and_recover_write_the_label(self):
        self.configure()
        child = self.start_logged(self.command("--watch"))
        self.until(lambda: self.label() == "rdma-init.io/complete=true\n", "the label")
        self.tree(3)
        self.until(lambda: self.label() == "rdma-init.io/complete=false\n", "the label after the poll")
        self.ends(child)
        self.tree(4)
        recovered = self.hook("recover", "--ledger", self.root + "/run/rdma-hook")
        self.assertEqual((recovered.returncode, self.label()), (0, "rdma-init.io/complete=true\n"), recovered)

    def test_no_directory_of_features_no_label(self):
        shutil.rmtree(self.root + "/etc/kubernetes")
        self.configure()
        self.apply()
        self.assertFalse(os.path.exists(self.root + "/etc/kubernetes"))


if __name__ == "__main__":
    harness.main_in_own_machine(device_groups=False)
