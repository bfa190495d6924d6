"""rdma-nri with runtimes from NRI's own Go package in Debian's versions (adaptation/), and with a scripted runtime for later
versions of the protocol."""
import base64
import glob
import json
import os
import signal
import subprocess
import time

import harness
import nri_runtime as nri
import test_nri
from harness import HOOK, MAKE_TREE, NRI, read, wait_for, write
from test_nri import UNLIMITED

PEERS = os.environ.get("NRI_PEERS", "")  # directory with runtime-VERSION
SIZED = os.environ.get("SIZED_PLUGIN", "")
UNIMPLEMENTED = 12
SUBSCRIBED = 0x1 | 0x2 | 0x4 | 0x8 | 0x200 | 0x400
VALIDATES = 0x2000  # requested from NRI 0.12 and later
REQUEST_TIMEOUT = 2  # seconds, NRI's default
PATIENCE = 20  # seconds; for tests without a timeout, because a busy machine needs more than the default
CLOSED = 3  # exit code of sized-plugin when the runtime has closed the connection
PLUGIN_SERVICE = "nri.pkg.api.v1alpha1.Plugin"
TREE_OF_MANY = 200  # HCAs: the adjustment is longer than the first 4096 bytes of a reader


def pod(id="pod1", hcas=None, **annotations):
    if hcas:
        annotations["rdma-init.io/devices"] = hcas
    return {"id": id, "name": "train", "uid": "uid-" + id, "namespace": "team-a", "runtimeHandler": "runc",
            "annotations": {key.replace("__", "/"): value for key, value in annotations.items()}}


# A container in the node's network namespace owns its grant.
def container(id="c1", pod_id="pod1", devices=(), state="CONTAINER_CREATED", **more):
    return {"id": id, "podSandboxId": pod_id, "name": id, "state": state,
            "mounts": [{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]}],
            "linux": {"devices": [{"path": path, "type": "c", "major": major, "minor": minor}
                                  for path, major, minor in devices]}, **more}


def content(value):
    """Removes empty messages, which NRI's package passes on."""
    if isinstance(value, dict):
        value = {key: content(part) for key, part in value.items()}
        return {key: part for key, part in value.items() if part is not None} or None
    return value if value or value == 0 else None


class Refused(Exception):
    """The error that the runtime's caller gets: no container is created."""


class GoRuntime:
    """A runtime from NRI's own package that executes commands."""

    def __init__(self, case, version, *directories):
        program = f"{PEERS}/runtime-{version}"
        if not os.access(program, os.X_OK):
            case.skipTest(f"no runtime with NRI {version}: the test shim.nri_peers has the reason")
        self.log = f"{case.work}/runtime.log"
        with open(self.log, "ab") as log:
            self.process = case.start([program, case.runtime.path, *directories], stdin=subprocess.PIPE,
                                      stdout=subprocess.PIPE, stderr=log)

    def do(self, what, **more):
        self.process.stdin.write(json.dumps({"Do": what, **more}).encode() + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(read(self.log))
        answer = json.loads(line)
        if answer["error"]:
            raise Refused(answer["error"])
        return answer

    def wait(self, count, seconds=30.0):
        return self.do("wait", Count=count, Seconds=seconds)

    def wait_for_log(self, words):
        wait_for(lambda: words in read(self.log), lambda: f"{words!r} in {read(self.log)}")

    def create(self, pod_value, container_value, **more):
        return self.do("create", Pod=pod_value, Container=container_value, **more)

    def end(self):
        harness.end_process(self.process)


class AdaptationCase(test_nri.NriCase):
    version = ""

    def setUp(self):
        super().setUp()
        self.runtime.stop()  # the plugin needs its path
        os.unlink(self.runtime.path)
        self.go = GoRuntime(self, self.version)

    def begin(self, *options, plugins=1, timeout=PATIENCE):
        """Starts the runtime and this number of plugins, and waits until they are synchronized."""
        self.syncs = self.go.do("start", Seconds=timeout)["syncs"]
        for _ in range(plugins):
            self.start_plugin(*options)
            self.joined()

    def joined(self):
        self.syncs += 1
        self.go.wait(self.syncs)

    def names(self, answer):
        return {device["path"] for device in answer["adjustment"].get("linux", {}).get("devices", ())}

    def hold(self, hca="mlx5_0"):
        """Locks the HCA. Returns a function that releases the lock."""
        self.go.create(pod(hcas=hca), container("c0"))
        return self.hold_lock(hca)


class Conformance:
    # --- grants

    def test_runtime_applies_adjustment_to_config_json(self):
        self.begin()
        spec = self.go.create(pod(hcas="mlx5_0,mlx5_2"), container())["spec"]
        devices = {device["path"]: (device["major"], device["minor"]) for device in spec["linux"]["devices"]}
        self.assertEqual(set(devices), {"/dev/infiniband/uverbs0", "/dev/infiniband/uverbs2", "/dev/infiniband/rdma_cm"})
        allowed = {(rule["major"], rule["minor"]) for rule in spec["linux"]["resources"]["devices"] if rule["allow"]}
        self.assertEqual(allowed, set(devices.values()))
        self.assertEqual(spec["process"]["rlimits"], [{"type": "RLIMIT_MEMLOCK", "hard": UNLIMITED, "soft": UNLIMITED}])
        self.assertEqual(spec["process"]["env"], ["RDMA_INIT_REQUIRE=2"])
        self.assertIn("/sys/class/infiniband", {mount["destination"] for mount in spec["mounts"]})
        self.assertRegex(spec["annotations"]["rdma-init.io/grant"], "^[0-9a-f]{32}$")
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]], "mlx5_2": [["c1"]]})

    def test_ignores_container_without_request(self):
        self.begin()
        self.assertEqual(content(self.go.create(pod(), container())["adjustment"]), None)

    def test_grants_and_releases_by_pod_events(self):
        self.begin()
        hcas = pod(hcas="mlx5_1")
        for event in ("run-pod", "stop-pod", "remove-pod"):
            self.go.do(event, Pod=hcas)
        self.go.create(hcas, container())
        self.go.do("stop", Pod=hcas, Container=container())
        self.assertEqual(self.holders(), {})
        self.go.create(hcas, container())
        self.go.do("remove", Pod=hcas, Container=container())
        self.assertEqual(self.holders(), {})

    def test_refusal_fails_container_but_not_connection(self):
        self.begin()
        with self.assertRaisesRegex(Refused, "mlx5_9"):
            self.go.create(pod(hcas="mlx5_9"), container())
        self.assertEqual(self.holders(), {})
        self.assertEqual(len(self.names(self.go.create(pod(hcas="mlx5_1"), container("c2")))), 2)
        self.assertNotIn("trying again", read(self.log))

    def test_leaves_out_device_of_container(self):
        self.begin()
        added = container(devices=[("/dev/infiniband/uverbs1", 231, 193)])
        self.assertEqual(self.names(self.go.create(pod(), added)), {"/dev/infiniband/rdma_cm"})

    def two_instances(self, first, second):
        self.begin("--index", first)
        self.start_plugin("--index", second)
        self.joined()
        # NRI refuses a container if two plugins set the same item.
        answer = self.go.create(pod(hcas="mlx5_0", **{"rdma-init.io__mode": "exclusive"}), container())
        self.assertEqual(self.names(answer), {"/dev/infiniband/uverbs0", "/dev/infiniband/rdma_cm"})
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})

    def test_two_instances_during_upgrade_book_once(self):
        self.two_instances("10", "11")

    def test_two_instances_with_one_index_book_once(self):
        self.two_instances("10", "10")

    # --- lengths

    def start_sized(self, *events):
        self.syncs = self.go.do("start")["syncs"]
        return self.start([SIZED, self.runtime.path, *events])

    def test_sends_answers_of_all_lengths(self):
        self.start_sized()
        self.joined()
        # With their header of 10 bytes: one byte less than Go's reader reads at once, the same length, and more.
        for size in (4085, 4086, 4087, 10000, 3 << 20, 4096, 100):
            answer = self.go.create(pod(), container(annotations={"test/size": str(size)}))
            [(key, value)] = answer["adjustment"]["annotations"].items()
            # Response, CreateContainerResponse, ContainerAdjustment, its map's entry
            self.assertEqual(len(nri.text(2, nri.text(1, nri.texts(2, {key: value})))), size)
        # More than ttrpc accepts: an error, but the connection stays.
        with self.assertRaises(Refused):
            self.go.create(pod(), container(annotations={"test/size": str(5 << 20)}))
        self.go.create(pod(), container(annotations={"test/size": "4087"}))

    def test_sends_long_adjustment(self):
        self.make_tree(TREE_OF_MANY)
        self.begin()
        answer = self.go.create(pod(hcas="all"), container())
        self.assertGreater(answer["size"], 4096)
        self.assertGreaterEqual(len(self.names(answer)), TREE_OF_MANY)

    def test_synchronizes_more_than_one_message(self):
        """NRI 0.6.1 sends 6 MB at once, newer versions send parts."""
        long = {"annotations": {"padding": "x" * 30000}, "state": "CONTAINER_RUNNING"}
        containers = [container(f"c{i}", f"pod{i}", **long) for i in range(200)]
        self.go.do("state", Pods=[pod("pod199", hcas="mlx5_0")] + [pod(f"pod{i}") for i in range(199)],
                   Containers=containers)
        self.begin()
        self.wait_for_log("(c199) requests RDMA devices but has no grant")
        self.assertEqual(len(self.names(self.go.create(pod("new", hcas="mlx5_0"), container("new", "new")))), 2)

    # --- failures

    def test_runtime_refuses_unknown_events(self):
        plugin = self.start_sized("4", "20")
        self.assertEqual(plugin.wait(30), CLOSED)
        self.go.wait_for_log("invalid plugin events")

    def test_refuses_subscription_to_no_event(self):
        """A mask of 0 means all events: the library sends an error instead."""
        plugin = self.start_sized("none")
        self.assertEqual(plugin.wait(30), CLOSED)
        self.go.wait_for_log("subscribes to no event")

    def test_refuses_invalid_index(self):
        """rdma-nri refuses it before NRI would at registration."""
        for index in ("5", "ab", "100"):
            plugin = self.start_plugin("--index", index)
            self.assertNotIn(plugin.wait(30), (0, None))
        self.assertIn("two digits", read(self.log))

    def test_answers_with_error_before_timeout(self):
        self.begin(timeout=REQUEST_TIMEOUT)
        release = self.hold()
        with self.assertRaisesRegex(Refused, "did not finish within the runtime's request timeout"):
            self.go.create(pod(hcas="mlx5_0"), container())
        release()
        self.assertEqual(len(self.names(self.go.create(pod(hcas="mlx5_1"), container("c2")))), 2, "the plugin still gets requests")
        self.assertEqual(self.holders(), {"mlx5_0": [["c0"]], "mlx5_1": [["c2"]]})

    def test_reconnects_after_late_answer(self):
        """The whole process hangs: NRI creates the container without it and closes the connection. The plugin reconnects and
        reports the containers that it missed."""
        self.begin(timeout=REQUEST_TIMEOUT)
        hcas = pod(hcas="mlx5_0")
        self.plugin.send_signal(signal.SIGSTOP)
        answer = self.go.create(hcas, container())
        self.assertEqual(self.names(answer), set())
        self.assertGreaterEqual(answer["seconds"], REQUEST_TIMEOUT * 0.9)
        time.sleep(1)
        self.go.do("state", Pods=[hcas], Containers=[container(state="CONTAINER_RUNNING")])
        self.plugin.send_signal(signal.SIGCONT)
        self.joined()
        self.assertEqual(len(self.names(self.go.create(pod(hcas="mlx5_1"), container("c2")))), 2)
        # Either it granted after the timeout, or it reports that c1 has no grant.
        if "mlx5_0" not in self.holders():
            self.wait_for_log("(c1) requests RDMA devices but has no grant")

    def test_recovers_after_kill_during_request(self):
        self.begin()
        release = self.hold()
        self.kill_soon()
        answer = self.go.create(pod(hcas="mlx5_0"), container())
        self.assertEqual(self.names(answer), set())
        self.assertLess(answer["seconds"], PATIENCE, "no descendant keeps the socket")
        self.workers_end()
        release()
        self.assertEqual(self.holders(), {"mlx5_0": [["c0"]]})
        self.go.do("state", Pods=[pod(hcas="mlx5_0")], Containers=[container("c0", state="CONTAINER_RUNNING")])
        self.start_plugin()
        self.joined()
        self.assertEqual(len(self.names(self.go.create(pod(hcas="mlx5_0"), container("c1")))), 2)

    def test_reconnects_after_restart_of_runtime(self):
        self.begin()
        self.go.create(pod(hcas="mlx5_0"), container())
        self.go.end()
        self.wait_for_log("trying again")
        self.go = GoRuntime(self, self.version)
        self.go.do("state", Pods=[pod(hcas="mlx5_0")], Containers=[container(state="CONTAINER_RUNNING")])
        self.syncs = self.go.do("start")["syncs"]
        self.joined()
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})
        self.assertEqual(len(self.names(self.go.create(pod(hcas="mlx5_1"), container("c2")))), 2)

    def test_probe_follows_connection(self):
        self.begin()
        self.until_probe(NRI, 0, "rdma-nri: ready: connected to containerd")
        self.go.end()
        self.until_probe(NRI, 1, "rdma-nri: not ready: not connected to the runtime: ")
        self.go = GoRuntime(self, self.version)
        self.go.do("start")
        self.until_probe(NRI, 0, "rdma-nri: ready: connected to containerd")

    # --- requests of runtimes with tracing, and requests that NRI's package never sends

    def test_ignores_metadata_of_tracing(self):
        self.begin()
        metadata = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-00f067aa-01"}
        self.assertEqual(len(self.names(self.go.create(pod(hcas="mlx5_0"), container(), Metadata=metadata))), 2)

    def raw(self):
        """A scripted connection before the plugin's registration is answered."""
        self.start_plugin()
        self.go.do("raw-accept")
        self.assertEqual(self.go.do("raw-registered")["registered"], ["10", "rdma"])

    def call(self, method, payload=b"", service=PLUGIN_SERVICE):
        answer = self.go.do("raw-call", Service=service, Method=method, Payload=base64.b64encode(payload).decode())
        return base64.b64decode(answer.get("payload") or "")

    def test_accepts_configure_before_answer_to_registration(self):
        self.raw()
        self.assertEqual(nri.first(self.call("Configure", nri.text(2, "containerd")), 2, 0), SUBSCRIBED)
        self.go.do("raw-answer")
        self.call("Synchronize")
        self.wait_for_log("registered as 10-rdma")

    def test_refuses_unknown_method_or_service(self):
        self.raw()
        self.go.do("raw-answer")
        self.call("Configure", nri.text(2, "containerd"))
        self.call("Synchronize")
        for method, service in (("NoSuchMethod", PLUGIN_SERVICE), ("UpdatePodSandbox", PLUGIN_SERVICE),
                                ("CreateContainer", "no.such.Service")):
            with self.assertRaisesRegex(Refused, "(?i)unimplemented"):
                self.call(method, service=service)
        request = nri.text(1, nri.pod("pod1", {"rdma-init.io/devices": "mlx5_0"}))
        created = self.call("CreateContainer", request + nri.text(2, nri.container("c1", "pod1", network=False)))
        self.assertEqual(len(nri.adjustment(nri.first(created, 1))["devices"]), 2)

    # --- started by the runtime

    def test_runs_when_started_by_runtime(self):
        plugins, configs = self.work + "/plugins", self.work + "/conf.d"
        seen = self.work + "/seen"
        write(plugins + "/05-rdma", f"""#!/bin/sh
/usr/bin/tr '\\0' '\\n' < /proc/$$/environ > {seen}.env
files=$(/bin/readlink /proc/$$/fd/0 /proc/$$/fd/1 /proc/$$/fd/2 /proc/$$/fd/3)
echo "$files" > {seen}.fds
exec {NRI} {" ".join(self.places())}
""", 0o755)
        write(configs + "/05-rdma.conf", "a file that rdma-nri does not need\n")
        self.go.end()
        self.go = GoRuntime(self, self.version, plugins, configs)
        self.go.do("start")
        answer = self.go.create(pod(hcas="mlx5_0"), container())
        self.assertEqual(len(self.names(answer)), 2)
        self.assertEqual(sorted(read(seen + ".env").split()),
                         ["NRI_PLUGIN_IDX=05", "NRI_PLUGIN_NAME=rdma", "NRI_PLUGIN_SOCKET=3"])
        files = read(seen + ".fds").splitlines()
        self.assertEqual(files[:3], ["/dev/null"] * 3)
        self.assertRegex(files[3], "^socket:")
        self.go.do("stop-runtime")
        wait_for(lambda: not self.running(), "the end of the plugin with its runtime")

    def running(self):
        """Starts a plugin with this test's ledger."""
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, "rb") as file:
                    if self.ledger_directory.encode() in file.read():
                        return True
            except OSError:
                pass  # the plugin has ended
        return False


class Adaptation061(Conformance, AdaptationCase):
    version = "0.6.1"


class Adaptation080(Conformance, AdaptationCase):
    version = "0.8.0"


class NewConnection(nri.Connection):
    """As NRI 0.12: sends its version, timeouts and metadata, and answers a registration at any time."""

    def __init__(self, connected, answer_at_once=True):
        self.answer_at_once = answer_at_once
        self.registration = None  # stream and version of RegisterPlugin
        super().__init__(connected)

    def take(self, connection, stream, type, data):
        method = nri.decoded(nri.first(data, 2)) if connection == nri.RUNTIME and type == nri.REQUEST else ""
        if method == "RegisterPlugin":
            version = nri.first(nri.first(data, 3), 3)
            with self.changed:
                self.registration = (stream, nri.decoded(version) if version else "")
            if not self.answer_at_once:
                with self.changed:
                    self.changed.notify_all()
                return
        super().take(connection, stream, type, data)

    def answer_registration(self):
        self.send(nri.RUNTIME, self.registration[0], nri.RESPONSE, b"")

    def code_of(self, method, payload=b"", service=PLUGIN_SERVICE):
        """Returns the status code of an answer; 0: success."""
        stream = self.stream
        self.stream += 2
        metadata = nri.text(5, nri.text(1, "traceparent") + nri.text(2, "00-0af7651916cd43dd8448eb211c80319c-00f067aa-01"))
        request = nri.text(1, service) + nri.text(2, method) + nri.text(3, payload) + nri.number(4, 1999000000) + metadata
        self.send(nri.PLUGIN, stream, nri.REQUEST, request)
        self.wait(lambda: stream in self.answers)
        return nri.first(nri.first(self.answers.pop(stream), 1), 1, 0)

    def configure(self):
        payload = (nri.text(2, "containerd") + nri.text(3, "v2.3.4") + nri.number(4, 5000) + nri.number(5, 2000) +
                   nri.text(6, "v0.12.1"))
        return nri.first(self.request("Configure", payload), 2, 0)


class Newer(test_nri.NriCase):
    """Behaviour of NRI 0.12 that Debian's versions lack."""

    def accept(self, **options):
        self.start_plugin()
        connection = NewConnection(self.runtime.listening.accept()[0], **options)
        self.addCleanup(connection.close)
        connection.wait(lambda: connection.registration)
        return connection

    def introduced(self):
        connection = self.accept()
        self.assertEqual(connection.configure(), SUBSCRIBED | VALIDATES)
        connection.synchronize()
        return connection

    def test_exchanges_versions(self):
        connection = self.accept()
        self.assertRegex(connection.registration[1], r"^v0\.12\.\d+$")
        self.assertRegex(connection.registered[1], "^[A-Za-z0-9_.+-]+$")
        connection.configure()
        self.wait_for_log("NRI v0.12.1; a request may take 2000 ms")

    def test_accepts_configure_before_answer_to_registration(self):
        connection = self.accept(answer_at_once=False)
        self.assertEqual(connection.configure(), SUBSCRIBED | VALIDATES)
        connection.answer_registration()
        connection.synchronize()
        self.wait_for_log("registered as 10-rdma")

    def test_accepts_method_of_each_event(self):
        connection = self.introduced()
        pod_data, member = self.requesting("mlx5_0"), self.member()
        both = nri.text(1, pod_data) + nri.text(2, member)
        self.assertEqual(connection.code_of("RunPodSandbox", nri.text(1, pod_data)), 0)
        self.assertEqual(connection.code_of("CreateContainer", both), 0)
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})
        for method in ("PostCreateContainer", "StartContainer", "PostStartContainer", "UpdateContainer",
                       "PostUpdateContainer"):
            self.assertEqual(connection.code_of(method, both), 0, method)
        self.assertEqual(self.holders(), {"mlx5_0": [["c1"]]})
        self.assertEqual(connection.code_of("StopContainer", both), 0)
        self.assertEqual(self.holders(), {})
        for method in ("RemoveContainer", "StopPodSandbox", "RemovePodSandbox"):
            self.assertEqual(connection.code_of(method, both if "Container" in method else nri.text(1, pod_data)), 0, method)

    def test_refuses_unknown_methods(self):
        """The runtime then sends a StateChange, or continues without the plugin."""
        connection = self.introduced()
        pod_data = nri.text(1, nri.pod("pod1"))
        for method in ("UpdatePodSandbox", "PostUpdatePodSandbox", "NoSuchMethod"):
            self.assertEqual(connection.code_of(method, pod_data), UNIMPLEMENTED, method)
        self.assertEqual(connection.code_of("CreateContainer", pod_data, service="no.such.Service"), UNIMPLEMENTED)
        after_update = nri.number(1, 13) + nri.text(2, nri.pod("pod1"))
        self.assertEqual(connection.code_of("StateChange", after_update), 0)
        self.assertEqual(len(connection.create(self.requesting("mlx5_0"), self.member())["devices"]), 2)

    def test_ignores_new_fields(self):
        connection = self.introduced()
        # Fields of Container: times, exit code, status, CDI devices, user, image.
        new = (nri.number(14, 1 << 60) + nri.number(15, 1 << 60) + nri.number(17, 1) + nri.text(18, "reason") +
               nri.text(19, "message") + nri.text(20, nri.text(1, "nvidia.com/gpu=0")) +
               nri.text(21, nri.number(1, 1000) + nri.number(2, 1000) + nri.number(3, 44)) +
               nri.text(22, nri.text(1, "registry.example.com/image")))
        got = connection.create(self.requesting("mlx5_0"), self.member() + new)
        self.assertEqual(len(got["devices"]), 2)

    def test_reads_limits_of_container(self):
        connection = self.introduced()
        limits = [("RLIMIT_MEMLOCK", UNLIMITED, UNLIMITED)]
        self.assertEqual(connection.create(self.requesting("mlx5_0"), self.member(rlimits=limits))["rlimits"], {})

    def test_synchronizes_in_parts(self):
        connection = self.accept()
        connection.configure()
        connection.synchronize(pods=[self.requesting("mlx5_0"), nri.pod("pod2")],
                               containers=[self.member("c1", state=3), nri.container("c2", "pod2", state=3)], parts=3)
        self.wait_for_log("(c1) requests RDMA devices but has no grant")


if __name__ == "__main__":
    harness.main(NRI, HOOK, MAKE_TREE, SIZED)
