"""One plan, two ways to apply it: a live container at createRuntime, or config.json before it is created, by
rdma-runtime. The container must not see a difference. It is the same bundle each time; a table of what may differ
between bundles."""
import json
import subprocess

import harness
from containers import Bundle, Runtime, Wrapped

DEVICE = {"path": "/dev/infiniband/uverbs2", "type": "c", "major": 231, "minor": 194, "fileMode": 0o666}

# Name, options of the bundle, members of the node's configuration.
ROWS = (
    ("one HCA", {"asks": "mlx5_1"}, {}),
    ("one that opens, one that does not", {"asks": "mlx5_0,mlx5_3"}, {}),
    ("all", {"asks": "all"}, {}),
    ("a count", {"asks": "2"}, {}),
    ("nothing", {"asks": "none"}, {}),
    ("a device plugin's nodes", {"devices": [DEVICE]}, {}),
    ("exclusive", {"asks": "mlx5_1", "annotations": {"rdma-init.io/mode": "exclusive"}}, {}),
    ("owner and mode", {"asks": "mlx5_1"}, {"nodes": {"mode": "0640", "uid": 3, "gid": 4}}),
    ("no rdma_cm", {"asks": "mlx5_1"}, {"nodes": {"rdma_cm": False}}),
    ("no view", {"asks": "mlx5_1"}, {"sysfs_view": False}),
    ("no limit", {"asks": "mlx5_1"}, {"memlock": None}),
    ("a user other than root", {"asks": "mlx5_1", "uid": 1000}, {}),
    ("a user namespace", {"asks": "mlx5_0,mlx5_1", "userns": True}, {}),
    ("the node's network", {"asks": "mlx5_1", "netns": False}, {}),
    ("a read-only root", {"asks": "mlx5_1", "readonly": True}, {}),
    ("no mount at /dev", {"asks": "mlx5_1", "dev": False}, {}),
    ("no mount at /sys", {"asks": "mlx5_1", "sys": False}, {}),
)
REFUSED = (
    ("no such HCA", {"asks": "mlx5_7"}),
    ("another device there", {"asks": "mlx5_1", "devices": [{**DEVICE, "path": "/dev/infiniband/uverbs1"}]}),
)
SOFT_LIMIT = 64 << 10
CAP_IPC_LOCK = 14


def has_ipc_lock(mask):
    return bool(mask >> CAP_IPC_LOCK & 1)


class BothWays:
    runtime_name = ""

    def setUp(self):
        super().setUp()
        self.runtime, self.wrapper = (kind(self, self.runtime_name) for kind in (Runtime, Wrapped))
        for runtime in (self.runtime, self.wrapper):
            # So that there is something to raise.
            runtime.prefix = ["prlimit", f"--memlock={SOFT_LIMIT}:{harness.MEMLOCK}"] + runtime.prefix

    def live(self, name, options):
        return self.runtime.report(Bundle(self, name, **options))

    def wrapped(self, name, options):
        return self.wrapper.report(Bundle(self, name, stages=(), **options))

    def wrapped_with_hooks(self, name, options):
        """As on a node that has both."""
        return self.wrapper.report(Bundle(self, name, **options))

    def test_the_container_sees_no_difference(self):
        for number, (name, options, config) in enumerate(ROWS):
            with self.subTest(name):
                self.configure(config)
                live = self.live(f"live{number}", options)
                for way in self.ways(options):
                    report = way(f"{way.__name__}{number}", options)
                    userns = options.get("userns")
                    self.assertEqual(self.comparable(report.nodes, userns), self.comparable(live.nodes, userns))
                    self.assertEqual(report.other, live.other)
                    self.assertEqual(report.views, live.views)
                    self.assertEqual(self.comparable_facts(report), self.comparable_facts(live))
                    self.assert_only_here_better(report, options)
        self.assert_node_unchanged()

    def ways(self, options):
        """crun 1.8 tells its createRuntime hooks `/` as bundle when a container has a user namespace and devices."""
        if options.get("userns") and self.runtime.version().startswith("crun version 1.8."):
            return []
        return [self.wrapped, self.wrapped_with_hooks]

    @staticmethod
    def comparable_facts(report):
        return {name: value for name, value in report.facts.items() if name not in ("require", "capabilities")}

    @staticmethod
    def comparable(nodes, userns):
        """With a user namespace runtimes bind mount, and whose the node shows as differs between them."""
        return {path: node[:3] + node[5:] if userns else node for path, node in nodes.items()}

    def assert_only_here_better(self, report, options):
        """What no hook can give."""
        if options.get("asks") == "none":
            return
        # RoCE: without a rail it can be used in the node's network only.
        self.assertEqual(report.facts["require"] != "", not options.get("netns", True))
        if has_ipc_lock(int(harness.read("/proc/self/status").split("CapBnd:")[1].split()[0], 16)):
            self.assertTrue(has_ipc_lock(int(report.facts["capabilities"], 16)))

    def test_refusals_are_the_same(self):
        for number, (name, options) in enumerate(REFUSED):
            with self.subTest(name):
                bundle = Bundle(self, f"refused{number}", **options)
                self.refused(self.runtime.run(bundle))
                done = self.refused(self.wrapper.run(bundle))
                self.assertEqual(done.stdout, "")
                self.assert_ledger_empty()


class Runc(BothWays, harness.Case):
    runtime_name = "runc"


class Crun(BothWays, harness.Case):
    runtime_name = "crun"


class Booked(harness.Case):
    """What becomes of a grant that config.json carries, or whose container does not start."""

    def exclusive(self, name="container", **options):
        annotations = {"rdma-init.io/mode": "exclusive", **options.pop("annotations", {})}
        return Bundle(self, name, asks="mlx5_1", annotations=annotations, **options)

    def test_a_token_of_the_image_is_overwritten(self):
        bundle = self.exclusive(annotations={"rdma-init.io/grant": "0" * 32})
        self.book(bundle)
        self.assertRegex(bundle.config["annotations"]["rdma-init.io/grant"], "^[0-9a-f]{32}$")
        self.assertNotEqual(bundle.config["annotations"]["rdma-init.io/grant"], "0" * 32)

    def test_a_token_of_somebody_else(self):
        """A container that asks for nothing gets nothing by it, and takes nothing away."""
        owner = self.exclusive("owner")
        self.book(owner)
        before = self.devices()
        token = owner.config["annotations"]["rdma-init.io/grant"]
        report = Runtime(self, "runc").report(Bundle(self, "thief", annotations={"rdma-init.io/grant": token}))
        self.assertEqual(report.nodes, {})
        self.assertEqual(self.devices(), before)

    def book(self, bundle):
        """By a process that ends, as when the runtime that rdma-runtime becomes is killed, or fails."""
        self.given(Wrapped(self, "true").create(bundle))
        bundle.config = json.loads(harness.read(bundle.directory + "/config.json"))
        self.assertIn("rdma-init.io/grant", bundle.config["annotations"])

    def test_the_requester_is_gone(self):
        self.book(self.exclusive("lost"))
        self.assertEqual(len(self.recover()), 1)
        self.assert_ledger_empty()

    def test_the_requester_is_gone_and_somebody_else_asks(self):
        self.book(self.exclusive("lost"))
        runtime = Runtime(self, "runc")
        self.assertEqual(runtime.report(self.exclusive("next")).nodes, self.node.expected("uverbs1"))
        self.assert_ledger_empty()

    def test_the_requester_lives(self):
        waits = harness.write(self.work + "/waits", "#!/bin/sh\nexec sleep 1000\n", 0o755)
        wrapped, bundle = Wrapped(self, waits), self.exclusive("owner")
        command = wrapped.command("create", "--bundle", bundle.directory, bundle.id)
        requester = subprocess.Popen(command, env=wrapped.env)
        self.addCleanup(requester.wait)
        self.addCleanup(requester.kill)
        harness.wait_for(lambda: harness.read(f"/proc/{requester.pid}/comm") == "sleep\n", "the runtime is there")
        self.assertEqual(self.recover(), [])
        self.refused(Runtime(self, "runc").run(self.exclusive("other")), "mlx5_1", "container that is being created")

    def test_the_container_binds_it(self):
        """From then on it is the container's, whatever becomes of the requester."""
        runtime = Runtime(self, "runc")
        bundle = self.exclusive("bound", args=("sleep", "1000"))
        self.book(bundle)
        self.given(runtime.create(bundle))
        self.assertEqual(self.recover(), [])
        self.assertEqual(self.holders(), {"mlx5_1": ["container bound"]})
        self.refused(runtime.run(self.exclusive("other")), "mlx5_1", "bound")
        self.given(runtime.delete(bundle))
        self.assert_ledger_empty()

    def test_binding_is_all_that_is_left_to_do(self):
        """Not even a look at the node's HCAs, nor a node, a rule or a limit more."""
        runtime = Runtime(self, "runc")
        bundle = self.exclusive("bound", args=("sleep", "1000"))
        self.book(bundle)
        arguments = bundle.config["hooks"]["createRuntime"][0]["args"]
        arguments[arguments.index("--root") + 1] = "/nowhere"
        self.given(runtime.create(bundle.write()))
        self.assertEqual(self.holders(), {"mlx5_1": ["container bound"]})
        self.given(runtime.delete(bundle))
        self.assert_ledger_empty()

    def test_the_view_outlives_the_token(self):
        """It is mounted under the token's name, and read when the container runs."""
        runtime = Runtime(self, "runc")
        bundle = self.exclusive("viewed")
        self.book(bundle)
        report = runtime.report(bundle)
        self.assertEqual(report.views["infiniband"], ["mlx5_1"])
        self.assertEqual(report.facts["ibdev uverbs1"], "mlx5_1")
        self.assert_ledger_empty()

    def test_create_fails_after_the_edit(self):
        """The runtime never gets as far as its hooks: nothing is bound, and nothing tells us."""
        runtime = Runtime(self, "runc")
        bundle = self.exclusive("broken")
        bundle.config["mounts"].append({"destination": "/x", "type": "bind", "source": "/does/not/exist",
                                        "options": ["bind"]})
        self.book(bundle.write())
        self.refused(runtime.run(bundle), "/does/not/exist")
        self.assertEqual(runtime.report(self.exclusive("next")).nodes, self.node.expected("uverbs1"))
        self.assertEqual(self.recover(), [])
        self.assert_ledger_empty()

    def test_create_fails_after_the_hook(self):
        """A later hook of somebody else fails."""
        runtime = Runtime(self, "runc")
        bundle = self.exclusive("broken")
        bundle.config["hooks"]["createRuntime"].append({"path": "/bin/false"})
        bundle.write()
        self.refused(runtime.run(bundle))
        self.assertEqual(runtime.report(self.exclusive("next")).nodes, self.node.expected("uverbs1"))
        self.assert_ledger_empty()

    def test_create_fails_after_the_hook_and_nobody_calls_poststop(self):
        """crun 1.8 runs no poststop hooks then."""
        runtime = Runtime(self, "crun")
        bundle = self.exclusive("broken")
        bundle.config["hooks"]["createRuntime"].append({"path": "/bin/false"})
        bundle.write()
        self.refused(runtime.run(bundle))
        self.assertEqual(runtime.report(self.exclusive("next")).nodes, self.node.expected("uverbs1"))
        self.recover()
        self.assert_ledger_empty()


if __name__ == "__main__":
    harness.main()
