"""Replays a recording of CRI-O 1.37.0 on a node (recorded/): `create` and `exec` to rdma-runtime with conmon's arguments and
environment and a runtime that only records, the states of its hooks to rdma-hook, and NRI's frames to rdma-nri. Checks the output
to CRI-O, to the node's log and to the container's log."""
import contextlib
import json
import os
import re
import resource
import shutil
import struct
import tomllib

import harness
import nri_runtime as nri
from containers import RECORDER_ERRORS, FakeContainer, Syslog, make_rootfs, write_recorder
from harness import HERE, HOOK, NRI, RUNTIME, SOURCE, must, read, read_json, run, write

CONFIG = SOURCE + "/config"
RECORDED = HERE + "/recorded"
# conmon writes the runtime's output into the container's log.
OF_THE_RUNTIME = RECORDER_ERRORS + "\n"
TRUSTING = {"annotations_may_request": ["team-a"]}
FINITE = 6 << 20
MEMLOCK = "RLIMIT_MEMLOCK"
UNLIMITED = (1 << 64) - 1


class Recorded:
    """A container of crio.json in its recorded bundle, with an image, a control group and a number of rdma_cm of this machine."""

    def __init__(self, case, name, annotations=()):
        self.case = case
        self.recorded = read_json(RECORDED + "/crio.json")[name]
        self.config = self.recorded["config"]
        self.id = self.config["annotations"]["io.kubernetes.cri-o.ContainerID"]
        self.directory = self.recorded["calls"]["create"]["cwd"]
        self.rootfs = make_rootfs(case.work + "/rootfs-" + name)
        self.config["root"]["path"] = self.rootfs
        self.config["linux"]["cgroupsPath"] = f"/{harness.GROUP}/crio-{self.id}"
        self.config["annotations"].update(annotations)
        for device in self.config["linux"].get("devices", []):  # rdma_cm has another number here
            numbers = case.node.numbers.get(os.path.basename(device["path"]), (device["major"], device["minor"]))
            device["major"], device["minor"] = numbers
        self.remove_netns = case.make_netns(self.netns()) if self.netns() else None
        self.write()

    def netns(self):
        """Returns the path of the pod's network namespace, or None for the node's."""
        return next((space["path"] for space in self.config["linux"]["namespaces"] if space["type"] == "network"), None)

    def write(self):
        write(self.directory + "/config.json", self.config)

    def cgroup(self):
        return harness.CGROUPS + "/devices" + self.config["linux"]["cgroupsPath"]


class CrioCase(harness.NodeCase):
    def setUp(self):
        super().setUp()
        self.syslog = Syslog(self)
        self.configure(TRUSTING)

    def make_netns(self, path):
        write(path, "")
        must(["unshare", f"--net={path}", "true"])

        def remove():
            with contextlib.suppress(FileNotFoundError):
                os.stat(path)
                must(["umount", path])
                os.unlink(path)
        self.addCleanup(remove)
        return remove

    def node_log(self):
        """Returns the node's log of the last call."""
        return self.syslog.text()


class ByRuntime(CrioCase):
    def setUp(self):
        super().setUp()
        self.record = self.work + "/record"
        # Named runc, as CRI-O's runtime, so that rdma-runtime reads its state files.
        self.runtime = write_recorder(self.work + "/bin/runc", self.record)
        os.makedirs("/run/runc", exist_ok=True)  # as after the first container: without it the first one needs the hook
        self.settings = write(self.work + "/settings.json",
                              {"runtimes": [self.runtime], "hook": HOOK, "config": self.config, "root": self.tree,
                               "ledger": self.ledger_directory})

    def container(self, name, annotations=()):
        """Returns a container without the hooks of hooks.d, which rdma-runtime does not need."""
        container = Recorded(self, name, annotations)
        container.config.pop("hooks", None)
        container.write()
        return container

    def call(self, container, verb, replace=(), prefix=()):
        """Starts the runtime as CRI-O or conmon does. Standard error is the container's log."""
        call = container.recorded["calls"][verb]
        argv = [dict(replace).get(argument, argument) for argument in call["argv"][1:]]
        done = run([*prefix, RUNTIME, *argv], cwd=call["cwd"], env={**call["env"], "RDMA_RUNTIME_SETTINGS": self.settings})
        self.succeeded(done)
        self.assertEqual(read_json(self.record)["argv"], [self.runtime, *argv])
        return done

    def create(self, container, prefix=()):
        """Returns the config.json that the runtime behind reads."""
        done = self.call(container, "create", prefix=prefix)
        self.container_log = done.stderr
        return read_json(container.directory + "/config.json")

    def exec(self, container, prefix=()):
        """Returns the process that the runtime behind reads."""
        # runc's `create` records the path of the bundle.
        state = {"config": {"labels": [f"bundle={container.directory}"]}}
        write(f"/run/runc/{container.id}/state.json", state)
        text = {**container.config["process"], "args": container.recorded["exec args"]}
        path = write(self.work + "/exec-process", text)
        recorded = container.recorded["calls"]["exec"]["argv"]
        self.call(container, "exec", {recorded[recorded.index("--process") + 1]: path}, prefix)
        shutil.rmtree(f"/run/runc/{container.id}")  # it names no process, so the next `create` of this id would fail
        return read_json(path)

    @staticmethod
    def nodes(config):
        return [device["path"] for device in config["linux"].get("devices", [])]

    def test_grants_by_annotation(self):
        container = self.container("annotation")
        config = self.create(container)
        self.assertEqual(self.nodes(config), ["/dev/infiniband/uverbs0", "/dev/infiniband/uverbs1",
                                              "/dev/infiniband/rdma_cm"])
        self.assertEqual(config["hooks"]["poststop"][0]["args"][:4], ["rdma-hook", "poststop", "--engine", "crio"])
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"])
        self.assertEqual(self.container_log, OF_THE_RUNTIME)
        self.assertIn("engine=crio", self.node_log())

    def test_books_devices_of_device_plugin(self):
        container = self.container("device-plugin")
        config = self.create(container)
        self.assertEqual(self.nodes(config), self.nodes(container.config))
        self.assertEqual(list(self.holders()), ["mlx5_1", "mlx5_2"])

    def test_ignores_container_without_request(self):
        """A privileged container has all nodes of the node's /dev."""
        for name in ("plain", "privileged", "host-network"):
            container = self.container(name)
            self.assertEqual(self.create(container), container.config, name)
            self.assertEqual(self.holders(), {}, name)
            messages = [line.partition("]: ")[2].partition("`: ")[2] for line in self.syslog.lines()]
            self.assertEqual(messages, ["the container may use all devices: its 10 uverbs nodes are no request"] *
                             (name == "privileged"), name)

    def test_grants_in_network_namespace_of_node(self):
        self.configure({"annotations_may_request": ["monitoring"], "networks": {"fabric": {"mode": "shared"}}, "pools": [{"name": "rails", "network": "fabric"}]})
        container = self.container("host-network", {"rdma-init.io/devices": "2"})
        config = self.create(container)
        self.assertEqual(len(self.nodes(config)), 3)
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"])
        self.assertIn("the container is in the node's network namespace and gets only device nodes", self.node_log())

    def test_logs_missing_rails(self):
        """A container with its own network namespace and VKE's annotation, without a network in any pool."""
        self.configure({**TRUSTING, "networks": {"a": {"mode": "shared"}, "b": {"mode": "shared"}}})
        container = self.container("plain", {"k8s.volcengine.com/pod-networks": '[{"cniConf": {"name": "rdma"}}]',
                                             "io.kubernetes.pod.namespace": "team-a"})
        self.create(container)
        messages = self.node_log()
        self.assertIn("annotation k8s.volcengine.com/pod-networks: `mlx5_0` gets no rail", messages)
        self.assertIn("RDMA_INIT_REQUIRE is not set: ", messages)
        self.assertRegex(messages, "granted .* require=-:no-rail no_rail=mlx5_0 ")

    def test_writes_warnings_only_to_log_of_node_and_note(self):
        self.configure({})
        container = self.container("annotation")
        created = self.create(container)
        note = created["process"]["env"].pop()
        self.assertRegex(note, "^RDMA_INIT_NOTE=ignoring annotation rdma-init.io/devices: .* it may not request HCAs, remedy: ")
        self.assertEqual(created, container.config)
        self.assertEqual(self.container_log, OF_THE_RUNTIME)
        self.assertRegex(self.node_log(), rf"^<28>rdma-runtime\[\d+\]: warning: container `{container.id}`: ignoring annotation ")

    def test_reports_refusal_to_conmon_and_log_of_node(self):
        container = self.container("annotation", {"rdma-init.io/devices": "mlx5_9"})
        call = container.recorded["calls"]["create"]
        done = self.refused(run([RUNTIME, *call["argv"][1:]], cwd=call["cwd"],
                                env={**call["env"], "RDMA_RUNTIME_SETTINGS": self.settings}), "mlx5_9")
        self.assertRegex(self.node_log(), rf"<27>rdma-runtime\[\d+\]: error: container `{container.id}`: .*mlx5_9")
        self.assertEqual(done.stderr.count("\n"), 1)

    def limits(self, process):
        return [(limit["soft"], limit["hard"]) for limit in process.get("rlimits", []) if limit["type"] == MEMLOCK]

    def test_raises_limit_but_never_lowers_it(self):
        """A container without a listed limit has that of CRI-O, conmon and the runtime."""
        container = self.container("annotation")
        for wanted, soft, hard in ((FINITE, FINITE, harness.MEMLOCK), (2 << 10, 64 << 10, harness.MEMLOCK)):
            self.configure({**TRUSTING, "memlock": wanted})
            container.write()
            prefix = ["prlimit", f"--memlock={64 << 10}:{harness.MEMLOCK}"]
            self.assertEqual(self.limits(self.create(container, prefix)["process"]), [(soft, hard)])
            self.assertEqual(self.limits(self.exec(container, prefix)), [(soft, hard)])
            self.call(container, "delete")

    def test_logs_nothing_for_container_with_all_limits(self):
        """The container has IPC_LOCK from its pod and default_ulimits from crio.conf."""
        container = self.container("ipc-lock", {"rdma-init.io/devices": "2"})
        config = self.create(container)
        for member in ("capabilities", "rlimits"):
            self.assertEqual(config["process"][member], container.config["process"][member])
        self.assertNotIn("LOCK", self.node_log())

    def test_ignores_pause_container(self):
        """The pause container has the annotations of its pod."""
        self.configure({**TRUSTING, "default_devices": "all"})
        container = self.container("infra", {"rdma-init.io/devices": "2"})
        self.assertEqual(self.create(container), container.config)
        self.assertEqual(self.holders(), {})
        self.assertEqual(self.node_log(), "")


class ByHook(CrioCase):
    def call(self, container, stage, **state):
        """Runs the hook with the arguments of the container's config.json and the paths of this test's node."""
        recorded = container.recorded["hooks"][stage]
        text = {**container.recorded["state"], "annotations": container.config["annotations"], **state}
        arguments = container.config["hooks"][stage][0]["args"] + self.places()
        return run([HOOK, *arguments[1:]], input=json.dumps(text), cwd=recorded["cwd"], env=recorded["env"])

    def created(self, container, limit=harness.MEMLOCK):
        """Returns the node's log after a successful hook: CRI-O discards its output."""
        self.process = FakeContainer(container, within=["prlimit", f"--memlock={limit}:{harness.MEMLOCK}"])
        self.succeeded(self.call(container, "createRuntime", pid=self.process.pid))
        return self.node_log()

    def test_grants_by_annotation_and_releases(self):
        container = Recorded(self, "annotation")
        self.assertIn("engine=crio", self.created(container))
        self.assertEqual(sorted(self.process.nodes()), ["rdma_cm", "uverbs0", "uverbs1"])
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"])
        self.process.end()
        self.succeeded(self.call(container, "poststop", status="stopped"))
        self.assertEqual(list(self.holders()), ["mlx5_0", "mlx5_1"], "the HCAs belong to the pod")

    def test_releases_grant_after_end_of_pod(self):
        """After the kubelet's StopPodSandbox the network namespace is gone before the container's poststop."""
        container = Recorded(self, "device-plugin")
        self.created(container)
        self.assertEqual(list(self.holders()), ["mlx5_1", "mlx5_2"])
        self.process.end()
        container.remove_netns()
        self.succeeded(self.call(container, "poststop", status="stopped"))
        self.recover()
        self.assertEqual(self.holders(), {})

    def test_reports_limit_of_locked_memory(self):
        self.configure({**TRUSTING, "memlock": FINITE})
        messages = self.created(Recorded(self, "annotation"))
        self.assertIn("cannot add CAP_IPC_LOCK at createRuntime; RLIMIT_MEMLOCK is 8388608 bytes", messages)
        self.assertIn("IPC_LOCK in capabilities.add of the container's securityContext", messages)
        self.assertNotIn("exec", messages)

    def test_names_options_of_cri_o_for_raised_limit(self):
        self.configure({**TRUSTING, "memlock": FINITE})
        messages = self.created(Recorded(self, "annotation"), 64 << 10)
        self.assertIn("RLIMIT_MEMLOCK is 6291456 bytes", messages)
        self.assertIn('default_ulimits = ["memlock=-1:-1"] in crio.conf', messages)
        self.assertNotIn("--ulimit", messages)
        limits = read(f"/proc/{self.process.pid}/limits").split("Max locked memory")[1].split()
        self.assertEqual(limits[:2], [str(FINITE), str(harness.MEMLOCK)])

    def test_accepts_mode_of_trusted_pod_with_cdi(self):
        """The kubelet's device, from a file that was generated without --engine."""
        self.configure({**TRUSTING, "pools": [{"name": "rails", "modes": ["hca", "exclusive"]}]})
        container = Recorded(self, "device-plugin", {"rdma-init.io/mode": "exclusive"})
        spec = json.loads(must([HOOK, "cdi", "generate", "--root", self.tree], env={}))
        container.config["hooks"] = {hook["hookName"]: [hook] for hook in spec["containerEdits"]["hooks"]}
        container.write()
        messages = self.created(container)
        self.assertIn("engine=crio", messages)
        self.assertIn("mode=exclusive", messages)
        self.assertNotIn("ignoring", messages)

    def test_logs_nothing_for_container_with_capability(self):
        messages = self.created(Recorded(self, "ipc-lock", {"rdma-init.io/devices": "2"}))
        self.assertNotIn("LOCK", messages)


class Samples(CrioCase):
    def test_crio_conf_has_known_keys(self):
        """CRI-O ignores unknown keys of drop-ins."""
        text = read(CONFIG + "/crio/rdma-runtime.conf")
        handler = tomllib.loads(text)["crio"]["runtime"]["runtimes"]["rdma"]
        self.assertEqual(handler, {"runtime_path": "/usr/local/bin/rdma-runtime", "runtime_type": "oci",
                                   "monitor_path": "/usr/libexec/crio/conmon", "runtime_root": "/run/crun"})
        text = read(CONFIG + "/crio/rdma-nri.conf")
        sample = tomllib.loads(text)["crio"]["nri"]
        self.assertEqual(sample, {"enable_nri": True, "nri_plugin_request_timeout": "2s"})
        whole = tomllib.loads(re.sub(r"(?m)^#(?=\[|nri_)", "", text))["crio"]["nri"]
        self.assertEqual(whole, {**sample, "default_validator": {"nri_enable_default_validator": True,
                                                                 "nri_validator_required_plugins": ["rdma"]}})

    def test_runs_verify_from_hooks_d(self):
        verify, grant = (read_json(f"{CONFIG}/hooks.d/rdma-hook-crio-{name}-createRuntime.json")
                         for name in ("verify", "annotations"))
        self.assertEqual(verify.pop("hook"), {**grant["hook"], "args": ["rdma-hook", "verify", "--engine", "crio"]})
        grant.pop("hook")
        self.assertEqual(verify, grant)
        container = Recorded(self, "annotation")
        state = {**container.recorded["state"], "pid": os.getpid()}
        self.refused(self.hook("verify", state, "crio"), "no HCA was granted")
        self.assertIn("no HCA was granted", self.node_log())

    def test_documents_silently_skipped_hook(self):
        """CRI-O and Podman skip a hook file with a missing `hook.path`."""
        for page in ("config/README.md", "docs/which-way.md"):
            self.assertIn("CRI-O silently skip a hook file if its `hook.path` does not exist", " ".join(read(f"{CONFIG}/../{page}").split()), page)

    def test_documents_log_of_messages_that_crun_hides(self):
        for page in ("README.md", "docs/which-way.md", "config/README.md", "hook/rdma-hook.8"):
            text = read(f"{CONFIG}/../{page}")
            self.assertRegex(text, "(?s)crun.{,200}exit code: 1.{,200}journalctl -t rdma-hook", page)
        for page in ("README.md", "docs/which-way.md", "config/README.md", "config/containerd/README.md", "hook/rdma-hook.8",
                     "shim/nri/rdma-nri.8", "shim/runtime/rdma-runtime.8"):
            self.assertIn("rdma-recover.timer", read(f"{CONFIG}/../{page}"))


class Recording(nri.Connection):
    """Sends CRI-O's bytes unchanged, and waits for answers where CRI-O waited."""

    def take(self, connection, stream, type, data):
        with self.changed:
            if connection == nri.PLUGIN and type == nri.RESPONSE:
                self.answers[stream] = data
            elif connection == nri.RUNTIME and type == nri.REQUEST:
                self.registered = data
            self.changed.notify_all()

    def replay(self, frames):
        """Returns the answers by method."""
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
    """Returns each ttrpc message with its mux frames: frames, connection, stream, data."""
    streams, raws = {}, {}
    while frames:
        connection, size = struct.unpack(">II", frames[:8])
        streams[connection] = streams.get(connection, b"") + frames[8:8 + size]
        raws[connection] = raws.get(connection, b"") + frames[:8 + size]
        frames = frames[8 + size:]
        header = streams[connection][:10]
        if len(header) == 10 and len(streams[connection]) == 10 + struct.unpack(">I", header[:4])[0]:
            yield raws.pop(connection), connection, struct.unpack(">I", header[4:8])[0], streams.pop(connection)[10:]


def rdma_cm(minor):
    """Replaces the device in a container's message by one with a number of this machine, of the same length."""
    return nri.text(1, "/dev/infiniband/rdma_cm") + nri.text(2, "c") + nri.number(3, 10) + nri.number(4, minor)


class ByNri(CrioCase):
    def replay(self, recording="annotation"):
        """Returns the adjustment of the container with two HCAs, and the log of the plugin."""
        runtime = nri.Runtime(self.work + "/nri.sock")
        plugin = self.start_logged([NRI, "--socket", runtime.path, *self.places()])
        connection = Recording(runtime.listening.accept()[0])
        self.addCleanup(connection.close)
        runtime.stop()
        with open(f"{RECORDED}/crio-{recording}.nri", "rb") as file:
            answers = connection.replay(file.read().replace(rdma_cm(234), rdma_cm(self.node.numbers["rdma_cm"][1])))
        plugin.terminate()
        plugin.wait(timeout=60)  # the last lines of the log follow the last answer
        return nri.adjustment(nri.first(answers["CreateContainer"], 1)), read(self.log)

    def test_grants_by_annotation_and_releases_with_pod(self):
        self.configure({**TRUSTING, "memlock": "unlimited"})
        got, log = self.replay()
        self.assertEqual(sorted(got["devices"]), ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0",
                                                  "/dev/infiniband/uverbs1"])
        self.assertEqual(sorted(got["mounts"]), ["/sys/class/infiniband", "/sys/class/infiniband_mad",
                                                 "/sys/class/infiniband_verbs"])
        self.assertIn("engine=crio", log)
        self.assertEqual(self.holders(), {}, "StopPodSandbox releases the grant")
        self.assertEqual(got["rlimits"], {MEMLOCK: (UNLIMITED, UNLIMITED)})
        self.assertIn("unlimited RLIMIT_MEMLOCK is set instead, which is enough", log)

    def test_reports_limit_of_locked_memory(self):
        """The plugin reads the limit of the runtime, which is this process."""
        self.configure({**TRUSTING, "memlock": FINITE})
        before = resource.getrlimit(resource.RLIMIT_MEMLOCK)
        self.addCleanup(resource.setrlimit, resource.RLIMIT_MEMLOCK, before)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (harness.MEMLOCK, before[1]))
        got, log = self.replay()
        self.assertEqual(got["rlimits"], {})
        self.assertIn("NRI cannot add CAP_IPC_LOCK: ibv_reg_mr fails beyond RLIMIT_MEMLOCK, which is 8388608 bytes", log)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, before[1]))
        got, log = self.replay()
        self.assertEqual(got["rlimits"], {MEMLOCK: (before[1], FINITE)})
        self.assertIn("RLIMIT_MEMLOCK, which is 6291456 bytes", log)
        self.assertNotIn("is enough", log)
        # CRI-O wrote the limit of such an answer into the file of `exec --process`.
        (limit,) = read_json(RECORDED + "/crio.json")["annotation"]["exec rlimits with NRI"]
        self.assertEqual((limit["type"], limit["soft"]), (MEMLOCK, got["rlimits"][MEMLOCK][1]))

    def test_releases_container_of_failed_create(self):
        """CRI-O sends only StopPodSandbox, after the network namespace is gone."""
        if self.node.numbers["rdma_cm"][1] < 128:
            self.skipTest("no /dev/loop-control, which replaces rdma_cm")
        got, log = self.replay("create-failed")
        self.assertIn("/sys/class/infiniband", got["mounts"], "the devices whose mount failed in runc")
        self.assertRegex(log, "granted .* hcas=mlx5_1,mlx5_2 ")
        self.assertRegex(log, "returned .* hcas=mlx5_1,mlx5_2 ")
        self.assertEqual(self.holders(), {})


if __name__ == "__main__":
    harness.main_in_own_machine(RUNTIME, NRI)
