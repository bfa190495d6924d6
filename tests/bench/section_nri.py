"""The answers of rdma-nri to the requests of a container runtime, compared with a plugin that does nothing.
docs: tests/bench/README.md"""
import os
import re
import subprocess

from scene import MANY_NETDEVS, MOST, Connection, LiveNode, Scene, builds, check_nodes, children_of, first_hcas, name_of, nri, program
from harness import PATH, must, read, wait_for
from turns import Contestant

ASKED = (0, 1, MOST)
# True if the pod has its own network namespace; netdevs of the node (0: those of the HCAs); grants of other containers in the ledger.
SCENES = ((False, 0, 0), (False, MANY_NETDEVS, 0), (True, 0, 0), (False, 0, 1000), (True, 0, 1000))
# The request for a training pod and its container is as long as on a node with GPUs, about 8.5 kB.
VARIABLES = [f"SERVICE_NUMBER_{number}_PORT_8080_TCP_ADDR=tcp://10.96.12.{number}:8080" for number in range(90)]
GPUS = [(f"/dev/nvidia{number}", 195, number) for number in range(8)]
APPLIED = {"kubectl.kubernetes.io/last-applied-configuration": "x" * 1800}


class Plugin:
    """A registered plugin, and the requests to it. hcas: number that each container requests. netns: the path of the pods' network
    namespace, or None for the node's."""

    def __init__(self, scene, argv, hcas=0, netns=None):
        self.hcas, self.netns, self.number = hcas, netns, 0
        runtime = nri.Runtime(argv[-1])
        with open(scene.work + "/log", "ab") as log:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env={"PATH": PATH})
        scene.addCleanup(self.end)
        self.connection = Connection(runtime.listening.accept()[0])
        runtime.stop()
        self.connection.introduce()

    def end(self):
        self.process.kill()
        self.process.wait()

    def ask(self, event, *arguments, **settings):
        """Returns the seconds of the answer."""
        self.connection.event(event, *arguments, **settings)
        return self.connection.seconds

    def create(self, pod, container):
        """The same, and checks the answer."""
        check_nodes(self.connection.create(pod, container)["devices"], self.hcas)
        return self.connection.seconds

    def turn(self):
        """Creates a container, in its own pod if that has a network, and ends both, which releases the HCAs."""
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
        requests = first_hcas(self.hcas)
        pod, container = (f"{kind}-{self.process.pid}-{self.number}" for kind in ("pod", "container"))
        annotations = {**APPLIED, **({"rdma-init.io/devices": requests} if requests else {})}
        return (nri.pod(pod, annotations, self.netns), nri.container(container, pod, env=VARIABLES, devices=GPUS, network=False))

    # --- CPU time and memory, with the worker

    def family(self):
        return [self.process.pid, *children_of(self.process.pid)]

    def cpu_ms(self):
        ticks = [sum(map(int, read(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15])) for pid in self.family()]
        return sum(ticks) * 1000 / os.sysconf("SC_CLK_TCK")

    def mib(self, field):
        """Returns the memory of the plugin and the anonymous memory of its worker, which is a fork. Shared pages count twice."""
        found = [re.search(rf"^{name}:\s+(\d+) kB", read(f"/proc/{pid}/status"), re.MULTILINE)
                 for pid, name in zip(self.family(), (field, "RssAnon"))]
        return sum(int(match[1]) for match in found) / 1024

    def begin(self):
        self.turns_before, self.cpu_before, self.mib_before = self.number, self.cpu_ms(), self.mib("VmRSS")

    def figures(self):
        cpu = (self.cpu_ms() - self.cpu_before) / (self.number - self.turns_before)
        return {"CPU, ms": cpu, "MiB before": self.mib_before, "MiB after": self.mib("VmRSS"), "MiB at most": self.mib("VmHWM")}


def rdma_nri(scene, hcas=0, netns=None):
    scene.configure({"annotations_may_request": ["*"]})
    return Plugin(scene, [program("TESTED_NRI"), *scene.places(), "--socket", scene.work + "/nri.sock"], hcas, netns)


def check_grants(scene, count):
    """Waits for so many grants, because the worker can release a grant after its answer."""
    wait_for(lambda: len(os.listdir(scene.ledger_directory + "/grants")) == count, name_of(count, "grant"))


def grant_to_others(scene, count):
    """Grants HCAs to other containers, which exist until the scene ends."""
    if count:
        plugin = rdma_nri(scene, 1)
        for _ in range(count):
            plugin.create(*plugin.pod_with_container())
        plugin.end()
        check_grants(scene, count)


def plugins(idle, scenes, netns, grants):
    """Yields names and plugins. Each has its own ledger."""
    if idle:
        yield "does nothing, on Go's stub", Plugin(scenes[-1], [idle, scenes[-1].work + "/nri.sock"], netns=netns)
    for (build, hcas), scene in zip(of_builds(), scenes):
        with build:
            grant_to_others(scene, grants)
            yield f"rdma-nri, {name_of(hcas, 'HCA') if hcas else 'no request'}{build.suffix}", rdma_nri(scene, hcas, netns)


def of_builds():
    """Returns the plugins to measure: builds and numbers of requested HCAs."""
    return [(build, hcas) for build in builds() for hcas in ASKED]


def nri_section(quick):
    idle = os.environ.get("NRI_PEERS", "") + "/idle-0.8.0"
    if not os.access(idle, os.X_OK):
        print(f"no `{idle}`: no plugin for the comparison; remedy: tests/node/adaptation/build-peers")
        idle = None
    must(["ip", "netns", "add", "pod"])
    for with_network, netdevs, grants in SCENES[:3 if quick else None]:
        with LiveNode(MOST, netdevs=netdevs):
            scenes = [Scene() for _ in range(len(of_builds()) + 1)]
            netns = "/run/netns/pod" if with_network else None
            parts = ["pod network" if with_network else "host network", f"{netdevs} netdevs" if netdevs else "", name_of(grants, "grant")]
            yield (", ".join(filter(None, parts)), [Contestant(name, plugin.turn, begin=plugin.begin, end=plugin.figures)
                                     for name, plugin in plugins(idle, scenes, netns, grants)])
            for scene in scenes[:-1]:
                check_grants(scene, grants)  # no turn has added or removed a grant
            for scene in scenes:
                scene.close()
