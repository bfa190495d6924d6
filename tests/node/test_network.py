"""Rails: netdevs of the node, and children of them, in the network namespaces of containers and pods, and the node's state after
their end. RDMA devices are a file tree here; netdevs, addresses, routes and rules are the kernel's."""
import contextlib
import ipaddress
import json
import os
import shutil

import harness
from containers import FOREVER, Bundle, Runtime
from harness import HOOK, must, read, read_json, run, wait_for
from test_live import events, keep_log

RAILS = 4


def ip(*arguments, pod=None):
    return must(["ip", *(["-n", pod] if pod else []), *arguments])


def ip_json(*arguments, pod=None):
    return json.loads(ip("-j", *arguments, pod=pod) or "[]")


def without_numbers(value):
    """Removes indexes that the kernel assigns, counters, and values that change with time."""
    skipped = ("ifindex", "link_index", "link_netnsid", "valid_life_time", "preferred_life_time", "expires", "used",
               "operstate", "linkmode", "flags")
    if isinstance(value, list):
        return sorted((without_numbers(item) for item in value), key=json.dumps)
    if isinstance(value, dict):
        return {key: without_numbers(item) for key, item in value.items() if key not in skipped}
    return value


class Rails(harness.NodeCase):
    runtime_name = "runc"

    def setUp(self):
        for number in range(RAILS):
            self.make_rail(number)
        super().setUp()
        self.runtime = Runtime(self, self.runtime_name)
        self.networks = {"gateway_test": "off", "align_gids": False, "gid_wait_ms": 0}
        self.pods = []
        self.addCleanup(self.remove_rails)
        self.before = self.node_state()

    def make_rail(self, number):
        """Makes a netdev of the node whose peer, with the gateway's address, is in the namespace `wire`."""
        if not os.path.exists("/run/netns/wire"):
            ip("netns", "add", "wire")
            ip("link", "set", "lo", "up")
        rail, peer = f"rail{number}", f"wire{number}"
        ip("link", "add", rail, "address", f"02:00:00:00:01:{number:02x}", "type", "veth", "peer", "name", peer, "netns", "wire")
        ip("addr", "add", f"10.{number}.0.1/16", "dev", peer, pod="wire")
        ip("link", "set", peer, "up", pod="wire")
        ip("link", "set", rail, "mtu", "1400", "up")
        ip("addr", "add", f"10.{number}.0.9/16", "dev", rail)
        ip("route", "add", f"10.9{number}.0.0/16", "via", f"10.{number}.0.1", "dev", rail, "table", str(500 + number))
        ip("neigh", "add", f"10.{number}.0.77", "lladdr", "02:00:00:00:00:77", "dev", rail, "nud", "permanent")

    def remove_rails(self):
        for pod in self.pods:
            run(["ip", "netns", "del", pod])
        for number in range(RAILS):
            run(["ip", "link", "del", f"rail{number}"])

    def node_state(self):
        # The kernel adds link-local addresses when a netdev has its carrier, and tests them for a second.
        wait_for(lambda: self.is_settled(), "IPv6 addresses to settle")
        return {"link": without_numbers(ip_json("-d", "link")), "addr": without_numbers(ip_json("addr")),
                "route": without_numbers(ip_json("route", "show", "table", "all")),
                "route6": without_numbers(ip_json("-6", "route", "show", "table", "all")),
                "rule": without_numbers(ip_json("rule")), "neigh": without_numbers(ip_json("neigh", "show", "nud", "permanent"))}

    @staticmethod
    def is_settled():
        for link in ip_json("addr"):
            if not link["ifname"].startswith("rail"):
                continue
            local = [address for address in link["addr_info"] if address["scope"] == "link"]
            if len(local) != 1 or local[0].get("tentative"):
                return False
        return True

    def assert_as_before(self):
        self.assert_state(self.before)
        self.assert_ledger_empty()

    def assert_state(self, expected, message=None):
        """Waits for the state, because the kernel ends namespaces asynchronously."""
        with contextlib.suppress(AssertionError):  # the assertion below shows the differences
            wait_for(lambda: self.node_state() == expected, "the state as before", 10)
        self.assertEqual(self.node_state(), expected, message)

    def use(self, mode="shared", child="macvlan", addresses=True, **members):
        network = {"mode": mode, **self.networks, **members}
        if mode != "exclusive":
            network["child"] = child
        if addresses:
            network["addresses"] = [{"rail": rail, "subnet": f"10.{rail}.0.0/16", "from": f"10.{rail}.1.1",
                                     "to": f"10.{rail}.1.50", "gateway": f"10.{rail}.0.1"} for rail in range(RAILS)]
        self.configure({"networks": {"rails": network}, "annotations_may_request": ["*"],
                        "pools": [{"name": "all", "modes": [mode], "network": "rails"}]})

    def pod(self, name="pod"):
        ip("netns", "add", name)
        ip("link", "set", "lo", "up", pod=name)
        self.pods.append(name)
        return name

    def bundle(self, name="web", requests="all", pod=None, **settings):
        return Bundle(self, name, requests=requests, netns=f"/run/netns/{pod}" if pod else True, args=FOREVER, **settings)

    def created(self, bundle):
        self.succeeded(self.runtime.create(bundle))
        return bundle

    def assert_refused(self, bundle, words):
        """Checks the hook's message with runc; crun discards it."""
        done = self.refused(self.runtime.create(bundle))
        if self.runtime_name == "runc":
            self.assertIn(words, done.stderr.replace('\\"', '"'))

    def plan(self, bundle, *options):
        return run([HOOK, "plan", *options, "--bundle", bundle.directory, *self.arguments("plan")[2:]])

    def inside(self, bundle, *arguments):
        pid = self.runtime.state(bundle)["pid"]
        return must(["nsenter", f"--net=/proc/{pid}/ns/net", "ip", *arguments])

    @staticmethod
    def rails_of(pod):
        """Each netdev with its index, MAC and assigned addresses. Link-local addresses and flags such as `tentative` change
        with time: the kernel adds and tests those addresses after a netdev has its carrier."""
        return [(link["ifindex"], link["ifname"], link["address"],
                 [(address["local"], address["prefixlen"]) for address in link["addr_info"] if address["scope"] != "link"])
                for link in ip_json("addr", pod=pod)]

    def record(self):
        directory = self.ledger_directory + "/network"
        return os.listdir(directory) if os.path.isdir(directory) else []

    def end_pod(self, pod):
        ip("netns", "del", pod)
        self.pods.remove(pod)

    def assert_pod_as_before(self, pod):
        self.assertEqual([link["ifname"] for link in ip_json("link", pod=pod)], ["lo"])
        self.assertEqual([rule["priority"] for rule in ip_json("rule", pod=pod)], [0, 32766, 32767])
        self.assertEqual(self.record(), [])
        self.assert_ledger_empty()

    # --- children

    def test_children_have_addresses_tables_and_rules(self):
        self.use()
        web = self.created(self.bundle())
        for number in range(RAILS):
            name = f"net{number + 1}"
            (link,) = json.loads(self.inside(web, "-j", "-d", "link", "show", name))
            self.assertEqual(link["linkinfo"]["info_kind"], "macvlan")
            self.assertEqual(link["linkinfo"]["info_data"]["mode"], "bridge")
            self.assertEqual(link["mtu"], 1400)
            self.assertIn("UP", link["flags"])
            self.assertIn(f"10.{number}.1.1/16", self.inside(web, "addr", "show", name))
            table = self.inside(web, "route", "show", "table", str(100 + number))
            self.assertIn(f"default via 10.{number}.0.1 dev {name}", table)
            self.assertIn(f"10.{number}.0.0/16 dev {name}", table)
            self.assertIn(f"from 10.{number}.1.1 lookup {100 + number}", self.inside(web, "rule"))
        self.assertEqual(self.inside(web, "route", "show", "table", "main").strip(), "")
        pid = self.runtime.state(web)["pid"]
        conf = must(["nsenter", f"--net=/proc/{pid}/ns/net", "--", "sh", "-c",
                     "cd /proc/sys/net/ipv4/conf/net1; cat arp_ignore arp_announce rp_filter"])
        self.assertEqual(conf.split(), ["1", "2", "2"])
        self.runtime.delete(web)
        self.assert_as_before()
        self.assertEqual(self.record(), [])

    def test_plan_and_start_refuse_with_same_error(self):
        self.use()
        one_range = read_json(self.config)
        one_range["networks"]["rails"]["addresses"] = one_range["networks"]["rails"]["addresses"][:1]
        self.use("exclusive", addresses=False, vf={"vlan": 5})
        vf_of_pf = read_json(self.config)
        self.use("exclusive", addresses=False)
        ip("route", "add", "default", "dev", "rail2")
        self.addCleanup(run, ["ip", "route", "del", "default"])
        node_route = read_json(self.config)
        self.before = self.node_state()
        for config, words in ((one_range, "network `rails` has address ranges, but none for rail 1"),
                              (vf_of_pf, "is no virtual function"),
                              (node_route, "its netdev `rail2` carries the node's default route")):
            self.configure(config)
            web = self.bundle()
            done = self.plan(web, "--json")
            self.assertEqual(done.returncode, 1, done.stdout)
            error = json.loads(done.stdout)["error"]
            self.assertIn(words, error)
            self.assert_refused(web, error)
            self.runtime.delete_all()
            must(["rm", "-r", web.directory])
        self.assert_as_before()

    def test_plan_has_ranges_of_next_start(self):
        self.use()
        web = self.bundle("a")
        self.created(self.bundle("b"))
        plan = json.loads(self.succeeded(self.plan(web, "--json")).stdout)
        text = self.succeeded(self.plan(web)).stdout
        self.created(web)
        for number, rail in enumerate(plan["rails"]):
            (of,) = rail["ranges"]
            self.assertEqual((rail["addresses"], of["prefix"], of["gateway"]), ([], 16, f"10.{number}.0.1"))
            self.assertIn(f"rail        net{number + 1}  macvlan of rail{number}, network rails, an address of {of['range']}/16 by gateway "
                          f"10.{number}.0.1, table {100 + number}", " ".join(text.split("\n             ")))
            first, last = map(ipaddress.ip_address, of["range"].split("-"))
            self.assertTrue(first <= ipaddress.ip_address(f"10.{number}.1.2") <= last, of)
            self.assertIn(f"10.{number}.1.2/16", self.inside(web, "addr", "show", rail["name"]))
        self.runtime.delete_all()
        self.assert_as_before()

    def test_two_containers_share_parents_but_no_address(self):
        self.use()
        first, second = (self.created(self.bundle(name)) for name in "ab")
        self.assertIn("10.0.1.1/16", self.inside(first, "addr"))
        self.assertIn("10.0.1.2/16", self.inside(second, "addr"))
        self.runtime.delete(first)
        third = self.created(self.bundle("c"))
        self.assertIn("10.0.1.3/16", self.inside(third, "addr"), "the search continues after the last address")
        self.runtime.delete_all()
        self.assert_as_before()

    def test_pod_keeps_rails_until_its_end(self):
        self.use()
        pod = self.pod()
        first = self.created(self.bundle("a", pod=pod))
        rails = self.rails_of(pod)
        self.assertEqual(len(rails), 1 + RAILS)
        self.created(self.bundle("b", pod=pod))
        self.runtime.delete(first)
        self.created(self.bundle("a2", pod=pod))
        self.assertEqual(self.rails_of(pod), rails)
        self.assertEqual(len(self.record()), 1)
        self.runtime.delete_all()
        self.assertEqual(self.rails_of(pod), rails)
        self.end_pod(pod)
        self.recover()
        self.assert_as_before()
        self.assertEqual(self.record(), [])

    def test_skips_names_of_existing_netdevs(self):
        self.use()
        pod = self.pod()
        ip("link", "add", "net1", "type", "veth", "peer", "name", "x", pod=pod)
        self.created(self.bundle(pod=pod, requests="mlx5_0,mlx5_1"))
        self.assertIn("10.0.1.1/16", ip("addr", "show", "net2", pod=pod))
        self.assertIn("10.1.1.1/16", ip("addr", "show", "net3", pod=pod))
        self.runtime.delete_all()
        self.end_pod(pod)
        self.recover()
        self.assert_as_before()

    def test_refuses_when_address_range_is_used_up(self):
        self.use(addresses=False)
        config = read_json(self.config)
        config["networks"]["rails"]["addresses"] = [{"subnet": "10.0.0.0/30", "gateway": "10.0.0.1"}]
        self.configure(config)
        self.created(self.bundle("a", requests="mlx5_0"))
        self.refused(self.runtime.create(self.bundle("b", requests="mlx5_0")))
        self.runtime.delete_all()
        self.assert_as_before()

    def test_failed_start_removes_children_and_rules(self):
        """Rules name addresses, and the kernel does not remove them with the netdev."""
        self.use(gateway_test="fail", test_retries=1, test_interval_ms=20)
        ip("addr", "del", "10.3.0.1/16", "dev", "wire3", pod="wire")
        pod = self.pod()
        self.refused(self.runtime.create(self.bundle(pod=pod)))
        self.assert_pod_as_before(pod)
        self.assert_as_before()

    # --- the node's own netdevs

    def test_exclusive_netdev_keeps_its_configuration(self):
        self.use("exclusive", addresses=False)
        pod = self.pod()
        (before,) = ip_json("link", "show", "rail1")
        self.created(self.bundle(pod=pod, requests="mlx5_1"))
        (link,) = ip_json("link", "show", "net1", pod=pod)
        self.assertEqual((link["address"], link["mtu"]), (before["address"], 1400))
        self.assertIn("10.1.0.9/16", ip("addr", "show", "net1", pod=pod))
        self.assertIn("10.91.0.0/16 via 10.1.0.1 dev net1", ip("route", "show", "table", "501", pod=pod))
        self.assertIn("10.1.0.77 lladdr 02:00:00:00:00:77 PERMANENT", ip("neigh", "show", "dev", "net1", pod=pod))
        self.assertNotIn("rail1", ip("link"))
        self.runtime.delete_all()

    def test_failed_start_restores_netdevs(self):
        # Long enough for the answers of the other rails on a busy machine.
        self.use("exclusive", gateway_test="fail", test_retries=6, test_interval_ms=500)
        ip("addr", "del", "10.2.0.1/16", "dev", "wire2", pod="wire")
        pod = self.pod()
        before = self.node_state()
        self.assert_refused(self.bundle(pod=pod), "gateway 10.2.0.1 of rail 2")
        self.assert_state(before)
        self.assert_pod_as_before(pod)

    def test_refuses_netdev_of_default_route(self):
        self.use("exclusive")
        ip("route", "add", "default", "via", "10.3.0.1")
        self.assert_refused(self.bundle(pod=self.pod(), requests="mlx5_3"), "`rail3` carries the node's default route")
        ip("route", "del", "default")
        self.assert_as_before()

    # --- an existing IPAM plugin

    def start_with_host_local(self):
        if not os.access("/usr/lib/cni/host-local", os.X_OK):
            self.skipTest("no host-local (Debian package containernetworking-plugins)")
        store = self.work + "/leases"
        self.use(addresses=False, ipam={"type": "host-local", "dataDir": store,
                                        "ranges": [[{"subnet": "10.0.0.0/16", "gateway": "10.0.0.1"}]]},
                 ipam_dir="/usr/lib/cni")
        web = self.created(self.bundle(requests="mlx5_0"))
        return web, store

    def test_allocates_and_releases_address_by_host_local(self):
        web, store = self.start_with_host_local()
        self.assertIn("10.0.0.2/16", self.inside(web, "addr", "show", "net1"))
        self.assertIn("default via 10.0.0.1 dev net1", self.inside(web, "route", "show", "table", "100"))
        self.assertIn("10.0.0.2", os.listdir(store + "/rails"))
        self.runtime.delete(web)
        self.assertNotIn("10.0.0.2", os.listdir(store + "/rails"))
        self.assert_as_before()

    def test_passes_pod_to_ipam_plugin_by_engine_annotations(self):
        """The pod's name comes only from annotations that the engine itself sets; poststop passes the same name."""
        leases = self.use_ipam_for_pods()
        of_pod = {"io.kubernetes.cri.sandbox-namespace": "team-a", "io.kubernetes.cri.sandbox-name": "train",
                  "io.kubernetes.cri.sandbox-uid": "1;K8S_POD_NAME=other", "io.kubernetes.cri.sandbox-id": "5a"}
        web = self.created(self.bundle("web", requests="mlx5_0", engine="containerd", annotations=of_pod))
        self.assertIn("10.0.7.1/16", self.inside(web, "addr", "show", "net1"))
        self.assertEqual(read(leases + "/team-a.train.net1"),
                         "IgnoreUnknown=1;K8S_POD_NAMESPACE=team-a;K8S_POD_NAME=train;K8S_POD_INFRA_CONTAINER_ID=5a\n")
        self.runtime.delete(web)
        self.assertEqual(os.listdir(leases), [])
        image = self.bundle("image", requests="mlx5_0", engine="podman", annotations=of_pod)
        self.assert_refused(image, "ADD: CNI_ARGS name no pod")
        self.assert_as_before()

    def use_ipam_for_pods(self):
        """Configures a plugin that fails without CNI_ARGS, in a directory that only root can change. Returns the directory of its
        leases."""
        directory, leases = self.work + "/cni", self.work + "/leases"
        os.mkdir(directory, 0o755)
        os.mkdir(leases)
        shutil.copy(harness.SOURCE + "/tests/support/ipam-for-pods", directory)
        self.use(addresses=False, ipam={"type": "ipam-for-pods", "dataDir": leases, "second": -1}, ipam_dir=directory)
        return leases

    def test_releases_lease_of_plugin_that_is_no_longer_configured(self):
        web, store = self.start_with_host_local()
        self.use()
        self.runtime.delete(web)
        self.assertNotIn("10.0.0.2", os.listdir(store + "/rails"))
        self.assertEqual(self.record(), [])
        self.assert_as_before()

    # --- the log

    def test_log_lines_have_rails(self):
        self.use()
        log = harness.Listener(self.work + "/log")
        pod = self.pod()
        web = self.created(keep_log(self.bundle(pod=pod, requests="mlx5_0,mlx5_1"), log))
        self.runtime.delete(web)
        granted, left = events(log.received())
        self.assertEqual((granted["event"], left["event"]), ("granted", "left"))
        self.assertEqual(granted["netns"], f"/run/netns/{pod}")
        self.assertRegex(granted["rails"], r"^net1:mlx5_0:10\.0\.1\.1/16:(-|gid\d+),net2:mlx5_1:10\.1\.1\.1/16:(-|gid\d+)$")
        self.assertLessEqual({"links_us", "addresses_us", "configure_us", "gids_us", "ledger_us"}, granted.keys())
        self.end_pod(pod)
        done = run([HOOK, "recover", "--ledger", self.ledger_directory], env={})
        (returned,) = events(done.stderr)
        self.assertEqual((returned["reason"], returned["key"]), ("recover", granted["key"]))
        self.assertEqual(returned["rails"], granted["rails"])
        self.assertEqual(left["rails"], granted["rails"])
        self.assert_as_before()

    def test_failed_start_counts_as_failure_without_release(self):
        self.use(gateway_test="fail", test_retries=1, test_interval_ms=20)
        ip("addr", "del", "10.3.0.1/16", "dev", "wire3", pod="wire")
        log = harness.Listener(self.work + "/log")
        self.refused(self.runtime.create(keep_log(self.bundle(), log)))
        self.assertEqual(events(log.received()), [])
        text = must([HOOK, "metrics", "--ledger", self.ledger_directory], env={})
        self.assertIn('rdma_hook_failures_total{reason="unreachable",stage="createRuntime"} 1\n', text)
        self.assertNotIn("returns_total", text)
        self.assertNotIn("grants_total", text)
        self.assert_as_before()

    # --- killed

    def test_rolls_back_after_kill_at_any_time(self):
        """The next call rolls back the changes of the killed hook; the pod keeps running."""
        chance = self.random()
        self.use("exclusive")
        pod = self.pod()
        before = self.node_state()
        for attempt in range(int(os.environ.get("RDMA_HOOK_TEST_KILLS", "15"))):
            bundle = self.bundle(f"k{attempt}", pod=pod)
            hook = bundle.config["hooks"]["createRuntime"][0]
            kill = f"sleep {chance.uniform(0, 0.04):.4f}; kill -9 $!"
            hook["path"], hook["args"] = "/bin/sh", ["sh", "-c", f'"$0" "$@" <&0 & {kill} 2>/dev/null; wait $!',
                                                     hook["path"], *hook["args"][1:]]
            bundle.write()
            done = self.runtime.create(bundle)
            self.runtime.delete(bundle)
            if done.returncode == 0:  # the hook ended before the kill: the pod has its rails
                self.end_pod(pod)
                self.remove_rails()
                for number in range(RAILS):
                    self.make_rail(number)
                pod = self.pod()
            self.recover()
            self.assert_state(before, f"attempt {attempt}")
            self.assert_pod_as_before(pod)


class RailsByCrun(Rails):
    runtime_name = "crun"


if __name__ == "__main__":
    harness.main_in_own_machine(network=True)
