"""Shared parts of the tests of this folder.

Every wait is for a condition, never for a fixed time; only a failure reaches its deadline. The end of a test removes its
processes, mounts and files in reverse order. A test that this machine cannot run is skipped with the reason. A file exits
with 77 if all its tests were skipped.

`Case` has a directory, `TreeCase` a node as a file tree with a configuration and a ledger. `NodeCase` runs containers in
its own PID and mount namespaces: every process ends with the tests, and a hook that writes to the wrong place changes only
a private /run, /dev or /etc. Control groups have no private copy: all groups of a file are below one, which is removed at
the end.
"""
import contextlib
import json
import os
import random
import select
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from node import Node, differences, walk

HOOK, RUNTIME, NRI, MAKE_TREE = (os.environ.get(name, "")
                                 for name in ("TESTED_HOOK", "TESTED_RUNTIME", "TESTED_NRI", "MAKE_TREE"))
BUSYBOX = shutil.which("busybox") or ""
HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
GROUP = os.environ.get("RDMA_HOOK_TEST_GROUP", "")  # parent of all control groups; set for the inner process only
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SHARED_NODE = "/run/node"  # the tree of NodeCase
DEADLINE = 60  # seconds; only a failure reaches it
SKIP = 77
MEMLOCK = 8 << 20  # bytes; the usual hard limit of an unprivileged process
CGROUPS = "/sys/fs/cgroup"
SEED = int(os.environ.get("RDMA_HOOK_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


# --- processes

def run(argv, **settings):
    """Runs a command to its end and returns its output as text. Later output of a grandchild that keeps the pipes open is
    ignored. The outputs are pipes, because a hook refuses to write into a file. The input is a file of its own: crun changes
    the owner of its standard streams to the container's user, and the tests check that /dev/null stays unchanged."""
    with memory_file() as empty:
        text = settings.pop("input", None)
        settings.setdefault("stdin", empty if text is None else subprocess.PIPE)
        settings.setdefault("env", {"PATH": PATH, "LANG": "C"})
        outputs = [os.pipe() for _ in range(2)]
        try:
            with subprocess.Popen(argv, stdout=outputs[0][1], stderr=outputs[1][1], **settings) as process:
                end = os.pidfd_open(process.pid)
                try:
                    if text is not None:
                        give(process.stdin, text.encode() if isinstance(text, str) else text)
                    texts = read_until(end, [reader for reader, _ in outputs])
                    if texts is None:
                        process.kill()
                        raise subprocess.TimeoutExpired(argv, DEADLINE)
                finally:
                    os.close(end)
        finally:
            for end in (end for pipe in outputs for end in pipe):
                os.close(end)
    return subprocess.CompletedProcess(argv, process.returncode, *texts)


def read_until(end, pipes):
    """Returns the texts of the pipes up to the end of the process of the pidfd, or None after the deadline."""
    texts = {pipe: b"" for pipe in pipes}
    deadline = time.monotonic() + DEADLINE
    while True:
        # The caller keeps the writing ends open: a pipe at its end would be ready at every select().
        ready = select.select([end, *pipes], [], [], max(0, deadline - time.monotonic()))[0]
        if not ready:
            return None
        for pipe in pipes:
            if pipe in ready:
                texts[pipe] += os.read(pipe, 1 << 16)
        if ready == [end]:
            return [text.decode(errors="replace") for text in texts.values()]


def memory_file():
    return open(os.memfd_create("output"), "w+b")


def give(pipe, text):
    with contextlib.suppress(BrokenPipeError), pipe:  # the process may end without reading
        pipe.write(text)


def must(argv, **settings):
    done = run(argv, **settings)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def end_process(process):
    """Kills the process unless it has ended, and closes this side of its pipes."""
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        pipe.close()


LIMITS = {"files": "nofile", "address_space": "as", "file_size": "fsize", "processes": "nproc", "stack": "stack",
          "locks": "locks", "memlock": "memlock"}


def limited(**limits):
    """Returns the words before a command that set these resource limits, soft and hard."""
    return ["prlimit", *(f"--{LIMITS[name]}={value}:{value}" for name, value in limits.items())]


def wait_for(condition, what, seconds=DEADLINE):
    """Polls until condition() is true and returns its value. what: the awaited event as text, or a function that returns it."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.005)


def status_of(pid):
    """Returns the fields of /proc/PID/status, or none if the process is gone."""
    try:
        return dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}


def process_state(pid):
    """Returns one letter (R, S, D, T, Z), or an empty text if the process is gone."""
    return status_of(pid).get("State", "")[:1]


def children_of(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


# --- files

class Listener:
    """Reads a named pipe. A hook refuses to write into a regular file."""

    def __init__(self, path):
        self.path = path
        self.text = ""
        if not os.path.exists(path):
            os.mkfifo(path)
        self.pipe = open(os.open(path, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0)

    def received(self):
        while part := self.pipe.read(1 << 16):
            self.text += part.decode(errors="replace")
        return self.text


def write(path, content, mode=0o644):
    """Writes text or bytes, or any other value as JSON. Creates the directories above the file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not isinstance(content, (str, bytes)):
        content = json.dumps(content)
    with open(path, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    os.chmod(path, mode)
    return path


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_json(path):
    return json.loads(read(path))


# --- cases

class Case(unittest.TestCase):
    """Each test has its own directory."""
    maxDiff = None
    place = None  # parent of the directory; None: the system's temporary directory

    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="test.", dir=self.place)
        os.chmod(self.work, 0o755)
        self.addCleanup(shutil.rmtree, self.work, True)
        self.log = self.work + "/log"

    def needs(self, *programs):
        for program in programs:
            if not shutil.which(program):
                self.skipTest(f"{program} is not installed")

    def start(self, argv, **settings):
        """Starts a process without input and output. The end of the test kills it."""
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen(argv, **{**quiet, **settings})
        self.addCleanup(end_process, process)
        return process

    def start_logged(self, argv, **settings):
        """Starts a process as start() does, and appends its stderr to self.log."""
        with open(self.log, "ab") as log:
            return self.start(argv, stderr=log, **settings)

    def mount(self, place, *options):
        """Mounts a tmpfs, or the file system of the options, until the end of the test."""
        os.makedirs(place, exist_ok=True)
        must(["mount", *(options or ("-t", "tmpfs", "-o", "mode=755", "tmpfs")), place])
        self.addCleanup(run, ["umount", "-l", place])

    def mount_or_skip(self, place, *options):
        try:
            self.mount(place, *options)
        except AssertionError as error:
            self.skipTest(f"cannot mount: {error}")

    def until(self, condition, what="the condition"):
        """Calls wait_for(), and adds the log to its failure."""
        return wait_for(condition, lambda: f"{what}; the log: {read(self.log)[-4000:]}")

    def wait_for_log(self, words, times=1):
        """Waits until the log has these words that many times."""
        self.until(lambda: read(self.log).count(words) >= times, f"{words!r} in the log")

    def succeeded(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, done, *words):
        """Fails unless the command exited with an error, without a signal, and its output has these words."""
        self.assertNotEqual(done.returncode, 0, "not refused")
        self.assertGreater(done.returncode, 0, f"ended by signal {-done.returncode}")
        for word in words:
            self.assertIn(word, done.stderr + done.stdout)
        return done


class TreeCase(Case):
    """Each test has its own node as a file tree, configuration and ledger."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root: the programs accept only a configuration and a ledger that belong to root")
        self.ledger_directory = self.work + "/ledger"
        self.config = self.work + "/config.json"
        self.configure({})
        self.tree = self.work + "/node"
        self.make_tree()

    def make_tree(self, hcas=4):
        shutil.rmtree(self.tree, True)
        must([MAKE_TREE, "--synthetic", str(hcas), "4", self.tree])
        write(self.tree + "/sys/class/misc/rdma_cm/dev", "10:58\n")

    def configure(self, members):
        """Writes the configuration: members as JSON, or a text, which may be invalid JSON."""
        write(self.config, members)

    def places(self):
        """Returns the options of each program for the paths of this node."""
        return ["--root", self.tree, "--ledger", self.ledger_directory, "--config", self.config]

    def arguments(self, stage, engine="runc"):
        return ["rdma-hook", stage, "--engine", engine, *self.places()]

    def entry(self, stage, engine="runc"):
        """Returns an entry for `hooks` of a config.json."""
        return {"path": HOOK, "args": self.arguments(stage, engine)}

    def hook(self, stage, state, engine="runc", **settings):
        """Calls the hook with this state on stdin, as an object, or as a text that may be invalid."""
        text = state if isinstance(state, (str, bytes)) else json.dumps(state)
        return run([HOOK] + self.arguments(stage, engine)[1:], input=text, **{"env": {}, **settings})

    def recover(self):
        text = must([HOOK, "recover", "--json", "--root", self.tree, "--ledger", self.ledger_directory], env={})
        return json.loads(text)["returned"]

    def devices(self):
        """Returns a map from HCA to its entry of `rdma-hook devices`."""
        text = must([HOOK, "devices", "--json", *self.places()], env={})
        return {hca["name"]: hca for hca in json.loads(text)["hcas"]}

    def refusals(self):
        """Returns the entries of `rdma-hook devices --refused`, the newest first."""
        return json.loads(must([HOOK, "devices", "--refused", "--json", "--ledger", self.ledger_directory], env={}))["refusals"]

    def probe(self, program):
        """Returns exit code and line of --probe. It reads the state, and starts nothing."""
        done = run([program, "--probe", "--ledger", self.ledger_directory])
        self.assertEqual((done.stdout.count("\n"), done.stderr), (1, ""), done)
        return done.returncode, done.stdout.rstrip("\n")

    def until_probe(self, program, code, words):
        """Waits until --probe returns the code and a line with the words."""
        def is_so():
            self.probed = self.probe(program)
            return self.probed[0] == code and words in self.probed[1]

        wait_for(is_so, lambda: f"{code}, {words!r}; the last probe: {self.probed}")

    def holders(self):
        """Returns a map from each allocated HCA to the labels of its owners."""
        return {name: sorted(holder["holder"] for holder in hca["holders"])
                for name, hca in self.devices().items() if hca["holders"]}


class NodeCase(TreeCase):
    """All tests of a file share one node, which none of them changes."""
    place = "/run"
    node = None

    @classmethod
    def setUpClass(cls):
        if NodeCase.node is None:
            must([MAKE_TREE, "--synthetic", str(Node.HCAS), "4", SHARED_NODE])
            NodeCase.node = Node(SHARED_NODE)

    def setUp(self):
        super().setUp()
        self.planted = self.plant()
        self.mounts = self.mounted()

    def make_tree(self, hcas=4):
        self.tree = self.node.tree

    def configure(self, members):
        # A limit that this machine can set. A failed raise would log a warning that does not belong to the test.
        super().configure({"memlock": MEMLOCK, **members})

    # --- checks after a test

    def ledger(self):
        """Returns the ledger's files that belong to grants: all files except locks, links of HCAs that no grant holds exclusively,
        counters, refusals, the ledger's namespaces, the start of the next search for an address, states for --probe, and records and views of
        rdma-runtime. A running program may remove views at any time."""
        found = {}
        for path, (kind, *_, content) in walk(self.ledger_directory, ("runtime", "state", "views", "checked")).items():
            name = os.path.basename(path)
            is_other = (name in ("lock", "metrics", "place", "links") or name.startswith(("last@", "refusals"))
                        or (name == "exclusive" and content in ("none", "shared")))
            if not is_other and kind != stat.S_IFDIR:
                found[path] = (kind, content)
        return found

    def assert_ledger_empty(self):
        """Calls `recover`, because a view without users stays until then."""
        self.assertEqual(self.ledger(), {})
        self.assertEqual(self.recover(), [])
        views = self.ledger_directory + "/views"
        self.assertEqual(set(os.listdir(views) if os.path.isdir(views) else ()) - {"none"}, set())

    def plant(self):
        """Makes a directory of the node as target for hostile images. Returns the state of it, /etc, /dev and the tree."""
        self.victim = self.work + "/victim"
        for name in ("a-file", "infiniband/a-file", "directory/another"):
            write(f"{self.victim}/{name}", "content of the node\n")
        os.symlink("a-file", self.victim + "/a-link")
        os.mknod(self.victim + "/a-node", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        return self.watched()

    def watched(self):
        return {directory: walk(directory) for directory in (self.victim, "/etc", "/dev", self.tree)}

    def mounted(self):
        """Returns root and mount point of each mount below the directories of the test. Other programs of this machine mount elsewhere."""
        mounts = (tuple(line.split()[3:5]) for line in read("/proc/self/mountinfo").splitlines())
        return sorted(mount for mount in mounts if mount[1].startswith((self.work + "/", SHARED_NODE + "/")))

    def assert_node_unchanged(self):
        now = self.watched()
        for directory, before in self.planted.items():
            self.assertEqual(differences(before, now[directory]), [], f"below {directory}")
        self.assertEqual(self.mounted(), self.mounts)

    def assert_nothing_left(self):
        """Fails unless the ledger is empty and the node is unchanged."""
        self.assert_ledger_empty()
        self.assert_node_unchanged()

    def random(self):
        print(f"{self.id()}: RDMA_HOOK_TEST_SEED={SEED}", file=sys.stderr)
        return random.Random(SEED)


# --- private namespaces and control groups

def requirement(device_groups=True):
    """Returns the reason why the tests cannot run here, or None. device_groups: they need control groups for devices."""
    if os.geteuid() != 0:
        return "needs root, for mounts, namespaces and control groups"
    for program, package in (("busybox", "busybox-static"), ("unshare", "util-linux"), ("mount", "mount")):
        if not shutil.which(program):
            return f"no {program} (Debian package {package})"
    if b"INTERP" in subprocess.run(["readelf", "-lW", BUSYBOX], capture_output=True, check=False).stdout:
        return "busybox is not static (Debian package busybox-static)"
    if device_groups and not os.path.isdir(CGROUPS + "/devices"):
        return "no cgroup v1 `devices` hierarchy; with cgroup v2 the tests of the virtual machine check the same"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"],
                           capture_output=True, check=False)
    return None if probe.returncode == 0 else "cannot unshare namespaces or mount: " + probe.stderr.decode().strip()


def hide_the_machine():
    must(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])
    for directory in ("/dev", "/etc"):
        copy = "/run/own" + directory
        os.makedirs(copy)
        must(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", copy])
        must(["cp", "-ax", directory + "/.", copy])
        must(["mount", "--move", copy, directory])


def remove_groups(group):
    for hierarchy in (".", *os.listdir(CGROUPS)):  # v2, and each hierarchy of v1
        for parent, _, _ in os.walk(f"{CGROUPS}/{hierarchy}/{group}", topdown=False):
            try:
                os.rmdir(parent)
            except OSError as error:
                print(f"cannot remove {parent}: {error}", file=sys.stderr)


def first_process():
    """Returns in a child. The first process of the PID namespace stays behind: it inherits orphans and reaps them."""
    tests = os.fork()
    if tests == 0:
        return
    while True:
        pid, status = os.wait()
        if pid == tests:
            os._exit(os.waitstatus_to_exitcode(status) & 0xff)


def run_inside(name, network):
    """Runs this program again in private namespaces and control groups, and exits with its exit code. An unprivileged user
    is root there."""
    group = f"{name}-{os.getpid()}"
    own_user = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    inside = ["unshare", *own_user, *(["--net"] if network else []), "--mount", "--propagation", "private", "--pid", "--fork",
              "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    code = subprocess.run(inside, env={**os.environ, "RDMA_HOOK_TEST_GROUP": group}, check=False).returncode
    remove_groups(group)
    sys.exit(code)


def enter_own_machine(name="rdma-hook-test", network=False, device_groups=True):
    """Returns in a process with private namespaces and control groups. Exits with 77 if this machine does not allow them.
    network: also in a private network namespace, which stands for the node's."""
    if not GROUP:
        reason = requirement(device_groups)
        if reason:
            print("skipped:", reason)
            sys.exit(SKIP)
        run_inside(name, network)
    first_process()
    hide_the_machine()


def check_programs(*programs):
    if not all(os.access(program, os.X_OK) for program in programs):
        sys.exit("error: no program to test; remedy: set TESTED_HOOK, MAKE_TREE etc. to paths of programs, as ctest does")


def main(*programs):
    """Runs the tests of the calling file, which need these programs. Exits with 77 if all tests were skipped."""
    check_programs(*programs)
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIP if result.testsRun and len(result.skipped) == result.testsRun else 0)


def main_in_own_machine(*programs, **options):
    """Runs main() in private namespaces and control groups."""
    check_programs(HOOK, MAKE_TREE, *programs)
    enter_own_machine(**options)
    main()
