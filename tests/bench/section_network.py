"""Rails by rdma-hook and by a chain of CNI plugins. docs: tests/bench/README.md"""
import contextlib
import json
import os
import subprocess

from scene import MOST, first_hcas, harness, name_of, program
import test_network
from containers import FakeContainer, stopped
from harness import PATH, wait_for
from test_network import Rails, ip, ip_json
from turns import Contestant, timed

PLUGINS = "/usr/lib/cni"
CHAIN = ("macvlan", "tuning", "sbr")  # macvlan calls host-local
COUNTS = (1, MOST)
FIRST_TABLE = 100
POD = "pod"
test_network.RAILS = MOST


def requirement():
    reason = harness.requirement()
    missing = [name for name in (*CHAIN, "host-local") if not os.access(f"{PLUGINS}/{name}", os.X_OK)]
    if missing:
        return reason or f"no {', '.join(missing)} in {PLUGINS} (Debian package containernetworking-plugins)"
    script = "ip link add v0 type veth peer name v1; ip link add link v0 name m0 type macvlan"
    probe = ["unshare", "--net", "sh", "-ec", script]
    if not reason and subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        reason = "the kernel has no veth or no macvlan"
    return reason


class Network(Rails):
    """A node in files with rails, and a pod whose containers get `count` of them."""

    def __init__(self, count):
        super().__init__("run")
        self.setUpClass()
        self.setUp()
        self.count = count
        self.networks["routing"] = {"first_table": FIRST_TABLE}
        self.container_bundle = self.bundle(f"rails-{count}", first_hcas(count), stages=())

    @contextlib.contextmanager
    def namespace(self):
        """Makes the pod's namespace. At the end it waits until the kernel has removed it, so that this does not disturb another turn."""
        ip("netns", "add", POD)
        ip("link", "set", "lo", "up", pod=POD)
        ip("link", "add", "watch", "type", "veth", "peer", "name", "watched", "netns", POD, pod="wire")
        yield
        ip("netns", "del", POD)
        wait_for(lambda: "watch" not in [link["ifname"] for link in ip_json("link", pod="wire")], "the end of the pod")

    def assert_given(self):
        """Checks the netdevs with MTU and address, and a rule for each."""
        links = [link for link in ip_json("-d", "link", pod=POD) if link.get("linkinfo", {}).get("info_kind") == "macvlan"]
        addresses = [link for link in ip_json("-4", "addr", pod=POD) if link["ifname"].startswith("net")]
        rules = [rule for rule in ip_json("rule", pod=POD) if rule["table"].isdigit()]  # the kernel's tables have names
        self.assertEqual([len(found) for found in (links, rules, addresses)], [self.count] * 3)
        self.assertEqual({link["mtu"] for link in links}, {1400})

    def close(self):
        self.doCleanups()

    # --- turns

    def call(self, stage, state):
        return timed([program("TESTED_HOOK"), *self.arguments(stage)[1:]], {}, json.dumps(state)).seconds

    def rdma_hook(self, check):
        with self.namespace():
            container = FakeContainer(self.container_bundle, within=("nsenter", f"--net=/run/netns/{POD}"))
            seconds = self.call("createRuntime", container.state())
            check()
            container.end()
        undoing = self.call("poststop", stopped(self.container_bundle))
        records = self.ledger_directory + "/network"
        self.assertEqual(os.listdir(records) if os.path.isdir(records) else [], [])
        return seconds, {"undo, ms": undoing * 1e3}

    def hook_with_rails(self):
        self.use()
        return self.rdma_hook(self.assert_given)

    def hook_without(self):
        self.configure({"annotations_may_request": ["*"], "pools": [{"name": "all", "modes": ["shared", "hca"]}]})
        return self.rdma_hook(lambda: None)

    def chain(self):
        results = {}
        with self.namespace():
            seconds = self.run_chain("ADD", CHAIN, results)
            self.assert_given()
            return seconds, {"undo, ms": self.run_chain("DEL", CHAIN[::-1], results) * 1e3}

    def run_chain(self, command, kinds, results):
        """Returns the seconds of all plugins, rail after rail. ADD stores the last result of each rail in `results`; DEL uses them."""
        total = 0.0
        for rail in range(self.count):
            environment = {"CNI_COMMAND": command, "CNI_CONTAINERID": "bench", "CNI_NETNS": f"/run/netns/{POD}",
                           "CNI_IFNAME": f"net{rail + 1}", "CNI_PATH": PLUGINS, "PATH": PATH}
            configs = self.plugins(rail)
            for kind in kinds:
                config = {"cniVersion": "1.0.0", "name": f"rail{rail}", "type": kind, **configs[kind]}
                if rail in results:
                    config["prevResult"] = results[rail]
                ran = timed([f"{PLUGINS}/{kind}"], environment, json.dumps(config))
                total += ran.seconds
                if command == "ADD":
                    results[rail] = json.loads(ran.out)
        return total

    def plugins(self, rail):
        ranges = {"subnet": f"10.{rail}.0.0/16", "rangeStart": f"10.{rail}.100.1", "rangeEnd": f"10.{rail}.200.250",
                  "gateway": f"10.{rail}.0.1"}
        ipam = {"type": "host-local", "dataDir": self.work + "/leases", "ranges": [[ranges]], "routes": [{"dst": "0.0.0.0/0"}]}
        sysctls = {f"net.ipv4.conf.net{rail + 1}.{key}": value
                   for key, value in (("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "2"))}
        return {"macvlan": {"master": f"rail{rail}", "mode": "bridge", "mtu": 1400, "ipam": ipam}, "tuning": {"sysctl": sysctls}, "sbr": {}}


def network(_):
    for count in COUNTS:
        with contextlib.closing(Network(count)) as scene:
            yield name_of(count, "rail"), [
                Contestant("true", lambda: (timed(["/bin/true"], {}).seconds, {})),
                Contestant("rdma-hook, device nodes only", scene.hook_without),
                Contestant("rdma-hook, rails", scene.hook_with_rails),
                Contestant("CNI, macvlan + tuning + sbr", scene.chain)]
