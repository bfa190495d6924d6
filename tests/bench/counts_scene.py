"""The starts that counts.py counts, on a node of eight HCAs in files, and the floor of each: a static C program that
does the same work with the kernel. docs: tests/bench/README.md"""
import json
import os
import platform
import resource
import shutil
import signal
import socket
import threading
import time

import scene
from scene import Connection, Machine, check_bundle, check_nodes, children_of, first_hcas, harness, libc, nri, profile, program
from containers import Bundle, FakeContainer, stopped
from counts_trace import Calls, Places, instructions, just_run
from harness import PATH, must, write

HCAS = (0, 1, 8)
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


class Scene(scene.Scene):
    """A scene with a container that requests `hcas` of the HCAs."""

    def __init__(self, hcas, with_instructions):
        super().__init__()
        self.hcas, self.with_instructions = hcas, with_instructions
        self.floor_ledger = self.work + "/floor"
        write(self.config, json.dumps({"annotations_may_request": ["*"], "memlock": MEMLOCK}))
        self.requests = first_hcas(hcas)
        self.bundle = Bundle(self, f"counted-{hcas}", requests=self.requests, stages=(), env=VARIABLES)
        self.bundle.config["linux"]["seccomp"] = profile(ALLOWED)
        ledger = self.ledger_directory
        self.calls = Calls(self.work + "/trace", Places(
            ("cgroup", harness.CGROUPS), ("view", f"{ledger}/views"),
            ("ledger", ledger), ("container", self.bundle.rootfs), ("bundle", self.bundle.directory),
            ("config", f"{self.config}|{self.work}/runtime/settings.json"), ("node", self.node.tree + "/"),
            ("process", "/proc/")))

    def counted(self, *functions):
        """Returns the results of the functions, or None for each if instructions are not counted."""
        return [function() if self.with_instructions else None for function in functions]

    def fresh_floor(self):
        shutil.rmtree(self.floor_ledger, True)
        os.mkdir(self.floor_ledger)

    # --- rdma-hook

    def container(self):
        container = FakeContainer(self.bundle)
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
        wanted = (self.hcas, max(self.hcas - 1, 0), self.hcas > 0)  # uverbs0 has the number of /dev/null
        if (len(nodes), len(rules), limit == MEMLOCK) != wanted:
            raise AssertionError(f"{self.hcas} HCAs were requested: nodes {nodes}, rules {rules}, memlock {limit}")

    def hook_rows(self):
        if not os.path.isdir(harness.CGROUPS + "/devices"):
            raise Skipped("no cgroup v1 `devices` hierarchy here")
        ours = [[program("TESTED_HOOK"), *self.arguments(stage)[1:]] for stage in ("createRuntime", "poststop")]
        floor = [[program("floor_create_runtime"), self.floor_ledger, self.node.tree, str(self.hcas), str(MEMLOCK)],
                 [program("floor_poststop"), self.floor_ledger]]
        self.stages(just_run, *ours)  # makes the ledger's directories
        self.fresh_floor()
        found = [self.stages(self.calls, *way) for way in (ours, floor)]
        counted = ((None, None), (None, None))
        if self.with_instructions:
            unfiltered = [[program("hook_without_filter"), *argv[1:]] for argv in ours]
            counted = [self.stage_instructions(*way) for way in (unfiltered, floor)]
        for name, mine, least, instructions_of in zip(("rdma-hook createRuntime", "rdma-hook poststop"), *found, zip(*counted)):
            yield name, (mine, sum(least.values()), *instructions_of)
        if not self.hcas:
            yield "rdma-hook verify", self.verify_row(floor[0])

    def verify_row(self, floor):
        """verify of a container that requests nothing: with way nri, each container of the node pays for it."""
        arguments = self.arguments("verify")[1:]
        container = self.container()
        try:
            calls, least = [self.with_state(self.calls, argv, container.state()) for argv in ([program("TESTED_HOOK"), *arguments], floor)]
            return calls, sum(least.values()), *self.counted(
                lambda: self.with_state(instructions, [program("hook_without_filter"), *arguments], container.state()),
                lambda: self.with_state(instructions, floor, container.state()))
        finally:
            container.end()

    def stage_instructions(self, create, poststop):
        """valgrind 3.19 does not support open_tree(2): a createRuntime that mounts a view fails there and rolls back, and this is what is
        counted. poststop is counted for a second run, whose createRuntime succeeded."""
        self.fresh_floor()
        container = self.container()
        try:
            created = self.with_state(instructions, create, container.state())
            self.fresh_floor()
            self.with_state(just_run, create, container.state())
            container.end()
            return created, self.with_state(instructions, poststop, stopped(self.bundle))
        finally:
            container.end()

    # --- rdma-runtime

    def runtime_rows(self):
        directory = self.work + "/runtime"
        os.makedirs(directory + "/none")
        real = shutil.copy(program("drain_stdin"), directory + "/runc")  # the name determines how rdma-runtime calls it

        def call(run, runtime, *argv):
            environment = self.runtime_environment(directory + "/settings.json", runtime)
            self.bundle.write()
            self.fresh_floor()
            return run(list(argv), env=environment)

        def ours(run, runtime, *words):
            result = call(run, runtime, program("TESTED_RUNTIME"), "--root", directory + "/state", *words)
            if words[0] == "create":
                check_bundle(self.bundle, self.hcas)
                must([program("TESTED_HOOK"), "recover", "--ledger", self.ledger_directory])  # the runtime made no container
            return result

        def floor(run, runtime, command):
            if command != "create":
                return call(run, runtime, program("shim_exec_only"), command)
            return call(run, runtime, program("floor_runtime_create"), runtime, self.floor_ledger, self.node.tree,
                        str(self.hcas), self.bundle.directory)

        def failing(run):
            """Runs with a runtime that is in the container's record and cannot be executed, for valgrind."""
            write(real, "no program", 0o755)
            try:
                return run()
            finally:
                shutil.copy(program("drain_stdin"), real)

        commands = (("create", "--bundle", self.bundle.directory, self.bundle.id), ("state", self.bundle.id), ("delete", self.bundle.id))
        for words in commands:
            ours(just_run, real, *commands[0])  # makes the ledger's directories and the container's record
            yield f"rdma-runtime {words[0]}", (
                ours(self.calls, real, *words), sum(floor(self.calls, real, words[0]).values()),
                *self.counted(lambda: failing(lambda: ours(instructions, real, *words)),
                              lambda: failing(lambda: floor(instructions, real, words[0]))))

    # --- rdma-nri

    def nri_rows(self):
        """Counts the second CreateContainer and StopContainer of a plugin, because the worker starts at the first. The floor is the
        difference between two runs, one of which has one more request."""
        floor = [self.nri_floor(*way) for way in ((1, 1), (2, 1), (2, 2))]  # creates, stops
        more = [sum((after - before).values()) for before, after in zip(floor, floor[1:])]
        for number, (method, ours) in enumerate(zip(("CreateContainer", "StopContainer"), self.nri())):
            yield f"rdma-nri {method}", (ours, more[number])

    def nri(self):
        runtime = nri.Runtime(self.work + "/nri.sock")
        marks = []

        def drive(process):
            connection = Connection(runtime.listening.accept()[0])
            connection.introduce()
            plugin = children_of(process.pid)[0]
            for number in range(2):
                pod, container = self.nri_container(number)
                wait_until_idle(plugin)
                marks[:] = [self.calls.size()]
                check_nodes(connection.create(pod, container)["devices"], self.hcas)
                wait_until_idle(plugin)
                marks.append(self.calls.size())
                connection.event("StopContainer", pod, container)
            wait_until_idle(plugin)
            marks.append(self.calls.size())
            os.kill(plugin, signal.SIGTERM)

        try:
            self.calls([program("TESTED_NRI"), "--socket", runtime.path, "--config", self.config, "--root",
                        self.node.tree, "--ledger", self.ledger_directory], drive, env={"PATH": PATH})
        finally:
            runtime.stop()
        return [self.calls.read(*piece) for piece in zip(marks, marks[1:])]

    def nri_container(self, number):
        pod = nri.pod("pod1", {"rdma-init.io/devices": self.requests} if self.hcas else {})
        return pod, nri.container(f"c{number}", "pod1", env=VARIABLES, network=False)

    def nri_floor(self, creates, stops):
        self.fresh_floor()
        path = write(self.work + "/request", b"".join(self.nri_container(0)))
        with open(path, "rb") as stdin:
            return self.calls([program("floor_nri"), self.floor_ledger, self.node.tree, str(self.hcas), str(creates),
                               str(stops)], stdin=stdin, env={})

    # --- rdma-init

    def init_rows(self):
        calls = Calls(self.work + "/trace", Places(("node", "/sys/|/dev/infiniband"), ("process", "/proc/")))
        ours, floor = [program("TESTED_INIT"), "--"], [program("read_gid_slots")]
        quiet = {"PATH": PATH, "RDMA_INIT_LOG": "quiet"}
        with Machine(self.hcas):
            found = calls([*ours, "/bin/true"], env=quiet), sum(calls(floor, env=quiet).values())
            yield "rdma-init", (*found, *self.counted(lambda: instructions([*ours, "/no-such-program"], env=quiet),
                                                      lambda: instructions(floor, env=quiet)))


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


def randomize_no_addresses():
    """Fixes the start of the heap, which determines how often the allocator calls brk(2). Children inherit it. If the machine forbids it,
    sums can differ by two."""
    libc.personality(ADDR_NO_RANDOMIZE)


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
    randomize_no_addresses()
    DevLog()
    for hcas in HCAS:
        counted = Scene(hcas, with_instructions)
        kinds = {"rdma-init": counted.init_rows, "rdma-hook": counted.hook_rows, "rdma-runtime": counted.runtime_rows,
                 "rdma-nri": counted.nri_rows}
        try:
            for kind, rows in kinds.items():
                if not kind.startswith(only) and not only.startswith(kind):
                    continue
                try:
                    yield from ((name, hcas, *found) for name, found in rows() if name.startswith(only))
                except Skipped as reason:
                    skipped[kind] = str(reason)
        finally:
            counted.close()
