"""Bundles and the programs that run them: runc, crun, and a stand-in for a container that a runtime has just created."""
import contextlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys

from harness import BUSYBOX, CGROUPS, GROUP, HERE, HOOK, PATH, RUNTIME, end_process, must, read, run, wait_for, write

APPLETS = ("sh", "ls", "cat", "stat", "mknod", "sleep", "id", "true", "grep", "mount", "mkdir", "rm")
CAPABILITIES = ["CAP_MKNOD", "CAP_CHOWN", "CAP_DAC_OVERRIDE"]
HOST_ROOT = 100000  # the node's uid of a container's root, with a user namespace
DENY_ALL = {"allow": False, "access": "rwm"}
EXCLUSIVE, SHARED = ({"rdma-init.io/mode": mode} for mode in ("exclusive", "shared"))
FOREVER = ("sleep", "1000")
# The entry in a container's config.json for a device that an engine or a device plugin added.
UVERBS2 = {"path": "/dev/infiniband/uverbs2", "type": "c", "major": 231, "minor": 194, "fileMode": 0o666}


def make_rootfs(directory):
    for name in ("bin", "dev", "proc", "sys", "tmp", "etc"):
        os.makedirs(f"{directory}/{name}")
    shutil.copy(BUSYBOX, directory + "/bin/busybox")
    for name in APPLETS:
        os.symlink("busybox", f"{directory}/bin/{name}")
    shutil.copy(HERE + "/probe", directory + "/probe")
    os.chmod(directory + "/probe", 0o755)
    return directory


class Bundle:
    """A directory with config.json and rootfs/. `config` may be changed until write()."""

    def __init__(self, case, name="container", *, requests=None, engine="runc", stages=("createRuntime", "poststop"),
                 annotations=(), netns=True, userns=False, dev=True, sys=True, readonly=False, args=("/probe",), env=(),
                 devices=(), rlimits=None, uid=0):
        self.case = case
        self.id = name
        self.directory = f"{case.work}/{name}"
        self.rootfs = make_rootfs(self.directory + "/rootfs")
        annotations = dict(annotations)
        if requests is not None:
            annotations["rdma-init.io/devices"] = requests
        namespaces = [{"type": kind} for kind in ("pid", "ipc", "uts", "mount")]
        if netns:
            namespaces.append({"type": "network", **({"path": netns} if isinstance(netns, str) else {})})
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}]
        if dev:
            mounts.append({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                           "options": ["nosuid", "mode=755"]})
        if sys:
            mounts.append({"destination": "/sys", "type": "bind", "source": case.tree + "/sys",
                           "options": ["rbind", "ro", "nosuid", "nodev", "noexec"]})
        self.config = {
            "ociVersion": "1.0.2",
            "root": {"path": "rootfs", "readonly": readonly},
            "process": {"args": list(args), "env": ["PATH=/bin", *env], "cwd": "/", "user": {"uid": uid, "gid": uid},
                        "capabilities": {kind: list(CAPABILITIES) for kind in ("bounding", "effective", "permitted")}},
            "mounts": mounts,
            "annotations": annotations,
            "hooks": {},
            "linux": {"namespaces": namespaces, "cgroupsPath": f"/{GROUP}/{os.path.basename(case.work)}-{name}",
                      "devices": list(devices), "resources": {"devices": [dict(DENY_ALL)]}}}
        for stage in stages:
            self.config["hooks"][stage] = [case.entry(stage, engine)]
        if rlimits:
            self.config["process"]["rlimits"] = rlimits
        if userns:
            namespaces.append({"type": "user"})
            ids = [{"containerID": 0, "hostID": HOST_ROOT, "size": 65536}]
            self.config["linux"].update(uidMappings=ids, gidMappings=ids)
        self.write()

    def write(self):
        write(self.directory + "/config.json", self.config)
        return self

    def written(self):
        """Returns the current config.json, which rdma-runtime may have changed."""
        return json.loads(read(self.directory + "/config.json"))

    def mount(self, destination, source, kind="bind", options=("rbind",)):
        self.config["mounts"].append(
            {"destination": destination, "type": kind, "source": source, "options": list(options)})
        return self.write()

    def share(self, kind):
        """Makes the container use the node's namespace of this kind."""
        self.config["linux"]["namespaces"] = [one for one in self.config["linux"]["namespaces"] if one["type"] != kind]
        return self.write()

    def cgroup(self):
        return CGROUPS + "/devices" + self.config["linux"]["cgroupsPath"]



def exclusive(case, name="container", **options):
    """Returns a bundle that requests mlx5_1 in mode `exclusive`."""
    return Bundle(case, name, **{"requests": "mlx5_1", "annotations": EXCLUSIVE, **options})


class Report:
    """The output of /probe in a container."""

    def __init__(self, text):
        self.nodes = {}  # path -> (type, major, minor, mode, owner, result of open)
        self.other = None  # result of open for a device that was not granted
        self.views = {}  # directory of /sys/class -> names
        self.facts = {}
        for line in text.splitlines():
            kind, _, rest = line.partition("|")
            fields = rest.split("|")
            if kind == "node":
                path, file_type, major, minor, mode, owner, opened = fields
                letter = {"character special file": "c", "block special file": "b"}.get(file_type, file_type)
                self.nodes[path] = (letter, int(major, 16), int(minor, 16), mode, owner, opened)
            elif kind == "view":
                self.views[fields[0]] = fields[1].split()
            elif kind == "other":
                self.other = fields[0]
            elif kind == "memlock":
                self.facts["soft memlock"], self.facts["hard memlock"] = rest.split()[3:5]  # bytes
            elif kind == "fact":
                self.facts[fields[0]] = fields[1]


class Runtime:
    """runc or crun. crun 1.8 refuses hybrid control groups (v1 with an empty v2 hierarchy beside), so it runs without the
    v2 hierarchy."""
    env = {"PATH": PATH, "LANG": "C"}
    HIDE_V2 = ["unshare", "--mount", "--propagation", "private", "sh", "-c",
               f"! mountpoint -q {CGROUPS}/unified || umount {CGROUPS}/unified; exec \"$@\"", "-"]

    def __init__(self, case, name):
        self.case = case
        self.name = name
        self.program = shutil.which(name)
        if not self.program:
            case.skipTest(f"no {name} (Debian package {name})")
        self.prefix = [] if name == "runc" else list(self.HIDE_V2)
        self.root = f"{case.work}/{name}"
        case.addCleanup(self.delete_all)

    def command(self, *arguments):
        options = ["--root", self.root] + (["--cgroup-manager=cgroupfs"] if self.name == "crun" else [])
        return [*self.prefix, self.program, *options, *arguments]

    def call(self, *arguments, **settings):
        return run(self.command(*arguments), **{"env": self.env, **settings})

    def begin(self, verb, bundle):
        """Starts a call and returns its process without waiting."""
        return self.case.start(self.command(verb, "--bundle", bundle.directory, bundle.id), env=self.env)

    def run(self, bundle, **settings):
        return self.call("run", "--bundle", bundle.directory, bundle.id, **settings)

    def report(self, bundle, **settings):
        """Runs a container with the program /probe, and returns its Report."""
        done = self.run(bundle, **settings)
        self.case.assertEqual(done.returncode, 0, done.stderr)
        return Report(done.stdout)

    def create(self, bundle, **settings):
        return self.call("create", "--bundle", bundle.directory, bundle.id, **settings)

    def version(self):
        return self.call("--version").stdout

    def state(self, bundle):
        done = self.call("state", bundle.id)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def exists(self, bundle):
        return self.state(bundle) is not None

    def kill(self, bundle):
        """Sends SIGKILL to the container's init without the runtime, as the kernel's OOM killer does."""
        pid = self.state(bundle)["pid"]
        os.kill(pid, 9)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), f"end of process {pid}")

    def delete(self, bundle):
        return self.call("delete", "--force", bundle.id)

    def delete_all(self):
        if os.path.isdir(self.root):
            for name in os.listdir(self.root):
                self.case.succeeded(self.call("delete", "--force", name))


class Wrapped(Runtime):
    """rdma-runtime, which calls the runtime of that name. Without an engine in its settings it detects the calling engine."""

    def __init__(self, case, name, engine="runc"):
        super().__init__(case, name)
        self.settings = write(f"{case.work}/{os.path.basename(name)}-settings.json", {
            "runtimes": [self.program], "hook": HOOK, "config": case.config, "root": case.tree,
            "ledger": case.ledger_directory, **({"engine": engine} if engine else {})})
        self.program = RUNTIME
        self.env = {"PATH": PATH, "LANG": "C", "RDMA_RUNTIME_SETTINGS": self.settings}


class RuntimeTests:
    """Base of tests that run with each runtime: a subclass of this and NodeCase names one. After each test no HCA is
    allocated."""
    runtime_name = ""
    kind = Runtime

    def setUp(self):
        super().setUp()
        self.runtime = self.kind(self, self.runtime_name)

    def tearDown(self):
        self.runtime.delete_all()
        self.assert_nothing_left()

    def nodes_of(self, bundle):
        """Runs the container and returns the device nodes in it."""
        return self.runtime.report(bundle).nodes

    def created(self, bundle, runtime=None):
        self.succeeded((runtime or self.runtime).create(bundle))
        return bundle


class FakeContainer:
    """The state of a container at createRuntime: a process in a mount namespace where the bundle's rootfs is mounted onto
    itself, with the container's mounts below, and the node's file tree around it. A runtime may refuse a hostile bundle
    before its hooks run; with this stand-in only the hook can refuse it. The process ends with its standard input."""
    SCRIPT = ('set -e; mount --bind "$1" "$1"; mount -t tmpfs tmpfs "$1/proc"; '
              '[ "$2" = none ] || mount -t tmpfs -o mode=755 tmpfs "$1/dev"; '
              '[ -z "$3" ] || mount --bind -o ro "$3" "$1/sys"; '
              '[ "$4" = before ] || { cd "$1"; mkdir .old; pivot_root . .old; '
              'busybox umount -l .old; busybox rmdir .old; }; '
              'echo made; exec cat')

    def __init__(self, bundle, pivoted=False, within=()):
        """within: the words before the command, such as `unshare --net`."""
        self.bundle = bundle
        self.group = bundle.cgroup()
        self.root = "" if pivoted else bundle.rootfs
        destinations = [mount["destination"] for mount in bundle.config["mounts"]]
        self.process = bundle.case.start(
            [*within, "unshare", "--mount", "--propagation", "private", "sh", "-c", self.SCRIPT, "-", bundle.rootfs,
             "tmpfs" if "/dev" in destinations else "none",
             bundle.case.tree + "/sys" if "/sys" in destinations else "", "pivoted" if pivoted else "before"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=None)
        bundle.case.addCleanup(self.end)
        bundle.case.assertEqual(self.process.stdout.readline(), b"made\n")
        self.join_group()

    @property
    def pid(self):
        return self.process.pid

    def join_group(self):
        os.makedirs(self.group, exist_ok=True)
        for file, rule in (("devices.deny", "a"), ("devices.allow", "c *:* m"), ("devices.allow", "c 1:3 rwm"),
                           ("cgroup.procs", str(self.pid))):
            write_cgroup(f"{self.group}/{file}", rule)

    def state(self, **changes):
        state = {"ociVersion": "1.0.2-dev", "id": self.bundle.id, "status": "creating", "pid": self.pid,
                 "bundle": self.bundle.directory}
        return {**state, **changes}

    def rules(self):
        return set(read(self.group + "/devices.list").split("\n")) - {""}

    def nodes(self):
        """Returns a map from name to (type, major, minor, mode) for the container's /dev/infiniband."""
        directory = f"/proc/{self.pid}/root{self.root}/dev/infiniband"
        found = {}
        for name in os.listdir(directory) if os.path.isdir(directory) else ():
            status = os.lstat(f"{directory}/{name}")
            letter = {stat.S_IFCHR: "c", stat.S_IFBLK: "b"}.get(stat.S_IFMT(status.st_mode), "-")
            found[name] = (letter, os.major(status.st_rdev), os.minor(status.st_rdev), oct(status.st_mode & 0o777))
        return found

    def mounts(self):
        return [line.split()[4] for line in read(f"/proc/{self.pid}/mountinfo").splitlines()]

    def end(self):
        end_process(self.process)
        try:
            os.rmdir(self.group)
        except OSError:
            pass  # another container of this bundle uses the group; the end of the tests removes all groups


def fake_container(case, name="container", requests="mlx5_1", **options):
    """Returns a FakeContainer; the test calls its hooks."""
    return FakeContainer(Bundle(case, name, requests=requests, stages=(), **options))


def write_cgroup(path, text):
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


class Syslog:
    """Reads /dev/log of the private /dev."""

    def __init__(self, case):
        with contextlib.suppress(FileNotFoundError):
            os.unlink("/dev/log")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self.socket.bind("/dev/log")
        case.addCleanup(self.close)

    def lines(self):
        """Returns the messages since the last call."""
        found = []
        with contextlib.suppress(BlockingIOError):
            while True:
                found.append(self.socket.recv(1 << 16).decode())
        return found

    def text(self):
        return "\n".join(self.lines())

    def close(self):
        self.socket.close()
        os.unlink("/dev/log")


# Writes its arguments, environment, directory, input and descriptors to a file.
RECORDER = """#!{python}
import json, os, sys
record = {{"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid(),
          "stdin": sys.stdin.buffer.read().decode() if "read-stdin" in sys.argv else None,
          "fds": {{name: os.readlink("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")
                  if os.path.exists("/proc/self/fd/" + name)}}}}
json.dump(record, open({record!r}, "w"))
print("output of the runtime")
print({errors!r}, file=sys.stderr)
sys.exit({code})
"""
RECORDER_ERRORS = "errors of the runtime"


def write_recorder(path, record, code=0):
    """Writes a runtime that only records how it was started, and prints a text to each output."""
    return write(path, RECORDER.format(python=sys.executable, record=record, errors=RECORDER_ERRORS, code=code), 0o755)


def stopped(bundle):
    """Returns the state at poststop."""
    return {"ociVersion": "1.0.2-dev", "id": bundle.id, "status": "stopped", "bundle": bundle.directory}


class Pod:
    """A network namespace that containers join by path."""

    def __init__(self, case, name="pod"):
        self.path = f"{case.work}/netns-{name}"
        write(self.path, "")
        must(["unshare", f"--net={self.path}", "true"])
        self.case = case
        self.is_there = True
        case.mounts = case.mounted()
        case.addCleanup(self.remove)

    def remove(self):
        if self.is_there:
            must(["umount", self.path])
            os.unlink(self.path)
            self.is_there = False
            self.case.mounts = self.case.mounted()
