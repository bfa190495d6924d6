"""`rdma-hook doctor` on file trees of nodes with one fault each: it reports this fault only."""
import copy
import itertools
import json
import os
import pathlib
import shutil
import stat
import struct
import subprocess
import time

import harness
import test_install_roots as roots  # has the stand-in for containerd
from harness import HOOK, MAKE_TREE, NRI, write

PROGRAMS = (HOOK, os.environ.get("TESTED_INSTALLED_RUNTIME", ""), NRI)
RAILS = 4
ROOT_PORT, UPSTREAM = "0000:00:01.0", "0000:01:00.0"
STARTED, BOOTED = 1_000_000, 900_000  # start of the engine, boot of the node; seconds since the epoch
IBV_DEVINFO = r"""#!/bin/sh
for i in 0 1 2 3; do
  printf 'hca_id:\tmlx5_%s\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n' $i
  printf '\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t%s\n' "$([ $i = 2 ] && echo '1024 (3)' || echo '4096 (5)')"
done
"""
UNIT = "[Service]\nExecStart=/usr/bin/containerd\nLimitMEMLOCK=infinity\n"
LIMITS = "Limit                     Soft Limit           Hard Limit           Units\nMax locked memory         %s            %s            bytes\n"
CONFIG = {
    "pools": [{"name": "rails", "selectors": {"drivers": ["mlx5_core"]}, "modes": ["shared", "exclusive"],
               "limits": {"hca_objects": 8192}, "network": "rail"}],
    "networks": {"rail": {"addresses": [{"rail": i, "subnet": f"10.9.{i}.0/24", "from": f"10.9.{i}.128", "to": f"10.9.{i}.250"} for i in range(RAILS)]}},
}


def healthy():
    """Returns the inventory of a node with four rails and two GPUs below one PCI switch."""
    devices, netdevs = [], []
    for i in range(RAILS):
        mac = f"0c:42:a1:00:00:{i:02x}"
        gids = [(0, f"fe80:0000:0000:0000:0e42:a1ff:fe00:{i:04x}"), (2, f"0000:0000:0000:0000:0000:ffff:0a09:{i:02x}01")]
        devices.append({
            "name": f"mlx5_{i}", "node_guid": f"0c42:a103:0000:{i:04x}", "node_type": "1: CA", "pci": f"0000:{16 + i:02x}:00.0", "numa_node": 0,
            "driver": "mlx5_core", "vendor": "0x15b3", "device_id": "0x1021", "uverbs": i, "accessible": True,
            "pci_path": [ROOT_PORT, UPSTREAM, f"0000:02:{i:02x}.0"],
            "ports": [{"port": 1, "state": "4: ACTIVE", "phys_state": "5: LinkUp", "link_layer": "Ethernet", "rate": "400 Gb/sec (4X NDR)", "lid": "0x0",
                       "sm_lid": "0x0", "gid_tbl_len": 64,
                       "gids": [{"index": index + v2, "gid": gid, "type": ["IB/RoCE v1", "RoCE v2"][v2], "ndev": f"rail{i}"}
                                for index, gid in gids for v2 in (0, 1)]}]})
        netdevs.append({"name": f"rail{i}", "mac": mac, "carrier": 1, "operstate": "up", "mtu": 9000, "type": 1, "pci": f"0000:{16 + i:02x}:00.0",
                        "in_this_netns": True, "addresses": [f"10.9.{i}.1/24"]})
    netdevs.append({"name": "eth0", "mac": "02:00:00:00:00:01", "carrier": 1, "operstate": "up", "mtu": 1500, "type": 1, "in_this_netns": True,
                    "addresses": ["192.0.2.10/24"]})
    return {"schema": 1, "devices": devices, "netdevs": netdevs, "netns_mode": "shared", "routes": [{"dst": "default", "dev": "eth0"}],
            "gpus": [{"pci": f"0000:{32 + i:02x}:00.0", "numa_node": 0, "pci_path": [ROOT_PORT, UPSTREAM, f"0000:02:{16 + i:02x}.0"]} for i in (0, 1)]}


def configuration_space(control):
    """Returns the configuration space of a bridge with two extended capabilities: AER, and ACS with this control register."""
    space = bytearray(4096)
    space[0x100:0x104] = struct.pack("<I", 0x0001 | 1 << 16 | 0x148 << 20)  # AER, then 0x148
    space[0x148:0x14c] = struct.pack("<I", 0x000D | 1 << 16)
    space[0x14c:0x150] = struct.pack("<HH", 0x5F, control)
    return bytes(space)


def ticks_at(seconds):
    return (seconds - BOOTED) * os.sysconf("SC_CLK_TCK")


def written_at(node, seconds, **boot):
    """Sets the time at which install wrote its files, on the clock of process start times."""
    record = json.loads((node.root / roots.RECORD).read_text())
    record["written"].update(ticks=ticks_at(seconds), **boot)
    node.write(roots.RECORD, json.dumps(record), 0o600)


def clock_set(node, seconds):
    """Sets the node's clock forward: the time of its boot is now - uptime, so it moves too."""
    node.write("proc/stat", f"cpu 0\nbtime {BOOTED + seconds}\n")


def put_process(node, pid, name, started, memlock, status):
    ticks = ticks_at(started)
    node.write(f"proc/{pid}/comm", name + "\n")
    node.write(f"proc/{pid}/stat", f"{pid} ({name}) S " + " ".join(["1"] * 18) + f" {ticks} 0 0\n")
    node.write(f"proc/{pid}/limits", LIMITS % (memlock, memlock))
    node.write(f"proc/{pid}/status", f"Name:\t{name}\n" + status)


class Node:
    hook = HOOK

    def __init__(self, directory):
        self.root = pathlib.Path(directory) / "node"
        self.snapshot = pathlib.Path(directory) / "snapshot.json"
        self.inventory = copy.deepcopy(healthy())
        self.config = copy.deepcopy(CONFIG)
        self.more = []  # more options
        self.with_snapshot = False  # for facts that doctor reads by netlink or ioctl, and not from files

    def write(self, path, content, mode=0o644):
        (self.root / path).unlink(missing_ok=True)
        return write(str(self.root / path), content, mode)

    def remove(self, path):
        path = self.root / path
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def lay_out(self):
        self.snapshot.write_text(json.dumps(self.inventory))
        subprocess.run([MAKE_TREE, self.snapshot, self.root, "--full"], check=True)
        for module in ("mlx5_ib", "nvidia_peermem"):
            (self.root / "sys/module" / module).mkdir(parents=True)
        self.write("sys/class/misc/rdma_cm/dev", "10:122\n")
        for name, number in [*((f"uverbs{i}", (231, 192 + i)) for i in range(RAILS)), ("rdma_cm", (10, 122))]:
            node = self.root / "dev/infiniband" / name
            node.unlink(missing_ok=True)
            os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(*number))
            node.chmod(0o666)
        for bridge in {UPSTREAM, *(path for one in self.inventory["devices"] + self.inventory["gpus"] for path in one["pci_path"])}:
            device = next(path for path in (self.root / "sys/devices").rglob(bridge))
            (self.root / "sys/bus/pci/devices" / bridge).symlink_to(os.path.relpath(device, self.root / "sys/bus/pci/devices"))
            (device / "config").write_bytes(configuration_space(0))
        self.write("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54\n")
        self.write("proc/sys/kernel/osrelease", "6.1.0-18-amd64\n")
        self.write("sys/fs/cgroup/cgroup.controllers", "cpu memory rdma\n")
        self.write("proc/sys/kernel/osrelease", "7.3.4\n")
        self.lay_out_engine()
        self.write("etc/rdma-init/config.json", json.dumps(self.config, indent=1))

    def lay_out_engine(self):
        (self.root / "run").mkdir()
        roots.lay_out(self.root, "containerd", "containerd", None)
        # doctor executes the programs below the root. It has no libraries, which programs with sanitizers need.
        for program in PROGRAMS:
            version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
            self.write(f"opt/rdma/bin/{pathlib.Path(program).name}", f"#!/bin/sh\necho '{version}'\n", 0o755)
        self.write("usr/lib/systemd/system/containerd.service", UNIT)
        done = subprocess.run([self.hook, "install", "--root", self.root, "--hook", "/opt/rdma/bin/rdma-hook"], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 0, done
        for path in (self.root / "etc/containerd").rglob("*"):
            os.utime(path, (STARTED - 60, STARTED - 60))
        written_at(self, STARTED - 60)
        clock_set(self, 0)
        for pid, name in ((100, "containerd"), (101, "rdma-nri")):
            put_process(self, pid, name, STARTED, "unlimited", f"NSpid:\t{pid}\n")

    def examine(self):
        arguments = [self.hook, "doctor", "--root", self.root, *self.more]
        if self.with_snapshot:
            arguments += ["--snapshot", self.snapshot]
        done = subprocess.run([*arguments, "--json"], capture_output=True, text=True, check=False)
        report = json.loads(done.stdout)
        text = subprocess.run(arguments, capture_output=True, text=True, check=False)
        assert text.returncode == done.returncode and max(map(len, text.stdout.splitlines())) <= 80, text.stdout
        assert "\x1b" not in text.stdout and "$(" not in text.stdout, text.stdout
        quiet = subprocess.run([*arguments, "--quiet"], capture_output=True, text=True, check=False)
        findings = [(check["name"], one["grade"], one["object"], one["message"], one["remedy"]) for check in report["checks"]
                    for one in check["findings"]]
        assert bool(quiet.stdout) == (done.returncode != 0), quiet
        assert all(one[4] for one in findings if one[1] != "note"), findings
        return done.returncode, findings, text.stdout

    def check_job(self, run=subprocess.run):
        return run([self.hook, "doctor", "--job", "--root", self.root], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def port(node, rail):
    return node.inventory["devices"][rail]["ports"][0]


def rename(node, rail, name):
    node.inventory["netdevs"][rail]["name"] = name
    for gid in port(node, rail)["gids"]:
        gid["ndev"] = name


def fill_table(node):
    gids = port(node, 1)["gids"]
    for index in range(len(gids), 58):
        gids.append({"index": index, "gid": f"0000:0000:0000:0000:0000:ffff:0a63:{index:04x}", "type": "RoCE v2", "ndev": "rail1"})


def no_hcas(node):
    for i in range(RAILS):
        node.remove(f"sys/class/infiniband/mlx5_{i}")
        node.remove(f"sys/class/infiniband_verbs/uverbs{i}")
    node.remove("sys/module/mlx5_ib")


def by_snapshot(change):
    def plant(node):
        node.with_snapshot = True
        change(node.inventory)
    return plant


def sliced(index, subnet="10.9.0.0/16"):
    """Sets one configuration for all nodes. If addresses define the index, they come from a snapshot."""
    def plant(node):
        node.config.update(node_index=index, networks={"rail": {"addresses": [{"rail": 0, "subnet": subnet, "per_node": 24}]}})
        node.with_snapshot = index == "address"
    return plant


def functions(per_node, slices):
    """Makes two rails virtual functions with MAC addresses of the network's range, on the node with index 2."""
    def plant(node):
        for i in (1, 2):
            node.inventory["devices"][i]["physfn"] = node.inventory["devices"][0]["pci"]
        macs = {"from": "02:00:00:00:00:00", "to": f"02:00:00:00:00:{per_node * slices - 1:02x}", "per_node": per_node}
        node.config["networks"]["rail"]["vf"] = {"macs": macs}
        node.config["node_index"] = 2
        node.with_snapshot = True
    return plant


def by_runtime(node, changed=STARTED - 60):
    """A file of the engine names rdma-runtime, which prints the version of the runtime behind it too."""
    version = subprocess.run([PROGRAMS[1], "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    node.write("opt/rdma/bin/rdma-runtime", f"#!/bin/sh\necho '{version}'\necho 'runc version 1.1.5'\necho 'spec: 1.0.2-dev'\n", 0o755)
    path = node.write("etc/containerd/conf.d/runtime.toml", "# BinaryName\n[plugins.x]\nBinaryName = '/opt/rdma/bin/rdma-runtime'\n")
    os.utime(path, (changed, changed))


def by_runtime_of_another_version(node):
    """rdma-runtime fails after its own line if no runtime is known; the line has its version all the same."""
    by_runtime(node)
    node.write("opt/rdma/bin/rdma-runtime", "#!/bin/sh\necho 'rdma-runtime 0.0.1'\nexit 1\n", 0o755)


def bridge_above(node, rail, control):
    (node.root / "sys/bus/pci/devices" / node.inventory["devices"][rail]["pci_path"][-1] / "config").write_bytes(configuration_space(control))


def count_all(node):
    node.config["pools"][0] = {"name": "rails", "modes": ["exclusive"], "network": "rail", "resource": "rdma-init.io/rails"}


def slurm(conf, memlock="unlimited", more=None):
    """Adds a slurmd with this RLIMIT_MEMLOCK, and slurm.conf with an included file."""
    def plant(node):
        node.write("etc/slurm/slurm.conf", conf)
        if more is not None:
            node.write("etc/slurm/more.conf", more)
        put_process(node, 102, "slurmd", STARTED, memlock, "NSpid:\t102\n")
    return plant


def installed_is_expected(node):
    node.more = ["--installed"]


def remove_engine(node):
    for path in ("usr/bin/containerd", "usr/lib/systemd/system/containerd.service", "proc/100"):
        node.remove(path)


def claims_by_containerd_1(setting):
    """Returns a change: rdma-dra runs beside containerd 1.7, whose configuration has `setting`."""
    def change(node):
        program = node.root / "usr/bin/containerd"
        program.write_text(program.read_text().replace("x/v2 2.1.9", "x 1.7.24"))
        path = node.write("etc/containerd/conf.d/cdi.toml", f'[plugins."io.containerd.grpc.v1.cri"]\n  {setting}\n')
        os.utime(path, (STARTED - 60, STARTED - 60))
        put_process(node, 102, "rdma-dra", STARTED, "unlimited", "NSpid:\t102\t1\n")
    return change


def only_slurm(node):
    """Replaces containerd by Slurm, whose scripts install has written."""
    subprocess.run([node.hook, "install", "--uninstall", "--root", node.root], check=True, capture_output=True)
    remove_engine(node)
    node.remove("proc/101")
    node.write("usr/sbin/slurmd", "#!/bin/sh\n", 0o755)
    for name in ("rdma-init", "rdma-runtime"):
        node.write(f"opt/rdma/bin/{name}", f"#!/bin/sh\necho '{name} 0'\n", 0o755)
    slurm("PropagateResourceLimitsExcept=MEMLOCK\n")(node)
    subprocess.run([node.hook, "install", "--engine", "slurm", "--root", node.root, "--hook", "/opt/rdma/bin/rdma-hook"], check=True, capture_output=True)


# Name, change before lay_out(), change after it; then the check, its grade, and a part of object and message.
FAULTS = [
    ("rdma_ucm missing", None, lambda node: node.remove("sys/class/misc/rdma_cm"), "modules", "warning", "rdma_ucm", "not loaded"),
    ("mlx5_ib missing", None, no_hcas, "modules", "broken", "mlx5_ib", "not loaded"),
    ("mode 0600", None, lambda node: (node.root / "dev/infiniband/uverbs2").chmod(0o600), "nodes", "warning", "/dev/infiniband/uverbs2", "0600"),
    ("no node", None, lambda node: node.remove("dev/infiniband/uverbs2"), "nodes", "broken", "/dev/infiniband/uverbs2", "missing"),
    ("netns mode", by_snapshot(lambda inventory: inventory.update(netns_mode="exclusive")), None, "netns", "broken", "pool rails", "`shared` is refused"),
    ("table at 90 %", fill_table, None, "gids", "warning", "mlx5_1:1", "58 of 64"),
    ("port down", lambda node: port(node, 2).update(state="1: DOWN", phys_state="2: Polling"), None, "ports", "warning", "mlx5_2:1", "DOWN"),
    ("port down, a hostile name", lambda node: (port(node, 2).update(state="1: DOWN", phys_state="3: Disabled"), rename(node, 2, "r$(id)")), None, "ports",
     "warning", "mlx5_2:1", "DOWN"),
    ("device number", None, lambda node: node.write("sys/class/misc/rdma_cm/dev", "\x1b[31m$(id)\n"), "nodes", "broken", "rdma_cm", "the kernel's device is"),
    ("slower rail", lambda node: port(node, 3).update(rate="200 Gb/sec (4X HDR)"), None, "rates", "warning", "mlx5_3:1", "200"),
    ("MTU", lambda node: node.inventory["netdevs"][1].update(mtu=1500), None, "mtu", "warning", "mlx5_1:1", "MTU 1500 (RDMA 1024)"),
    ("active_mtu", None, lambda node: node.write("usr/bin/ibv_devinfo", IBV_DEVINFO, 0o755), "mtu", "warning", "mlx5_2:1", "active_mtu is 1024, but"),
    ("default route", by_snapshot(lambda inventory: inventory["routes"][0].update(dev="rail0")), None, "routes", "warning", "mlx5_0", "uses rail0"),
    ("address twice", lambda node: node.inventory["netdevs"][1]["addresses"].append("10.9.0.1/24"), None, "addresses", "warning", "10.9.0.1", "rail1"),
    ("unit's memlock", None, lambda node: node.write("etc/systemd/system/containerd.service.d/a.conf", "[Service]\nLimitMEMLOCK=64K\n"),
     "memlock", "warning", "containerd.service", "65536"),
    ("unit's memlock, with blanks", None, lambda node: node.write("etc/systemd/system/containerd.service.d/a.conf", "[Service]\nLimitMEMLOCK = 64K\n"),
     "memlock", "warning", "containerd.service", "65536"),
    ("engine's memlock", None, lambda node: node.write("proc/100/limits", LIMITS % ("65536", "65536")), "memlock", "warning", "containerd.service", "65536"),
    ("not restarted", None, lambda node: written_at(node, STARTED + 60), "engine", "broken", "containerd", "has not read `/etc/containerd/"),
    ("not restarted, and the clock was set forward", None, lambda node: (written_at(node, STARTED + 60), clock_set(node, 86400)), "engine", "broken",
     "containerd", "has not read `/etc/containerd/"),
    ("not restarted after a change by hand", None, lambda node: by_runtime(node, STARTED + 60), "engine", "warning", "containerd",
     "may not have read `/etc/containerd/conf.d/runtime.toml`"),
    ("nothing set up", None, lambda node: (subprocess.run([node.hook, "install", "--uninstall", "--root", node.root], check=True, capture_output=True),
                                           node.remove("proc/101")), "engine", "note", "engine", "rdma-init is not installed"),
    ("nothing set up, but expected", installed_is_expected,
     lambda node: (subprocess.run([node.hook, "install", "--uninstall", "--root", node.root], check=True, capture_output=True), node.remove("proc/101")),
     "engine", "broken", "engine", "rdma-init is not installed"),
    ("engine removed, record left", None, lambda node: remove_engine(node), "engine", "broken", "engines",
     "rdma-init is configured for containerd, which is not installed"),
    ("engine removed, files left", None, lambda node: (remove_engine(node), node.remove("var/lib/rdma-init")), "engine", "broken", "engines",
     "rdma-init is configured for containerd, which is not installed"),
    ("file changed", None, lambda node: (node.write("etc/containerd/conf.d/rdma-init.toml", "# mine\n"),
                                         os.utime(node.root / "etc/containerd/conf.d/rdma-init.toml", (STARTED, STARTED))),
     "engine", "warning", "/etc/containerd/conf.d/rdma-init.toml", "changed since install"),
    ("no CDI for claims", None, claims_by_containerd_1("enable_cdi = false"), "engine", "broken", "containerd", "pods with claims start without HCAs"),
    ("engine refuses", None, lambda node: node.write("etc/containerd/conf.d/z.toml", "syntax error\n"),
     "engine", "broken", "/usr/bin/containerd", "syntax error"),
    ("rdma-nri is gone", None, lambda node: node.remove("proc/101"), "engine", "broken", "rdma-nri", "not running"),
    ("hook is gone", None, lambda node: node.remove("opt/rdma/bin/rdma-hook"), "programs", "broken", "/opt/rdma/bin/rdma-hook", "missing"),
    ("hook is not executable", None, lambda node: (node.root / "opt/rdma/bin/rdma-hook").chmod(0o644), "programs", "broken", "/opt/rdma/bin/rdma-hook",
     "cannot be executed"),
    ("another version", None, lambda node: node.write("opt/rdma/bin/rdma-hook", "#!/bin/sh\necho rdma-hook 0.0.1\n", 0o755), "programs", "warning",
     "/opt/rdma/bin/rdma-hook", "0.0.1"),
    ("another version of a failing runtime", None, by_runtime_of_another_version, "programs", "warning", "/opt/rdma/bin/rdma-runtime",
     "is rdma-runtime 0.0.1"),
    ("another kind in a counted pool", lambda node: (port(node, 3).update(link_layer="InfiniBand"), count_all(node)), None, "config", "note", "mlx5_3",
     "Kubernetes does not count it as `rdma-init.io/rails`"),
    ("shared without limits", lambda node: node.config["pools"][0].pop("limits"), None, "config", "warning", "pool rails", "all RDMA objects of a shared HCA"),
    ("no controller", None, lambda node: node.write("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"), "config", "warning", "limits",
     "no cgroup controller"),
    ("unsafe kernel", None, lambda node: node.write("proc/sys/kernel/osrelease", "6.12.117\n"), "config", "warning", "limits",
     "before Linux 7.3"),
    ("hook that other users can change", None, lambda node: (node.root / "opt/rdma/bin").chmod(0o777), "programs", "broken", "/opt/rdma/bin/rdma-hook",
     "cannot execute `/opt/rdma/bin/rdma-hook`: users other than root can change `/opt/rdma/bin`"),
    ("tool that other users can change", None, lambda node: node.write("usr/bin/ibv_devinfo", IBV_DEVINFO, 0o757), "programs", "warning", "programs",
     "cannot execute `/usr/bin/ibv_devinfo`: users other than root can change `/usr/bin/ibv_devinfo`"),
    ("unknown key", lambda node: node.config.update(pool=[]), None, "config", "broken", "config.json:", "pool"),
    ("index without a number", sliced("/etc/rdma-init/node_index"), lambda node: node.write("etc/rdma-init/node_index", "seven\n"), "config", "broken",
     "node_index", "it has no number"),
    ("no index", sliced("/etc/rdma-init/node_index"), None, "config", "broken", "node_index", "No such file"),
    ("index that other users can change", sliced("/etc/rdma-init/node_index"), lambda node: node.write("etc/rdma-init/node_index", "7\n", 0o666), "config", "broken",
     "node_index", "users other than root"),
    ("index too large", sliced(300), None, "config", "broken", "node_index", "it has 256 slices of /24"),
    ("address of no slice", sliced("address", "10.77.0.0/16"), None, "config", "broken", "rail0 (mlx5_0)", "slice of 10.77.0.0/16: the node has no address of this subnet on rail 0"),
    ("fewer MAC addresses than functions", functions(1, 9), None, "config", "warning", "network rail", "has only 1 entries, but a node has 2 virtual functions"),
    ("index beyond the MAC addresses", functions(2, 2), None, "config", "broken", "node_index", "has 2 slices of 2"),
    ("no NODE_NAME", sliced("NODE_NAME"), None, "config", "note", "node_index", "NODE_NAME is not set"),
    ("no peermem", None, lambda node: (node.remove("sys/module/nvidia_peermem"), node.write("proc/driver/nvidia/version", "NVRM version: x\n")),
     "gpudirect", "warning", "nvidia_peermem", "not loaded"),
    ("old peermem", None, lambda node: (node.remove("sys/module/nvidia_peermem"), (node.root / "sys/module/nv_peer_mem").mkdir()),
     "gpudirect", "note", "nv_peer_mem", "before driver 470"),
    ("ACS", None, lambda node: bridge_above(node, 1, 0x1D), "acs", "warning", "0000:02:01.0", "ACS redirects"),
    ("IOMMU", None, lambda node: node.write("sys/bus/pci/devices/0000:10:00.0/iommu_group/type", "DMA-FQ\n"), "iommu", "warning", "IOMMU", "mlx5_0"),
    ("slurmd's memlock", None, slurm("PropagateResourceLimits=NONE\n", "65536"), "slurm", "warning", "slurmd.service", "RLIMIT_MEMLOCK of 65536 bytes"),
    ("limits of the submitting shell", None, slurm("ClusterName=x\n"), "slurm", "warning", "/etc/slurm/slurm.conf", "of the shell that submits a job"),
    ("limits in an included file", None, slurm("PropagateResourceLimits=NONE\ninclude more.conf\n", more="PROPAGATERESOURCELIMITS=ALL # all\n"),
     "slurm", "warning", "/etc/slurm/slurm.conf", "of the shell that submits a job"),
    ("ledger is a file", None, lambda node: (node.remove("run/rdma-hook"), node.write("run/rdma-hook", "")), "ledger", "broken", "run/rdma-hook", "directory"),
    ("ledger is open to all", None, lambda node: (node.root / "run/rdma-hook").chmod(0o777), "ledger", "broken",
     "run/rdma-hook", "other users can read"),
]


def ports_down(node, phys_state="2: Polling"):
    for rail in range(RAILS):
        port(node, rail).update(state="1: DOWN", phys_state=phys_state)


def ports_closed(node):
    ports_down(node, "3: Disabled")


def rail_0_closed(node):
    ports_down(node)
    port(node, 0).update(phys_state="3: Disabled")


def unknown_grant(node):
    """A grant that cannot be read: each HCA may be granted."""
    node.write("run/rdma-hook/grants/1.json", "damaged\n", 0o600)


def only_rail_0(node):
    node.config["pools"][0]["selectors"] = {"ifNames": ["rail0"]}


# Name, change before lay_out(), change after it; then the beginning of the line of `doctor --job`, which is empty without a fault.
JOB_FAULTS = [
    ("healthy", None, None, ""),
    ("no port, and no pools", lambda node: (ports_down(node), node.config.pop("pools")), None, ""),
    ("mlx5_ib missing", None, no_hcas, "rdma: mlx5_ib: not loaded: 0000:10:00.0 (mlx5_core) has no HCA; remedy: run 'modprobe mlx5_ib'"),
    ("ib_uverbs missing", None, lambda node: node.remove("sys/class/infiniband_verbs"), "rdma: ib_uverbs: not loaded: no HCA has a device node; remedy: "),
    ("no node", None, lambda node: node.remove("dev/infiniband/uverbs2"), "rdma: /dev/infiniband/uverbs2: missing, although the kernel has the device; remedy: "),
    ("no port", ports_down, None, "rdma: mlx5_0:1 and 3 more: is DOWN, not ACTIVE (Polling); remedy: check cable, transceiver and the"),
    ("no port, all closed by the administrator", ports_closed, None, "rdma: mlx5_0:1 and 3 more: is DOWN, not ACTIVE (Disabled)"),
    ("no port, all may be closed by a container", ports_closed, unknown_grant, ""),
    ("no port, and containers", ports_down, unknown_grant, "rdma: mlx5_0:1 and 3 more: is DOWN, not ACTIVE (Polling)"),
    ("no port, one may be closed by a container", rail_0_closed, unknown_grant, "rdma: mlx5_1:1 and 2 more: is DOWN, not ACTIVE (Polling)"),
    ("one port down", lambda node: port(node, 2).update(state="1: DOWN"), None, ""),
    ("mode 0600", None, lambda node: (node.root / "dev/infiniband/uverbs2").chmod(0o600), ""),
    ("no node of an HCA without a pool", only_rail_0, lambda node: node.remove("dev/infiniband/uverbs2"), ""),
    ("no port of the only HCA in a pool", lambda node: (only_rail_0(node), port(node, 0).update(state="1: DOWN")), None, "rdma: mlx5_0:1: is DOWN"),
    ("no RDMA hardware", None, lambda node: (no_hcas(node), shutil.rmtree(node.root / "sys/bus/pci/devices")), ""),
    ("no engine", None, lambda node: node.remove("opt/rdma/bin/rdma-hook"), ""),
    ("ledger is a file", None, lambda node: (node.remove("run/rdma-hook"), node.write("run/rdma-hook", "")), ""),
]
# State and reason of a node as scontrol shows them; then the arguments with which health-check changes the node.
HEALTH_CHECKS = [
    ("IDLE", None, "State=DRAIN Reason=rdma: x"),
    ("MIXED", "DRAIN of yesterday [root@2026-01-01T00:00:00]", "State=DRAIN Reason=rdma: x"),
    ("IDLE+DRAIN", "Prolog error [slurm@2026-01-01T00:00:00]", "Reason=rdma: x"),
    ("DOWN+DRAIN", "Prolog error", "Reason=rdma: x"),
    ("IDLE+DRAIN", "bad DIMM [root@2026-01-01T00:00:00]", None),
    ("IDLE+DRAIN", "bad DIMM, Prolog error follows from it [root@2026-01-01T00:00:00]", None),
    ("IDLE+DRAIN", "bad DIMM, was Reason=Prolog error [root@2026-01-01T00:00:00]", None),
    ("IDLE+FAIL", "bad DIMM [root@2026-01-01T00:00:00]", None),
    ("ERROR", "bad DIMM [root@2026-01-01T00:00:00]", None),
    ("IDLE+DRAIN", None, None),
    ("DOWN", "Not responding [slurm@2026-01-01T00:00:00]", None),
]
HEALTHY = [
    ("healthy", None, None),
    ("runc's version after that of rdma-runtime", None, by_runtime),
    ("the clock was set back", None, lambda node: clock_set(node, -86400)),
    ("written before the boot", None, lambda node: written_at(node, STARTED + 60, boot="an earlier one")),
    ("healthy, by a snapshot", by_snapshot(lambda inventory: None), None),
    ("Slurm", None, slurm("PropagateResourceLimitsExcept=MEMLOCK\n")),
    ("an included file that is missing", None, slurm("Include /etc/slurm/more.conf\n")),
    ("CDI for claims", None, claims_by_containerd_1("enable_cdi = true")),
    ("an engine in a container", None, lambda node: put_process(node, 99, "containerd", BOOTED + 1, "65536", "NSpid:\t99\t1\n")),
    ("index in a file", sliced("/etc/rdma-init/node_index"), lambda node: node.write("etc/rdma-init/node_index", "7\n")),
    ("index by address", sliced("address"), None),
    # A bridge that is not between GPU and HCA may redirect.
    ("root port redirects", None, lambda node: (node.root / "sys/bus/pci/devices" / ROOT_PORT / "config").write_bytes(configuration_space(0x1D))),
    ("no DMA-BUF, but peermem", None, lambda node: node.write("proc/driver/nvidia/version", "NVRM version: x\n")),
    ("a front-end NIC", lambda node: node.inventory["netdevs"][-1].update(pci="0000:40:00.0"),
     lambda node: ((node.root / "sys/bus/pci/drivers/ice").mkdir(), (node.root / "sys/bus/pci/devices/0000:40:00.0/driver").unlink(),
                   (node.root / "sys/bus/pci/devices/0000:40:00.0/driver").symlink_to("../../../bus/pci/drivers/ice"))),
]


class Doctor(harness.Case):
    place = "/run"  # belongs to root, as each directory above a configuration must

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0 or not roots.static_busybox():
            self.skipTest("needs root, and a static busybox")
        try:
            os.mknod(self.work + "/node", stat.S_IFCHR, os.makedev(231, 192))
        except PermissionError:
            self.skipTest("needs CAP_MKNOD")
        self.numbers = itertools.count()

    def examine(self, before, after):
        node = self.laid_out(before, after)
        found = node.examine()
        shutil.rmtree(node.root.parent)
        return found

    def laid_out(self, before=None, after=None):
        node = Node(f"{self.work}/{next(self.numbers)}")
        node.root.parent.mkdir()
        if before:
            before(node)
        node.lay_out()
        if after:
            after(node)
        return node

    def test_reports_nothing_on_healthy_nodes(self):
        for name, before, after in HEALTHY:
            with self.subTest(name):
                code, findings, text = self.examine(before, after)
                self.assertEqual((code, findings), (0, []), text)

    def test_names_slurm_on_node_without_engine(self):
        node = self.laid_out(after=only_slurm)
        code, findings, text = node.examine()
        self.assertEqual((code, findings), (0, []), text)
        self.assertRegex(text, r"(?m)^ +ok +engine +slurmd; slurm configured, way hook$", text)

    def test_reports_each_fault_alone(self):
        for name, before, after, check, grade, what, message in FAULTS:
            with self.subTest(name):
                code, findings, text = self.examine(before, after)
                self.assertEqual([finding[:2] for finding in findings], [(check, grade)], text)
                self.assertIn(what, findings[0][2])
                self.assertIn(message, findings[0][3])
                self.assertEqual(code, {"note": 0, "warning": 1, "broken": 2}[grade])

    def test_tells_another_user_which_checks_need_root(self):
        node = self.laid_out()
        shutil.copy(HOOK, node.root / "opt/rdma/bin/rdma-hook")

        def become_another_user_of_the_node():  # only root may execute programs below --root
            os.chroot(node.root)
            os.chdir("/")
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)

        try:
            done = subprocess.run(["/opt/rdma/bin/rdma-hook", "doctor"], capture_output=True, text=True, check=False,
                                  preexec_fn=become_another_user_of_the_node)
        except FileNotFoundError:
            self.skipTest("a program with sanitizers needs libraries, which the node lacks")
        self.assertIn("the configuration of the engines is not checked: only root can read it", " ".join(done.stdout.split()), done)
        self.assertNotIn("cannot load its configuration", " ".join(done.stdout.split()), done)

    def test_job_reports_only_faults_that_break_each_job(self):
        for name, before, after, line in JOB_FAULTS:
            with self.subTest(name):
                node = self.laid_out(before, after)
                done = node.check_job()
                self.assertEqual((done.returncode, done.stderr), (2 if line else 0, ""), done)
                self.assertTrue(done.stdout.startswith(line) and len(done.stdout) <= 201 and done.stdout.count("\n") == bool(line), done)

    def test_job_ignores_a_fault_that_ends_within_a_second(self):
        node = self.laid_out(after=lambda node: node.remove("dev/infiniband/uverbs2"))
        checking = node.check_job(subprocess.Popen)
        time.sleep(0.3)
        os.mknod(node.root / "dev/infiniband/uverbs2", stat.S_IFCHR | 0o666, os.makedev(231, 194))
        self.assertEqual((checking.communicate(timeout=60)[0], checking.returncode), ("", 0))

    def test_job_fails_without_a_line_if_the_configuration_is_unknown(self):
        done = self.laid_out(lambda node: node.config.update(pool=[]), lambda node: node.remove("dev/infiniband/uverbs2")).check_job()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("pool", done.stderr)

    def test_health_check_replaces_no_reason_of_an_administrator(self):
        programs = pathlib.Path(self.work) / "slurm"
        programs.mkdir()
        for name, text in (("rdma-hook", "echo 'rdma: x'; exit 2"), ("scontrol", 'case $1 in update) shift 2; echo "$*" ;; *) echo "$SHOWN" ;; esac')):
            (programs / name).write_text(f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)
        script = pathlib.Path(__file__).parents[2].joinpath("config/slurm/health-check").read_text().replace("=/usr/bin/", f"={programs}/")
        for state, reason, change in HEALTH_CHECKS:
            with self.subTest(state=state, reason=reason):
                shown = f"NodeName=n1 State={state} ThreadsPerCore=1 Partitions=DOWNTIME,DRAIN" + (f" Reason={reason}" if reason else "")
                done = subprocess.run(["sh", "-c", script], env={"PATH": f"{programs}:{os.environ['PATH']}", "SHOWN": shown, "SLURMD_NODENAME": "n1"},
                                      capture_output=True, text=True, check=True)
                self.assertEqual((done.stdout.strip() or None, done.stderr), (change, ""))

    def test_prolog_without_result_is_repeated_by_health_check(self):
        programs = pathlib.Path(self.work) / "slurm"
        programs.mkdir()
        (programs / "limits").write_text("prolog_limit=0.2\nhealth_check_limit=60\n")
        texts = {"rdma-hook": f"[ -e {programs}/again ] || {{ touch {programs}/again; sleep 60; }}; echo 'rdma: x'; exit 2",
                 "scontrol": f'case $1 in update) shift 2; echo "$*" >> {programs}/changes ;; *) echo "NodeName=n1 State=IDLE" ;; esac'}
        for name in ("prolog", "health-check"):
            script = pathlib.Path(__file__).parents[2].joinpath("config/slurm", name).read_text()
            for path, other in (("=/usr/bin/", f"={programs}/"), ("/etc/rdma-init/slurm", f"{programs}/limits"), ("/run/rdma-init-unchecked", f"{programs}/unchecked")):
                script = script.replace(path, other)
            texts[name] = script
        for name, text in texts.items():
            (programs / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n")
            (programs / name).chmod(0o755)

        def run(name):
            environment = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURMD_NODENAME": "n1", "SLURM_JOB_ID": "7"}
            return subprocess.run([programs / name], env=environment, capture_output=True, text=True, check=False)
        done = run("prolog")
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertIn("took longer than 0.2 s; remedy: set prolog_limit", done.stderr)
        changes = programs / "changes"
        harness.wait_for(lambda: changes.exists() and changes.read_text(), "the drain")
        self.assertEqual(changes.read_text(), "State=DRAIN Reason=rdma: x\n")
        # slurmd logs the output of a health check that fails, and calls the next one itself.
        done = run("health-check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("the Prolog of job 7 took longer than 0.2 s; remedy: raise prolog_limit", done.stdout)
        self.assertEqual((run("health-check").returncode, run("prolog").returncode), (0, 1))


if __name__ == "__main__":
    harness.main(*PROGRAMS, MAKE_TREE)
