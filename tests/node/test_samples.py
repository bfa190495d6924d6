"""Each sample of config/samples as shipped: check-config, plan, and containers that get the devices and rails of the plan, with
runc and crun, by the hook and by rdma-runtime, and by rdma-nri with a scripted runtime. The nodes are file trees with the HCAs of
the sample; netdevs, addresses and routes are the kernel's.

The pool `rail-vfs` of 8-rail-roce is not tested here: it needs virtual functions, which these netdevs do not have."""
import ipaddress
import json
import os
import tempfile

import harness
import nri_runtime as nri
from containers import FOREVER, Bundle, Pod, Runtime, Wrapped
from harness import HOOK, MAKE_TREE, MEMLOCK, NRI, must, read, read_json, run, write
from node import Node
from test_network import ip

SAMPLES = harness.SOURCE + "/config/samples"


class SampleNode(Node):
    """A node with these HCAs: (name, device ID, link layer). Each Ethernet port has a netdev named after the HCA."""

    def __init__(self, directory, hcas):
        self.HCAS = len(hcas)
        snapshot = {"schema": 1, "rdma_cm": True, "devices": [], "netdevs": []}
        for number, (name, device_id, link_layer) in enumerate(hcas):
            pci = f"0000:{0x18 + number:02x}:00.0"
            port = {"port": 1, "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": link_layer,
                    "rate": "400 Gb/sec (4X NDR)", "lid": "0x1", "sm_lid": "0x1", "gid_tbl_len": 16, "gids": []}
            snapshot["devices"].append({
                "name": name, "node_guid": f"a088:c203:0010:{number:04x}", "node_type": "1: CA", "pci": pci, "numa_node": 0,
                "driver": "mlx5_core", "vendor": "0x15b3", "device_id": device_id, "uverbs": number,
                "uverbs_dev": f"231:{192 + number}", "accessible": True, "ports": [port]})
            if link_layer == "Ethernet":
                snapshot["netdevs"].append({"name": f"{name}n", "mac": f"02:00:00:00:01:{number:02x}", "carrier": 1, "dev_id": "0x0",
                                            "dev_port": 0, "mtu": 1400, "type": 1, "addresses": [], "pci": pci})
        must([MAKE_TREE, write(directory + ".json", snapshot), directory, "--full"])
        super().__init__(directory)


class Samples(harness.NodeCase):
    def setUp(self):
        self.addCleanup(run, ["ip", "netns", "del", "wire"])

    def make(self, sample, hcas):
        """Makes the node and a runtime, and checks the unchanged sample."""
        # pylint: disable=attribute-defined-outside-init
        self.node = SampleNode(f"/run/{sample}", hcas)
        super().setUp()
        self.check(sample, self.config)
        # A limit that this machine can set.
        self.configure(read_json(self.config))
        self.runtime = Runtime(self, "runc")

    def check(self, sample, path):
        """Checks a copy of the sample, because the hook refuses a configuration that does not belong to root."""
        write(path, read(f"{SAMPLES}/{sample}.json"))
        checked = run([HOOK, "check-config", "--config", path])
        self.assertEqual((checked.returncode, checked.stderr), (0, ""), checked.stdout)
        self.assertTrue(checked.stdout.startswith("ok: "), checked.stdout)

    def make_rail(self, name, number):
        """Makes a netdev whose peer has the rail's gateway address."""
        if not os.path.exists("/run/netns/wire"):
            ip("netns", "add", "wire")
        peer = f"wire{number}"
        ip("link", "add", f"{name}n", "address", f"02:00:00:00:01:{number:02x}", "type", "veth", "peer", "name", peer, "netns", "wire")
        self.addCleanup(run, ["ip", "link", "del", f"{name}n"])
        ip("addr", "add", f"10.1{number}.0.1/16", "dev", peer, pod="wire")
        ip("link", "set", peer, "up", pod="wire")
        ip("link", "set", f"{name}n", "mtu", "1400", "up")

    def plan(self, bundle):
        return json.loads(must([HOOK, "plan", "--json", "--bundle", bundle.directory, *self.arguments("plan")[2:]]))

    def configure(self, members):
        super().configure({**members, "memlock": MEMLOCK})

    def run_one(self):
        """Runs a container that requests all HCAs by each way, compares it with its plan, and returns the first plan."""
        plans = []
        for way in (self.runtime, Runtime(self, "crun"), Wrapped(self, "runc"), Wrapped(self, "crun")):
            name = f"{type(way).__name__}-{way.name}".lower()
            with self.subTest(name):
                bundle = Bundle(self, name, requests="all", **({"stages": ()} if isinstance(way, Wrapped) else {}))
                plan = self.plan(bundle)
                plans.append(plan)
                self.assertEqual(self.ledger(), {}, "a plan books nothing")
                bundle.config["process"]["args"] = ["/bin/sh", "-c", "/probe; ls /sys/class/infiniband"]
                report = way.report(bundle.write())
                self.assertEqual(sorted(report.nodes), sorted(node["path"] for node in plan["nodes"]))
                self.assertEqual(report.views["infiniband"], sorted(plan["hcas"]))
                self.assertEqual(report.facts["hard memlock"], str(MEMLOCK))
                required = plan["env"].get("RDMA_INIT_REQUIRE", "") if isinstance(way, Wrapped) else ""
                self.assertEqual(report.facts["require"], required)
                self.assert_ledger_empty()
        with self.subTest("rdma-nri"):
            self.check_nri(plans[0])
        return plans[0]

    def check_nri(self, plan):
        """Checks that a pod of a runtime with NRI gets the same."""
        self.configure({**read_json(self.config), "annotations_may_request": ["team-a"]})
        runtime = nri.Runtime(self.work + "/nri.sock")
        self.addCleanup(runtime.stop)
        self.start_logged([NRI, "--socket", runtime.path, *self.places()])
        connection = runtime.accept()
        self.addCleanup(connection.close)
        connection.introduce()
        pod = Pod(self)
        sandbox = nri.pod("pod1", {"rdma-init.io/devices": "all"}, pod.path)
        connection.event("RunPodSandbox", sandbox)
        links = json.loads(must(["nsenter", f"--net={pod.path}", "ip", "-j", "link"]))
        self.assertEqual([link["ifname"] for link in links if link["ifname"] != "lo"], [rail["name"] for rail in plan["rails"]])
        got = connection.create(sandbox, nri.container("c1", "pod1"))
        self.assertEqual(sorted(got["devices"]), sorted(node["path"] for node in plan["nodes"]))
        self.assertEqual(sorted(got["mounts"]), sorted(mount["destination"] for mount in plan["mounts"]))
        self.assertEqual(got["env"], plan["env"])
        connection.event("StopPodSandbox", sandbox)
        pod.remove()
        self.assert_ledger_empty()

    def test_8_rail_roce_grants_planned_rails(self):
        hcas = [(f"mlx5_{number}", "0x1021", "Ethernet") for number in range(8)] + [("mlx5_8", "0x101d", "Ethernet")]
        self.mount("/etc/rdma-init")
        write("/etc/rdma-init/node_index", "12\n")
        self.make("8-rail-roce", hcas)
        for number in range(8):
            self.make_rail(f"mlx5_{number}", number)
        plan = self.run_one()
        self.assertEqual([(of["range"].split("-")[0], of["prefix"], of["gateway"]) for rail in plan["rails"] for of in rail["ranges"]],
                         [(f"10.1{number}.12.0", 16, f"10.1{number}.0.1") for number in range(8)])
        self.assertEqual([rail["table"] for rail in plan["rails"]], list(range(100, 108)))
        # The container gets addresses of the planned ranges.
        bundle = Bundle(self, "web", requests="all", args=FOREVER)
        plan = self.plan(bundle)
        self.succeeded(self.runtime.create(bundle))
        pid = self.runtime.state(bundle)["pid"]
        for rail in plan["rails"]:
            (of,) = rail["ranges"]
            inside = ["nsenter", f"--net=/proc/{pid}/ns/net", "ip"]
            first, last = map(ipaddress.ip_address, of["range"].split("-"))
            found = json.loads(must([*inside, "-json", "-4", "addr", "show", rail["name"]]))[0]["addr_info"]
            self.assertEqual([(first <= ipaddress.ip_address(own["local"]) <= last, own["prefixlen"]) for own in found],
                             [(True, of["prefix"])])
            self.assertIn(f"default via {of['gateway']} dev {rail['name']}",
                          must([*inside, "route", "show", "table", str(rail["table"])]))
        self.runtime.delete_all()
        self.assert_ledger_empty()

    def test_infiniband_grants_only_infiniband_hcas(self):
        hcas = [(f"mlx5_{number}", "0x1021", "Ethernet" if number in (1, 2, 7, 8) else "InfiniBand") for number in range(12)]
        self.make("infiniband", hcas)
        plan = self.run_one()
        self.assertEqual(sorted(plan["hcas"]), sorted(f"mlx5_{number}" for number in (0, 3, 4, 5, 6, 9, 10, 11)))
        self.assertEqual((plan["rails"], plan["netdevs"]), ([], []))

    def test_single_nic_grants_one_hca_without_rail(self):
        self.make("single-nic", [("mlx5_0", "0x101d", "Ethernet"), ("mlx5_1", "0x1017", "Ethernet")])
        plan = self.run_one()
        self.assertEqual((plan["hcas"], plan["rails"]), (["mlx5_0"], []))
        self.assertIn("set RDMA_INIT_REQUIRE in the pod", " ".join(plan["warnings"]))

    def base_spec(self, text, *options):
        return run([HOOK, "base-spec", *options], input=text)

    def test_base_spec_adds_hooks_or_verify(self):
        """Makes the base specifications that containerd's samples name. `ctr oci spec` prints such limits."""
        text = '{"process": {"rlimits": [{"type": "RLIMIT_NOFILE", "soft": 1024, "hard": 1024}]}, "linux": {"limit": 18446744073709551615}}'
        for options, stages in (((), {"createRuntime": ["createRuntime"], "poststop": ["poststop"]}),
                                (("--verify",), {"createRuntime": ["verify"]})):
            done = self.base_spec(text, *options)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn('"limit": 18446744073709551615', done.stdout)
            spec = json.loads(done.stdout)
            self.assertEqual({stage: [entry["args"][1] for entry in entries] for stage, entries in spec["hooks"].items()}, stages)
            self.assertEqual({entry["path"] for entries in spec["hooks"].values() for entry in entries},
                             {os.path.realpath(HOOK)})
            self.assertEqual("rlimits" in spec["process"], not options)
        self.assertIn('"path": "/opt/rdma-hook"', self.base_spec(text, "--hook", "/opt/rdma-hook").stdout)
        for wrong, words in (("", "the specification on stdin"), ("{", "the specification on stdin"), ("[]", "it is not a JSON object"),
                             ("{}", "object `process` is missing"), ('{"process": {}, "hooks": 1}', "`hooks` is not an object")):
            done = self.base_spec(wrong)
            self.assertEqual((done.returncode, done.stdout), (1, ""), wrong)
            self.assertIn(words, done.stderr)
            self.assertIn("ctr oci spec | rdma-hook base-spec", done.stderr)
        self.assertEqual(run([HOOK, "base-spec", "--verfy"]).returncode, 2)
        self.assertIn("not an absolute path", self.base_spec(text, "--hook", "rdma-hook").stderr)

    def test_ib_sriov_is_valid(self):
        """Only checks the configuration, because no software device has virtual functions of InfiniBand."""
        with tempfile.TemporaryDirectory(dir="/run") as directory:
            self.check("ib-sriov", directory + "/config.json")

    def test_roce_sriov_is_valid(self):
        """Only checks the configuration, because no software device has virtual functions."""
        with tempfile.TemporaryDirectory(dir="/run") as directory:
            self.check("roce-sriov", directory + "/config.json")

    def test_every_sample_has_a_test(self):
        self.assertEqual(sorted(os.listdir(SAMPLES)),
                         ["8-rail-roce.json", "ib-sriov.json", "infiniband.json", "roce-sriov.json", "single-nic.json"])


if __name__ == "__main__":
    harness.main_in_own_machine(NRI, network=True)
