"""The scenes: each has a command that is disturbed, the state before it, and the conditions after it. A second container requests the
same HCA exclusively. It gets the HCA after the first container has ended, and not before.

docs: tests/faults/README.md"""
import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE + "/../node", HERE + "/../support"]
import grant_record  # noqa: E402
import harness  # noqa: E402
import nri_runtime as nri  # noqa: E402
import test_network  # noqa: E402
from containers import EXCLUSIVE, SHARED, UVERBS2, Bundle, FakeContainer, Pod, Runtime, stopped  # noqa: E402
from harness import PATH, must, read, run, write  # noqa: E402
from node import walk  # noqa: E402

HCA = "mlx5_1"
RAIL = 1
ROOMY = "size=64m,nr_inodes=100k"  # the kernel accepts new limits only for a tmpfs that has limits
PROGRAMS = {name: os.environ.get(name, "") for name in ("TESTED_HOOK", "TESTED_RUNTIME", "TESTED_NRI", "TESTED_CLAIM", "INJECT")}
# Seconds until a command counts as hanging. The longest wait, for a lock of another process, is 10 s.
LIMIT = 60


class Outcome:
    """The end of a command: exit code or signal, standard error, and whether the point was reached."""

    def __init__(self, result, errors):
        self.reached = "\nreached\n" in "\n" + result
        ended = dict(re.findall(r"^ended (code|signal) (\d+)$", result, re.M))
        self.code, self.signal = (int(ended[how]) if how in ended else None for how in ("code", "signal"))
        self.errors = errors


class Scene(harness.NodeCase):
    """held: another container has the HCA. quiet: the fault itself can suppress the error message."""
    name = ""
    mode = next_mode = EXCLUSIVE
    always_succeeds = False
    holds = (False, True)  # the values of `held` for which the scene exists; none: the machine lacks a requirement (`lacks`)
    quick = 12
    not_ours = "^$"  # calls with this object are no part of the product
    takes_back = False  # the command releases a grant: if another container has the HCA too, both share it
    own_deeds = None  # returns the deeds at a call with this object; None: those of its errnos and kills

    def __init__(self, held=False):
        super().__init__("run")
        self.setUpClass()
        self.held = held
        self.setUp()
        os.mkdir(self.ledger_directory, 0o700)
        must(["mount", "-t", "tmpfs", "-o", "mode=0700," + ROOMY, "tmpfs", self.ledger_directory])
        self.addCleanup(must, ["umount", "-l", self.ledger_directory])
        self.result = self.work + "/result"
        self.killing = self.quiet = False
        self.turn = 0
        if held and self.takes_back:
            self.mode = SHARED
        self.prepare()
        self.bundle, self.next_bundle = self.asking("web", self.mode), self.asking("next", self.next_mode)
        self.next = None
        self.begin()
        self.expected = self.holders()
        if not self.busy:
            self.take_turns()
        self.recover()
        self.empty, self.names_before = self.ledger(), self.names()
        self.planted, self.mounts = self.watched(), self.mounted()

    @property
    def busy(self):
        """True if the next container is refused as long as the other container has the HCA."""
        return self.held and self.next_mode == EXCLUSIVE

    def prepare(self):
        self.configure({"annotations_may_request": ["*"], "pools": [{"name": "all", "modes": ["exclusive", "shared"]}]})

    def begin(self):
        self.holder = None
        if self.held:
            self.holder = self.container(self.asking("holder", self.mode))
            self.succeeded(self.create(self.holder))

    def end(self):
        """Ends the other container and tests that the next container then gets the HCA."""
        if self.held:
            self.expected = {}
            self.give_back(self.holder)
        self.take_turns()
        if self.next:
            self.next.end()
        self.doCleanups()

    # --- parts of scenes

    def asking(self, name, mode, hca=HCA, **options):
        return Bundle(self, name, requests=hca, stages=(), annotations=mode, **options)

    def container(self, bundle):
        return FakeContainer(bundle)

    def create(self, container):
        return self.hook("createRuntime", container.state())

    def start_web(self):
        self.web = self.container(self.bundle)
        self.succeeded(self.create(self.web))

    def give_back(self, container):
        """Ends a running container."""
        container.end()
        self.poststop(container.bundle)

    def poststop(self, bundle):
        return self.succeeded(self.hook("poststop", stopped(bundle)))

    def recover_words(self):
        return ["rdma-hook", "recover", "--root", self.node.tree, "--ledger", self.ledger_directory]

    def inject(self, how, argv, env=None, text=""):
        """Runs argv with a fault. how: `all`, a point and a deed, or a shortage of the ledger's file system."""
        with self.injection(how) as words:
            done = run([*words, *argv], env=env or {}, input=text.encode())
        return Outcome(read(self.result), done.stderr)

    @contextlib.contextmanager
    def injection(self, how):
        """Yields the command to put before a program and its arguments."""
        if os.path.exists(self.result):
            os.unlink(self.result)
        self.killing = how[-1] in ("before", "after", "root")
        lacks = how[0] in ("inodes", "pages", "read-only")
        if lacks:
            self.limit(*how)
        try:
            yield [PROGRAMS["INJECT"], self.result, *(["all"] if lacks else how)]
        finally:
            if lacks:
                self.remount("bind,rw" if how[0] == "read-only" else ROOMY)

    def limit(self, what, left):
        """Leaves room for `left` more inodes or pages in the ledger's file system, or makes it read-only."""
        status = os.statvfs(self.ledger_directory)
        if what == "inodes":
            self.remount(f"nr_inodes={status.f_files - status.f_ffree + int(left)}")
        elif what == "pages":
            self.remount(f"size={(status.f_blocks - status.f_bfree + int(left)) * status.f_frsize or 1}")
        else:
            self.remount("bind,ro")

    def remount(self, options):
        must(["mount", "-o", "remount," + options, self.ledger_directory])

    def disturb_hook(self, how, stage, state):
        return self.inject(how, [PROGRAMS["TESTED_HOOK"], *self.arguments(stage)], text=json.dumps(state))

    def names(self):
        """Returns the ledger's files and directories, without metrics, refusals, states for --probe, views and temporary names."""
        return sorted(path for path in walk(self.ledger_directory)
                      if not re.search(r"^(metrics|refusals|links|state|views|checked|runtime|copies)|^lent$|(^|/)last@|^addresses/.", path))

    # --- conditions after a command

    def assert_told(self, outcome):
        """The command ended by itself, unless the test killed it, and it reported an error if it failed."""
        if not self.killing:
            self.assertIsNone(outcome.signal, f"ended by signal: {outcome.errors}")
        if self.always_succeeds and outcome.signal is None:
            self.assertEqual(outcome.code, 0, outcome.errors)
        if outcome.code and not self.quiet:
            self.assertIn("error: ", outcome.errors, "it failed without an error message")

    def assert_given(self, container):
        self.assertIn("uverbs1", container.nodes(), "it succeeded without the node")
        self.assertTrue(any(rule.startswith("c 231:193 ") for rule in container.rules()), "it succeeded without the rule")

    @staticmethod
    def owner(name):
        return f"container {name}"

    def assert_held_by(self, name):
        self.assertEqual(self.holders(), {HCA: sorted([*self.expected.get(HCA, []), self.owner(name)])})

    def assert_next_refused(self):
        self.refused(self.create(self.next_container()), HCA)

    def assert_has_it_alone(self, name):
        self.assert_held_by(name)
        self.assert_next_refused()

    def next_container(self):
        """Returns the container that requests the HCA next. A refused one is used again, which saves the time to make a new one."""
        self.turn += 1
        if self.turn % 16 == 0 and self.next:
            self.next.end()
            self.next = None
        if not self.next:
            self.next = self.container(self.next_bundle)
        return self.next

    def take_turns(self):
        """The next container gets the HCA, and its end releases it."""
        container = self.next_container()
        self.succeeded(self.create(container))
        self.assert_held_by("next")
        self.return_next()

    def return_next(self):
        self.next.end()
        self.next = None
        self.poststop(self.next_bundle)

    def assert_clean(self):
        """After recover the ledger is as before the command. The next container gets the HCA, or is refused if the scene is busy."""
        self.recover()
        self.assertEqual(self.ledger(), self.empty)
        self.assertEqual(self.holders(), self.expected)
        if self.busy:
            self.assert_next_refused()
        else:
            self.take_turns()
        self.recover()
        self.assertEqual(self.names(), self.names_before)
        self.assert_node_unchanged()

    # --- one turn

    def enter(self):
        pass

    def run_turn(self, how, quiet=False):
        self.quiet = quiet
        self.enter()
        outcome = self.disturb(how)
        self.assert_told(outcome)
        self.leave(outcome)
        return outcome

    def leave(self, outcome):
        self.assert_clean()

    def calls(self):
        """Returns the calls of an undisturbed turn, as inject records them: of the second turn, when the ledger's directories exist."""
        for _ in range(2):
            self.run_turn(["all"])
        calls = [line.split()[1:] for line in read(self.result).splitlines() if line.startswith("call ")]
        return [call for call in calls if not re.match(self.not_ours, call[-1])]

    def put_right(self):
        """Cleans up after a turn that failed, so that a new scene can begin."""
        for container in (getattr(self, "web", None), self.next):
            if container:
                container.end()
        self.next = None
        self.doCleanups()


class CreateRuntime(Scene):
    name = "createRuntime"

    def enter(self):
        self.web = self.container(self.bundle)

    def disturb(self, how):
        return self.disturb_hook(how, "createRuntime", self.web.state())

    def leave(self, outcome):
        if self.busy:
            self.assertNotEqual(outcome.code, 0, "two containers have the HCA exclusively")
            self.assertEqual(self.holders(), self.expected)
        elif outcome.code == 0:
            self.assert_given(self.web)
            self.assert_held_by("web")
            if self.next_mode == EXCLUSIVE:
                self.assert_next_refused()
        if outcome.code == 0 or self.killed_after_all():
            self.give_back(self.web)
        else:
            self.web.end()
        self.assert_clean()

    def killed_after_all(self):
        """True if the command was killed after its work was done: its grant then stays."""
        return False


class CountCreateRuntime(CreateRuntime):
    """The container requests a number of HCAs. The pool has one of the node's HCAs."""
    name = "createRuntime, a count"

    def prepare(self):
        self.configure({"annotations_may_request": ["*"],
                        "pools": [{"name": "one", "modes": ["exclusive", "shared"], "selectors": {"ifNames": [f"rail{RAIL}"]}}]})

    def asking(self, name, mode, hca=HCA, **options):
        return super().asking(name, mode, "1" if name == "web" else hca, **options)


class Renamed:
    """The HCA is renamed before a call that reads it, and keeps the new name until the command has ended, as if a container with
    CAP_NET_ADMIN renamed it."""
    quick = 24
    other_name = "hca_9"

    def begin(self):
        super().begin()
        self.classes = os.path.realpath(self.node.tree + "/sys/class/infiniband")
        status = os.stat(self.classes)
        self.times = (status.st_atime_ns, status.st_mtime_ns)
        self.names_of_hca = [f"{self.classes}/{name}" for name in (HCA, self.other_name)]
        self.script = write(self.work + "/rename", "#!/bin/sh\nexec mv -T {} {}\n".format(*self.names_of_hca), 0o755)

    def own_deeds(self, process, read_object):
        return [f"run={self.script}"] if process == "0" and "/class/infiniband" in read_object else []

    def leave(self, outcome):
        if os.path.lexists(self.names_of_hca[1]):
            os.rename(*reversed(self.names_of_hca))
            os.utime(self.classes, ns=self.times)
        self.assert_booked_by_device()
        super().leave(outcome)

    def holders(self):
        """The record has the name that the HCA had then."""
        return {HCA if name == self.other_name else name: owners for name, owners in super().holders().items()}

    def assert_booked_by_device(self):
        """Otherwise no later command finds the grant: it looks for the device."""
        for file in os.listdir(self.ledger_directory + "/grants"):
            record = json.loads(read(f"{self.ledger_directory}/grants/{file}").splitlines()[0])
            for hca in [*record["hcas"], *(hca for user in record["users"] for hca in user.get("hcas", []))]:
                self.assertIn("device", hca, "the HCA is booked under its name")


class RenamedCreateRuntime(Renamed, CreateRuntime):
    name = "createRuntime, HCA renamed"


class RenamedCountCreateRuntime(Renamed, CountCreateRuntime):
    name = "createRuntime, a count, HCA renamed"


class FirstCreateRuntime(CreateRuntime):
    """createRuntime on a node without a ledger."""
    name = "first createRuntime of a node"
    holds = (False,)

    def enter(self):
        shutil.rmtree(self.ledger_directory, True)
        super().enter()


class CreateRuntimeAgain(CreateRuntime):
    """A second createRuntime of the container continues after the first."""
    name = "createRuntime, then once more"
    holds = (False,)

    def leave(self, outcome):
        self.succeeded(self.create(self.web))
        self.assert_given(self.web)
        self.assert_held_by("web")
        self.give_back(self.web)
        self.assert_clean()


class CreateRuntimeByRunc(Scene):
    """The runtime cleans up after its hook."""
    name = "createRuntime by runc"
    holds = (False,)

    def begin(self):
        super().begin()
        self.runc = Runtime(self, "runc")

    def disturb(self, how):
        entry = self.entry("createRuntime")
        with self.injection(how) as words:
            disturbed = {"path": words[0], "args": [*words, entry["path"], *entry["args"]]}
            self.bundle.config["hooks"] = {"createRuntime": [disturbed], "poststop": [self.entry("poststop")]}
            self.bundle.config["process"]["args"] = ["true"]
            done = self.runc.run(self.bundle.write())
        outcome = Outcome(read(self.result), done.stderr)
        self.assertEqual(done.returncode == 0, outcome.code == 0, done.stderr)
        return outcome

    def leave(self, outcome):
        self.assertIsNone(self.runc.state(self.bundle))
        self.assertFalse(os.path.exists(self.bundle.cgroup()))
        self.assert_clean()


class Poststop(Scene):
    name = "poststop"
    always_succeeds = takes_back = True

    def enter(self):
        self.start_web()
        self.web.end()

    def disturb(self, how):
        return self.disturb_hook(how, "poststop", stopped(self.bundle))


class PoststopInPod(Poststop):
    """The pod owns the grant, which stays."""
    name = "poststop in a pod"
    holds = (False,)
    takes_back = False

    def enter(self):
        self.pod = Pod(self)
        for namespace in self.bundle.config["linux"]["namespaces"]:
            if namespace["type"] == "network":
                namespace["path"] = self.pod.path
        self.bundle.write()
        super().enter()

    def leave(self, outcome):
        self.assertEqual(self.recover(), [])
        self.assertEqual(list(self.holders()), [HCA])
        self.pod.remove()
        self.assert_clean()

    def put_right(self):
        self.pod.remove()
        super().put_right()


class Recover(Poststop):
    name = "recover"
    always_succeeds = False

    def disturb(self, how):
        return self.inject(how, [PROGRAMS["TESTED_HOOK"], *self.recover_words()])


class PassedDescriptor(Poststop):
    """The container passed its uverbs descriptor to a process of another container. The node's /proc is files as well."""
    name = "passed descriptor"
    holds = (False,)
    takes_back = False

    def enter(self):
        super().enter()
        status = os.stat(self.node.tree + "/proc")
        self.times = (status.st_atime_ns, status.st_mtime_ns)
        self.other = self.node.tree + "/proc/4711"
        os.makedirs(self.other + "/fd")
        os.symlink(self.node.tree + "/dev/infiniband/uverbs1", self.other + "/fd/3")
        write(self.other + "/cgroup", "0::/docker/other\n")
        write(self.other + "/comm", "other\n")

    def leave(self, outcome):
        self.refused(run([PROGRAMS["TESTED_HOOK"], *self.recover_words()[1:]], env={}), HCA, "4711", "end that process")
        self.assert_held_by("web")
        self.refused(self.create(self.next_container()), HCA, "process 4711 (`other`)", "end that process")
        self.end_other()
        self.assert_clean()

    def put_right(self):
        self.end_other()
        super().put_right()

    def end_other(self):
        shutil.rmtree(self.other, True)
        os.utime(self.node.tree + "/proc", ns=self.times)


class OtherRootPoststop(Poststop):
    """poststop of a container with the same ID and bundle below another root of the runtime, while the first container runs."""
    name = "poststop below another root"
    holds = (False,)
    enter = Scene.start_web

    def leave(self, outcome):
        self.recover()
        self.assert_has_it_alone("web")
        self.give_back(self.web)
        self.assert_clean()


class GenerateCdi(Scene):
    name = "cdi generate"
    holds = (False,)

    def begin(self):
        super().begin()
        self.out = self.work + "/cdi/rdma-init.json"
        os.mkdir(self.work + "/cdi")
        self.argv = [PROGRAMS["TESTED_HOOK"], "rdma-hook", "cdi", "generate", "--root", self.node.tree, "--config",
                     self.config, "--out", self.out]
        must([self.argv[0], *self.argv[2:]])
        self.wanted = read(self.out)

    def enter(self):
        write(self.out, "{}")

    def disturb(self, how):
        return self.inject(how, self.argv)

    def leave(self, outcome):
        self.assertIn(in_order(read(self.out)), [in_order(self.wanted)] + ([] if outcome.code == 0 else [{}]))
        must([self.argv[0], *self.argv[2:]])
        self.assertEqual(read(self.out), self.wanted)
        self.assertEqual(os.listdir(self.work + "/cdi"), ["rdma-init.json"])


def in_order(text):
    """Sorts a CDI file: the PCI address of an HCA, whose read can fail, determines only the order in the file."""
    spec = json.loads(text)
    for device in spec.get("devices", []):
        device["containerEdits"]["deviceNodes"].sort(key=lambda node: node["path"])
    spec.get("devices", []).sort(key=lambda device: device["name"])
    return spec


class RuntimeScene(Scene):
    not_ours = ".*/runtime/settings.json"  # runtime-with-settings tests this file

    def begin(self):
        super().begin()
        os.makedirs(self.work + "/runtime/state")
        # Its name makes rdma-runtime treat it as runc. It makes no container, and ends at once unless the file `stays` exists.
        self.stays = self.work + "/runtime/stays"
        self.runtime = write(self.work + "/runtime/runc", f"#!/bin/sh\n[ ! -e {self.stays} ] || exec sleep 1000\n", 0o755)
        self.settings = write(self.work + "/runtime/settings.json", json.dumps({
            "runtimes": [self.runtime], "engine": "runc", "config": self.config, "hook": PROGRAMS["TESTED_HOOK"],
            "root": self.node.tree, "ledger": self.ledger_directory}))

    def words(self, *command):
        return [PROGRAMS["TESTED_RUNTIME"], "--root", self.work + "/runtime/state", *command]

    def create_words(self):
        return self.words("create", "--bundle", self.bundle.directory, self.bundle.id)

    @property
    def env(self):
        return {"PATH": PATH, "RDMA_RUNTIME_SETTINGS": self.settings}

    def call(self, words):
        return run(words, env=self.env)

    def disturb_runtime(self, how, words):
        return self.inject(how, [words[0], *words], env=self.env)

    def bundle_files(self):
        return sorted(name for name in os.listdir(self.bundle.directory) if name.startswith("."))

    def records(self):
        return [path for path in walk(self.ledger_directory + "/runtime") if re.match("(containers|ending)/", path)]

    def assert_clean(self):
        """Also checks files: the next call removes temporary files of the bundle, and recover removes the records."""
        super().assert_clean()
        self.assertEqual(self.records(), [])
        self.bundle.write()
        done = self.call(self.create_words())
        self.assertEqual(done.returncode, 1 if self.refuses else 0, done.stderr)
        self.assertEqual([name for name in self.bundle_files() if "@" in name], [])
        self.recover()
        self.assertEqual(self.ledger(), self.empty)

    @property
    def refuses(self):
        return self.held and self.mode == EXCLUSIVE

    def start_staying(self):
        """Starts `create` with a runtime that runs until end_staying()."""
        self.bundle.write()
        write(self.stays, "")
        self.process = subprocess.Popen(self.create_words(), env=self.env, stdin=subprocess.DEVNULL)
        self.addCleanup(self.end_staying)
        harness.wait_for(lambda: read(f"/proc/{self.process.pid}/comm") == "sleep\n", "rdma-runtime becomes the runtime")

    def end_staying(self):
        self.process.kill()
        self.process.wait()
        if os.path.exists(self.stays):
            os.unlink(self.stays)


class RuntimeCreate(RuntimeScene):
    name = "rdma-runtime create"

    def enter(self):
        self.bundle.write()

    def disturb(self, how):
        return self.disturb_runtime(how, self.create_words())

    def leave(self, outcome):
        edited = "uverbs1" in read(self.bundle.directory + "/config.json")
        if self.held:
            self.assertNotEqual(outcome.code, 0, "two containers have the HCA exclusively")
            self.assertFalse(edited)
            self.assertEqual(self.holders(), self.expected)
        elif outcome.code == 0:
            self.assertTrue(edited, "it succeeded without the node")
        self.assert_clean()


class RuntimeCreateWithCopies(RuntimeCreate):
    """The container gets a copy of a file of the node. The next maker of a view removes what a killed one has left, and no copy stays
    without a container."""
    name = "rdma-runtime create, copies"
    holds = (False,)
    quick = 10

    def prepare(self):
        write(self.node.tree + "/topology.xml", "<system/>" * 20000)
        self.configure({"annotations_may_request": ["*"], "pools": [{"name": "all", "modes": ["exclusive", "shared"]}],
                        "topology_file": "/topology.xml"})

    def begin(self):
        super().begin()
        self.beside = self.asking("beside", EXCLUSIVE, "mlx5_2")
        self.create_beside()
        self.recover()

    def create_beside(self):
        """Makes another view, for a container that ends at once."""
        self.beside.write()
        self.succeeded(self.call(self.words("create", "--bundle", self.beside.directory, self.beside.id)))

    def views(self):
        views = self.ledger_directory + "/views"
        return os.listdir(views) if os.path.isdir(views) else []

    def leave(self, outcome):
        self.create_beside()
        self.assertEqual([name for name in self.views() if name.startswith("@")], [])
        self.recover()
        super().leave(outcome)

    def assert_clean(self):
        super().assert_clean()
        self.assertEqual([name for name in self.views() if name != "none"], [])
        self.assertEqual(os.listdir(self.ledger_directory + "/copies"), [])


class PoststopWithCopies(RuntimeCreateWithCopies):
    """The end of the last container with a copy."""
    name = "poststop, copies"
    always_succeeds = True

    def enter(self):
        super().enter()
        self.succeeded(self.call(self.create_words()))
        self.assertNotEqual(os.listdir(self.ledger_directory + "/copies"), [])

    def disturb(self, how):
        return self.disturb_hook(how, "poststop", stopped(self.bundle))

    def leave(self, outcome):
        if outcome.code == 0 and not outcome.reached:
            self.assertEqual(os.listdir(self.ledger_directory + "/copies"), [])
        self.assert_clean()


class RuntimeDelete(RuntimeScene):
    name = "rdma-runtime delete"
    takes_back = True

    def enter(self):
        self.bundle.write()
        self.succeeded(self.call(self.create_words()))

    def disturb(self, how):
        return self.disturb_runtime(how, self.words("delete", self.bundle.id))


class SecondCreate(RuntimeScene):
    """A second `create` of the same ID and bundle, while the first runs: the first keeps the HCA, and the second fails."""
    name = "rdma-runtime create, the same at once"
    holds = (False,)

    def begin(self):
        super().begin()
        os.mkdir(self.work + "/runtime/other")

    def enter(self):
        self.start_staying()
        os.unlink(self.stays)

    def disturb(self, how):
        return self.disturb_runtime(how, self.create_words())

    def leave(self, outcome):
        self.assertNotEqual(outcome.code, 0, "two containers have the HCA exclusively")
        self.assert_first_has_it()
        self.end_staying()
        self.assert_clean()

    def assert_first_has_it(self):
        self.recover()
        self.assert_has_it_alone("web")


class OtherRoot(SecondCreate):
    """The same ID and bundle below another root of the runtime: another container, whose end does not end the first."""
    name = "rdma-runtime create below another root"

    def disturb(self, how):
        words = self.create_words()
        words[words.index(self.work + "/runtime/state")] = self.work + "/runtime/other"
        return self.disturb_runtime(how, words)

    def assert_first_has_it(self):
        super().assert_first_has_it()
        self.poststop(self.bundle)
        super().assert_first_has_it()


class Nri(Scene):
    """A run of the plugin: a pod, a container of it, their end. The container is in the node's network namespace, so that it owns its
    grant."""
    name = "nri create and stop"
    netns = None

    def begin(self):
        super().begin()
        self.socket = nri.Runtime(self.work + "/nri.sock")

    def plugin_words(self):
        return [PROGRAMS["TESTED_NRI"], "--socket", self.socket.path, "--config", self.config, "--root", self.node.tree,
                "--ledger", self.ledger_directory]

    def sandbox(self):
        return nri.pod("pod1", {"rdma-init.io/devices": HCA, **self.mode}, self.netns)

    def member(self):
        return nri.container("c1", "pod1", network=self.netns is not None)

    def start_plugin(self, words):
        with open(self.work + "/plugin.log", "wb") as log:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, env={"PATH": PATH})

    def disturb(self, how):
        words = self.plugin_words()
        self.got, self.errors = None, []
        with self.injection(how) as before:
            process = self.start_plugin([*before, words[0], *words])
            try:
                self.live(process)
            except (EOFError, OSError):
                pass  # it was killed, or did not start
            self.stop(process)
        return Outcome(read(self.result) if os.path.exists(self.result) else "", read(self.work + "/plugin.log"))

    def live(self, process):
        with self.connected(process) as connection:
            connection.event("RunPodSandbox", self.sandbox())
            try:
                self.got = connection.create(self.sandbox(), self.member())["devices"]
            except nri.StatusError as error:
                self.errors.append(str(error))
            self.while_it_runs()
            self.end_pod_by(connection)

    def end_pod_by(self, connection):
        connection.event("StopContainer", self.sandbox(), self.member())
        for event in ("StopPodSandbox", "RemovePodSandbox"):
            connection.event(event, self.sandbox())

    @contextlib.contextmanager
    def connected(self, process):
        """Yields the plugin's connection after its registration, and closes it."""
        connection = self.accept(process)
        try:
            connection.introduce()
            yield connection
        finally:
            connection.close()

    def accept(self, process):
        """Returns the plugin's connection. Raises EOFError if the plugin has ended."""
        self.socket.listening.settimeout(0.05)
        for _ in range(200):
            try:
                return nri.Connection(self.socket.listening.accept()[0])
            except TimeoutError:
                if process.poll() is not None:
                    raise EOFError from None
        raise TimeoutError

    def while_it_runs(self):
        if self.got is None:
            return
        self.assertFalse(self.busy, "two containers have the HCA exclusively")
        self.assertIn("/dev/infiniband/uverbs1", self.got, "it succeeded without the node")
        self.assert_held_by("c1")
        if self.next_mode == EXCLUSIVE:
            self.assert_next_refused()

    def stop(self, process):
        """Ends the plugin by SIGTERM, like systemd. inject ends with it."""
        for child in children(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, 15)
        try:
            process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("rdma-nri does not end") from None

    def assert_told(self, outcome):
        if not self.killing:
            self.assertIsNone(outcome.signal, f"ended by signal: {outcome.errors}")
        self.assertTrue(all(self.errors), "it failed without an error message")

    def leave(self, outcome):
        self.put_back()
        self.assert_clean()

    def grants(self):
        """Returns the grants of the ledger, without addresses: recover releases addresses whose release failed."""
        return sorted(path for path in self.ledger() if path.startswith("grants/"))

    def put_back(self):
        """Starts the plugin again and reports the end of pod and container to it."""
        before = [path for path in self.empty if path.startswith("grants/")]
        process = self.start_plugin(self.plugin_words())
        try:
            with self.connected(process) as connection:
                self.end_pod_by(connection)
                harness.wait_for(lambda: self.grants() == before, "the plugin's next instance releases the grants")
        finally:
            process.terminate()
            process.wait()


class NriRestart(Nri):
    """The plugin connects while the runtime creates a container. The container has its HCA from the previous instance, and the runtime
    does not list it yet."""
    name = "nri restart during a creation"
    holds = (False,)

    def enter(self):
        self.ending = False
        process = self.start_plugin(self.plugin_words())
        with self.connected(process) as connection:
            connection.event("RunPodSandbox", self.sandbox())
            connection.create(self.sandbox(), self.member())
            process.kill()
        process.wait()

    def live(self, process):
        with self.connected(process) as connection:
            connection.event("RunPodSandbox", nri.pod("pod2"))  # after its answer the work of Synchronize is done
            self.assert_has_it_alone("c1")
            self.ending = True
            self.end_pod_by(connection)

    def leave(self, outcome):
        if not self.ending:
            self.assert_has_it_alone("c1")
        super().leave(outcome)


class NriRestartAfterJump(NriRestart):
    """By the node's time the grant is older than any creation takes: the time was set forward by a day."""
    name = "nri restart during a creation, time set forward"

    def enter(self):
        super().enter()
        for file in os.listdir(self.ledger_directory + "/grants"):
            path = f"{self.ledger_directory}/grants/{file}"
            grant = grant_record.read(path)
            grant_record.write(path, {**grant, "since": grant["since"] - 86400})


class Rails(test_network.Rails):
    """The HCA is a rail: the container gets a child of its netdev in its own network namespace, or the netdev itself in a pod's. The
    network namespace of the test represents the node's."""
    quick = 10

    def prepare(self):
        for family in ("all", "default"):  # otherwise duplicate address detection takes a second for each netdev
            with open(f"/proc/sys/net/ipv6/conf/{family}/accept_dad", "w", encoding="ascii") as file:
                file.write("0")
        self.use("exclusive" if self.mode == EXCLUSIVE else "shared", addresses=self.mode == SHARED)

    def begin(self):
        super().begin()
        self.before = self.node_state()

    def pod_of(self, bundle):
        pod = "pod-" + bundle.id
        if pod not in self.pods:
            self.pod(pod)
        return pod

    def asking(self, name, mode, hca=HCA):
        return super().asking(name, mode, hca, netns=True if mode == SHARED else f"/run/netns/pod-{name}")

    def container(self, bundle):
        if self.mode == SHARED:
            return FakeContainer(bundle, within=["unshare", "--net"])
        return FakeContainer(bundle, within=["nsenter", f"--net=/run/netns/{self.pod_of(bundle)}"])

    def owner(self, name):
        return f"container {name}" if self.mode == SHARED else f"pod namespace /run/netns/pod-{name}"

    def assert_given(self, container):
        super().assert_given(container)
        self.assert_has_rail(container)

    @staticmethod
    def assert_has_rail(container):
        must(["nsenter", f"--net=/proc/{container.pid}/ns/net", "ip", "link", "show", "net1"])

    def give_back(self, container):
        super().give_back(container)
        if self.mode == EXCLUSIVE:
            self.end_of_pod(self.pod_of(container.bundle))

    def return_next(self):
        super().return_next()
        if self.mode == EXCLUSIVE:
            self.end_of_pod("pod-next")

    def end_of_pod(self, pod):
        """Ends a pod. A netdev of hardware returns from a namespace that ends; this software netdev is made again."""
        run(["ip", "-n", pod, "link", "del", "net1"])
        self.end_pod(pod)
        self.make_rail(RAIL)
        self.recover()

    def assert_clean(self):
        self.recover()
        self.assert_state(self.before)
        if self.mode == EXCLUSIVE:
            self.assertEqual([link["ifname"] for link in test_network.ip_json("link", pod=self.pod_of(self.bundle))], ["lo"])
        super().assert_clean()


class SharedRails(Rails, CreateRuntime):
    name = "createRuntime, rails shared"
    mode = next_mode = SHARED


class ExclusiveRails(Rails, CreateRuntime):
    name = "createRuntime, rails exclusive"

    def killed_after_all(self):
        if not self.killing or self.busy:
            return False
        self.recover()
        if self.owner("web") not in self.holders().get(HCA, []):
            return False
        self.assert_given(self.web)
        return True


class SharedPoststop(Rails, Poststop):
    name = "poststop, rails shared"
    mode = next_mode = SHARED


class KeptNamespace(Rails, Poststop):
    """Another container shares the network namespace, which therefore outlives the container. No path leads to it then. It loses the
    rail, although the namespace lives on."""
    # The node's /proc is files here, so only a TUN netdev leads to the namespace.
    holds = (False,) if os.path.exists("/dev/net/tun") else ()
    lacks = "the node has no /dev/net/tun"

    def enter(self):
        self.start_web()
        self.other = self.start(["nsenter", f"--net=/proc/{self.web.pid}/ns/net", "sh", "-c", "echo inside; exec cat"],
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(self.other.stdout.readline(), b"inside\n")
        self.assert_has_rail(self.other)
        self.web.end()

    def leave(self, outcome):
        self.recover()
        links = must(["nsenter", f"--net=/proc/{self.other.pid}/ns/net", "ip", "-o", "link", "show"])
        self.assertEqual(re.findall(r"^\d+: ([^:@]+)", links, re.M), ["lo"], "the rail is left in the namespace")
        self.other.kill()
        self.other.wait()
        super().leave(outcome)


class SharedKeptPoststop(KeptNamespace):
    name = "poststop, rails shared, namespace kept"
    mode = next_mode = SHARED


class ExclusiveKeptRecover(KeptNamespace):
    """The pod of the container has ended as well."""
    name = "recover, rails exclusive, namespace kept"
    always_succeeds = False

    def enter(self):
        super().enter()
        self.poststop(self.bundle)
        self.end_pod(self.pod_of(self.bundle))

    def disturb(self, how):
        return self.inject(how, [PROGRAMS["TESTED_HOOK"], *self.recover_words()])


class NriRails(Rails, Nri):
    """The pod gets the rails when it starts. It stays until the runtime ends it. Its container shares its namespace."""
    name = "nri pod run and stop, rails exclusive"

    @property
    def netns(self):
        return f"/run/netns/{self.pod_of(self.bundle)}"

    def owner(self, name):
        return f"pod namespace {self.netns}" if name == "c1" else super().owner(name)


class NriSharedRails(NriRails):
    name = "nri pod run and stop, rails shared"
    mode = next_mode = SHARED


class Damage(RuntimeScene):
    """Changed bits and missing ends of the ledger's records. One container has the HCA, a second was killed during the grant of another
    HCA, and rdma-runtime has made a third without HCAs. No damaged record lets another container get the HCA, and no command ends by a
    signal."""
    name = "damaged records"
    holds = (True,)

    def begin(self):
        super().begin()
        self.succeeded(self.call(self.words("create", "--bundle", Bundle(self, "plain", stages=()).directory, "plain")))
        other = self.container(self.asking("other", EXCLUSIVE, "mlx5_2"))
        self.disturb_hook(["0:renameat:1", "after"], "createRuntime", other.state())
        other.end()
        self.assertTrue(self.records() and os.listdir(self.ledger_directory + "/pending"), "records are missing")
        self.whole = shutil.copytree(self.ledger_directory, self.work + "/whole", symlinks=True, ignore=shutil.ignore_patterns("views"))
        found = [(os.path.dirname(path), written, path) for path, (kind, *_, written, _) in walk(self.whole).items()
                 if kind != stat.S_IFDIR and os.path.basename(path) not in ("lock", "metrics", "refusals")]
        self.paths = [path for *_, path in sorted(found)]  # names differ between scenes, the order does not

    def damages(self):
        """Yields (kind, index of the file, bit or length, path)."""
        for file, path in enumerate(self.paths):
            if not path.startswith("grants/"):  # the file name is the only evidence of a grant: a renamed file is no grant
                yield from (("name", file, bit, path) for bit in range(8 * len(os.path.basename(path))))
            text = self.content(path)
            yield from (("bit", file, bit, path) for bit in range(8 * len(text)))
            yield from (("cut", file, size, path) for size in range(len(text)))

    def content(self, path):
        path = f"{self.whole}/{path}"
        if os.path.islink(path):
            return os.readlink(path).encode()
        with open(path, "rb") as file:
            return file.read()

    def damage(self, what, file, place, _):
        """Damages a file. Returns False if the result is no valid name or link."""
        path = self.paths[int(file)]
        directory, name = os.path.split(f"{self.ledger_directory}/{path}")
        text = bytearray(name.encode() if what == "name" else self.content(path))
        whole = f"{directory}/{name}"
        try:
            if what == "cut":
                del text[int(place):]
            else:
                text[int(place) // 8] ^= 1 << int(place) % 8
            if what == "name":
                os.rename(whole.encode(), os.path.join(directory.encode(), bytes(text)))
            elif os.path.islink(whole):
                os.unlink(whole)
                os.symlink(bytes(text), whole.encode())
            else:
                with open(whole, "wb") as file:
                    file.write(text)
        except (ValueError, OSError, IndexError):  # NUL, a slash, an empty name; a number with fewer digits than in another scene
            return False
        return True

    def run_turn(self, how, quiet=False):
        for name in os.listdir(self.ledger_directory):
            if name != "views":
                path = f"{self.ledger_directory}/{name}"
                (shutil.rmtree if os.path.isdir(path) else os.unlink)(path)
        shutil.copytree(self.whole, self.ledger_directory, symlinks=True, dirs_exist_ok=True)
        if self.damage(*how):
            self.assert_next_refused()
            recovered = run([PROGRAMS["TESTED_HOOK"], "recover", "--ledger", self.ledger_directory], env={})
            self.assertGreaterEqual(recovered.returncode, 0, f"recover ended by signal {-recovered.returncode}")
            self.assert_next_refused()
            self.assert_holder_has_all()

    def assert_next_refused(self):
        self.refused(self.create(self.next_container()), "error: ")

    def assert_holder_has_all(self):
        pass

    def end(self):
        self.doCleanups()


class DamageOfRails(Rails, Damage):
    """A pod owns the HCA, and has its netdev and an address."""
    name = "damaged records of rails"

    def prepare(self):
        super().prepare()
        self.use("exclusive")

    def assert_holder_has_all(self):
        test_network.ip("link", "show", "net1", pod="pod-holder")


class Bind(Rails, RuntimeScene, CreateRuntime):
    """createRuntime assigns the grant of rdma-runtime to the container and adds its rails."""
    name = "createRuntime behind rdma-runtime"
    mode = next_mode = SHARED

    def enter(self):
        self.start_staying()
        super().enter()

    def leave(self, outcome):
        self.end_staying()
        super().leave(outcome)

    def assert_given(self, container):
        """Checks only the rail: nodes and rules are in config.json, and the runtime makes them."""
        self.assert_has_rail(container)


class BindAnotherView(Bind):
    """The node gets another class of RDMA devices before createRuntime, which would give the container another view. The view that
    config.json mounts stays."""
    name = "createRuntime behind rdma-runtime, another view"
    holds = (False,)

    def start_staying(self):
        directory = self.node.tree + "/sys/class/infiniband_mad"
        os.rename(directory, self.work + "/infiniband_mad")
        super().start_staying()
        os.rename(self.work + "/infiniband_mad", directory)
        self.planted = self.watched()
        self.sources = [mount["source"] for mount in json.loads(read(self.bundle.directory + "/config.json"))["mounts"]
                        if mount["source"].startswith(self.ledger_directory + "/views/")]
        self.assertTrue(self.sources)

    def leave(self, outcome):
        if outcome.code == 0:
            self.recover()
            for source in self.sources:
                self.assertTrue(os.path.isdir(source), f"recover has removed {source}, which the container has mounted")
        super().leave(outcome)


class Claim(Scene):
    """A claim of Dynamic Resource Allocation. The kubelet repeats a call until it succeeds, and calls Unprepare at last."""
    uid = "web"
    hcas = (HCA,)

    def begin(self):
        super().begin()
        self.cdi = self.work + "/cdi"
        os.makedirs(self.cdi, exist_ok=True)

    def call(self, verb):
        return [PROGRAMS["TESTED_CLAIM"], verb, *self.places(), "--cdi", self.cdi, "--uid", self.uid, "--pod", "pod-1",
                *(word for hca in self.hcas for word in ("--hca", f"{hca}={self.mode['rdma-init.io/mode']}"))]

    def prepare_claim(self):
        return json.loads(must(self.call("prepare"), env={}))

    def token(self):
        return grant_record.read(f"{self.ledger_directory}/grants/claim-{self.uid}.json")["owner"]["claim"]["token"]

    def owner(self, name):
        return f"claim team/{name}" if name == self.uid else f"container {name}"

    def assert_ended(self):
        """After Unprepare nothing of the claim is left."""
        must(self.call("unprepare"), env={})
        self.assertEqual(os.listdir(self.cdi), [])
        self.assert_clean()


class ClaimPrepare(Claim):
    name = "claim prepared"

    def disturb(self, how):
        return self.inject(how, [PROGRAMS["TESTED_CLAIM"], *self.call("prepare")])

    def leave(self, outcome):
        if self.busy:
            self.assertNotEqual(outcome.code, 0, "two owners have the HCA exclusively")
            self.assertEqual(self.holders(), self.expected)
            return self.assert_ended()
        if outcome.code == 0:
            self.assert_has_it_alone(self.uid)
        elif outcome.code is not None:
            self.recover()
            self.assertEqual(self.holders(), self.expected, "a failed call has left a grant")
        if self.turn % 2:
            first = self.prepare_claim()
            self.assertEqual(self.prepare_claim(), first)
            self.assert_has_it_alone(self.uid)
            self.assertEqual(os.listdir(self.cdi), [f"rdma-init.io-claim-{self.uid}.json"])
        self.assert_ended()


class ClaimUnprepare(Claim):
    name = "claim unprepared"
    takes_back = True

    def enter(self):
        self.prepare_claim()
        self.assert_held_by(self.uid)

    def disturb(self, how):
        return self.inject(how, [PROGRAMS["TESTED_CLAIM"], *self.call("unprepare")])

    def leave(self, outcome):
        self.recover()
        left = os.listdir(f"{self.ledger_directory}/grants")
        if outcome.code == 0:
            self.assertNotIn(f"claim-{self.uid}.json", left, "it succeeded, and the claim has its grant")
            self.assertEqual(os.listdir(self.cdi), [])
        elif f"claim-{self.uid}.json" in left:
            self.assert_held_by(self.uid)
        self.assert_ended()


class ClaimUse(Claim):
    """A container starts with the HCA of its claim."""
    name = "claim used by createRuntime"
    holds = (False,)

    def begin(self):
        super().begin()
        uverbs = {**UVERBS2, "path": "/dev/infiniband/uverbs1", "minor": 193}
        self.user = Bundle(self, "user", stages=(), devices=[uverbs])
        self.prepare_claim()
        self.variable = f"RDMA_CLAIM_{self.uid.upper()}={self.token()}"
        self.expected = {HCA: [self.owner(self.uid)]}

    @property
    def busy(self):
        return True

    def used(self):
        """Returns a container with the node and the variable, as the claim's CDI file adds them."""
        self.user.config["process"]["env"] = ["PATH=/bin", self.variable]
        return self.container(self.user.write())

    def enter(self):
        self.web = self.used()

    def disturb(self, how):
        return self.disturb_hook(how, "createRuntime", self.web.state())

    def leave(self, outcome):
        if outcome.code == 0:
            self.assertEqual(self.holders(), {HCA: sorted(["container user", self.owner(self.uid)])})
            self.refused(run(self.call("unprepare"), env={}), "in use")
        self.assert_next_refused()
        self.web.end()
        self.poststop(self.web.bundle)
        self.assert_clean()

    def end(self):
        must(self.call("unprepare"), env={})
        self.expected = {}
        super().end()


class ClaimUnprepareLeft(ClaimUse):
    """The container has ended without a poststop when its claim ends."""
    name = "claim unprepared after a lost poststop"

    def begin(self):
        super().begin()
        must(self.call("unprepare"), env={})
        self.expected = {}

    @property
    def busy(self):
        return False

    def enter(self):
        self.prepare_claim()
        self.variable = f"RDMA_CLAIM_{self.uid.upper()}={self.token()}"
        self.web = self.used()
        self.succeeded(self.create(self.web))
        self.web.end()

    def disturb(self, how):
        return self.inject(how, [PROGRAMS["TESTED_CLAIM"], *self.call("unprepare")])

    def leave(self, outcome):
        if outcome.code == 0:
            self.assertEqual(self.holders(), {})
        self.assert_ended()

    def end(self):
        Claim.end(self)


def children(pid):
    try:
        return [int(child) for child in read(f"/proc/{pid}/task/{pid}/children").split()]
    except OSError:
        return []


ALL = [CreateRuntime, CountCreateRuntime, RenamedCreateRuntime, RenamedCountCreateRuntime, FirstCreateRuntime, CreateRuntimeAgain,
       CreateRuntimeByRunc, Poststop, PoststopInPod, OtherRootPoststop, Recover, PassedDescriptor, RuntimeCreate, RuntimeCreateWithCopies,
       PoststopWithCopies, RuntimeDelete, SecondCreate, OtherRoot, Nri, NriRestart, NriRestartAfterJump, GenerateCdi, SharedRails, ExclusiveRails,
       SharedPoststop, SharedKeptPoststop, ExclusiveKeptRecover, NriRails, NriSharedRails, Bind, BindAnotherView, ClaimPrepare, ClaimUnprepare,
       ClaimUse, ClaimUnprepareLeft, Damage, DamageOfRails]


def all_scenes():
    """Yields (name, function that makes the scene, number of points of a quick run)."""
    for scene in ALL:
        for held in scene.holds:
            name = scene.name + (", held by another" if held and False in scene.holds else "")
            yield name, lambda scene=scene, held=held, name=name: made(scene, held, name), scene.quick


def made(scene, held, name):
    result = scene(held)
    result.label = name
    return result


def enter_own_machine():
    """Returns in a process with its own namespaces, like the tests of tests/node. Exits with 77 if that is not possible."""
    harness.check_programs(*PROGRAMS.values())
    harness.enter_own_machine("rdma-hook-faults", network=True)
