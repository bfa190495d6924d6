"""Rails by rdma-hook and by a chain of CNI plugins, in turns, on a node of its own. docs: tests/bench/README.md"""
import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

from network_scene import CHAIN, MOST, PLUGINS, Namespace, Scene, delete_links, harness, timed

GRANTED = re.compile(r": granted container=.*")


class Figures:
    """Milliseconds by row and number of rails."""

    def __init__(self):
        self.ms = {}

    def add(self, row, count, seconds):
        self.ms.setdefault((row, count), []).append(round(seconds * 1e3, 4))


class Round:
    """Everything that is compared, once, with this number of rails."""

    def __init__(self, scene, figures, steps, count):
        self.scene, self.figures, self.steps, self.count = scene, figures, steps, count

    def note(self, row, seconds):
        self.figures.add(row, self.count, seconds)

    def note_steps(self, log):
        found = GRANTED.search(log)
        if not found:
            raise AssertionError(f"no steps in the log: {log}")
        for step, microseconds in re.findall(r" ([a-z]+)_us=(\d+)", found[0]):
            self.steps.add(step, self.count, int(microseconds) / 1e6)

    def in_namespace(self, function):
        namespace = Namespace("bench")
        function(namespace)
        if not namespace.ended:
            namespace.end()  # after a failure, all namespaces end with this process

    # --- one of each kind

    def spawn(self, _):
        self.note("true", timed(["/bin/true"], "", {}, self.scene.work)[0])

    def nodes(self, namespace):
        bundle = self.scene.bundle(self.count, None)
        container, seconds, _ = self.scene.create(bundle, namespace.path, self.scene.nodes_only)
        self.note("nodes", seconds)
        container.end()
        self.note("nodes poststop", self.scene.poststop(bundle)[0])

    def pod(self, namespace):
        bundle = self.scene.bundle(self.count, namespace.path)
        container, seconds, log = self.scene.create(bundle, namespace.path, self.scene.with_network)
        self.note("pod", seconds)
        self.note_steps(log)
        children = namespace.check(self.count)
        container.end()
        self.scene.poststop(bundle)
        self.note("bare group", delete_links(namespace.path, [], int(children[0]["group"], 0) & 0xffffffff))

    def own(self, namespace):
        bundle = self.scene.bundle(self.count, None)
        container, seconds, _ = self.scene.create(bundle, namespace.path, self.scene.with_network)
        self.note("own", seconds)
        namespace.check(self.count)
        container.end()
        namespace.end()
        self.note("poststop", self.scene.poststop(bundle)[0])
        if self.scene.records():
            raise AssertionError("poststop left a record of rails")

    def tested(self, namespace):
        bundle = self.scene.bundle(self.count, None)
        container, seconds, _ = self.scene.create(bundle, namespace.path, self.scene.tested)
        self.note("tested", seconds)
        container.end()
        self.scene.poststop(bundle)

    def bare(self, namespace):
        bundle = self.scene.bundle(self.count, None)
        container, _, _ = self.scene.create(bundle, namespace.path, self.scene.with_network)
        indices = [child["ifindex"] for child in namespace.check(self.count)]
        self.note("bare", delete_links(namespace.path, indices))
        container.end()
        self.scene.poststop(bundle)

    def chain(self, namespace):
        results = {}
        self.note("chain", self.scene.chain("ADD", namespace.path, self.count, results))
        namespace.check(self.count)
        self.note("chain DEL", self.scene.chain("DEL", namespace.path, self.count, results))
        if namespace.children():
            raise AssertionError("the chain left netdevs")

    def run(self, turn):
        kinds = [self.spawn, self.nodes, self.pod, self.own, self.tested, self.bare, self.chain]
        for kind in kinds[turn % len(kinds):] + kinds[:turn % len(kinds)]:
            self.in_namespace(kind)
            self.scene.recover()  # the grant of a pod that has ended


ROWS = {"true": "spawn of true", "nodes": "createRuntime, device nodes only", "pod": "createRuntime, rails into a pod",
        "own": "createRuntime, rails into its own namespace", "tested": "createRuntime, its own, gateways tested",
        "chain": "CNI ADD, " + " + ".join(CHAIN), "nodes poststop": "poststop, device nodes only",
        "poststop": "poststop, rails, namespace has ended", "bare": "bare: a message for each netdev",
        "bare group": "bare: one message for all", "chain DEL": "CNI DEL, " + " + ".join(CHAIN[::-1])}


def report(figures, steps, counts):
    """As contest.cpp's print()."""
    for count in counts:
        scene = {"scene": f"{count} rail{'s' if count > 1 else ''}"}
        for row, text in ROWS.items():
            print(json.dumps({**scene, "contestant": text, "ms": figures.ms[row, count]}))
        for (step, of), milliseconds in steps.ms.items():
            if of == count:
                print(json.dumps({**scene, "contestant": f"step of the grant into a pod: {step}", "ms": milliseconds,
                                  "detail": True}))


def show_under(scene, command, counts):
    scene.under = [shutil.which(command[0]) or command[0], *command[1:]]
    for count in counts:
        namespace = Namespace("bench")
        bundle = scene.bundle(count, None)
        container, _, log = scene.create(bundle, namespace.path, scene.with_network)
        container.end()
        print(f"createRuntime, {count} rails:", log, "poststop:", scene.poststop(bundle)[1], sep="\n")
        namespace.end()


def requirement():
    reason = harness.requirement()
    missing = [name for name in (*CHAIN, "host-local") if not os.access(f"{PLUGINS}/{name}", os.X_OK)]
    if missing:
        return reason or f"no {', '.join(missing)} in {PLUGINS} (Debian package containernetworking-plugins)"
    script = "ip link add v0 type veth peer name v1; ip link add link v0 name m0 type macvlan"
    probe = ["unshare", "--net", "sh", "-ec", script]
    if not reason and subprocess.run(probe, capture_output=True, check=False).returncode != 0:
        reason = "the kernel has no veth or no macvlan"
    return reason


def enter_own_machine():
    """Does not return."""
    for variable in ("TESTED_HOOK", "MAKE_TREE"):
        if not os.access(os.environ.get(variable, ""), os.X_OK):
            sys.exit(f"set {variable} to the path of a program, or call tests/bench/network")
    reason = requirement()
    if reason:
        print("nothing measured:", reason)
        sys.exit(harness.SKIP)
    group = f"rdma-hook-bench-{os.getpid()}"
    inside = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
              "--mount-proc", sys.executable, *sys.argv]
    code = subprocess.run(inside, env={**os.environ, "RDMA_HOOK_TEST_GROUP": group}, check=False).returncode
    harness.remove_groups(group)
    sys.exit(code)


def options():
    parser = argparse.ArgumentParser(prog="tests/bench/network")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--rails", default="1,8", help=f"list of numbers up to {MOST}")
    parser.add_argument("--under", metavar="COMMAND", help="no figures: each stage of a container once under this "
                        "command, such as \"strace -f -c\", and what it wrote to standard error")
    parsed = parser.parse_args()
    counts = [int(text) if text.isdigit() else 0 for text in parsed.rails.split(",")]
    if parsed.runs < 1 or not all(1 <= count <= MOST for count in counts):
        parser.error(f"--runs of at least 1, --rails of 1 to {MOST}")
    return parsed, counts


def main():
    parsed, counts = options()
    if not harness.GROUP:
        enter_own_machine()
    harness.first_process()
    harness.hide_the_machine()
    scene = Scene()
    figures, steps = Figures(), Figures()
    try:
        for turn in range(-1, 0 if parsed.under else parsed.runs):  # the first one warms up
            into = (figures, steps) if turn >= 0 else (Figures(), Figures())
            for count in counts:
                Round(scene, *into, count).run(turn)
        if parsed.under:
            show_under(scene, shlex.split(parsed.under), counts)
    finally:
        scene.end()
    if not parsed.under:
        report(figures, steps, counts)


if __name__ == "__main__":
    main()
