"""What CRI-O 1.37.0 sent on a node, sent again (recorded/): `create` and `exec` to rdma-runtime with conmon's arguments
and environment in front of a runtime that only writes down, the states of its hooks to rdma-hook, and NRI's frames to
rdma-nri. What is checked is what CRI-O, the node's log and the tenant's container log get of it."""
import contextlib
import json
import os
import socket
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, os.pardir, "containers")]
import harness  # noqa: E402
import nri_runtime as nri  # noqa: E402
import wrapper  # noqa: E402
from containers import WRAPPER, FakeContainer, make_rootfs  # noqa: E402

NRI = os.environ.get("TESTED_NRI", "")
RECORDED = os.path.join(HERE, "recorded")
# The runtime behind rdma-runtime says this itself, which conmon puts into the container's log.
OF_THE_RUNTIME = "errors of the runtime\n"
TRUSTING = {"annotations_may_request": ["team-a"]}
FINITE = 6 << 20
MEMLOCK = "RLIMIT_MEMLOCK"


class Syslog:
    """/dev/log of a /dev of our own."""

    def __init__(self, case):
        with contextlib.suppress(FileNotFoundError):
            os.unlink("/dev/log")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("/dev/log")
        self.socket.setblocking(False)
        case.addCleanup(self.close)

    def lines(self):
        """What came since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(65536).decode())
        return found

    def close(self):
        self.socket.close()
        os.unlink("/dev/log")


class Recorded:
    """A container of crio.json, whose bundle is where it was. Its image, control group and number of rdma_cm are ours."""

    def __init__(self, case, name, annotations=()):
        self.case = case
        with open(RECORDED + "/crio.json", encoding="utf-8") as file:
            self.recorded = json.load(file)[name]
        self.config = self.recorded["config"]
        self.id = self.config["annotations"]["io.kubernetes.cri-o.ContainerID"]
        self.directory = self.recorded["calls"]["create"]["cwd"]
        self.rootfs = make_rootfs(case.work + "/rootfs-" + name)
        self.config["root"]["path"] = self.rootfs
        self.config["linux"]["cgroupsPath"] = f"/{harness.GROUP}/crio-{self.id}"
        self.config["annotations"].update(annotations)
        for device in self.config["linux"].get("devices", []):  # that of rdma_cm is another here
            device["major"], device["minor"] = case.node.numbers[os.path.basename(device["path"])]
        case.make_netns(self.netns())
        self.write()

    def netns(self):
        return next(space["path"] for space in self.config["linux"]["namespaces"] if space["type"] == "network")

    def write(self):
        harness.write(self.directory + "/config.json", json.dumps(self.config))

    def cgroup(self):
        return harness.CGROUPS + "/devices" + self.config["linux"]["cgroupsPath"]


class CrioCase(harness.Case):
    def setUp(self):
        super().setUp()
        self.syslog = Syslog(self)
        self.configure(TRUSTING)

    def make_netns(self, path):
        harness.write(path, "")
        harness.must(["unshare", f"--net={path}", "true"])

        def remove():
            harness.must(["umount", path])
            os.unlink(path)
        self.addCleanup(remove)

    def said(self):
        """The node's log of the last call."""
        return "\n".join(self.syslog.lines())


class ByRuntime(CrioCase):
    def setUp(self):
        super().setUp()
        self.record = self.work + "/record"
        # Called runc, as the one of CRI-O: rdma-runtime knows its state files then.
        self.runtime = harness.write(self.work + "/bin/runc", wrapper.FAKE.format(
            python=sys.executable, record=self.record, code=0), 0o755)
        self.settings = harness.write(self.work + "/settings.json", json.dumps(
            {"runtimes": [self.runtime], "hook": harness.PROGRAM, "config": self.config, "root": self.node.tree,
             "ledger": self.ledger_directory}))

    def container(self, name, annotations=()):
        """By rdma-runtime, so that no file of hooks.d calls for it."""
        container = Recorded(self, name, annotations)
        container.config.pop("hooks", None)
        container.write()
        return container

    def call(self, container, verb, replace=(), prefix=()):
        """As CRI-O or conmon does. Standard error is the container's log."""
        call = container.recorded["calls"][verb]
        argv = [dict(replace).get(argument, argument) for argument in call["argv"][1:]]
        done = harness.run([*prefix, WRAPPER, *argv], cwd=call["cwd"],
                           env={**call["env"], "RDMA_RUNTIME_SETTINGS": self.settings})
        self.given(done)
        self.assertEqual(json.loads(harness.read(self.record))["argv"], [self.runtime, *argv])
        return done

    def create(self, container, prefix=()):
        """The config.json that the runtime behind finds."""
        done = self.call(container, "create", prefix=prefix)
        self.container_log = done.stderr
        return json.loads(harness.read(container.directory + "/config.json"))

    def exec(self, container, **process):
        """The process that the runtime behind finds."""
        text = {**container.config["process"], "args": container.recorded["exec args"], **process}
        path = harness.write(self.work + "/exec-process", json.dumps(text))
        recorded = container.recorded["calls"]["exec"]["argv"]
        self.call(container, "exec", {recorded[recorded.index("--process") + 1]: path})
        return json.loads(harness.read(path))

    @staticmethod
    def nodes(config):
        return [device["path"] for device in config["linux"].get("devices", [])]

    def test_an_annotation_is_heard(self):
        container = self.container("annotation")
        config = self.create(container)
        self.assertEqual(self.nodes(config), ["/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1",
                                              "/dev/infiniband/rdma_cm"])
        self.assertEqual(config["hooks"]["poststop"][0]["args"][:4], ["rdma-hook", "poststop", "--engine", "crio"])
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"])
        self.assertEqual(self.container_log, OF_THE_RUNTIME)
        self.assertIn("engine=crio", self.said())

    def test_devices_of_a_plugin(self):
        container = self.container("device-plugin")
        config = self.create(container)
        self.assertEqual(self.nodes(config), self.nodes(container.config))
        self.assertEqual(list(self.holders()), ["mlx5_1", "mlx5_2"])

    def test_what_is_wrong_is_in_the_nodes_log_alone(self):
        self.configure({})
        container = self.container("annotation")
        self.assertEqual(self.create(container), container.config)
        self.assertEqual(self.container_log, OF_THE_RUNTIME)
        self.assertRegex(self.said(), rf"^<28>rdma-runtime\[\d+\]: warning: container `{container.id}`: .*not heard")

    def test_a_refusal_is_said_to_conmon_and_in_the_nodes_log(self):
        container = self.container("annotation", {"rdma-init.io/devices": "mlx5_9"})
        call = container.recorded["calls"]["create"]
        done = self.refused(harness.run([WRAPPER, *call["argv"][1:]], cwd=call["cwd"],
                                        env={**call["env"], "RDMA_RUNTIME_SETTINGS": self.settings}), "mlx5_9")
        self.assertRegex(self.said(), rf"<27>rdma-runtime\[\d+\]: error: container `{container.id}`: .*mlx5_9")
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_the_pause_container_gets_nothing(self):
        """Its pod's annotations are its own."""
        self.configure({**TRUSTING, "default_devices": "all"})
        container = self.container("infra", {"rdma-init.io/devices": "2"})
        self.assertEqual(self.create(container), container.config)
        self.assertEqual(self.holders(), {})
        self.assertEqual(self.said(), "")


class ByHook(CrioCase):
    def call(self, container, stage, **state):
        """With the arguments of the container's config.json, and what says where this test's node is."""
        recorded = container.recorded["hooks"][stage]
        text = {**container.recorded["state"], "annotations": container.config["annotations"], **state}
        arguments = container.config["hooks"][stage][0]["args"]
        self.assertEqual(arguments, self.arguments(stage, "crio")[:len(arguments)])
        return self.hook(stage, text, "crio", cwd=recorded["cwd"], env=recorded["env"])

    def created(self, container):
        """By a hook that ended well, of which CRI-O keeps no word. What the node's log has."""
        self.process = FakeContainer(container)
        self.given(self.call(container, "createRuntime", pid=self.process.pid))
        return self.said()

    def test_an_annotation_and_its_end(self):
        container = Recorded(self, "annotation")
        self.assertIn("engine=crio", self.created(container))
        self.assertEqual(sorted(self.process.nodes()), ["rdma_cm", "uverbs0", "uverbs1"])
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"])
        self.process.end()
        self.given(self.call(container, "poststop", status="stopped"))
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"], "they are the pod's")


class Recording(nri.Connection):
    """Says what CRI-O said, byte for byte, and waits for answers where CRI-O waited."""

    def take(self, connection, stream, type, data):
        with self.changed:
            if connection == nri.PLUGIN and type == nri.RESPONSE:
                self.answers[stream] = data
            elif connection == nri.RUNTIME and type == nri.REQUEST:
                self.registered = data
            self.changed.notify_all()

    def replay(self, frames):
        """Method -> the answer of each request."""
        answers = {}
        for raw, connection, stream, data in messages(frames):
            if connection == nri.RUNTIME:
                self.wait(lambda: self.registered)
                self.socket.sendall(raw)
                continue
            self.socket.sendall(raw)
            self.wait(lambda: stream in self.answers)
            answer = self.answers[stream]
            status = nri.first(answer, 1)
            if nri.first(status, 1, 0):
                raise nri.StatusError(nri.decoded(nri.first(status, 2)))
            answers[nri.decoded(nri.first(data, 2))] = nri.first(answer, 2)
        return answers


def messages(frames):
    """Each message of ttrpc with the mux frames that it came in: frames, connection, stream, data."""
    streams, raws = {}, {}
    while frames:
        connection, size = struct.unpack(">II", frames[:8])
        streams[connection] = streams.get(connection, b"") + frames[8:8 + size]
        raws[connection] = raws.get(connection, b"") + frames[:8 + size]
        frames = frames[8 + size:]
        header = streams[connection][:10]
        if len(header) == 10 and len(streams[connection]) == 10 + struct.unpack(">I", header[:4])[0]:
            yield raws.pop(connection), connection, struct.unpack(">I", header[4:8])[0], streams.pop(connection)[10:]


class ByNri(CrioCase):
    def replay(self, prefix=()):
        """Adjustment of the container that asks for two HCAs, and the log of the plugin."""
        runtime = nri.Runtime(self.work + "/nri.sock")
        self.addCleanup(runtime.stop)
        log = self.work + "/plugin.log"
        with open(log, "ab") as file:
            plugin = subprocess.Popen([*prefix, NRI, "--socket", runtime.path, "--config", self.config, "--root",
                                       self.node.tree, "--ledger", self.ledger_directory], stderr=file,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.addCleanup(plugin.wait)
        self.addCleanup(plugin.kill)
        connection = Recording(runtime.listening.accept()[0])
        self.addCleanup(connection.close)
        with open(RECORDED + "/crio-annotation.nri", "rb") as file:
            answers = connection.replay(file.read())
        return nri.adjustment(nri.first(answers["CreateContainer"], 1)), harness.read(log)

    def test_an_annotation_and_the_end_of_its_pod(self):
        got, log = self.replay()
        self.assertEqual(sorted(got["devices"]), ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0",
                                                  "/dev/infiniband/uverbs1"])
        self.assertEqual(sorted(got["mounts"]), ["/sys/class/infiniband", "/sys/class/infiniband_mad",
                                                 "/sys/class/infiniband_verbs"])
        self.assertIn("engine=crio", log)
        self.assertEqual(self.holders(), {}, "StopPodSandbox came")


if __name__ == "__main__":
    for program in (WRAPPER, NRI):
        if not os.access(program, os.X_OK):
            sys.exit("set TESTED_RUNTIME and TESTED_NRI to the paths of programs")
    harness.main()
