"""rdma-nri and the rails of pods: netdevs move into a pod's network namespace when it starts, and are restored when it stops. RDMA
devices are a file tree; netdevs, addresses, routes and rules are the kernel's."""
import contextlib
import json
import os
import subprocess
import sys

import harness
import nri_runtime as nri
import test_network
from harness import HOOK, NRI, SOURCE, must, read, run
from test_network import ip_json

sys.path.append(SOURCE + "/tests/support")
import grant_record  # noqa: E402


CLAIM = os.environ.get("TESTED_CLAIM", "")


class Pods(test_network.Rails):
    def setUp(self):
        super().setUp()
        self.nri = nri.Runtime(self.work + "/nri.sock")
        self.addCleanup(self.nri.stop)

    def start_plugin(self, **introduction):
        self.plugin = self.start_logged([NRI, "--socket", self.nri.path, *self.places()])
        connection = self.nri.accept()
        self.addCleanup(connection.close)
        connection.introduce(**introduction)
        return connection

    def kill(self):
        harness.end_process(self.plugin)

    def wait_for_records(self, number):
        self.until(lambda: len(self.record()) == number, f"{number} records")

    def begin(self):
        """Returns a plugin's connection, and a pod."""
        self.use()
        return self.start_plugin(), self.pod()

    def sandbox(self, pod, requests="all"):
        return nri.pod("id-" + pod, {"rdma-init.io/devices": requests} if requests else {}, f"/run/netns/{pod}", name=pod)

    @staticmethod
    def member(pod, id="c1"):
        return nri.container(id, "id-" + pod)

    @staticmethod
    def rails_in(pod):
        return {link["ifname"]: [f"{address['local']}/{address['prefixlen']}" for address in link["addr_info"]
                                 if address["scope"] == "global"]
                for link in ip_json("addr", pod=pod) if link["ifname"] != "lo"}

    def test_adds_rails_before_first_container(self):
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod))
        self.assertEqual(self.rails_in(pod), {f"net{rail + 1}": [f"10.{rail}.1.1/16"] for rail in range(4)})
        got = runtime.create(self.sandbox(pod), self.member(pod))
        self.assertEqual([path for path in got["devices"] if "uverbs" in path],
                         [f"/dev/infiniband/uverbs{number}" for number in range(4)])
        runtime.create(self.sandbox(pod), self.member(pod, "c2"))
        self.assertEqual(self.rails_in(pod)["net1"], ["10.0.1.1/16"], "addresses are assigned once")
        runtime.event("StopContainer", self.sandbox(pod), self.member(pod, "c2"))
        self.assertEqual(len(self.rails_in(pod)), 4, "the other container still runs")
        runtime.event("StopPodSandbox", self.sandbox(pod))
        self.assert_pod_as_before(pod)
        self.assert_as_before()

    def test_releases_pod_after_end_of_its_namespace(self):
        """Sends the events in the order of containerd 1.7."""
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod))
        runtime.create(self.sandbox(pod), self.member(pod))
        self.end_pod(pod)
        runtime.event("StopPodSandbox", self.sandbox(pod))
        self.assertEqual(self.record(), [])
        self.assert_as_before()

    def test_next_attempt_releases_container_of_failed_create(self):
        """A creation that failed after NRI: the runtime reports nothing, and the kubelet creates the container with another id."""
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod))
        beside = self.member(pod, "beside")
        runtime.create(self.sandbox(pod), beside)
        for attempt in range(3):
            got = runtime.create(self.sandbox(pod), nri.container(f"try{attempt}", "id-" + pod, name="trainer"))
            self.assertEqual(len([path for path in got["devices"] if "uverbs" in path]), 4)
        self.assertEqual(sorted(user["id"] for user in self.users()), ["beside", "id-" + pod, "try2"])
        runtime.event("RemoveContainer", self.sandbox(pod), nri.container("try2", "id-" + pod, name="trainer"))
        self.assertEqual(sorted(user["id"] for user in self.users()), ["beside", "id-" + pod])
        runtime.event("StopPodSandbox", self.sandbox(pod))
        self.assert_as_before()

    def users(self):
        """Returns all grants as the ledger records them."""
        users = []
        for name in os.listdir(self.ledger_directory + "/grants"):
            users += grant_record.read(f"{self.ledger_directory}/grants/{name}")["users"]
        return users

    def test_releases_pod_without_report_of_runtime(self):
        """Containerd and the plugin were restarted after the start of the pod."""
        self.use()
        runtime = self.start_plugin()
        first, second = self.pod("first"), self.pod("second")
        for pod in (first, second):
            runtime.event("RunPodSandbox", self.sandbox(pod, "2"))
            runtime.create(self.sandbox(pod, "2"), self.member(pod, "c" + pod))
            runtime.event("StopContainer", self.sandbox(pod, "2"), self.member(pod, "c" + pod))
        self.assertEqual(len(self.record()), 2)
        self.end_pod(first)
        self.wait_for_records(1)
        self.kill()
        self.start_plugin()
        self.end_pod(second)
        self.wait_for_records(0)
        self.assert_as_before()

    def claim_call(self, verb, *options):
        return run([CLAIM, verb, *self.places(), "--cdi", self.work + "/cdi", "--uid", "3f2a", *options], env={})

    def with_claim(self, pod, id, numbers, token=None):
        """Returns a container with the device nodes and the variable that the claim's CDI file adds."""
        (file,) = os.listdir(self.work + "/cdi")
        (variable,) = [entry for entry in json.loads(read(f"{self.work}/cdi/{file}"))["containerEdits"]["env"]
                       if entry.startswith("RDMA_CLAIM_3F2A=")]
        return nri.container(id, "id-" + pod, env=[variable if token is None else "RDMA_CLAIM_3F2A=" + token],
                             devices=[(f"/dev/infiniband/uverbs{number}", 231, 192 + number) for number in numbers])

    def test_pod_uses_hcas_of_its_claim(self):
        """The kubelet prepares a claim before its pod starts, and ends it after the pod."""
        runtime, pod = self.begin()
        prepare = ("prepare", "--pod", "uid-id-" + pod, "--hca", "mlx5_1", "--hca", "mlx5_3")
        self.succeeded(self.claim_call(*prepare))
        sandbox = self.sandbox(pod, None)
        runtime.event("RunPodSandbox", sandbox)
        self.assertEqual(self.rails_in(pod), {"net1": ["10.1.1.1/16"], "net2": ["10.3.1.1/16"]})
        got = runtime.create(sandbox, self.with_claim(pod, "c1", (1, 3)))
        self.assertEqual(got["env"]["RDMA_INIT_REQUIRE"], "2")
        runtime.create(sandbox, self.with_claim(pod, "c2", (3,)))
        # A kubelet that restarts prepares the claim again.
        self.succeeded(self.claim_call(*prepare))
        self.refused(self.claim_call("unprepare"), "its HCAs are in use by pod namespace")
        # rdma-nri restarts; then the pod ends without a report of the runtime.
        self.kill()
        self.start_plugin()
        self.assertEqual(len(self.record()), 1)
        self.end_pod(pod)
        self.succeeded(self.claim_call("unprepare"))
        self.assertEqual(os.listdir(self.work + "/cdi"), [])
        self.assert_as_before()

    def test_claim_keeps_its_hcas_between_two_pods(self):
        self.use("exclusive", addresses=False)
        runtime = self.start_plugin()
        first, second = self.pod("first"), self.pod("second")
        self.succeeded(self.claim_call("prepare", "--pod", "uid-id-first", "--hca", "mlx5_1"))
        runtime.event("RunPodSandbox", self.sandbox(first, None))
        self.assertEqual(self.rails_in(first), {"net1": ["10.1.0.9/16"]})
        runtime.create(self.sandbox(first, None), self.with_claim(first, "c1", (1,)))
        runtime.event("StopPodSandbox", self.sandbox(first, None))
        self.assertEqual(self.rails_in(first), {})
        self.assertIn("rail1", [link["ifname"] for link in ip_json("link")])
        self.assertEqual(self.record(), [])
        # A pod without the claim does not get the HCA, whatever variable it has.
        for token in ("", "x", "3f2a"):
            with self.assertRaisesRegex(nri.StatusError, "held by claim team/3f2a"):
                runtime.create(self.sandbox(second, None), self.with_claim(second, "c2", (1,), token))
        with self.assertRaisesRegex(nri.StatusError, "claim team/3f2a"):
            runtime.create(self.sandbox(second, "mlx5_1"), self.member(second))
        # A pod that is not in the claim's record, as one that was reserved later, gets its rails with its first container.
        runtime.event("RunPodSandbox", self.sandbox(second, None))
        self.assertEqual(self.rails_in(second), {})
        runtime.create(self.sandbox(second, None), self.with_claim(second, "c3", (1,)))
        self.assertEqual(self.rails_in(second), {"net1": ["10.1.0.9/16"]})
        runtime.event("StopPodSandbox", self.sandbox(second, None))
        self.succeeded(self.claim_call("unprepare"))
        self.assert_as_before()

    def test_accepts_events_of_runtimes_before_0_12(self):
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod, "2"), dedicated=False)
        self.assertEqual(len(self.rails_in(pod)), 2)
        runtime.event("StopPodSandbox", self.sandbox(pod, "2"), dedicated=False)
        runtime.event("RemovePodSandbox", self.sandbox(pod, "2"), dedicated=False)
        self.assert_as_before()

    def test_moves_and_restores_netdev_of_node(self):
        self.use("exclusive", addresses=False)
        runtime = self.start_plugin()
        pod = self.pod()
        runtime.event("RunPodSandbox", self.sandbox(pod, "mlx5_1"))
        self.assertEqual(self.rails_in(pod), {"net1": ["10.1.0.9/16"]})
        self.assertNotIn("rail1", [link["ifname"] for link in ip_json("link")])
        runtime.create(self.sandbox(pod, "mlx5_1"), self.member(pod))
        runtime.event("StopPodSandbox", self.sandbox(pod, "mlx5_1"))
        self.assert_as_before()

    def test_ignores_pod_without_request(self):
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod, None))
        self.assertEqual(self.rails_in(pod), {})
        runtime.event("StopPodSandbox", self.sandbox(pod, None))
        self.assert_as_before()

    def test_grants_only_nodes_in_namespace_of_node(self):
        self.use()
        runtime = self.start_plugin()
        pod = nri.pod("host", {"rdma-init.io/devices": "1"})
        runtime.event("RunPodSandbox", pod)
        self.assertEqual(self.holders(), {})
        got = runtime.create(pod, nri.container("c1", "host", network=False))
        self.assertEqual(len([path for path in got["devices"] if "uverbs" in path]), 1)
        self.assert_state(self.before)
        runtime.event("StopContainer", pod, nri.container("c1", "host", network=False))
        self.assert_as_before()

    def test_refusal_fails_containers_and_leaves_nothing(self):
        """The pod itself is not refused: containerd 2.1.9 leaves the sandbox of a refused pod running."""
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod, "mlx5_9"))
        self.assertRegex(read(self.log), "pod team-a/pod.*: .*mlx5_9")
        with self.assertRaisesRegex(nri.StatusError, "mlx5_9"):
            runtime.create(self.sandbox(pod, "mlx5_9"), self.member(pod))
        self.assert_pod_as_before(pod)
        self.assert_as_before()

    def test_adds_failed_rails_with_first_container(self):
        self.use("exclusive", addresses=False)
        runtime = self.start_plugin()
        first, second = self.pod(), self.pod("second")
        for pod in (first, second):
            runtime.event("RunPodSandbox", self.sandbox(pod, "mlx5_1"))
        self.assertEqual([list(self.rails_in(pod)) for pod in (first, second)], [["net1"], []])
        runtime.event("StopPodSandbox", self.sandbox(first, "mlx5_1"))
        runtime.create(self.sandbox(second, "mlx5_1"), self.member(second))
        self.assertEqual(self.rails_in(second), {"net1": ["10.1.0.9/16"]})
        runtime.event("StopPodSandbox", self.sandbox(second, "mlx5_1"))
        self.assert_as_before()

    def test_recovers_after_kill_during_start_of_pod(self):
        self.use()
        for delay in (0.002, 0.01, 0.02, 0.04):
            runtime = self.start_plugin()
            workers = harness.children_of(self.plugin.pid)
            pod = self.pod()
            killer = subprocess.Popen(["sh", "-c", f"sleep {delay}; kill -KILL {self.plugin.pid}"])
            with contextlib.suppress(EOFError):
                runtime.event("RunPodSandbox", self.sandbox(pod))
            killer.wait()
            self.kill()
            # The kernel closes the connection of the killed plugin before it kills the worker, which can still book.
            harness.wait_for(lambda of=workers: all(harness.process_state(pid) in ("", "Z") for pid in of), "the end of the worker")
            runtime.close()
            self.end_pod(pod)
            self.recover()
            self.assert_as_before()

    def test_passes_pod_to_ipam_plugin(self):
        leases = self.use_ipam_for_pods()
        runtime = self.start_plugin()
        pod = self.pod()
        hostile = {"io.kubernetes.cri.sandbox-name": "other", "rdma-init.io/devices": "2"}
        sandbox = nri.pod("id-pod", hostile, f"/run/netns/{pod}", name=pod)
        runtime.event("RunPodSandbox", sandbox)
        self.assertEqual(self.rails_in(pod), {"net1": ["10.0.7.1/16"], "net2": ["10.1.7.1/16"]})
        self.assertEqual(read(leases + "/team-a.pod.net1"),
                         "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=id-pod;"
                         "K8S_POD_UID=uid-id-pod\n")
        runtime.event("StopPodSandbox", sandbox)
        self.assertEqual(os.listdir(leases), [])
        self.assert_as_before()

    def test_recover_passes_pod_to_ipam_plugin(self):
        leases = self.use_ipam_for_pods()
        runtime = self.start_plugin()
        pod = self.pod()
        runtime.event("RunPodSandbox", self.sandbox(pod, "2"))
        self.assertEqual(len(os.listdir(leases)), 2)
        self.kill()
        runtime.close()
        self.end_pod(pod)
        must([HOOK, "recover", "--config", self.config, "--ledger", self.ledger_directory], env={})
        self.assertEqual(os.listdir(leases), [])
        self.assert_as_before()

    def test_releases_pod_that_ends_while_disconnected(self):
        runtime, pod = self.begin()
        runtime.event("RunPodSandbox", self.sandbox(pod))
        self.kill()
        runtime.close()
        self.end_pod(pod)
        self.start_plugin()
        self.wait_for_records(0)
        self.assert_as_before()


# Without this, the tests of the base class would run here too: they belong to test_network.py.
for inherited in dir(test_network.Rails):
    if inherited.startswith("test_"):
        setattr(Pods, inherited, None)

if __name__ == "__main__":
    harness.main_in_own_machine(NRI, network=True)
