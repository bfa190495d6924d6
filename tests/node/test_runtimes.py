"""rdma-runtime with runc and crun: grants of containers without any other configuration, and of their `exec`. Node, bundles and
checks are those of the container tests."""
import contextlib
import json
import os
import shutil

import harness
from containers import EXCLUSIVE, FOREVER, Bundle, Report, RuntimeTests, Syslog, Wrapped
from harness import MEMLOCK, RUNTIME, read, read_json, write

CAP_IPC_LOCK = 1 << 14
SHOW = "grep -e CapEff /proc/self/status; grep -e locked /proc/self/limits"
ADDED_TO_BUNDLE = {"rdma-runtime.json", "rdma-runtime.config.json"}


class WrappedRuntime(RuntimeTests):
    kind = Wrapped

    def setUp(self):
        super().setUp()
        os.mkdir(self.runtime.root)  # as after the first container

    def bundle(self, name="container", **options):
        return Bundle(self, name, stages=(), **options)

    # --- create and run

    def test_run_grants_requested_hcas(self):
        bundle = self.bundle(requests="mlx5_0,mlx5_1", netns=False)
        bundle.config["x-unknown"] = {"big": 18446744073709551615, "negative": -9223372036854775808, "deep": [[[{}]]]}
        bundle.config["process"]["rlimits"] = [{"type": "RLIMIT_CORE", "soft": 18446744073709551615,
                                                "hard": 18446744073709551615}]
        report = self.runtime.report(bundle.write())
        self.assertEqual(report.nodes, self.node.expected("uverbs0", "uverbs1"))
        self.assertEqual(report.other, "Operation not permitted")
        self.assertEqual(report.facts["require"], "2")
        self.assertTrue(int(report.facts["capabilities"], 16) & CAP_IPC_LOCK)
        self.assertEqual(report.facts["hard memlock"], str(MEMLOCK))
        config = bundle.written()
        for member in ("x-unknown", "root", "ociVersion"):
            self.assertEqual(config[member], bundle.config[member])
        self.assertIn(bundle.config["process"]["rlimits"][0], config["process"]["rlimits"])
        self.assertEqual(set(config["hooks"]), {"poststop"})

    def test_ignores_container_without_request(self):
        for requests in (None, "none"):
            bundle = self.bundle(f"silent-{requests}", requests=requests)
            path = bundle.directory + "/config.json"
            before = os.stat(path)
            report = self.runtime.report(bundle)
            after = os.stat(path)
            self.assertEqual(report.nodes, {})
            self.assertEqual((after.st_ino, after.st_mtime_ns, after.st_ctime_ns),
                             (before.st_ino, before.st_mtime_ns, before.st_ctime_ns))
            self.assertEqual(set(os.listdir(bundle.directory)) & ADDED_TO_BUNDLE, set())

    def test_notes_annotation_without_effect(self):
        show = ("sh", "-c", 'echo "${RDMA_INIT_NOTE-unset}"')
        notes = {"misspelt": ({"rdma-init.io/device": "all"}, "ignoring unknown annotation rdma-init.io/device: known are "
                              "rdma-init.io/devices, rdma-init.io/mode and rdma-init.io/network"),
                 "granted": ({"rdma-init.io/devices": "mlx5_1"}, "unset"),
                 "silent": ({}, "unset")}
        for name, (annotations, expected) in notes.items():
            bundle = self.bundle(name, annotations=annotations, args=show)
            for _ in range(2):
                self.assertEqual(self.succeeded(self.runtime.run(bundle)).stdout, expected + "\n")
        self.assert_ledger_empty()

    def test_tells_what_only_the_node_knows(self):
        topology = write(self.tree + "/etc/topology.xml", "<system/>\n", 0o644)
        self.addCleanup(shutil.rmtree, self.tree + "/etc")
        log = Syslog(self)
        self.planted = self.watched()
        self.configure({"rails": ["mlx5_0", ["pf:mlx5_1", "mlx5_2"]], "topology_file": "/etc/topology.xml",
                        "pools": [{"name": "all", "env": {"NCCL_IB_TC": "106"}}]})
        show = ("sh", "-c", """at=/run/rdma-init/topology
            echo "$RDMA_INIT_RAILS $RDMA_INIT_SITE"; cat $at/topology.xml; touch $at/new 2> /dev/null || echo closed""")
        topology_of = "NCCL_TOPO_FILE=/run/rdma-init/topology/topology.xml"
        done = self.succeeded(self.runtime.run(self.bundle(requests="mlx5_0,mlx5_2", args=show)))
        self.assertEqual(done.stdout, f"mlx5_0=0,mlx5_2=1.1 NCCL_IB_TC=106;{topology_of}\n<system/>\nclosed\n")
        # A file that another user can change is not given, and the container starts.
        os.chmod(topology, 0o666)
        done = self.succeeded(self.runtime.run(self.bundle("without", requests="mlx5_1", args=show)))
        self.assertEqual(done.stdout, "mlx5_1=1.0 NCCL_IB_TC=106\nclosed\n")
        self.assertIn("users other than root can change it", log.text())
        os.chmod(topology, 0o644)

    def test_mounts_no_copy_into_a_volume(self):
        """An image's link can lead /run and a volume to one place."""
        write(self.tree + "/etc/topology.xml", "<system/>\n", 0o644)
        self.addCleanup(shutil.rmtree, self.tree + "/etc")
        log = Syslog(self)
        self.planted = self.watched()
        self.configure({"topology_file": "/etc/topology.xml"})
        volume = self.work + "/volume"
        os.mkdir(volume)
        links = {"usual": ("var/run", "/run", "/var/run"), "own": ("run", "/data", "/data")}
        for name, (link, target, destination) in links.items():
            for access in ("rw", "ro"):
                bundle = self.bundle(f"{name}-{access}", requests="mlx5_1", args=("true",))
                for directory in ("var", "data", "run"):
                    os.makedirs(f"{bundle.rootfs}/{directory}", exist_ok=True)
                with contextlib.suppress(FileNotFoundError):
                    os.rmdir(f"{bundle.rootfs}/{link}")
                os.symlink(target, f"{bundle.rootfs}/{link}")
                bundle.mount(destination, volume, options=("rbind", access))
                self.succeeded(self.runtime.run(bundle.write()))
                self.assertEqual(os.listdir(volume), [])
                self.assertIn("nothing is mounted at `/run/rdma-init/topology`", log.text())

    def test_logs_refusal_and_creates_no_container(self):
        bundle = self.bundle(requests="mlx5_7")
        log = self.work + "/log.json"
        done = self.runtime.call("--log", log, "--log-format", "json", "create", "--bundle", bundle.directory, bundle.id)
        self.refused(done, "mlx5_7")
        last = json.loads(read(log).splitlines()[-1])
        self.assertEqual(last["level"], "error")
        self.assertIn("mlx5_7", last["msg"])
        self.assertFalse(self.runtime.exists(bundle))

    def test_edits_same_bundle_again(self):
        """Items of the first run must not occur twice, and must not count as the engine's."""
        bundle = self.bundle(requests="1")
        first = self.runtime.report(bundle)
        edited = bundle.written()
        self.assertEqual(self.runtime.report(bundle).nodes, first.nodes)
        again = bundle.written()
        self.assertEqual(again, edited)
        self.assertEqual(len(again["linux"]["devices"]), 2)

    def test_uses_current_directory_as_bundle(self):
        bundle = self.bundle(requests="mlx5_1")
        done = self.succeeded(self.runtime.call("run", bundle.id, cwd=bundle.directory))
        self.assertEqual(Report(done.stdout).nodes, self.node.expected("uverbs1"))

    def test_accepts_container_named_create(self):
        bundle = self.created(self.bundle("create", requests="mlx5_1", args=FOREVER))
        os.chdir(bundle.directory)  # a directory with a config.json that requests HCAs
        self.addCleanup(os.chdir, "/")
        before = os.stat("config.json").st_mtime_ns
        self.assertEqual(self.runtime.state(bundle)["status"], "created")
        self.succeeded(self.runtime.call("start", "create"))
        self.assertEqual(os.stat("config.json").st_mtime_ns, before)

    def test_adds_hook_beside_verify(self):
        """A base specification for rdma-nri has this hook."""
        first, second = (self.bundle(name, requests="mlx5_1", annotations=EXCLUSIVE,
                                     args=FOREVER) for name in ("first", "second"))
        for bundle in (first, second):
            bundle.config["hooks"]["createRuntime"] = [self.entry("verify")]
            bundle.write()
        self.created(first)
        self.refused(self.runtime.create(second), "mlx5_1")

    def test_container_keeps_its_runtime_after_change_of_configuration(self):
        bundle = self.started(requests="mlx5_1")
        write(self.config, '{"unknown": 1}')
        self.assertEqual(self.runtime.state(bundle)["status"], "running")
        self.refused(self.runtime.create(self.bundle("requests", requests="mlx5_0")), "unknown")
        self.assertEqual(self.nodes_of(self.bundle("silent")), {})
        write(self.runtime.settings, {**read_json(self.runtime.settings), "runtimes": ["/bin/false"]})
        self.configure({})
        self.assertIsNone(self.runtime.state(self.bundle("other")))
        self.assertEqual(self.runtime.state(bundle)["status"], "running")
        self.succeeded(self.runtime.delete(bundle))
        self.recover()
        for directory in ("containers", "ending"):
            self.assertEqual(os.listdir(f"{self.ledger_directory}/runtime/{directory}"), [])

    # --- exec

    def started(self, **options):
        bundle = self.created(self.bundle(args=FOREVER, **options))
        self.succeeded(self.runtime.call("start", bundle.id))
        return bundle

    def exec_limits(self, bundle, option="--process", **process):
        """Returns capabilities and hard limit of an exec, and its process file afterwards."""
        text = {"args": ["sh", "-c", SHOW], "env": ["PATH=/bin"], "cwd": "/", "user": {"uid": 0, "gid": 0},
                "x-unknown": 18446744073709551615, **process}
        path = write(self.work + "/process.json", text, 0o600)
        arguments = [option + path] if option.endswith("=") else [option, path]
        done = self.succeeded(self.runtime.call("exec", *arguments, bundle.id))
        capabilities, limits = done.stdout.splitlines()
        self.assertEqual(os.stat(path).st_mode & 0o7777, 0o600)
        return int(capabilities.split()[1], 16), limits.split()[4], read_json(path)

    def test_exec_can_register_memory(self):
        self.configure({"memlock": 1 << 20})
        bundle = self.started(requests="mlx5_1")
        for option in ("--process", "-p", "--process="):
            sets = {kind: ["CAP_MKNOD"] for kind in ("bounding", "effective", "permitted")}
            limits = [{"type": "RLIMIT_MEMLOCK", "soft": 4096, "hard": 4096}]
            capabilities, memlock, file = self.exec_limits(bundle, option, capabilities=sets, rlimits=limits)
            self.assertTrue(capabilities & CAP_IPC_LOCK)
            self.assertEqual(memlock, str(1 << 20))
            self.assertEqual(file["x-unknown"], 18446744073709551615)

    def test_exec_without_capabilities_gets_those_of_container(self):
        bundle = self.started(requests="mlx5_1")
        capabilities, _, file = self.exec_limits(bundle)
        self.assertTrue(capabilities & CAP_IPC_LOCK)
        self.assertNotIn("capabilities", file)

    def test_ignores_exec_in_other_container(self):
        """An annotation like ours, in the bundle or as runc's label, does not change this."""
        bundle = self.started(annotations={"rdma-init.io/grant": "0123456789abcdef0123456789abcdef",
                                           "bundle": self.work + "/forged"})
        write(self.work + "/forged/rdma-runtime.json",
              {"id": bundle.id, "config": {"dev": 1, "ino": 1, "mtime_ns": 1, "size": 1}, "ipc_lock": True})
        sets = {kind: ["CAP_MKNOD"] for kind in ("bounding", "effective", "permitted")}
        capabilities, _, _ = self.exec_limits(bundle, capabilities=sets)
        self.assertFalse(capabilities & CAP_IPC_LOCK)

    def test_exec_of_command_line_stays_unchanged(self):
        bundle = self.started(requests="mlx5_1")
        self.succeeded(self.runtime.call("exec", bundle.id, "cat", "/dev/null"))


class Runc(WrappedRuntime, harness.NodeCase):
    runtime_name = "runc"


class Crun(WrappedRuntime, harness.NodeCase):
    runtime_name = "crun"


if __name__ == "__main__":
    harness.main_in_own_machine(RUNTIME)
