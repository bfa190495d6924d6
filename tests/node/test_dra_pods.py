"""100 pods with 8 HCAs each on one node, one after the other: the kubelet prepares the pod's claim by rdma-dra, the runtime creates its
containers with the claim's CDI devices by rdma-nri, and both end. The node is a file tree."""
import json
import os
import sys
import time

import harness
import nri_runtime as nri
import test_dra_driver as driver
from harness import NRI, read

PODS = 100
HCAS = 8
BY_NAME = "7b1c6f0e-0000-4000-8000-00000000aaaa"  # the claim that each second pod names


def number_of(path):
    """Returns the number of a node, which a runtime reads from the node itself. The tree has no nodes."""
    name = os.path.basename(path)
    return (231, 192 + int(name.removeprefix("uverbs"))) if name.startswith("uverbs") else (10, 58)


def edit(container, edits):
    """Adds the nodes and variables of CDI devices, as a runtime does."""
    container["env"] += edits.get("env", [])
    for node in edits.get("deviceNodes", []):
        entry = (node["path"], *number_of(node["path"]))
        if entry not in container["devices"]:
            container["devices"].append(entry)


class Pods(driver.DriverCase):
    def make_tree(self, hcas=HCAS):
        super().make_tree(hcas)

    def start_nri(self):
        runtime = nri.Runtime(self.work + "/nri.sock")
        self.addCleanup(runtime.stop)
        self.start_logged([NRI, "--socket", runtime.path, *self.places()])
        connection = nri.Connection(runtime.listening.accept()[0])
        self.addCleanup(connection.close)
        connection.introduce()
        return connection

    def claim_of(self, number, names):
        """Returns (key, requests of each container). Each second pod names one claim, which lives on. For the other pods the
        scheduler makes a claim from the class's extendedResourceName, with a request for each container, and deletes it."""
        pod = f"uid-pod-{number}"
        if number % 2:
            return self.add_claim(names, uid=BY_NAME, name="eight-hcas", pods=(pod,)), [["hca"]]
        key = self.add_claim(names, uid=f"u-{number}", name=f"pod-{number}-extended-resources-x7k2p", pods=(pod,))
        for at, result in enumerate(self.api.claims[key[:2]]["status"]["allocation"]["devices"]["results"]):
            result["request"] = f"container-{at // 4}-request-0"
        return key, [["container-0-request-0"], ["container-1-request-0"]]

    def create(self, runtime, pod, id, devices):
        """Creates a container with these devices of the answer to Prepare."""
        container = {"env": [], "devices": []}
        specs = [json.loads(read(f"{self.tree}/var/run/cdi/{name}")) for name in os.listdir(self.tree + "/var/run/cdi")]
        for device in devices:
            for name in device[3]:
                kind, _, wanted = name.partition("=")
                spec, edits = next((spec, one["containerEdits"]) for spec in specs if spec["kind"] == kind
                                   for one in spec["devices"] if one["name"] == wanted)
                edit(container, spec["containerEdits"])
                edit(container, edits)
        made = nri.container(id, "pod-" + pod, env=container["env"], devices=container["devices"], network=False)
        return made, runtime.create(nri.pod("pod-" + pod), made)

    def run_pod(self, number, kubelet, runtime, names):
        key, containers = self.claim_of(number, names)
        devices = kubelet.prepare(key)[key[2]]
        self.assertEqual(sorted(device[2] for device in devices), sorted(names), "the devices of the claim")
        pod = str(number)
        made = []
        for at, requests in enumerate(containers):
            own = [device for device in devices if device[0] == requests]
            container, got = self.create(runtime, pod, f"c{at}-{pod}", own)
            self.assertEqual(got["env"]["RDMA_INIT_REQUIRE"], str(len(own)))
            made.append(container)
        owners = self.holders()
        self.assertEqual({name for name, labels in owners.items() if f"claim {key[0]}/{key[1]}" in labels},
                         {f"mlx5_{at}" for at in range(HCAS)})
        for container in made:
            runtime.event("StopContainer", nri.pod("pod-" + pod), container)
        self.assertEqual(kubelet.unprepare(key), {key[2]: ""})
        if not number % 2:
            del self.api.claims[key[:2]]

    def test_100_pods_with_8_hcas_each(self):
        api, kubelet, _ = self.begin()
        runtime = self.start_nri()
        names = self.names()
        self.assertEqual(len(names), HCAS)
        begin = time.monotonic()
        for number in range(PODS):
            self.run_pod(number, kubelet, runtime, names)
        took = time.monotonic() - begin
        print(f"{PODS} pods with {HCAS} HCAs in {took:.1f} s: {PODS * 60 / took:.0f} a minute", file=sys.stderr)
        reads = [request for request in api.requests if "/resourceclaims/" in request[2]]
        self.assertEqual(len(reads), PODS, "a claim is read once for each Prepare")
        self.assertEqual(len(api.writes()), 1, "claims change no slice")
        self.assertEqual(api.cluster_events, [])
        self.assertEqual(self.holders(), {})
        self.assertEqual(os.listdir(self.tree + "/var/run/cdi"), [])
        self.assertEqual(os.listdir(self.ledger_directory + "/grants"), [])


if __name__ == "__main__":
    harness.main(driver.PROGRAM, NRI, harness.MAKE_TREE)
