"""A node with rails, pods, stand-ins for containers, and a CNI chain, for network.py. Rails are made as the container
tests make theirs (test_network.py); times are of the programs alone, from spawn to end."""
import ctypes
import json
import os
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)) + "/../containers")
import harness  # noqa: E402
from containers import Bundle, FakeContainer, stopped  # noqa: E402
from harness import must, wait_for, write  # noqa: E402
from node import Node  # noqa: E402

MOST = 8  # rails
PLUGINS = "/usr/lib/cni"
CHAIN = ("macvlan", "tuning", "sbr")  # macvlan calls host-local
FIRST_TABLE = 100
RTM_DELLINK, RTM_GETLINK = 17, 18
NLM_F_REQUEST, NLM_F_ACK = 1, 4
IFLA_GROUP = 27
CLONE_NEWNET = 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def ip(*arguments, pod=None):
    return must(["ip", *(["-n", pod] if pod else []), *arguments])


def ip_json(*arguments, pod=None):
    return json.loads(ip("-j", *arguments, pod=pod) or "[]")


def timed(argv, text, environment, work):
    """Seconds from the spawn to the end of a program with this standard input, and what it wrote to each stream."""
    paths = [f"{work}/{name}" for name in ("stdin", "stdout", "stderr")]
    write(paths[0], text)
    said = harness.Listener(paths[2])
    flags = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    actions = [(os.POSIX_SPAWN_OPEN, fd, paths[fd], flags[fd], 0o644) for fd in range(3)]
    begin = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions)
    _, status = os.waitpid(pid, 0)
    seconds = time.perf_counter() - begin
    out, err = harness.read(paths[1]), said.heard()
    if status != 0:
        raise AssertionError(f"{argv}: {environment}: wait status {status}: {err}{out}")
    return seconds, out, err


class Inside:
    """This process in another network namespace, for a while."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.back = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(self.path, os.O_RDONLY)
        self.join(there)
        os.close(there)

    def __exit__(self, *_):
        self.join(self.back)
        os.close(self.back)

    @staticmethod
    def join(descriptor):
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")


def delete_links(path, indices, group=None):
    """Seconds of deleting netdevs of a namespace and of nothing else: one message for each, or one for their group."""
    def message(ifindex, attributes=b""):
        return struct.pack("=IHHIIBxHiII", 32 + len(attributes), RTM_DELLINK, NLM_F_REQUEST | NLM_F_ACK, 1, 0,
                           0, 0, ifindex, 0, 0) + attributes

    messages = [message(ifindex) for ifindex in indices]
    if group is not None:
        messages = [message(0, struct.pack("=HHI", 8, IFLA_GROUP, group))]
    with Inside(path):
        route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    with route:
        begin = time.perf_counter()
        for one in messages:
            route.send(one)
            code = struct.unpack_from("=i", route.recv(4096), 16)[0]
            if code != 0:
                raise OSError(-code, "RTM_DELLINK")
        return time.perf_counter() - begin


class Scene(harness.Case):
    """The node with its rails, one ledger, and what is done with them. end() when done."""

    def __init__(self):
        super().__init__("run")
        Node.HCAS = MOST
        self.setUpClass()
        self.make_rails()
        self.setUp()
        self.nodes_only, self.with_network, self.tested = (f"{self.work}/{name}.json"
                                                           for name in ("nodes", "network", "tested"))
        self.bundles = {}
        self.under = []  # a program, with its options, that runs rdma-hook
        self.configs()

    def end(self):
        self.doCleanups()

    # --- the node

    @staticmethod
    def make_rails():
        ip("link", "set", "lo", "up")
        ip("netns", "add", "wire")
        for number in range(MOST):
            rail, peer = f"rail{number}", f"wire{number}"
            ip("link", "add", rail, "address", f"02:00:00:00:01:{number:02x}", "type", "veth", "peer", "name", peer,
               "netns", "wire")
            ip("addr", "add", f"10.{number}.0.1/16", "dev", peer, pod="wire")
            ip("link", "set", peer, "up", pod="wire")
            ip("link", "set", rail, "mtu", "1400", "up")
            ip("addr", "add", f"10.{number}.0.9/16", "dev", rail)

    def configs(self):
        base = {"annotations_may_request": ["*"]}
        ranges = [{"rail": rail, "subnet": f"10.{rail}.0.0/16", "from": f"10.{rail}.1.1", "to": f"10.{rail}.99.250",
                   "gateway": f"10.{rail}.0.1"} for rail in range(MOST)]
        network = {"mode": "shared", "child": "macvlan", "addresses": ranges, "gateway_test": "off",
                   "align_gids": False, "gid_wait_ms": 0, "routing": {"first_table": FIRST_TABLE}}
        pools = [{"name": "all", "modes": ["shared"], "network": "rails"}]
        for path, members in (
                (self.nodes_only, {"pools": [{"name": "all", "modes": ["shared", "hca"]}]}),
                (self.with_network, {"pools": pools, "networks": {"rails": network}}),
                (self.tested, {"pools": pools, "networks": {"rails": {**network, "gateway_test": "fail"}}})):
            self.config = path
            self.configure({**base, **members})

    # --- rdma-hook

    def bundle(self, count, netns):
        """One for each number of rails and kind of namespace; a container starts from it again and again."""
        key = f"{count}-{'pod' if netns else 'own'}"
        if key not in self.bundles:
            asks = ",".join(f"mlx5_{number}" for number in range(count))
            self.bundles[key] = Bundle(self, key, asks=asks, netns=netns or True, stages=())
        return self.bundles[key]

    def create(self, bundle, netns, config):
        """A stand-in for a container in this namespace, the seconds of its createRuntime, and what that logged."""
        self.config = config
        with Inside(netns):
            container = FakeContainer(bundle)
        seconds, _, log = self.call("createRuntime", container.state())
        return container, seconds, log

    def call(self, stage, state):
        argv = [*self.under, harness.PROGRAM, *self.arguments(stage)[1:]]
        return timed(argv, json.dumps(state), {}, self.work)

    def poststop(self, bundle):
        """Seconds, and what it logged."""
        seconds, _, log = self.call("poststop", stopped(bundle))
        return seconds, log

    def records(self):
        """Grants whose rails are on record."""
        directory = self.ledger_directory + "/network"
        return os.listdir(directory) if os.path.isdir(directory) else []

    # --- the chain

    def plugin(self, rail):
        """Configuration of each plugin of the chain."""
        name = f"net{rail + 1}"
        ipam = {"type": "host-local", "dataDir": self.work + "/leases",
                "ranges": [[{"subnet": f"10.{rail}.0.0/16", "rangeStart": f"10.{rail}.100.1",
                             "rangeEnd": f"10.{rail}.200.250", "gateway": f"10.{rail}.0.1"}]],
                "routes": [{"dst": "0.0.0.0/0"}]}
        sysctls = {f"net.ipv4.conf.{name}.{key}": value
                   for key, value in (("arp_ignore", "1"), ("arp_announce", "2"), ("rp_filter", "2"))}
        own = {"macvlan": {"master": f"rail{rail}", "mode": "bridge", "mtu": 1400, "ipam": ipam},
               "tuning": {"sysctl": sysctls}, "sbr": {}}
        return {kind: {"cniVersion": "1.0.0", "name": f"rail{rail}", "type": kind, **own[kind]} for kind in CHAIN}

    def chain(self, command, netns, count, results):
        """Seconds of all plugins, rail after rail. ADD fills `results` with each rail's last result, DEL takes them."""
        total = 0.0
        for rail in range(count):
            configs = self.plugin(rail)
            environment = {"CNI_COMMAND": command, "CNI_CONTAINERID": "bench", "CNI_NETNS": netns,
                           "CNI_IFNAME": f"net{rail + 1}", "CNI_PATH": PLUGINS, "PATH": harness.PATH}
            for kind in CHAIN if command == "ADD" else CHAIN[::-1]:
                config = configs[kind]
                if rail in results:
                    config["prevResult"] = results[rail]
                seconds, out, _ = timed([f"{PLUGINS}/{kind}"], json.dumps(config), environment, self.work)
                total += seconds
                if command == "ADD":
                    results[rail] = json.loads(out)
        return total


class Namespace:
    """A network namespace with a name. end() returns when the kernel has taken it down, so that it disturbs nobody."""

    def __init__(self, name):
        self.name = name
        self.path = f"/run/netns/{name}"
        self.ended = False
        ip("netns", "add", name)
        ip("link", "set", "lo", "up", pod=name)
        ip("link", "add", "watch", "type", "veth", "peer", "name", "watched", "netns", name, pod="wire")

    def children(self):
        return [link for link in ip_json("-d", "link", pod=self.name)
                if link.get("linkinfo", {}).get("info_kind") == "macvlan"]

    def check(self, count):
        """Whoever gave rails: netdevs that are up with MTU and address, and a table and a rule for each."""
        children = self.children()
        rules = [rule for rule in ip_json("rule", pod=self.name) if int_or_zero(rule["table"]) >= FIRST_TABLE]
        addresses = [link for link in ip_json("-4", "addr", pod=self.name) if link["ifname"].startswith("net")]
        found = (len(children), len(addresses), len(rules))
        if found != (count, count, count) or any(child["mtu"] != 1400 for child in children):
            raise AssertionError(f"{self.name}: netdevs, addresses, rules {found} in place of {count} each")
        for rule in rules:
            if "default via" not in ip("route", "show", "table", rule["table"], pod=self.name):
                raise AssertionError(f"{self.name}: table {rule['table']} has no default route")
        return children

    def end(self):
        self.ended = True
        ip("netns", "del", self.name)
        wait_for(lambda: "watch" not in [link["ifname"] for link in ip_json("link", pod="wire")], f"end of {self.name}")


def int_or_zero(text):
    return int(text) if text.isdigit() else 0
