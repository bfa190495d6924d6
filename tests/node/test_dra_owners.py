"""rdma-dra on a node where containers of other ways have HCAs. The stand-ins are those of test_dra_driver.py."""
import sys
import time

import containers
import harness
import test_dra_driver as driver


class OtherOwners(driver.DriverCase, harness.NodeCase):
    """A container of another way, such as Docker on the same node, has an HCA."""

    def test_taints_the_hca_and_explains_why_its_claim_is_not_prepared(self):
        api, kubelet, _ = self.begin(config={**driver.EXCLUSIVE, "memlock": harness.MEMLOCK})
        names = self.names()
        container = containers.fake_container(self, annotations=containers.EXCLUSIVE)
        self.succeeded(self.hook("createRuntime", container.state()))
        at = [device["attributes"]["rdmaDevice"]["string"] for device in api.devices()].index("mlx5_1")
        since = time.monotonic()
        self.until(lambda: self.taints()[at] == ["rdma-init.io/held"], "a taint")
        print(f"the taint after {time.monotonic() - since:.2f} s", file=sys.stderr)
        answer = kubelet.prepare(self.add_claim([names[at]]))[driver.UID]
        self.assertIn("container " + container.bundle.id, answer)
        self.until(lambda: api.cluster_events, "an event")  # the answer comes before it
        event, = api.cluster_events
        self.assertEqual((event["reason"], event["involvedObject"]["uid"]), ("HcaInUse", driver.UID))
        self.assertIn("container " + container.bundle.id, event["message"])
        container.end()
        self.succeeded(self.hook("poststop", {**container.state(), "status": "stopped"}))
        self.until(lambda: self.taints()[at] == [], "no taint")
        self.assertEqual(len(kubelet.prepare(self.add_claim([names[at]]))[driver.UID]), 1)
        self.assertEqual(len(api.cluster_events), 1)
        self.assertEqual(kubelet.unprepare(("team-a", "train", driver.UID)), {driver.UID: ""})


if __name__ == "__main__":
    harness.main_in_own_machine(driver.PROGRAM)
