"""The scenes of counts.py and contest.py: a node in files with a ledger, the machine of rdma-init, and a runtime's side of
NRI. docs: tests/bench/README.md"""
import contextlib
import ctypes
import itertools
import json
import os
import shutil
import stat
import struct
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# The other modules of this folder import this module first: it adds the folder of the tests' modules.
sys.path.append(HERE + "/../node")
import harness  # noqa: E402
import nri_runtime as nri  # noqa: E402
from harness import PATH, must, write  # noqa: E402
from node import Node  # noqa: E402

MOST = Node.HCAS = 8
SLOTS = 256  # slots of a port's GID table, for rdma-init
FEW_SLOTS = 16  # in place of SLOTS, for a machine with many HCAs
MANY_NETDEVS = 516
FIRST_POD = 1000  # ifindex of the first pod's netdev
WANTED_SLOT = 3  # make-tree puts the GID that rdma-init must find here; the earlier slots are used as well
CLONE_NEWNET = 0x40000000
MNT_DETACH = 2
libc = ctypes.CDLL(None, use_errno=True)


def program(name):
    """Returns the path of a program: of a variable of tests/bench/built and ctest (in capitals), or of tests/bench in the build."""
    path = os.environ.get(name, "") if name.isupper() else f"{os.environ.get('BENCH_PROGRAMS', '')}/{name}"
    if not os.access(path, os.X_OK):
        sys.exit(f"no program `{name}` (`{path}`); remedy: tests/bench/run, tests/bench/counts, or ctest -R bench")
    return path


# Paths of the programs below a build. tests/bench/built has the same.
PROGRAMS = {"TESTED_INIT": "init/rdma-init", "TESTED_HOOK": "hook/rdma-hook", "TESTED_NRI": "shim/nri/rdma-nri",
            "TESTED_RUNTIME": "tests/node/runtime-with-settings"}
BEFORE = ", before"  # end of the names of contestants of the other build (tests/bench/run --against)


class Programs:
    """Within its `with` block, program() returns the programs of a build. build: None for this one."""

    def __init__(self, build):
        self.suffix = BEFORE if build else ""
        self.chosen = {name: f"{build}/{path}" for name, path in PROGRAMS.items()} if build else {}

    def __enter__(self):
        self.saved = {name: os.environ.get(name, "") for name in self.chosen}
        os.environ.update(self.chosen)

    def __exit__(self, *_):
        os.environ.update(self.saved)


def builds():
    """Returns the Programs of this build and, with tests/bench/run --against, those of the other one."""
    other = os.environ.get("BENCH_AGAINST")
    return [Programs(None), *([Programs(other)] if other else [])]


def enter_own_machine(reason, nothing):
    """Starts this program again in its own namespaces and does not return. reason: why that is not possible here, or None."""
    if reason:
        print(f"{nothing}:", reason)
        sys.exit(harness.SKIP)
    harness.run_inside("rdma-hook-bench", network=True)


def detach_other_mounts():
    """Detaches the mounts that no program here needs. Each line of /proc/PID/mountinfo costs instructions, so the figures would depend
    on the machine. Root, /dev, control groups and the mounts of the project and of Python stay; /proc is mounted again."""
    needed = [HERE, os.__file__, *(value for value in os.environ.values() if value.startswith("/"))]
    for line in reversed(harness.read("/proc/self/mountinfo").splitlines()):
        place = line.split()[4].encode().decode("unicode_escape")
        if place in ("/", "/dev", "/sys") or f"{place}/".startswith(harness.CGROUPS + "/"):
            continue
        if not any(path.startswith(place + "/") for path in needed):
            libc.umount2(os.fsencode(place), MNT_DETACH)  # fails for a mount that another one hides
    must(["mount", "-t", "proc", "proc", "/proc"])


def name_of(count, thing):
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def first_hcas(count):
    """Returns the annotation that requests so many HCAs, or None for 0."""
    return ",".join(f"mlx5_{number}" for number in range(count)) or None


def check_nodes(paths, hcas):
    """Raises an error unless the paths have a uverbs node for each of so many HCAs: a fast program counts only if it does its work."""
    nodes = [path for path in paths if "uverbs" in path]
    if len(nodes) != hcas:
        raise AssertionError(f"{hcas} HCAs were requested: nodes {nodes}")


def check_bundle(bundle, hcas):
    """The same for the config.json of a bundle."""
    devices = json.loads(harness.read(bundle.directory + "/config.json"))["linux"]["devices"]
    check_nodes([device["path"] for device in devices], hcas)


def profile(calls):
    """Returns a seccomp profile that allows these calls."""
    return {"defaultAction": "SCMP_ACT_ERRNO", "syscalls": [{"names": calls, "action": "SCMP_ACT_ALLOW"}]}


def children_of(pid):
    return [int(child) for child in harness.read(f"/proc/{pid}/task/{pid}/children").split()]


def runtime_environment(case, settings, runtime):
    """Writes the settings of runtime-with-settings to a file, and returns the environment of the wrappers of this runtime."""
    write(settings, json.dumps({"runtimes": [runtime], "engine": "runc", "config": case.config, "hook": program("TESTED_HOOK"),
                                "root": case.tree, "ledger": case.ledger_directory}))
    return {"PATH": PATH, "RDMA_RUNTIME_SETTINGS": settings, "EXEC_ONLY_RUNTIME": runtime}


class Scene(harness.TreeCase):
    """A configuration and a ledger on the node that covers /sys. The programs run without --root. The caller calls close() at the end."""
    place = "/run"

    def __init__(self):
        super().__init__("run")
        self.setUp()

    def make_tree(self, hcas=0):
        self.tree = ""

    def places(self):
        return ["--ledger", self.ledger_directory, "--config", self.config]

    def configure(self, members):
        super().configure({"memlock": harness.MEMLOCK, **members})  # a limit that this machine can set

    def close(self):
        self.doCleanups()


class Inside:
    """Within its `with` block, this process is in another network namespace."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.back = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.join(os.open(self.path, os.O_RDONLY))

    def __exit__(self, *_):
        self.join(self.back)

    @staticmethod
    def join(descriptor):
        if libc.setns(descriptor, CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(descriptor)


class Machine:
    """A machine with so many HCAs, and VFs of the first, as rdma-init sees it in a container of the node's network. Within its `with`
    block a tree of files covers /sys and /dev. The network namespace has the rails, as veth netdevs with the addresses of the GIDs, a
    management netdev with the default route, and netdevs of pods up to the sum `netdevs`, so that netlink answers as on a node."""
    used = itertools.count()  # for unique names, because the kernel removes the netdevs of a deleted namespace later

    def __init__(self, hcas, slots=SLOTS, vfs=0, netdevs=0):
        self.hcas, self.slots, self.vfs, self.wanted_netdevs = hcas, slots, vfs, netdevs
        self.tree = tempfile.mkdtemp(dir="/run")
        number = next(self.used)
        self.pod, self.wire = f"machine-{number}", f"wire-of-{number}"
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with self.stack as undo:
            undo.callback(shutil.rmtree, self.tree)
            self.mount(undo, self.tree, "-t", "tmpfs", "tmpfs")
            must([program("MAKE_TREE"), "--synthetic", str(self.hcas), str(self.slots), self.tree, str(self.vfs)])
            if self.hcas == 0:
                for path in ("sys/class/infiniband", "sys/class/infiniband_verbs", "dev/infiniband"):
                    shutil.rmtree(f"{self.tree}/{path}")
            for number in range(self.hcas):
                self.fill_slots(f"{self.tree}/sys/class/infiniband/mlx5_{number}/ports/1/gid_attrs", f"rail{number}\n")
            for name in (self.pod, self.wire):
                must(["ip", "netns", "add", name])
                undo.callback(must, ["ip", "netns", "del", name])
            # Before the mounts, because ip(8) can read /sys.
            self.ip_batch(self.pod, self.commands_of_pod())
            self.ip_batch(self.wire, [f"link set {name} up" for name in self.netdevs()])
            self.cover(undo)
            undo.enter_context(Inside(f"/run/netns/{self.pod}"))
            self.stack = undo.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    def cover(self, undo):
        """Mounts the tree over /sys and /dev."""
        write(self.tree + "/dev/null", "")
        self.mount(undo, self.tree + "/dev/null", "--bind", "/dev/null")
        for top in ("/sys", "/dev"):
            self.mount(undo, top, "--rbind", self.tree + top)

    @staticmethod
    def mount(undo, place, *options):
        must(["mount", *options, place])
        undo.callback(must, ["umount", "--lazy", place])

    def fill_slots(self, port, netdev):
        """Adds the netdevs of GIDs, and type and netdev of empty slots, which make-tree does not write. In sysfs the files of an empty slot
        open and their read fails with EINVAL; here they are empty."""
        empty = write(self.tree + "/empty", "")
        for slot in range(self.slots):
            if slot <= WANTED_SLOT:
                write(f"{port}/ndevs/{slot}", netdev)
            else:
                os.link(empty, f"{port}/ndevs/{slot}")
                os.link(empty, f"{port}/types/{slot}")

    @staticmethod
    def ip_batch(namespace, commands):
        must(["ip", "-n", namespace, "-batch", "-"], input="".join(command + "\n" for command in commands).encode())

    def netdevs(self):
        return os.listdir(self.tree + "/sys/class/net")

    def commands_of_pod(self):
        """Yields commands of ip(8) for the netdevs and addresses in the files of make-tree, and for those of pods."""
        ipv6 = os.path.isdir("/proc/sys/net/ipv6")
        yield "link set lo up"
        addresses = [line.split() for line in harness.read(self.tree + "/addrs.txt").strip().splitlines()]
        for number in range(len(self.netdevs()) + 1, self.wanted_netdevs):  # 1: lo
            addresses.append(self.add_netdev_of_pod(number))
        for name in self.netdevs():
            index, mac = (harness.read(f"{self.tree}/sys/class/net/{name}/{file}").strip() for file in ("ifindex", "address"))
            yield f"link add {name} index {index} address {mac} type veth peer name {name} netns {self.wire}"
            if ipv6:
                yield f"link set {name} addrgenmode none"
            yield f"link set {name} up"
        for name, family, address in addresses:
            if family == "inet":
                yield f"addr add {address} dev {name}"
            elif ipv6:
                yield f"addr add {address} dev {name} nodad"
        yield "route add default via 192.168.0.1"

    def add_netdev_of_pod(self, number):
        """Adds the node's end of a pod's veth to the files. Returns its address as in addrs.txt."""
        name = f"pod{number}"
        directory = f"{self.tree}/sys/devices/virtual/net/{name}"
        mac = f"02:00:00:00:{number // 256:02x}:{number % 256:02x}"
        attributes = {"ifindex": FIRST_POD + number, "address": mac, "mtu": 1500, "operstate": "up", "carrier": 1, "type": 1}
        for file, value in attributes.items():
            write(f"{directory}/{file}", f"{value}\n")
        os.symlink(f"../../devices/virtual/net/{name}", f"{self.tree}/sys/class/net/{name}")
        return name, "inet6", f"fe80::{number:x}/64"


class LiveNode(Machine):
    """A machine as the programs on the node see it: /dev/infiniband has nodes, the rest of /dev and the control groups are the machine's
    own."""

    def cover(self, undo):
        self.write_number("class/infiniband_mad/umad0", "231:0")  # each real node has umad
        write(self.tree + "/sys/class/infiniband_mad/abi_version", "5\n")
        self.write_number("class/misc/rdma_cm", "10:58")
        infiniband = self.tree + "/dev/infiniband"
        for node in os.listdir(infiniband):
            kind = "misc" if node == "rdma_cm" else "infiniband_verbs"
            major, minor = harness.read(f"{self.tree}/sys/class/{kind}/{node}/dev").split(":")
            os.unlink(f"{infiniband}/{node}")
            os.mknod(f"{infiniband}/{node}", stat.S_IFCHR | 0o666, os.makedev(int(major), int(minor)))
            os.chmod(f"{infiniband}/{node}", 0o666)
        os.makedirs(self.tree + harness.CGROUPS)
        self.mount(undo, self.tree + harness.CGROUPS, "--rbind", harness.CGROUPS)
        self.mount(undo, "/sys", "--rbind", self.tree + "/sys")
        os.makedirs("/dev/infiniband", exist_ok=True)
        self.mount(undo, "/dev/infiniband", "--bind", infiniband)

    def write_number(self, device, number):
        write(f"{self.tree}/sys/{device}/dev", number + "\n")


class Connection(nri.Connection):
    """Sends a request in one piece, and reads in the calling thread. `seconds` is the time from the first byte of the last request to
    the last byte of its answer."""

    def __init__(self, connected):
        connected.settimeout(30)
        self.began = self.seconds = 0
        super().__init__(connected)

    def read(self):
        """Does nothing: there is no reading thread."""

    def send(self, connection, stream, type, data):
        message = struct.pack(">IIBB", len(data), stream, type, 0) + data
        pieces = b"".join(struct.pack(">II", connection, len(piece)) + piece for piece in (message[:4096], message[4096:]) if piece)
        self.began = time.perf_counter()
        self.socket.sendall(pieces)

    def wait(self, condition, seconds=30):
        while not condition():
            self.read_frame()
        self.seconds = time.perf_counter() - self.began
