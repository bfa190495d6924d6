"""The starts that counts.py counts, on a machine with HCAs, and the floor of each: a static C program that does the same work with
the kernel. docs: tests/bench/README.md"""
import contextlib
import importlib.util
import json
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import scene
from scene import (FEW_SLOTS, HERE, MANY_NETDEVS, MOST, Connection, LiveNode, Machine, check_bundle, check_nodes, children_of,
                   first_hcas, harness, libc, nri, profile, program, runtime_environment)
from containers import Bundle, FakeContainer, stopped
from counts_helper import Helper
from section_nri import check_grants, grant_to_others
from counts_trace import Calls, Places, instructions, just_run
from harness import PATH, write

NODE = ("node", r'["<]/(sys|dev/infiniband)\b')  # a phase of Places
HCAS = (0, 1, MOST)
STAGES = ("rdma-hook createRuntime", "rdma-hook poststop")
COMMANDS = ("rdma-runtime create", "rdma-runtime state", "rdma-runtime delete")
REQUESTS = ("rdma-nri CreateContainer", "rdma-nri StopContainer")
CLAIMS = ("rdma-dra prepare",)
READERS = ("rdma-hook recover", "rdma-hook metrics")
MANY_GRANTS = 100
STARTS = (STAGES[0], COMMANDS[0], REQUESTS[0])
MANY_HCAS = 200
MANY, OF_MANY = {"netdevs": MANY_NETDEVS}, f": {MANY_NETDEVS} netdevs"
# HCAs of the machine, settings of Machine, suffix of the line's name.
INIT = (*((hcas, {}, "") for hcas in HCAS), (MOST, MANY, OF_MANY))
# HCAs of the node, settings of LiveNode, and the containers: number of HCAs, their request (None: by name), suffix and names of lines.
NODES = (
    (MOST, {}, (*((hcas, None, "", (*STAGES, *(CLAIMS if hcas else ["rdma-hook verify"]), *COMMANDS, *REQUESTS)) for hcas in HCAS),
                (1, "1", f": any 1 of {MOST}", STARTS), (1, None, f": {MANY_GRANTS} grants", READERS))),
    (MOST, MANY, ((MOST, None, OF_MANY, STARTS[1:]),)),
    (MANY_HCAS, {"slots": FEW_SLOTS}, ((1, "1", f": any 1 of {MANY_HCAS}", STARTS),)))
REST = 60  # seconds; a daemon may read its node once within them
AT_REST = "at rest: "
# Name, HCAs of the node, most system calls per second.
DAEMONS = ((AT_REST + "rdma-device-plugin", MOST, 7), (AT_REST + "rdma-device-plugin", MANY_HCAS, 30),
           (AT_REST + "rdma-dra", MOST, 7), (AT_REST + "rdma-hook metrics --listen", MOST, 0))
NEED_GRPC = ("plugin", "dra")  # parts of names
POOLS = [{"name": "rails", "modes": ["exclusive"], "resource": "rdma-init.io/rails"}]
TICK = 0.05  # seconds, more than a step of the clock of change times: hook/ledger/views.cpp
# rdma-nri does not keep an inventory that it reads within a second of an event of the kernel.
QUIET = 1.2
MOST_TRIES = 6  # pairs of requests of one plugin
ADDR_NO_RANDOMIZE = 0x40000
# A container's soft limit before createRuntime, and its hard limit, to which the hook raises it: that needs no capability.
SOFT_MEMLOCK, MEMLOCK = 4096, 64 << 10
# A profile as long as an engine's, with the calls that rdma-runtime searches.
NEEDED = """ioctl mmap mlock mlock2 munlock madvise memfd_create process_vm_readv process_vm_writev get_mempolicy set_mempolicy
    mbind sched_getaffinity sched_setaffinity shmget shmat shmctl shmdt""".split()
ALLOWED = [*NEEDED, *(f"system_call_{number}" for number in range(350))]
VARIABLES = [f"SERVICE_NUMBER_{number}_PORT_8080_TCP_ADDR=10.96.12.{number}" for number in range(90)]


class Skipped(Exception):
    """The reason why a line cannot be counted on this machine."""


class DevLog:
    """/dev/log with a reader, as on a node."""

    def __init__(self):
        if os.path.lexists("/dev/log"):
            os.unlink("/dev/log")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("/dev/log")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        while True:
            self.socket.recv(65536)


def for_valgrind(commands):
    """Returns the commands with the programs that run under valgrind."""
    others = {program("TESTED_HOOK"): program("hook_for_valgrind"),
              program("floor_create_runtime"): program("floor_create_runtime_for_valgrind")}
    return [[others.get(argv[0], argv[0]), *argv[1:]] for argv in commands]


class Scene(scene.Scene):
    """A scene with a container that requests `hcas` HCAs: by name, or as `requests`. wanted(name) returns True for the lines to count."""

    def __init__(self, hcas, wanted, with_instructions, requests=None):
        super().__init__()
        self.hcas, self.wanted, self.with_instructions = hcas, wanted, with_instructions
        self.requests = requests or first_hcas(hcas)
        self.floor_ledger = self.work + "/floor"
        os.mkdir(self.floor_ledger)
        self.configure({"annotations_may_request": ["*"], "memlock": MEMLOCK})
        self.bundle = Bundle(self, f"counted-{hcas}", requests=self.requests, stages=(), env=VARIABLES)
        os.chmod(self.bundle.directory, 0o700)  # the mode of a bundle of containerd, Docker and Podman
        self.bundle.config["linux"]["seccomp"] = profile(ALLOWED)
        ledger = self.ledger_directory
        self.calls = Calls(self.work + "/trace", Places(
            ("cgroup", harness.CGROUPS), ("view", f"{ledger}/views"),
            ("ledger", ledger), ("container", self.bundle.rootfs), ("bundle", self.bundle.directory),
            ("config", f"{self.config}|{self.work}/runtime/settings.json"), NODE, ("process", "/proc/")))

    def any_wanted(self, *names):
        return any(map(self.wanted, names))

    def counted(self, *functions):
        """Returns the results of the functions, or None for each if instructions are not counted."""
        return [function() if self.with_instructions else None for function in functions]

    # --- rdma-hook

    def container(self):
        container = FakeContainer(self.bundle, within=("unshare", "--net"))
        resource.prlimit(container.pid, resource.RLIMIT_MEMLOCK, (SOFT_MEMLOCK, MEMLOCK))
        return container

    def stages(self, run, create, poststop):
        """Returns the results of `run` for createRuntime and poststop of one container."""
        container = self.container()
        try:
            created = self.with_state(run, create, container.state())
            self.assert_given(container)
            container.end()
            return created, self.with_state(run, poststop, stopped(self.bundle))
        finally:
            container.end()

    def with_state(self, run, argv, state):
        with open(write(self.work + "/state.json", json.dumps(state)), "rb") as stdin:  # a file needs only one read
            return run(argv, stdin=stdin, env={})

    def assert_given(self, container):
        """A start counts only if it has done its work."""
        nodes = [name for name in container.nodes() if name.startswith("uverbs")]
        rules = [rule for rule in container.rules() if rule.startswith("c 231:")]
        limit = resource.prlimit(container.pid, resource.RLIMIT_MEMLOCK)[0]
        if (len(nodes), len(rules), limit == MEMLOCK) != (self.hcas, self.hcas, self.hcas > 0):
            raise AssertionError(f"{self.hcas} HCAs were requested: nodes {nodes}, rules {rules}, memlock {limit}")

    def hook_rows(self):
        if not self.any_wanted(*STAGES):
            return
        if not os.path.isdir(harness.CGROUPS + "/devices"):
            raise Skipped("no cgroup v1 `devices` hierarchy here")
        ours = [[program("TESTED_HOOK"), *self.arguments(stage)[1:]] for stage in ("createRuntime", "poststop")]
        floor = [[program("floor_create_runtime"), self.floor_ledger, str(self.hcas), str(MEMLOCK)],
                 [program("floor_poststop"), self.floor_ledger]]
        for way in (ours, ours, floor):  # the second run records that the view is as made
            self.stages(just_run, *way)  # makes the ledger's directories and the view
            time.sleep(TICK)
        found = [self.stages(self.calls, *way) for way in (ours, floor)]
        counted = ((None, None), (None, None))
        if self.with_instructions:
            with contextlib.closing(Helper()):
                counted = [self.stages(instructions, *for_valgrind(way)) for way in (ours, floor)]
        for name, mine, least, instructions_of in zip(STAGES, *found, zip(*counted)):
            yield name, (mine, sum(least.values()), *instructions_of)
        if not self.hcas and self.wanted("rdma-hook verify"):
            yield "rdma-hook verify", self.verify_row(floor[0])

    def verify_row(self, floor):
        """verify of a container that requests nothing: with way nri, each container of the node pays for it."""
        arguments = self.arguments("verify")[1:]
        container = self.container()
        try:
            calls, least = [self.with_state(self.calls, argv, container.state()) for argv in ([program("TESTED_HOOK"), *arguments], floor)]
            return calls, sum(least.values()), *self.counted(
                lambda: self.with_state(instructions, [program("hook_for_valgrind"), *arguments], container.state()),
                lambda: self.with_state(instructions, floor, container.state()))
        finally:
            container.end()

    # --- rdma-runtime

    def runtime_rows(self):
        directory = self.work + "/runtime"
        os.makedirs(directory + "/none")
        real = shutil.copy(program("drain_stdin"), directory + "/runc")  # the name determines how rdma-runtime calls it

        def call(run, runtime, *argv):
            environment = runtime_environment(self, directory + "/settings.json", runtime)
            self.bundle.write()
            return run(list(argv), env=environment)

        def ours(run, runtime, *words):
            result = call(run, runtime, program("TESTED_RUNTIME"), "--root", directory + "/state", *words)
            if words[0] == "create":
                check_bundle(self.bundle, self.hcas)
                self.run_poststop(words[-1])
            return result

        def floor(run, runtime, command):
            if command != "create":
                return call(run, runtime, program("shim_exec_only"), command)
            return call(run, runtime, program("floor_runtime_create"), runtime, self.floor_ledger, str(self.hcas),
                        self.bundle.directory)

        def failing(run):
            """Runs with a runtime that is in the container's record and cannot be executed, for valgrind."""
            write(real, "no program", 0o755)
            try:
                return run()
            finally:
                shutil.copy(program("drain_stdin"), real)

        def create(container):
            return "create", "--bundle", self.bundle.directory, container

        for words in (create(self.bundle.id), ("state", self.bundle.id), ("delete", self.bundle.id)):
            if not self.wanted(f"rdma-runtime {words[0]}"):
                continue
            for _ in range(2):
                # Makes the ledger's directories and the view and, for the other commands, the container's record.
                ours(just_run, real, *create("earlier" if words[0] == "create" else self.bundle.id))
                time.sleep(TICK)
            floor(just_run, real, "create")
            yield f"rdma-runtime {words[0]}", (
                ours(self.calls, real, *words), sum(floor(self.calls, real, words[0]).values()),
                *self.counted(lambda: failing(lambda: ours(instructions, real, *words)),
                              lambda: failing(lambda: floor(instructions, real, words[0]))))

    def run_poststop(self, container):
        """Runs the hook that rdma-runtime added, as the runtime does at the end of the container. The view stays."""
        hooks = json.loads(harness.read(self.bundle.directory + "/config.json")).get("hooks", {})
        for hook in hooks.get("poststop", []):
            self.with_state(just_run, [hook["path"], *hook["args"][1:]], {**stopped(self.bundle), "id": container})

    # --- claims of Dynamic Resource Allocation

    def claim_rows(self):
        """Counts the fourth Prepare of a process that keeps what it has read, as the driver: by the difference to the same process with
        three. The answer of the API server and the kubelet's call are not counted."""
        if not self.any_wanted(*CLAIMS):
            return
        call = [program("TESTED_CLAIM"), "prepare", *self.places(), "--cdi", self.work + "/cdi", "--uid", "counted"]
        devices = [word for hca in self.requests.split(",") for word in ("--hca", hca)]
        before, end = [*call, *devices, "--turns", "3"], [call[0], "unprepare", *call[2:]]
        just_run(before, env={})  # makes the directories of the ledger
        just_run(end, env={})
        least = self.calls([before[0], "none", *before[2:]], env={})
        found = self.calls(before, env={})
        just_run(end, env={})
        yield CLAIMS[0], (found - least, None)

    # --- the ledger with many grants

    def ledger_rows(self):
        """Counts the commands that read all grants."""
        if not self.any_wanted(*READERS):
            return
        grant_to_others(self, MANY_GRANTS)
        for name in READERS:
            command = name.split()[1]
            arguments = [command, *(self.places() if command == "recover" else ["--ledger", self.ledger_directory])]
            yield name, (self.calls([program("TESTED_HOOK"), *arguments], env={}), None,
                         *self.counted(lambda: instructions([program("hook_for_valgrind"), *arguments], env={})))
            check_grants(self, MANY_GRANTS)

    # --- rdma-nri

    def nri_rows(self):
        """Counts the fourth CreateContainer and StopContainer of a plugin: the worker starts at the first, the second records that
        the view is as made, and the inventory that the third reads is kept. If it is not, counts a later pair. The floor is the difference between two runs, one of which has one more request."""
        if not self.any_wanted(*REQUESTS):
            return
        self.nri_floor(1, 1)  # makes the view
        floor = [self.nri_floor(*way) for way in ((1, 1), (2, 1), (2, 2))]  # creates, stops
        more = [sum((after - before).values()) for before, after in zip(floor, floor[1:])]
        for number, (method, ours) in enumerate(zip(REQUESTS, self.nri())):
            yield method, (ours, more[number])

    def nri(self):
        runtime = nri.Runtime(self.work + "/nri.sock")
        marks = []

        def drive(process):
            connection = Connection(runtime.listening.accept()[0])
            connection.introduce(timeout_ms=60000)  # strace makes calls slow
            plugin = children_of(process.pid)[0]
            for number in range(2 * MOST_TRIES):
                if number > 1 and number % 2 == 0:
                    time.sleep(QUIET)
                pod, container = self.nri_container(number)
                wait_until_idle(plugin)
                marks[:] = [self.calls.size()]
                check_nodes(connection.create(pod, container)["devices"], self.hcas)
                wait_until_idle(plugin)
                marks.append(self.calls.size())
                connection.event("StopContainer", pod, container)
                wait_until_idle(plugin)
                marks.append(self.calls.size())
                # Otherwise a late event of the kernel made the plugin read the netdevs again.
                if number > 2 and number % 2 == 1 and self.calls.read(*marks[:2]).get("netlink", 0) <= 1:
                    break
            os.kill(plugin, signal.SIGTERM)

        try:
            self.calls([program("TESTED_NRI"), "--socket", runtime.path, *self.places()], drive, env={"PATH": PATH})
        finally:
            runtime.stop()
        return [self.calls.read(*piece) for piece in zip(marks, marks[1:])]

    def nri_container(self, number):
        pod = nri.pod("pod1", {"rdma-init.io/devices": self.requests} if self.hcas else {})
        return pod, nri.container(f"c{number}", "pod1", env=VARIABLES, network=False)

    def nri_floor(self, creates, stops):
        path = write(self.work + "/request", b"".join(self.nri_container(0)))
        with open(path, "rb") as stdin:
            return self.calls([program("floor_nri"), self.floor_ledger, str(self.hcas), str(creates),
                               str(stops)], stdin=stdin, env={})


def init_row(with_instructions):
    """Counts rdma-init on the machine that covers /sys."""
    ours, floor = [program("TESTED_INIT"), "--"], [program("read_gid_slots")]
    quiet = {"PATH": PATH, "RDMA_INIT_LOG": "quiet"}
    calls = Calls("/run/trace", Places(NODE, ("process", "/proc/")))
    found = calls([*ours, "/bin/true"], env=quiet), sum(calls(floor, env=quiet).values())
    counts = [instructions(argv, env=quiet) for argv in ([*ours, "/no-such-program"], floor)] if with_instructions else ()
    return *found, *counts


class Daemon(scene.Scene):
    """A daemon at rest, in a copy of this process' mounts: it outlives the machine that covers /sys."""

    def __init__(self, name, hcas, calls_per_second):
        super().__init__()
        self.name, self.hcas, self.most = name, hcas, calls_per_second * REST
        self.configure({"pools": POOLS})
        for directory in (self.ledger_directory, self.ledger_directory + "/grants"):
            os.mkdir(directory, 0o700)
        os.makedirs(self.work + "/plugins")
        argv = [program("TESTED_DEVICE_PLUGIN"), "--plugins", self.work + "/plugins", "--config", self.config]
        directory = self.work + "/plugins" if "plugin" in name else ""
        if "dra" in name:
            argv = [program("TESTED_DRA"), "--config", self.config]
            directory = "dra:" + self.work + "/plugins"
        if "metrics" in name:
            argv = [program("TESTED_HOOK"), "metrics", "--listen", f"unix:{self.work}/metrics/socket"]
        # The daemon watches the directory of its configuration, so the trace has its own.
        trace = f"{tempfile.mkdtemp(dir=self.place)}/trace"
        self.process = subprocess.Popen(
            ["unshare", "--mount", "--propagation", "private", sys.executable, f"{HERE}/at_rest.py", str(REST), trace,
             directory, *argv, "--ledger", self.ledger_directory],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": PATH})
        self.addCleanup(harness.end_process, self.process)
        self.process.stdout.readline()

    def result(self):
        """Waits for the end of the rest. Returns the number of calls."""
        try:
            return int(self.process.stdout.read())
        finally:
            self.close()


def start_daemons(only, skipped):
    """Starts the daemons of which `only` is the beginning of the name. They rest while other lines are counted."""
    chosen = [daemon for daemon in DAEMONS if daemon[0].startswith(only)]
    if not importlib.util.find_spec("grpc"):
        without = [daemon for daemon in chosen if any(part in daemon[0] for part in NEED_GRPC)]
        skipped.update((name, "no python3-grpcio") for name, *_ in without)
        chosen = [daemon for daemon in chosen if daemon not in without]
    started = []
    for hcas in sorted({hcas for _, hcas, _ in chosen}):
        with LiveNode(hcas, FEW_SLOTS):
            started += [Daemon(*daemon) for daemon in chosen if daemon[1] == hcas]
    return started


def wait_until_idle(plugin):
    """Waits for the end of the worker's work after its answer, which counts as well."""
    def blocked():
        return [(harness.process_state(pid), harness.read(f"/proc/{pid}/status").split("voluntary_ctxt_switches:")[1])
                for pid in (plugin, *children_of(plugin))]

    def still():
        seen = blocked()
        time.sleep(0.005)
        return seen == blocked() and all(state == "S" for state, _ in seen)

    harness.wait_for(still, "rdma-nri waits for the next request")


def prepare():
    """Fixes the start of the heap, which determines how often the allocator calls brk(2). Children inherit it. If the machine forbids it,
    sums can differ by two. Reads the node's log."""
    libc.personality(ADDR_NO_RANDOMIZE)
    DevLog()


def requirement():
    """Returns the reason if nothing can be counted here, otherwise None."""
    if platform.machine() != "x86_64":
        return f"the table has the system calls of x86_64, not of {platform.machine()}"
    for name, package in (("strace", "strace"), ("ip", "iproute2")):
        if not shutil.which(name):
            return f"no {name} (Debian package {package})"
    return harness.requirement(device_groups=False)


def measure(only, with_instructions, skipped):
    """Yields (name, HCAs, phases, the floor's system calls, instructions, the floor's instructions) of every line whose name begins with
    `only`. `skipped` gets the reasons of missing lines, by the beginning of their names."""
    for hcas, settings, suffix in INIT:
        if ("rdma-init" + suffix).startswith(only):
            with Machine(hcas, **settings):
                yield "rdma-init" + suffix, hcas, *init_row(with_instructions)
    for machine, settings, requested in NODES:
        chosen = [(hcas, request, suffix, [name for name in names if (name + suffix).startswith(only)])
                  for hcas, request, suffix, names in requested]
        if not any(names for *_, names in chosen):
            continue
        with LiveNode(machine, **settings):
            for hcas, request, suffix, names in chosen:
                for name, found in rows(Scene(hcas, names.__contains__, with_instructions, request), skipped):
                    yield name + suffix, hcas, *found


def rows(counted, skipped):
    """Yields the wanted lines of a scene, and closes it."""
    try:
        for kind, found in (("rdma-hook", counted.hook_rows), ("rdma-runtime", counted.runtime_rows), ("rdma-nri", counted.nri_rows),
                            ("rdma-dra", counted.claim_rows), ("rdma-hook", counted.ledger_rows)):
            try:
                yield from ((name, line) for name, line in found() if counted.wanted(name))
            except Skipped as reason:
                skipped[kind] = str(reason)
    finally:
        counted.close()
