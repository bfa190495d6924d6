"""The sections that measure programs from spawn to end: rdma-init, rdma-hook in `runc run`, rdma-runtime in `create`. Each yields the
name of a scene and its contestants, and keeps the scene until the caller requests the next. docs: tests/bench/README.md"""
import contextlib
import ctypes
import json
import os
import shutil

from scene import (FEW_SLOTS, HERE, MANY_NETDEVS, MOST, SLOTS, WANTED_SLOT, LiveNode, Machine, Scene, builds, check_bundle, first_hcas, name_of,
                   profile, program, runtime_environment)
from containers import Bundle, Runtime
from harness import PATH, must
from section_nri import grant_to_others
from turns import Contestant, timed

# --- rdma-init

MACHINES = (0, 1, 8, 18, 64)  # HCAs
NCCL_DEVICES = 32  # most HCAs of NCCL 2.x (MAX_IB_DEVS); rdma-init exports the first
SCRIPT_TURNS = 3  # the script takes seconds
PEERS = os.environ.get("RDMA_INIT_PEERS", HERE + "/../../../shared/peers")
QUIET = {"PATH": PATH, "RDMA_INIT_LOG": "quiet", "TINI_VERBOSITY": "0"}


def init(quick):
    tini = shutil.which("tini-static")
    if not tini:
        print("no tini-static; remedy: install Debian's package tini")
    scripts = [path for path in (PEERS + "/nccl_env_rooted.sh", PEERS + "/nccl_env.sh") if os.access(path, os.R_OK)]
    if not scripts:
        print("no nccl_env.sh; remedy: set RDMA_INIT_PEERS to its directory")
    for hcas in MACHINES[::2 if quick else 1]:
        with Machine(hcas):
            check_init(hcas)
            rows = []
            for build in builds():
                with build:
                    rows += [("rdma-init -- true" + build.suffix, [program("TESTED_INIT"), "--", "true"]),
                             ("rdma-init --reap -- true" + build.suffix, [program("TESTED_INIT"), "--reap", "--", "true"])]
            rows = [*rows,
                    *([("tini-static -- true", [tini, "--", "true"])] if tini else []),
                    ("true", ["/bin/true"])]
            contestants = [Contestant(name, of_program(argv, QUIET)) for name, argv in rows]
            if hcas > 0:  # without HCAs the script fails
                contestants.append(Contestant("read every slot, in C", of_program([program("read_gid_slots")], QUIET)))
                if hcas <= MOST and not quick:  # a turn with 64 HCAs would take minutes
                    contestants += [Contestant("nccl_env.sh", of_program(["/bin/bash", script], QUIET), SCRIPT_TURNS)
                                    for script in scripts[:1]]
            yield name_of(hcas, "HCA") if hcas else "no RDMA", contestants


def of_program(argv, environment):
    def turn():
        ran = timed(argv, environment)
        return ran.seconds, {"CPU, ms": ran.cpu_ms}
    return turn


def check_init(hcas):
    """Raises an error unless rdma-init answers right and the reader reads everything: otherwise their times cannot be compared."""
    env = json.loads(must([program("TESTED_INIT"), "env", "--format", "json"], env=QUIET))["env"]
    found = env.get("NCCL_IB_GID_INDEX", ""), len(env.get("NCCL_IB_HCA", "").split(",")) if hcas else 0
    wanted = str(WANTED_SLOT) if hcas else "", min(hcas, NCCL_DEVICES)
    slots = int(must([program("read_gid_slots"), "--count"]))
    if (found, slots) != (wanted, hcas * SLOTS):
        raise AssertionError(f"{hcas} HCAs: rdma-init finds {found}, not {wanted}, the reader {slots} slots: {env}")


# --- bundles like those of engines

NATIVE = 0  # SCMP_ARCH_NATIVE
SYSTEM_CALLS = 470


def system_calls():
    """Returns all names that libseccomp knows: as many as in an engine's default profile."""
    resolve = ctypes.CDLL("libseccomp.so.2").seccomp_syscall_resolve_num_arch
    resolve.restype = ctypes.c_char_p
    return [name.decode() for number in range(SYSTEM_CALLS) if (name := resolve(NATIVE, number))]


def engine_bundle(scene, name, hcas, size, **settings):
    """Returns a bundle that requests so many HCAs, with a config.json of about `size` bytes: a seccomp profile of all system calls, volumes
    and annotations in proportion, and variables of services up to the size."""
    settings.setdefault("stages", ())
    bundle = Bundle(scene, name, requests=first_hcas(hcas), **settings)
    config = bundle.config
    config["linux"]["seccomp"] = profile(system_calls())
    volume = scene.work + "/volume"
    os.makedirs(volume, exist_ok=True)
    for number in range(size // 2500):
        config["mounts"].append({"destination": f"/mnt/volume-{number}", "type": "bind", "source": volume,
                                 "options": ["rbind", "rprivate", "ro"]})
    for number in range(size // 5000):
        config["annotations"][f"example.com/setting-of-the-pod-{number}"] = "x" * 400
    missing = size - len(json.dumps(config))
    variable = "SERVICE_NUMBER_{:03}_PORT_8080_TCP_ADDR=10.96.12.107"
    config["process"]["env"] += [variable.format(number) for number in range(missing // (len(variable) + 2))]
    return bundle.write()


def add_hook(bundle, stage, path):
    bundle.config["hooks"].setdefault(stage, []).append({"path": path, "args": [path]})
    bundle.write()


# --- rdma-hook

STAGES = ("createRuntime", "poststop")
TRUE = ("/bin/true",)
RUNC_ENV = {"PATH": PATH}
# HCAs that the container names, bytes of config.json, VFs of the node, grants of other containers. Only the first may affect the time.
RUNS = ((1, 10000, 1, 0), (8, 10000, 1, 0), (1, 63000, 1, 0), (8, 63000, 1, 0), (1, 10000, 512, 0), (1, 10000, 1, 1000),
        (8, 63000, 512, 1000))


def hook(quick):
    for hcas, size, vfs, grants in RUNS[:2 if quick else None]:
        with LiveNode(MOST, FEW_SLOTS, vfs), contextlib.ExitStack() as stack:
            scene = stack.enter_context(contextlib.closing(Scene()))
            grant_to_others(scene, grants)
            runc = Runtime(scene, "runc")
            look = engine_bundle(scene, "look", hcas, size, args=("/bin/ls", "/sys/class/infiniband"), stages=STAGES)
            seen = runc.run(look).stdout.split()
            if len(seen) != hcas:
                raise AssertionError(f"{hcas} HCAs were requested, and the container has {seen}")
            bundles = {"no hook": engine_bundle(scene, "none", hcas, size, args=TRUE),
                       "C hook that drains stdin": engine_bundle(scene, "drain", hcas, size, args=TRUE),
                       "rdma-hook": engine_bundle(scene, "hook", hcas, size, args=TRUE, stages=STAGES)}
            for build in builds()[1:]:
                with build:
                    # A ledger of its own, because two versions may check the same view in two ways.
                    other = stack.enter_context(contextlib.closing(Scene()))
                    grant_to_others(other, grants)
                    bundles["rdma-hook" + build.suffix] = engine_bundle(other, "hook-before", hcas, size, args=TRUE, stages=STAGES)
            for stage in STAGES:
                add_hook(bundles["C hook that drains stdin"], stage, program("drain_stdin"))
            yield (f"{name_of(hcas, 'HCA')}, {size // 1000} kB, {name_of(vfs, 'VF')}, {name_of(grants, 'grant')}",
                   [Contestant(name, of_program(runc.command("run", "--bundle", bundle.directory, bundle.id), RUNC_ENV))
                    for name, bundle in bundles.items()])


# --- rdma-runtime

ASKED = (0, 1, MOST)
SIZES = (10000, 60000)


class Create:
    """Calls `create` of a runtime directly, or through a wrapper."""

    def __init__(self, scene, runtime, name, size, *, wrapper=None, hcas=0, idle_hook=None):
        self.scene, self.runtime, self.hcas = scene, runtime, hcas
        self.bundle = engine_bundle(scene, name, hcas, size, args=("/bin/sleep", "1000"))
        if idle_hook:
            add_hook(self.bundle, idle_hook, program("drain_stdin"))
        self.argv = runtime.command("create", "--bundle", self.bundle.directory, name)
        self.argv[0] = wrapper or self.argv[0]
        self.environment = runtime_environment(scene, f"{scene.work}/settings-{name}.json", runtime.program)

    def __call__(self):
        for name in os.listdir(self.bundle.directory):
            if name.endswith(".json"):
                os.unlink(f"{self.bundle.directory}/{name}")
        self.bundle.write()  # an engine writes a new one for every container
        ran = timed(self.argv, self.environment)
        check_bundle(self.bundle, self.hcas)
        self.runtime.delete(self.bundle)
        if self.hcas:  # if the runtime makes no container, the grant still exists
            must([program("TESTED_HOOK"), "recover", "--ledger", self.scene.ledger_directory])
        return ran.seconds, {"CPU, ms": ran.cpu_ms}


def shim(quick):
    if os.path.ismount("/sys/fs/cgroup/unified"):  # crun 1.8 refuses v1 control groups if there is an empty v2 hierarchy
        must(["umount", "/sys/fs/cgroup/unified"])
    for name in ("runc", "crun", "alone"):
        if name != "alone" and not shutil.which(name):
            print(f"{name} is not installed (Debian package of this name)")
            continue
        for size in SIZES[:1 if quick else None]:
            for netdevs in (0, MANY_NETDEVS)[:2 if name == "alone" and size == SIZES[0] else 1]:
                with LiveNode(MOST, netdevs=netdevs), contextlib.ExitStack() as stack:
                    scenes = [stack.enter_context(contextlib.closing(Scene())) for _ in builds()]
                    parts = [name if name == "alone" else name + " create", f"{size // 1000} kB", f"{netdevs} netdevs" if netdevs else ""]
                    yield ", ".join(filter(None, parts)), list(ways_to_create(scenes, name, size))


def ways_to_create(scenes, name, size):
    """Yields the contestants. scenes: one for each build, with its own ledger. alone: the runtime is a program that ends at once; its
    name determines how rdma-runtime calls it."""
    os.mkdir(scenes[0].work + "/stand-in")
    stand_in = shutil.copy(program("drain_stdin"), scenes[0].work + "/stand-in/runc")

    def way(text, bundle, scene=scenes[0], **settings):
        runtime = Runtime(scene, stand_in if name == "alone" else name)
        runtime.prefix = []  # shim() has hidden the v2 hierarchy
        return Contestant(text, Create(scene, runtime, bundle, size, **settings))

    if name != "alone":
        yield way("directly", "directly")
        yield way("directly, createRuntime hook that does nothing", "one-hook", idle_hook="createRuntime")
    yield way("exec-only wrapper", "exec-only", wrapper=program("shim_exec_only"))
    for hcas in ASKED:
        text = name_of(hcas, "HCA") if hcas else "no request"
        for number, (build, scene) in enumerate(zip(builds(), scenes)):
            with build:
                yield way(f"rdma-runtime, {text}{build.suffix}", f"asks-{hcas}-{number}", scene, wrapper=program("TESTED_RUNTIME"),
                          hcas=hcas)
