"""rdma-dra on a node that is a file tree: the slices that it prints, and the claims that it reads. tests/unit/shim/dra has the details."""
import json
import os

import harness
from harness import must, run, write

PROGRAM = os.environ.get("TESTED_DRA", "")
CLAIM = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
         "metadata": {"namespace": "team-a", "name": "train", "uid": "7b1c6f0e"}}


class DraCase(harness.TreeCase):
    def setUp(self):
        super().setUp()
        self.configure({"pools": [{"name": "rails", "modes": ["exclusive", "hca"]}]})

    def slices(self, *options, **settings):
        return json.loads(must([PROGRAM, "--slices", *options, *self.places()], **{"env": {"NODE_NAME": "n1"}, **settings}))["items"]

    def devices(self, *options):
        return [device for each in self.slices(*options) for device in each["spec"]["devices"]]

    def claim(self, *devices, **more):
        results = [{"request": "hca", "driver": "rdma-init.io", "pool": "n1", "device": device} for device in devices]
        allocation = {"devices": {"results": results, **more}}
        return write(f"{self.work}/claim.{len(os.listdir(self.work))}", {**CLAIM, "status": {"allocation": allocation}})

    def read_claim(self, path, **settings):
        return run([PROGRAM, "--claim", path, "--node", "n1", *self.places()], env={}, **settings)

    def test_prints_slices_with_the_place_of_each_hca(self):
        slices = self.slices("--node-uid", "u-1")
        self.assertEqual(len(slices), 1)
        self.assertEqual(slices[0]["metadata"]["ownerReferences"][0]["uid"], "u-1")
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

    def test_names_the_node_after_its_variable_or_host(self):
        self.assertEqual(self.slices(env={})[0]["spec"]["nodeName"], os.uname().nodename.lower())
        self.assertEqual(self.slices("--node", "n2")[0]["spec"]["nodeName"], "n2")
        done = run([PROGRAM, "--slices", *self.places()], env={"NODE_NAME": "a_b"})
        self.assertEqual(done.returncode, 1)
        self.assertIn("remedy: pass --node", done.stderr)

    def test_prints_the_hcas_of_a_claim(self):
        names = [device["name"] for device in self.devices()]
        config = [{"source": "FromClaim", "requests": [], "opaque": {"driver": "rdma-init.io", "parameters": {
            "apiVersion": "rdma-init.io/v1alpha1", "kind": "HcaParameters", "mode": "hca", "limits": {"hca_objects": 4096, "hca_handles": 8}}}}]
        path = self.claim(names[1], names[3], config=config)
        done = self.read_claim(path)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.splitlines(), [
            "claim team-a/train with the UID 7b1c6f0e",
            f"{names[1]} = mlx5_1, request hca, pool rails, mode hca, network none, at most 4096 objects, at most 8 contexts",
            f"{names[3]} = mlx5_3, request hca, pool rails, mode hca, network none, at most 4096 objects, at most 8 contexts"])
        with open(path, encoding="utf-8") as file:
            self.assertEqual(self.read_claim("-", input=file.read()).stdout, done.stdout)

    def test_refuses_claims_that_this_node_cannot_serve(self):
        name = self.devices()[0]["name"]
        config = [{"source": "FromClaim", "opaque": {"driver": "rdma-init.io", "parameters": {
            "apiVersion": "rdma-init.io/v1alpha1", "kind": "HcaParameters", "mode": "shared"}}}]
        for path, message in ((self.claim("pci-0000-ff-00-0"), "no device pci-0000-ff-00-0"),
                              (self.claim(name, config=config), "mlx5_0: "),
                              (self.claim(name, name), "repeats an earlier entry"),
                              (write(self.work + "/list.json", "[]"), "is no ResourceClaim")):
            done = self.read_claim(path)
            self.assertEqual((done.returncode, done.stdout), (1, ""), message)
            self.assertIn(message, done.stderr)
            self.assertIn("remedy: ", done.stderr)


if __name__ == "__main__":
    harness.main(PROGRAM, harness.MAKE_TREE)
