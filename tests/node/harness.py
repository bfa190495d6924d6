"""What the tests of this folder share.

Nothing waits for a time: a wait is for a condition, and its deadline is for failures. What a test starts or makes goes
when it ends, the last first. What cannot be tested here is skipped, with the reason; a file whose tests were all skipped
ends with 77.

`Case` has a directory, `TreeCase` a node as a file tree with a configuration and a ledger, and `NodeCase` a machine of
its own, for containers: a PID namespace, so that every process ends with the tests, and a mount namespace with its own
/run, /dev and /etc, so that not even a hook that writes to the wrong place touches the machine. What cannot be hidden are
control groups: all of ours are below one, which is removed at the end.
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
GROUP = os.environ.get("RDMA_HOOK_TEST_GROUP", "")  # of the control groups; set for the inner process only
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEADLINE = 60  # seconds; only a failure takes that long
SKIP = 77
MEMLOCK = 8 << 20  # what an unprivileged hard limit usually allows
CGROUPS = "/sys/fs/cgroup"
SEED = int(os.environ.get("RDMA_HOOK_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)


# --- processes

def run(argv, **settings):
    """Runs to the end; output as text. What a grandchild that keeps the pipes open writes afterwards is not waited for.
    The outputs are pipes, because a hook writes into no file. The input is a file: crun gives its standard streams to
    the container's user, and /dev/null is watched."""
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
    """What the pipes have until the process of the pidfd is gone; None: it is not within the deadline."""
    texts = {pipe: b"" for pipe in pipes}
    deadline = time.monotonic() + DEADLINE
    while True:
        # Its writing ends are ours too, so that none of them ends before we have seen the process end.
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
    with contextlib.suppress(BrokenPipeError), pipe:  # it does not have to read
        pipe.write(text)


def must(argv, **settings):
    done = run(argv, **settings)
    if done.returncode != 0:
        raise AssertionError(f"{argv}: exit code {done.returncode}: {done.stderr}{done.stdout}")
    return done.stdout


def end_process(process):
    """Kills it, unless it has ended, and closes our ends of its pipes."""
    process.kill()
    process.wait()
    for pipe in filter(None, (process.stdin, process.stdout, process.stderr)):
        pipe.close()


LIMITS = {"files": "nofile", "address_space": "as", "file_size": "fsize", "processes": "nproc", "stack": "stack",
          "locks": "locks", "memlock": "memlock"}


def limited(**limits):
    """What to put before a command so that it has these resource limits, soft and hard."""
    return ["prlimit", *(f"--{LIMITS[name]}={value}:{value}" for name, value in limits.items())]


def wait_for(condition, what, seconds=DEADLINE):
    """Polls until the condition has a true value, and returns that. what: a text, or a function that makes it."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"did not happen within {seconds} s: {what() if callable(what) else what}")
        time.sleep(0.005)


def status_of(pid):
    """The fields of /proc/PID/status; empty when the process is gone."""
    try:
        return dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines() if ":\t" in line)
    except (FileNotFoundError, ProcessLookupError):
        return {}


def process_state(pid):
    """One letter: R, S, D, T, Z; empty when the process is gone."""
    return status_of(pid).get("State", "")[:1]


def children_of(pid):
    return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]


# --- files

class Listener:
    """What is written into a pipe of that name, since a hook writes into no file."""

    def __init__(self, path):
        self.path = path
        self.text = ""
        if not os.path.exists(path):
            os.mkfifo(path)
        self.pipe = open(os.open(path, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0)

    def heard(self):
        while part := self.pipe.read(1 << 16):
            self.text += part.decode(errors="replace")
        return self.text


def write(path, content, mode=0o644):
    """Text, bytes, or what becomes JSON; directories above it are made."""
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
    """Every test has a directory of its own."""
    maxDiff = None
    place = None  # where the directory is

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
        """A process without input and output, which is killed at the end of the test."""
        quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen(argv, **{**quiet, **settings})
        self.addCleanup(end_process, process)
        return process

    def start_logged(self, argv, **settings):
        """The same; what it says is added to self.log."""
        with open(self.log, "ab") as log:
            return self.start(argv, stderr=log, **settings)

    def mount(self, place, *options):
        """A mount, a tmpfs unless the options say otherwise, until the end of the test."""
        os.makedirs(place, exist_ok=True)
        must(["mount", *(options or ("-t", "tmpfs", "-o", "mode=755", "tmpfs")), place])
        self.addCleanup(run, ["umount", "-l", place])

    def mount_or_skip(self, place, *options):
        try:
            self.mount(place, *options)
        except AssertionError as error:
            self.skipTest(f"may not mount: {error}")

    def until(self, condition, what="it"):
        """wait_for(), which shows the log when it fails."""
        return wait_for(condition, lambda: f"{what}; the log: {read(self.log)[-4000:]}")

    def until_said(self, words, times=1):
        """Waits until the log has them."""
        self.until(lambda: read(self.log).count(words) >= times, f"{words!r} in the log")

    def given(self, done):
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def refused(self, done, *words):
        """Failed with a message that has these words, and nothing else of the sort of a crash."""
        self.assertNotEqual(done.returncode, 0, "was not refused")
        self.assertGreater(done.returncode, 0, f"ended by signal {-done.returncode}")
        for word in words:
            self.assertIn(word, done.stderr + done.stdout)
        return done


class TreeCase(Case):
    """Every test has a node in files, a configuration and a ledger of its own."""

    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root: a configuration and a ledger count only when they are root's")
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
        """JSON, or a text that may be none."""
        write(self.config, members)

    def places(self):
        """The options that tell any of the programs where its node is."""
        return ["--root", self.tree, "--ledger", self.ledger_directory, "--config", self.config]

    def arguments(self, stage, engine="runc"):
        return ["rdma-hook", stage, "--engine", engine, *self.places()]

    def hook(self, stage, state, engine="runc", **settings):
        """Calls the hook with this state, or text, on stdin."""
        text = state if isinstance(state, (str, bytes)) else json.dumps(state)
        return run([HOOK] + self.arguments(stage, engine)[1:], input=text, **{"env": {}, **settings})

    def recover(self):
        text = must([HOOK, "recover", "--json", "--root", self.tree, "--ledger", self.ledger_directory], env={})
        return json.loads(text)["returned"]

    def devices(self):
        """HCA -> its entry of `rdma-hook devices`."""
        text = must([HOOK, "devices", "--json", *self.places()], env={})
        return {hca["name"]: hca for hca in json.loads(text)["hcas"]}

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
        """HCA -> labels of who holds it; only those that are held."""
        return {name: sorted(holder["holder"] for holder in hca["holders"])
                for name, hca in self.devices().items() if hca["holders"]}


class NodeCase(TreeCase):
    """The node is one for all tests of a file: nobody writes to it."""
    place = "/run"
    node = None

    @classmethod
    def setUpClass(cls):
        if NodeCase.node is None:
            must([MAKE_TREE, "--synthetic", str(Node.HCAS), "4", "/run/node"])
            NodeCase.node = Node("/run/node")

    def setUp(self):
        super().setUp()
        self.planted = self.plant()
        self.mounts = self.mounted()

    def make_tree(self, hcas=4):
        self.tree = self.node.tree

    def configure(self, members):
        # A limit that this machine can give, or raising it would end in a warning that has nothing to do with the test.
        super().configure({"memlock": MEMLOCK, **members})

    def entry(self, stage, engine="runc"):
        """For `hooks` of a config.json."""
        return {"path": HOOK, "args": self.arguments(stage, engine)}

    # --- what is left behind

    def ledger(self):
        """Who holds what: all files but locks, counters, the ledger's namespaces, where the next search for an address
        begins, rdma-runtime's records, states for --probe, and views, which belong to no grant."""
        found = {}
        for path, (kind, *_, content) in walk(self.ledger_directory).items():
            name = os.path.basename(path)
            is_other = (name in ("lock", "metrics", "place") or name.startswith("last@") or
                        path.startswith(("runtime/", "state/", "views/")))
            if not is_other and kind != stat.S_IFDIR:
                found[path] = (kind, content)
        return found

    def assert_ledger_empty(self):
        """A view that nobody has stays until `recover`."""
        self.assertEqual(self.ledger(), {})
        self.assertEqual(self.recover(), [])
        views = self.ledger_directory + "/views"
        self.assertEqual(set(os.listdir(views) if os.path.isdir(views) else ()) - {"none"}, set())

    def plant(self):
        """A directory of the node that hostile images aim at; /etc and /dev are watched as well."""
        self.victim = self.work + "/victim"
        for name in ("a-file", "infiniband/a-file", "directory/another"):
            write(f"{self.victim}/{name}", "content of the node\n")
        os.symlink("a-file", self.victim + "/a-link")
        os.mknod(self.victim + "/a-node", stat.S_IFCHR | 0o600, os.makedev(1, 5))
        return self.watched()

    def watched(self):
        return {directory: walk(directory) for directory in (self.victim, "/etc", "/dev", self.tree)}

    @staticmethod
    def mounted():
        """The mounts of the node: place and root."""
        return sorted(tuple(line.split()[3:5]) for line in read("/proc/self/mountinfo").splitlines())

    def assert_node_unchanged(self):
        now = self.watched()
        for directory, before in self.planted.items():
            self.assertEqual(differences(before, now[directory]), [], f"below {directory}")
        self.assertEqual(self.mounted(), self.mounts)

    def assert_nothing_left(self):
        """Nobody holds anything, and the node is as it was."""
        self.assert_ledger_empty()
        self.assert_node_unchanged()

    def random(self):
        print(f"{self.id()}: RDMA_HOOK_TEST_SEED={SEED}", file=sys.stderr)
        return random.Random(SEED)


# --- a machine of our own

def requirement(device_groups=True):
    """Why the tests cannot run here; None: they can. device_groups: whether they need control groups for devices."""
    if os.geteuid() != 0:
        return "needs root, for mounts, namespaces and control groups"
    for program, package in (("busybox", "busybox-static"), ("unshare", "util-linux"), ("mount", "mount")):
        if not shutil.which(program):
            return f"no {program} (Debian package {package})"
    if b"INTERP" in subprocess.run(["readelf", "-lW", BUSYBOX], capture_output=True, check=False).stdout:
        return "busybox is not static (Debian package busybox-static)"
    if device_groups and not os.path.isdir(CGROUPS + "/devices"):
        return "no cgroup v1 `devices` hierarchy here: what these tests check, the virtual machine's do"
    probe = subprocess.run(["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "tmpfs", "/run"],
                           capture_output=True, check=False)
    return None if probe.returncode == 0 else "may not unshare namespaces or mount: " + probe.stderr.decode().strip()


def hide_the_machine():
    must(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"])
    for directory in ("/dev", "/etc"):
        copy = "/run/own" + directory
        os.makedirs(copy)
        must(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", copy])
        must(["cp", "-ax", directory + "/.", copy])
        must(["mount", "--move", copy, directory])


def remove_groups(group):
    for hierarchy in (".", *os.listdir(CGROUPS)):  # of v2, and of v1
        for parent, _, _ in os.walk(f"{CGROUPS}/{hierarchy}/{group}", topdown=False):
            try:
                os.rmdir(parent)
            except OSError as error:
                print(f"cannot remove {parent}: {error}", file=sys.stderr)


def first_process():
    """The first process of a PID namespace inherits orphans, and reaps them, beside the tests. Returns in the tests."""
    tests = os.fork()
    if tests == 0:
        return
    while True:
        pid, status = os.wait()
        if pid == tests:
            os._exit(os.waitstatus_to_exitcode(status) & 0xff)


def run_inside(name, network):
    """Runs this program once more, in namespaces and control groups of its own, and ends as that one does. An unprivileged user
    is root there."""
    group = f"{name}-{os.getpid()}"
    own_user = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    inside = ["unshare", *own_user, *(["--net"] if network else []), "--mount", "--propagation", "private", "--pid", "--fork",
              "--kill-child", "--mount-proc", sys.executable, *sys.argv]
    code = subprocess.run(inside, env={**os.environ, "RDMA_HOOK_TEST_GROUP": group}, check=False).returncode
    remove_groups(group)
    sys.exit(code)


def enter_own_machine(name="rdma-hook-test", network=False, device_groups=True):
    """Returns in a process that has a machine of its own; ends with 77 where that cannot be. network: in a network
    namespace of its own, which stands for the node's."""
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
        sys.exit("set TESTED_HOOK, TESTED_RUNTIME, MAKE_TREE and so on to the paths of programs, as ctest does")


def main(*programs):
    """Runs the tests of the calling file, which need these programs. 77 when every one of them was skipped."""
    check_programs(*programs)
    result = unittest.main(module="__main__", verbosity=2, exit=False).result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIP if result.testsRun and len(result.skipped) == result.testsRun else 0)


def main_in_own_machine(*programs, **options):
    """The same, in a machine of its own."""
    check_programs(HOOK, MAKE_TREE, *programs)
    enter_own_machine(**options)
    main()
