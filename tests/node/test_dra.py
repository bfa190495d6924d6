"""rdma-dra on a node that is a file tree: the slices that it prints. tests/unit/shim/dra has the details."""
import json
import os

import harness
from harness import must, run, write

PROGRAM = os.environ.get("TESTED_DRA", "")


class DraCase(harness.TreeCase):
    def setUp(self):
        super().setUp()
        self.configure({"pools": [{"name": "rails", "modes": ["exclusive", "hca"]}]})

    def slices(self, *options, **settings):
        return json.loads(must([PROGRAM, "--slices", *options, *self.places()], **{"env": {"NODE_NAME": "n1"}, **settings}))["items"]

    def devices(self, *options):
        return [device for each in self.slices(*options) for device in each["spec"]["devices"]]

    def test_prints_slices_with_the_place_of_each_hca(self):
        slices = self.slices()
        self.assertEqual(len(slices), 1)
        self.assertEqual(slices[0]["spec"]["pool"], {"name": "n1", "generation": 1, "resourceSliceCount": 1})
        devices = slices[0]["spec"]["devices"]
        self.assertEqual([device["attributes"]["rdmaDevice"]["string"] for device in devices], [f"mlx5_{at}" for at in range(4)])
        for device in devices:
            pci = device["attributes"]["resource.kubernetes.io/pciBusID"]["string"]
            self.assertEqual(device["name"], "pci-" + pci.replace(":", "-").replace(".", "-"))
            self.assertRegex(device["attributes"]["resource.kubernetes.io/pcieRoot"]["string"], "^pci[0-9a-f]{4}:[0-9a-f]{2}$")

    def test_taints_hca_whose_link_is_down(self):
        write(self.tree + "/sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n")
        taints = [device.get("taints") for device in self.devices()]
        self.assertEqual(taints, [None, None, [{"key": "rdma-init.io/link-down", "effect": "NoSchedule"}], None])
        self.assertEqual(len(self.devices("--kubernetes", "1.35")), 3)

    def test_accepts_the_version_that_kubectl_prints(self):
        write(self.tree + "/sys/class/infiniband/mlx5_2/ports/1/state", "1: DOWN\n")
        for version in ("1.35.2", "v1.35.2", "v1.35.2+k3s1", "1.35+"):
            self.assertEqual(len(self.devices("--kubernetes", version)), 3, version)
        for version in ("v", "vv1.36", "v1.33.1", "v2.36"):
            done = run([PROGRAM, "--slices", "--kubernetes", version, *self.places()], env={})
            self.assertEqual(done.returncode, 2, version)

    def test_names_the_limit_of_the_path_of_sockets(self):
        done = run([PROGRAM, "--kubelet", "/" + 31 * "x"], env={})
        self.assertEqual(done.returncode, 2)
        self.assertIn("the path of a socket has at most 107 bytes", done.stderr)
        self.assertIn("symbolic link", done.stderr)

    def test_warns_if_no_hca_is_in_a_pool(self):
        self.configure({"pools": [{"name": "rails", "modes": ["exclusive"], "selectors": {"vendors": ["1234"]}}]})
        done = run([PROGRAM, "--slices", *self.places()], env={"NODE_NAME": "n1"})
        self.assertEqual(done.returncode, 0)
        self.assertIn("no HCA of this node is in a pool of config.json; remedy: `rdma-hook devices` shows", done.stderr)

    def test_names_the_node_after_its_variable_or_host(self):
        self.assertEqual(self.slices(env={})[0]["spec"]["nodeName"], os.uname().nodename.lower())
        self.assertEqual(self.slices("--node", "n2")[0]["spec"]["nodeName"], "n2")
        done = run([PROGRAM, "--slices", *self.places()], env={"NODE_NAME": "a_b"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("remedy: pass --node", done.stderr)


if __name__ == "__main__":
    harness.main(PROGRAM, harness.MAKE_TREE)
