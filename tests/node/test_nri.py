"""rdma-nri with a scripted runtime: grants to containers, refusals and reconnects. The node is a file tree."""
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import harness
import nri_runtime as nri
from harness import HOOK, MAKE_TREE, NRI, SOURCE, read, run, status_of, wait_for, write

sys.path.append(SOURCE + "/tests/support")
import grant_record  # noqa: E402

UNLIMITED = (1 << 64) - 1
EXCLUSIVE = {"rdma-init.io/mode": "exclusive"}
TRUSTING = {"annotations_may_request": ["team-a"], "pools": [
    {"name": "rails", "modes": ["shared", "exclusive", "hca"]}]}


class NriCase(harness.TreeCase):
    def setUp(self):
        super().setUp()
        self.configure(TRUSTING)
        self.runtime = nri.Runtime(self.work + "/nri.sock")
        self.addCleanup(self.runtime.stop)

    def start_plugin(self, *options):
        self.plugin = self.start_logged([NRI, "--socket", self.runtime.path, *self.places(), *options])
        return self.plugin

    def accept(self):
        connection = self.runtime.accept()
        self.addCleanup(connection.close)
        return connection

    def connect(self, *options, **introduction):
        self.start_plugin(*options)
        connection = self.accept()
        connection.introduce(**introduction)
        return connection

    def holders(self):
        return {name: [holder["containers"] for holder in hca["holders"]]
                for name, hca in self.devices().items() if hca["holders"]}

    def hold_lock(self, hca):
        """Locks the HCA by the device that its grant names. Returns a function that releases the lock."""
        (device,) = (held.get("device", hca) for file in os.listdir(self.ledger_directory + "/grants")
                     for held in hcas_of(json.loads(read(f"{self.ledger_directory}/grants/{file}").splitlines()[0]))
                     if held["name"] == hca)
        lock = open(f"{self.ledger_directory}/hca/{device}/lock", "rb")
        self.addCleanup(lock.close)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock.close

    def kill_soon(self):
        """Kills the plugin while it waits for a lock."""
        self.workers = []

        def kill():
            self.workers = harness.children_of(self.plugin.pid)
            self.plugin.kill()

        killer = threading.Timer(0.3, kill)
        killer.start()
        self.addCleanup(killer.join)

    def workers_end(self):
        """Waits until the workers of the killed plugin are gone: the kernel closes its connection before it kills them."""
        wait_for(lambda: all(harness.process_state(pid) in ("", "Z") for pid in self.workers), "the end of the plugin's workers")

    def requesting(self, request, **more):
        return nri.pod("pod1", {"rdma-init.io/devices": request, **more})

    # A container in the node's network namespace owns its grant.
    @staticmethod
    def member(id="c1", **more):
        more.setdefault("network", False)
        return nri.container(id, "pod1", **more)


def hcas_of(grant):
    return grant["hcas"] + [held for user in grant["users"] for held in user.get("hcas", ())]


class Containers(NriCase):
    def test_grants_requested_hcas(self):
        connection = self.connect()
        got = connection.create(self.requesting("mlx5_0,mlx5_2"), self.member())
        self.assertEqual(set(got["devices"]), {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs2",
                                               "/dev/infiniband/rdma_cm"})
        self.assertEqual(got["rlimits"], {"RLIMIT_MEMLOCK": (UNLIMITED, UNLIMITED)})
        self.assertEqual(got["env"], {"RDMA_INIT_REQUIRE": "2"})
        self.assertIn("/sys/class/infiniband", got["mounts"])
        self.assertEqual(sorted(os.listdir(got["mounts"]["/sys/class/infiniband"])), ["mlx5_0", "mlx5_2"])
        self.assertRegex(got["annotations"]["rdma-init.io/grant"], "^[0-9a-f]{32}$")
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]], "mlx5_2": [["c1"]]})
        self.wait_for_log("NRI cannot add CAP_IPC_LOCK")

    def test_ignores_container_without_request(self):
        connection = self.connect()
        got = connection.create(nri.pod("pod1"), self.member())
        self.assertEqual(got, nri.adjustment(b""))
        self.assertEqual(self.holders(), {})

    def test_books_devices_of_device_plugin_without_adding_them(self):
        connection = self.connect()
        added = ("/dev/infiniband/uverbs1", 231, 193)
        got = connection.create(nri.pod("pod1"), self.member(devices=[added]))
        self.assertEqual(set(got["devices"]), {"/dev/infiniband/rdma_cm"})
        self.assertEqual(self.holders(), {"mlx5_1": [["c1"]]})

    def test_adds_only_limits_and_view_beside_network_operator(self):
        """The overlay beside-network-operator: the SR-IOV device plugin with `isRdma` adds uverbs, umad and issm of each function, and
        rdma_cm (pkg/devices/rdma.go of sriov-network-device-plugin and its library rdmamap). All of them stay."""
        self.configure(harness.read_json(SOURCE + "/config/kubernetes/overlays/beside-network-operator/config.json"))
        connection = self.connect()
        added = [(f"/dev/infiniband/{name}{number}", 231, first + number) for number in (1, 2)
                 for name, first in (("uverbs", 192), ("umad", 0), ("issm", 64))]
        major, minor = map(int, read(self.tree + "/sys/class/misc/rdma_cm/dev").split(":"))
        added.append(("/dev/infiniband/rdma_cm", major, minor))
        pod = nri.pod("pod1", {"k8s.v1.cni.cncf.io/networks": "rail-0, rail-1"})
        got = connection.create(pod, self.member(devices=added))
        self.assertEqual(got["devices"], {}, "each node is there already")
        self.assertEqual(got["rlimits"], {"RLIMIT_MEMLOCK": (UNLIMITED, UNLIMITED)})
        self.assertEqual(sorted(os.listdir(got["mounts"]["/sys/class/infiniband"])), ["mlx5_1", "mlx5_2"])
        self.assertEqual(self.holders(), {"mlx5_1": [["c1"]], "mlx5_2": [["c1"]]})

    def test_ignores_request_of_namespace_that_is_not_listed(self):
        connection = self.connect()
        got = connection.create(nri.pod("pod1", {"rdma-init.io/devices": "all"}, namespace="team-b"), self.member())
        self.assertEqual(got, {**nri.adjustment(b""), "env": {
            "RDMA_INIT_NOTE": "ignoring annotation rdma-init.io/devices: with containerd in namespace team-b it may not request "
                              "HCAs, remedy: add the namespace to annotations_may_request in config.json"}})
        self.wait_for_log("team-b")

    def test_refusal_fails_container_and_books_nothing(self):
        connection = self.connect()
        with self.assertRaisesRegex(nri.StatusError, "mlx5_9"):
            connection.create(self.requesting("mlx5_9"), self.member())
        self.assertEqual(self.holders(), {})
        self.until(self.refusals, "the refusal is noted after the answer")
        (refusal,) = self.refusals()
        self.assertEqual(refusal["pod"]["namespace"], "team-a")
        self.assertEqual((refusal["stage"], refusal["reason"]), ("nri-container", "no-hca"))
        self.assertIn("no HCA matches `mlx5_9`", refusal["message"])
        self.assertEqual(connection.create(nri.pod("pod2"), self.member("c2"))["devices"], {}, "the plugin continues after a refusal")

    def test_refuses_exclusive_hca_until_first_container_ends(self):
        connection = self.connect()
        request = self.requesting("mlx5_0", **EXCLUSIVE)
        connection.create(request, self.member("c1"))
        with self.assertRaisesRegex(nri.StatusError, "`mlx5_0` is held by .*c1"):
            connection.create(request, self.member("c2"))
        connection.event("StopContainer", request, self.member("c1"))
        self.assertEqual(self.holders(), {})
        connection.create(request, self.member("c2"))
        connection.event("RemoveContainer", request, self.member("c2"), dedicated=False)
        self.assertEqual(self.holders(), {})

    def test_failed_create_releases_hca_for_next_attempt(self):
        runtime = self.connect()
        for attempt in range(3):
            runtime.create(self.requesting("mlx5_1", **EXCLUSIVE), self.member(f"try{attempt}", name="trainer"))
            self.assertEqual(self.holders(), {"mlx5_1": [[f"try{attempt}"]]})
        with self.assertRaises(nri.StatusError):
            runtime.create(self.requesting("mlx5_1", **EXCLUSIVE), self.member("c2", name="another"))
        self.assertEqual(self.holders(), {"mlx5_1": [["try2"]]})

    def test_two_instances_during_upgrade_book_once(self):
        connections = [self.connect("--index", "10"), self.connect("--index", "11")]
        request = self.requesting("mlx5_0", **EXCLUSIVE)
        got = connections[0].create(request, self.member())
        # The runtime passes the first adjustment to the later plugin.
        merged = self.member(devices=[(path, *number) for path, number in got["devices"].items()],
                             env=["=".join(entry) for entry in got["env"].items()], annotations=got["annotations"],
                             rlimits=[("RLIMIT_MEMLOCK", UNLIMITED, UNLIMITED)])
        again = connections[1].create(request, merged)
        self.assertEqual((again["devices"], again["env"], again["annotations"], again["rlimits"]), ({}, {}, {}, {}))
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})

    def test_reads_changed_configuration(self):
        connection = self.connect()
        self.configure({**TRUSTING, "annotations_may_request": ["team-c"]})
        self.assertEqual(connection.create(self.requesting("mlx5_0"), self.member())["devices"], {})
        self.configure("{")
        with self.assertRaisesRegex(nri.StatusError, "config.json"):
            connection.create(self.requesting("mlx5_0"), self.member("c2"))
        self.assertEqual(connection.create(nri.pod("pod2"), self.member("c3"))["devices"], {})

    def test_verify_finds_grant(self):
        connection = self.connect()
        bundle = self.work + "/bundle"
        config = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}, "process": {"args": ["x"], "cwd": "/"},
                  "annotations": {"rdma-init.io/devices": "mlx5_0", "io.kubernetes.cri.sandbox-namespace": "team-a"},
                  "linux": {}}

        def verify(id):
            state = {"ociVersion": "1.0.2", "id": id, "pid": os.getpid(), "status": "creating", "bundle": bundle}
            return self.hook("verify", state, "containerd")

        got = connection.create(self.requesting("mlx5_0"), self.member("c1"))
        config["annotations"].update(got["annotations"])
        write(bundle + "/config.json", config)
        self.succeeded(verify("c1"))
        self.refused(verify("c2"), "no HCA was granted")
        del config["annotations"]["rdma-init.io/devices"]
        write(bundle + "/config.json", config)
        self.assertEqual(verify("c3").returncode, 0, "the container requests nothing")


class Time(NriCase):
    def test_answers_with_error_before_timeout(self):
        """The HCA stays locked, so the plugin cannot grant it."""
        connection = self.connect(timeout_ms=1000)
        connection.create(self.requesting("mlx5_0"), self.member("c0"))
        release = self.hold_lock("mlx5_0")
        began = time.monotonic()
        with self.assertRaisesRegex(nri.StatusError, "did not finish within the runtime's request timeout"):
            connection.create(self.requesting("mlx5_0"), self.member("c1"))
        self.assertLess(time.monotonic() - began, 1.0)
        release()
        connection.create(self.requesting("mlx5_1"), self.member("c2"))
        self.assertEqual(self.holders(), {"mlx5_0": [["c0"]], "mlx5_1": [["c2"]]})

    def test_recovers_after_kill_during_request(self):
        connection = self.connect()
        connection.create(self.requesting("mlx5_0"), self.member("c0"))
        self.hold_lock("mlx5_0")
        self.kill_soon()
        with self.assertRaises(EOFError):  # no descendant keeps the socket
            connection.create(self.requesting("mlx5_0"), self.member("c1"))
        self.assertEqual(self.holders(), {"mlx5_0": [["c0"]]})


class Life(NriCase):
    def test_subscribes_only_to_its_events(self):
        self.start_plugin()
        connection = self.accept()
        self.assertEqual(connection.introduce(), 0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x400)
        self.assertEqual(connection.registered, ("10", "rdma"))

    def test_refuses_container_after_later_plugin_takes_node(self):
        """Scripted, because no engine of Debian has the validators of NRI 0.10."""
        self.start_plugin()
        runtime = self.accept()
        self.assertEqual(runtime.introduce(nri_version="v0.12.0"), 0x2000 | 0x60f)
        path = "/dev/infiniband/uverbs1"
        for id, later, reason in (
                ("keeps", {path: (231, 193)}, None),
                ("adds", {path: (231, 193), "/dev/fuse": (10, 229)}, None),
                ("removes", {}, f"NRI plugin `20-other` removed `{path}`"),
                ("swaps", {path: (231, 194)}, f"NRI plugin `20-other` replaced `{path}`")):
            container = self.member(id)
            got = runtime.create(self.requesting("mlx5_1"), container)["devices"]
            self.assertEqual(got[path], (231, 193))
            set_by_all = {other: numbers for other, numbers in got.items() if other != path} | later
            refused = runtime.validate(container, set_by_all.items(), {path: "-20-other" if id == "removes" else "20-other"})
            if not reason:
                self.assertIsNone(refused)
                continue
            self.assertIn(reason, refused)
            self.wait_for_log(refused)
            wait_for(lambda id=id: [id] not in self.holders().get("mlx5_1", []), f"release of {id}")
        # A node that a device plugin added is removed.
        added = self.member("added", devices=((path, 231, 193),))
        got = runtime.create(self.requesting("all"), added)["devices"]
        self.assertNotIn(path, got)
        self.assertIsNone(runtime.validate(added, got.items()))
        self.assertIn("removed", runtime.validate(added, [("-" + path, (0, 0)), *got.items()]))
        self.assertIsNone(runtime.validate(self.member("never seen"), (("-" + path, (0, 0)),)))

    def test_does_not_validate_before_nri_0_10(self):
        for version in ("", "v0.9.1", "0.8.0"):
            self.start_plugin()
            self.assertEqual(self.accept().introduce(nri_version=version), 0x60f, version)
            harness.end_process(self.plugin)

    def test_warns_when_runtime_ignores_cdi(self):
        runtime = self.connect()
        runtime.create(nri.pod("pod1"), self.member() + nri.text(20, nri.text(1, "rdma-init.io/hca=mlx5_1")))
        self.wait_for_log("container c1 requests CDI device `rdma-init.io/hca=mlx5_1` but has no RDMA device node")

    def test_reconnects_after_restart_of_runtime(self):
        connection = self.connect()
        connection.create(self.requesting("mlx5_0"), self.member())
        connection.close()
        self.runtime.stop()
        self.wait_for_log("trying again")
        self.runtime.start()
        again = self.accept()
        again.introduce(pods=[self.requesting("mlx5_0")], containers=[self.member(state=3)])
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})
        again.create(self.requesting("mlx5_1"), self.member("c2"))

    def test_waits_for_missing_runtime(self):
        self.runtime.stop()
        os.unlink(self.runtime.path)
        plugin = self.start_plugin()
        self.wait_for_log("nri.sock")
        self.assertIsNone(plugin.poll())
        self.runtime.start()
        self.accept().introduce()

    def test_sets_no_new_privileges_and_filter(self):
        self.connect()
        status = status_of(self.plugin.pid)
        self.assertEqual((status["NoNewPrivs"], status["Seccomp"]), ("1", "2"))

    def test_ends_at_sigterm(self):
        self.connect()
        self.plugin.send_signal(signal.SIGTERM)
        self.assertEqual(self.plugin.wait(30), 0)

    def test_runs_when_started_by_runtime(self):
        ours, theirs = socket.socketpair()
        environment = {"NRI_PLUGIN_NAME": "rdma", "NRI_PLUGIN_IDX": "05", "NRI_PLUGIN_SOCKET": "3"}
        plugin = self.start(["/bin/sh", "-c", f'exec "$0" "$@" 3<&{theirs.fileno()}', NRI, *self.places()],
                            env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE)
        theirs.close()
        connection = nri.Connection(ours)
        connection.introduce()
        self.assertEqual(connection.registered, ("05", "rdma"))
        self.assertEqual(len(connection.create(self.requesting("2"), self.member())["devices"]), 3)
        ours.shutdown(socket.SHUT_RDWR)
        connection.reader.join(30)
        connection.close()
        self.assertEqual(plugin.wait(30), 0)
        self.assertEqual(plugin.stderr.read(), b"", "a plugin that the runtime started logs to syslog")

    def test_refuses_unknown_runtime(self):
        self.start_plugin()
        connection = self.accept()
        connection.wait(lambda: connection.registered)
        with self.assertRaisesRegex(nri.StatusError, "runtime `other` is not known"):
            connection.request("Configure", nri.text(2, "other"))


class Probe(NriCase):
    def test_reports_missing_process(self):
        self.assertEqual(self.probe(NRI), (1, "rdma-nri: not ready: no running process has recorded a state in "
                                              f"`{self.ledger_directory}/state`: the program does not run, or has just "
                                              "started"))

    def test_reports_missing_runtime(self):
        self.runtime.stop()
        os.unlink(self.runtime.path)
        self.start_plugin()
        self.until_probe(NRI, 1, "rdma-nri: not ready: not connected to the runtime: cannot connect to "
                                 f"`{self.runtime.path}`: No such file or directory; remedy: start the runtime; restart it if")
        self.runtime.start()
        connection = self.accept()
        connection.wait(lambda: connection.registered)
        self.assertEqual(self.probe(NRI)[0], 1, "the runtime has not reported its containers")
        connection.introduce()
        self.until_probe(NRI, 0, "rdma-nri: ready: connected to containerd v2.1.9")

    def test_follows_connection(self):
        connection = self.connect()
        self.until_probe(NRI, 0, "connected to containerd")
        elsewhere = run(["unshare", "--pid", "--fork", NRI, "--probe", "--ledger", self.ledger_directory])
        self.assertEqual((elsewhere.returncode, elsewhere.stderr), (0, ""), "in another PID namespace")
        connection.close()
        self.runtime.stop()
        self.until_probe(NRI, 1, "not connected to the runtime: cannot connect to")
        self.runtime.start()
        self.accept().introduce(name="cri-o")
        self.until_probe(NRI, 0, "connected to cri-o")

    def test_reports_end_of_process(self):
        self.connect()
        self.until_probe(NRI, 0, "connected")
        self.plugin.kill()
        self.plugin.wait(30)
        self.assertRegex(self.probe(NRI)[1], "not ready: no running process has recorded a state")

    def test_start_of_container_writes_no_state(self):
        connection = self.connect()
        self.until_probe(NRI, 0, "connected")
        (name,) = os.listdir(self.ledger_directory + "/state")
        before = os.stat(f"{self.ledger_directory}/state/{name}")
        connection.create(self.requesting("mlx5_0"), self.member())
        connection.synchronize([self.requesting("mlx5_0")], [self.member(state=3)])
        after = os.stat(f"{self.ledger_directory}/state/{name}")
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))


class Missed(NriCase):
    def test_reports_containers_without_grant(self):
        pods = [self.requesting("mlx5_0"), nri.pod("pod2")]
        containers = [self.member("c1", state=3), nri.container("c2", "pod2", state=3),
                      self.member("c3", state=4), nri.container("c4", "pod2", state=3, network=False,
                                                                devices=[("/dev/infiniband/uverbs3", 231, 195)])]
        connection = self.connect(pods=pods, containers=containers, parts=2)
        self.wait_for_log("container team-a/train/c1 (c1) requests RDMA devices but has no grant")
        connection.create(nri.pod("pod3"), self.member("c9"))
        self.assertIn("(c4)", read(self.log))
        for other in ("(c2)", "(c3)"):
            self.assertNotIn(other, read(self.log))
        self.assertEqual(connection.evicted, [])

    def test_evicts_ungranted_containers_if_configured(self):
        self.configure({**TRUSTING, "nri": {"evict_ungranted": True}})
        connection = self.connect(pods=[self.requesting("mlx5_0")], containers=[self.member("c1", state=3)])
        connection.wait(lambda: connection.evicted)
        self.assertEqual(connection.evicted, ["c1"])

    def test_releases_grants_of_containers_that_ended_while_disconnected(self):
        connection = self.connect()
        connection.create(self.requesting("mlx5_0"), self.member("c1"))
        connection.create(self.requesting("mlx5_1"), self.member("c2"))
        connection.close()
        self.age(120)
        again = self.accept()
        again.introduce(pods=[self.requesting("mlx5_1")], containers=[self.member("c2", state=3)])
        self.wait_for_holders({"mlx5_1": [["c2"]]})

    def age(self, seconds):
        """Makes the grants older by this time."""
        def older(grant):
            grant["users"][0]["worker"]["change"] -= seconds * 10**9
        self.change_grants(older)

    def change_grants(self, change):
        for file in os.listdir(self.ledger_directory + "/grants"):
            path = f"{self.ledger_directory}/grants/{file}"
            grant = grant_record.read(path)
            change(grant)
            grant_record.write(path, grant)

    def test_keeps_grant_of_young_container_when_the_nodes_time_jumps(self):
        """The runtime does not list the container yet. By the node's time its grant is a day old; or its age is not known."""
        connection = self.connect()
        connection.create(self.requesting("mlx5_0"), self.member("c1"))
        for change in (lambda grant: grant.update(since=grant["since"] - 86400), lambda grant: grant["users"][0].pop("worker"),
                       lambda grant: grant["users"][0].update(settled=True)):
            connection.close()
            self.change_grants(change)
            connection = self.accept()
            connection.introduce()
            connection.create(nri.pod("pod2"), self.member("c9"))  # the work after Synchronize is done by now
            self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})

    def wait_for_holders(self, wanted):
        wait_for(lambda: self.holders() == wanted, lambda: f"holders {wanted}, not {self.holders()}")

    def test_keeps_grant_of_container_created_during_synchronize(self):
        """The runtime does not list it yet. Two minutes after the grant the plugin queries it again over a second connection."""
        connection = self.connect()
        for id, hca in (("c1", "mlx5_0"), ("c2", "mlx5_1")):
            connection.create(self.requesting(hca), self.member(id))
        both = {"mlx5_0": [["c1"]], "mlx5_1": [["c2"]]}
        connection.close()
        for age in (0, 105):
            self.age(age)
            again = self.accept()
            again.introduce()
            again.create(nri.pod("pod2"), self.member("c9"))  # the work after Synchronize is done by now
            self.assertEqual(self.holders(), both)
            if age == 0:
                again.close()
        recount = self.accept()
        self.assertEqual(recount.introduce(containers=[self.member("c2", state=2)]), 0x4)
        self.wait_for_holders({"mlx5_1": [["c2"]]})
        with self.assertRaises(EOFError):
            recount.wait(lambda: False)
        again.create(self.requesting("mlx5_0"), self.member("c3"))
        self.runtime.listening.settimeout(3)
        with self.assertRaises(TimeoutError):
            self.runtime.accept()

    def test_keeps_grants_when_second_query_fails(self):
        connection = self.connect()
        connection.create(self.requesting("mlx5_0"), self.member("c1"))
        connection.close()
        self.age(105)
        again = self.accept()
        again.introduce()
        self.runtime.stop()
        os.unlink(self.runtime.path)
        self.wait_for_log("stay until rdma-nri connects again")
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})
        again.create(self.requesting("mlx5_1"), self.member("c2"))


if __name__ == "__main__":
    harness.main(NRI, HOOK, MAKE_TREE)
