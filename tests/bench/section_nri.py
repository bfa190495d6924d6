"""rdma-nri's answers to the requests of a container runtime, beside those of a plugin that does nothing.
docs: tests/bench/README.md"""
import os
import re
import subprocess

from scene import MOST, Connection, Scene, first_hcas, name_of, nri, program
from harness import PATH, must, read, wait_for
from turns import Contestant

ASKED = (0, 1, MOST)
# Whether the pod has a network namespace of its own, and how many grants of other containers the ledger has.
SCENES = ((False, 0), (True, 0), (True, 1000), (False, 1000))
# What a runtime says of a training pod and its container is as long as on a node with GPUs, about 8.5 kB.
VARIABLES = [f"SERVICE_NUMBER_{number}_PORT_8080_TCP_ADDR=tcp://10.96.12.{number}:8080" for number in range(90)]
GPUS = [(f"/dev/nvidia{number}", 195, number) for number in range(8)]
APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1800}


class Plugin:
    """A process that has registered, and the requests that it is asked. hcas: how many each container asks for. netns:
    the path of the pods' network namespace; None: they are in the node's."""

    def __init__(self, scene, argv, hcas=0, netns=None):
        self.hcas, self.netns, self.number = hcas, netns, 0
        runtime = nri.Runtime(argv[-1])
        with open(scene.work + "/log", "ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log,
                                            env={"PATH": PATH})
        scene.addCleanup(self.end)
        self.connection = Connection(runtime.listening.accept()[0])
        runtime.stop()
        self.connection.introduce()

    def end(self):
        self.process.kill()
        self.process.wait()

    def ask(self, event, *arguments, **settings):
        """Seconds that the answer took."""
        self.connection.event(event, *arguments, **settings)
        return self.connection.seconds

    def create(self, pod, container):
        """The same, and the answer is looked at: a fast plugin is one that does its work."""
        given = [path for path in self.connection.create(pod, container)["devices"] if "uverbs" in path]
        if len(given) != self.hcas:
            raise AssertionError(f"{self.hcas} HCAs were asked for: nodes {given}")
        return self.connection.seconds

    def turn(self):
        """A container, in a pod of its own if that has a network, and the end of both, which returns the HCAs."""
        pod, container = self.pod_with_container()
        seconds = self.ask("RunPodSandbox", pod, dedicated=False) if self.netns else 0
        seconds += self.create(pod, container)
        if not self.hcas:
            return seconds, {}
        stopping = self.ask("StopContainer", pod, container)
        if self.netns:
            stopping += self.ask("StopPodSandbox", pod, dedicated=False)
        return seconds, {"stop, ms": stopping * 1e3}

    def pod_with_container(self):
        self.number += 1
        asks = first_hcas(self.hcas)
        pod, container = (f"{kind}-{self.process.pid}-{self.number}" for kind in ("pod", "container"))
        annotations = {**APPLIED, **({"rdma-init.io/devices": asks} if asks else {})}
        return (nri.pod(pod, annotations, self.netns),
                nri.container(container, pod, env=VARIABLES, devices=GPUS, network=False))

    # --- what it takes, with its worker

    def family(self):
        return [self.process.pid, *map(int, read("/proc/{0}/task/{0}/children".format(self.process.pid)).split())]

    def cpu_ms(self):
        ticks = [sum(map(int, read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15])) for pid in self.family()]
        return sum(ticks) * 1000 / os.sysconf("SC_CLK_TCK")

    def mib(self, field):
        """The worker is of the same program: it adds its anonymous memory. Pages that it still shares count twice."""
        found = [re.search(rf"^{name}:\s+(\d+) kB", read(f"/proc/{pid}/status"), re.MULTILINE)
                 for pid, name in zip(self.family(), (field, "RssAnon"))]
        return sum(int(match[1]) for match in found) / 1024

    def begin(self):
        self.turns_before, self.cpu_before, self.mib_before = self.number, self.cpu_ms(), self.mib("VmRSS")

    def figures(self):
        cpu = (self.cpu_ms() - self.cpu_before) / (self.number - self.turns_before)
        return {"CPU, ms": cpu, "MiB before": self.mib_before, "MiB after": self.mib("VmRSS"),
                "MiB at most": self.mib("VmHWM")}


def rdma_nri(scene, hcas=0, netns=None):
    scene.configure({"annotations_may_request": ["*"]})
    return Plugin(scene, [program("TESTED_NRI"), "--config", scene.config, "--root", scene.node.tree, "--ledger",
                          scene.ledger_directory, "--socket", scene.work + "/nri.sock"], hcas, netns)


def check_grants(scene, count):
    """The worker may return a grant after its answer."""
    wait_for(lambda: len(os.listdir(scene.ledger_directory + "/grants")) == count, name_of(count, "grant"))


def grant_to_others(scene, count):
    """To containers that are there until the scene ends."""
    if count:
        plugin = rdma_nri(scene, 1)
        for _ in range(count):
            plugin.create(*plugin.pod_with_container())
        plugin.end()
        check_grants(scene, count)


def plugins(idle, scenes, netns, grants):
    """By their names; each has a node and a ledger of its own."""
    if idle:
        yield "does nothing, on Go's stub", Plugin(scenes[-1], [idle, scenes[-1].work + "/nri.sock"], netns=netns)
    for hcas, scene in zip(ASKED, scenes):
        grant_to_others(scene, grants)
        yield f"rdma-nri, {name_of(hcas, 'HCA') if hcas else 'nothing is asked'}", rdma_nri(scene, hcas, netns)


def nri_section(quick):
    idle = os.environ.get("NRI_PEERS", "") + "/idle-0.8.0"
    if not os.access(idle, os.X_OK):
        print(f"no `{idle}`: nothing to compare with (tests/node/adaptation/build-peers)")
        idle = None
    must(["ip", "netns", "add", "pod"])
    for with_network, grants in SCENES[:3 if quick else None]:
        scenes = [Scene() for _ in range(len(ASKED) + 1)]
        netns = "/run/netns/pod" if with_network else None
        yield (f"{'pod' if with_network else 'host'} network, {name_of(grants, 'grant')}",
               [Contestant(name, plugin.turn, begin=plugin.begin, end=plugin.figures)
                for name, plugin in plugins(idle, scenes, netns, grants)])
        for scene in scenes[:len(ASKED)]:
            check_grants(scene, grants)  # no turn has left or taken one
        for scene in scenes:
            scene.close()
