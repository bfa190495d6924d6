"""Pods start and end with claims while rdma-dra, its process for the API server, the kubelet and the API server are killed, restarted or
fail at random times. No HCA has two claims, no prepared claim loses its HCAs or its CDI file, and at the end nothing is left.
docs: tests/faults/README.md"""
import argparse
import os
import random
import signal
import socket
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE + "/../node")
import test_dra_driver as driver  # noqa: E402  skips without python3-grpcio
import dra_kubelet  # noqa: E402
import grpc  # noqa: E402
import harness  # noqa: E402

SEED = int(os.environ.get("RDMA_HOOK_TEST_SEED", "1"))
rounds = 40


class Kubelet(dra_kubelet.DraKubelet):
    """A kubelet that has tried each socket: a killed driver leaves its own."""

    def sockets(self):
        return [path for path in super().sockets() if self.listens(path)]

    @staticmethod
    def listens(path):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(path) == 0


class Node:
    """A kubelet's calls for the claims of pods, again and again as a kubelet repeats them."""

    def __init__(self, directory):
        self.directory = directory
        self.kubelet = None

    def call(self, method, claim, seconds=120):
        """Calls until the answer has no error. Returns the answer."""
        end = time.monotonic() + seconds
        said = "no call"
        while time.monotonic() < end:
            try:
                if self.kubelet is None:
                    self.kubelet = Kubelet(self.directory)
                    self.kubelet.register(5)
                said = getattr(self.kubelet, method)(claim)[claim[2]]
                if not said or not isinstance(said, str):
                    return said
            except (grpc.RpcError, grpc.FutureTimeoutError, TimeoutError, FileNotFoundError, IndexError) as error:
                said = repr(error)[:300]
                self.restart()
            time.sleep(0.05)
        raise AssertionError(f"{method} of {claim} had no success in {seconds} s: {said}")

    def restart(self):
        if self.kubelet:
            self.kubelet.stop()
        self.kubelet = None


class Campaign(driver.DriverCase):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.errors = []
        self.ended = threading.Event()
        self.done = 0
        self.claims = []

    def held_by(self, hca):
        return self.devices()[hca]["holders"]

    def pods(self, worker, device):
        """Pods that use one HCA one after the other."""
        node = Node(self.kubelet_directory)
        number = 0
        pauses = random.Random(SEED + worker)
        try:
            while not self.ended.is_set():
                number += 1
                claim = self.add_claim([device], uid=f"u-{worker}-{number}", name=f"c-{worker}-{number}")
                self.claims.append(claim)
                first = node.call("prepare", claim)
                self.check_prepared(claim, device, first)
                if pauses.random() < 0.3:
                    self.assertEqual(node.call("prepare", claim), first, "a repeated call has the same answer")
                if pauses.random() < 0.3:
                    node.restart()
                time.sleep(pauses.uniform(0, 0.1))
                self.check_prepared(claim, device, first)
                node.call("unprepare", claim)
                self.assertFalse(os.path.exists(self.cdi_file(claim)), "an ended claim has its CDI file")
                self.done += 1
        except Exception as error:  # pylint: disable=broad-except
            self.errors.append(f"worker {worker}: {error!r}")
        finally:
            node.restart()

    def cdi_file(self, claim):
        return f"{self.tree}/var/run/cdi/rdma-init.io-claim-{claim[2]}.json"

    def check_prepared(self, claim, device, answer):
        self.assertEqual([each[2] for each in answer], [device])
        self.assertTrue(os.path.exists(self.cdi_file(claim)), "a prepared claim has no CDI file")
        (hca,) = (hca for hca, name in self.names_of_hcas.items() if name == device)
        owners = [holder["holder"] for holder in self.held_by(hca)]
        self.assertEqual(owners, [f"claim {claim[0]}/{claim[1]}"], f"the owners of {hca}")

    def begin_driver(self, pod=""):
        env = {"PATH": harness.PATH, **({"POD_UID": pod} if pod else {})}
        return self.start_driver(env=env)

    def disturb(self, number):
        """One fault. Leaves one driver running."""
        fault = self.random.choice(("kill", "kill", "kill child", "end", "second", "delete slices", "cut", "fail", "rotate", "forget"))
        if fault == "kill":
            self.process.kill()
        elif fault == "kill child":
            # A driver that has just started has no child.
            for pid in harness.children_of(self.process.pid) or [self.process.pid]:
                os.kill(pid, signal.SIGKILL)
        elif fault == "end":
            self.process.terminate()
        elif fault == "second":
            second = self.begin_driver(f"pod-{number}")
            time.sleep(self.random.uniform(0, 0.5))
            self.process.kill()
            self.process.wait(30)
            self.process = second
            return fault
        elif fault == "delete slices":
            self.api.delete_all()
        elif fault == "fail":
            self.api.answers += [(lambda method, path: True, self.random.choice((500, 503, 429)), {})] * 3
        else:
            {"cut": self.api.cut, "rotate": self.api.rotate, "forget": self.api.forget}[fault]()
        if fault in ("kill", "kill child", "end"):
            self.process.wait(30)
            self.process = self.begin_driver()
        return fault

    def test_claims_survive(self):
        self.api, _, self.process = self.begin()
        self.names_of_hcas = {device["attributes"]["rdmaDevice"]["string"]: device["name"] for device in self.api.devices()}
        workers = [threading.Thread(target=self.pods, args=(at, device)) for at, device in enumerate(self.names_of_hcas.values())]
        for worker in workers:
            worker.start()
        faults = []
        try:
            for number in range(rounds):
                time.sleep(self.random.uniform(0.02, 0.6))
                faults.append(self.disturb(number))
                if self.errors:
                    break
        finally:
            self.ended.set()
            for worker in workers:
                worker.join(180)
        self.assertEqual(self.errors, [], f"after the faults {faults}; seed {SEED}; the log: {harness.read(self.log)[-3000:]}")
        self.assert_nothing_left()
        print(f"{self.done} claims, {len(faults)} faults: 0 double, 0 lost, 0 leaked", file=sys.stderr)
        self.assertGreater(self.done, rounds // 4)

    def assert_nothing_left(self):
        self.process.kill()
        self.process.wait(30)
        self.process = self.begin_driver()
        node = Node(self.kubelet_directory)
        for claim in self.claims[-8:]:
            node.call("unprepare", claim)
        self.assertEqual({hca: of["holders"] for hca, of in self.devices().items() if of["holders"]}, {})
        self.assertEqual(os.listdir(self.tree + "/var/run/cdi"), [])
        self.assertEqual(os.listdir(self.ledger_directory + "/grants"), [])
        self.until(lambda: len(self.api.devices() or []) == len(self.names_of_hcas), "the slices")
        sockets = os.listdir(self.kubelet_directory + "/plugins_registry")
        self.assertEqual(sockets, ["rdma-init.io-reg.sock"], "sockets of killed drivers")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=rounds)
    rounds = parser.parse_args().rounds
    sys.argv[1:] = []
    harness.main(driver.PROGRAM, harness.MAKE_TREE)
