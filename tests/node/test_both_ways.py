"""Two ways to apply a plan: to a live container at createRuntime, with runc and crun, or to config.json before its creation,
by rdma-runtime. A table has bundles and the state in their containers, which is the same for each way."""
import os

import harness
from containers import EXCLUSIVE, FOREVER, UVERBS2, Bundle, Runtime, RuntimeTests, Wrapped, exclusive
from harness import MEMLOCK, read, wait_for, write

SOFT_LIMIT = 64 << 10  # bytes; below MEMLOCK, so that the programs raise it
CAP_IPC_LOCK = 14
ALL = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"]
READ_ONLY = "Read-only file system"
NOT_PERMITTED = "Operation not permitted"


def seen(*hcas, views=None, facts=(), modes=(), owner="0:0", without=(), other=None):
    """Returns the expected parts of a Report for a container with these HCAs. modes: modes of nodes other than 666. owner:
    owner of the nodes, or None if the runtimes differ. facts: values, None stands for the node's own value."""
    return {"uverbs": [hca.replace("mlx5_", "uverbs") for hca in hcas], "facts": dict(facts), "modes": dict(modes),
            "views": {"infiniband": list(hcas) or ALL} if views is None else views, "owner": owner, "without": without,
            "other": other}


# Name, options of the bundle, members of the node's configuration, expected parts of the report.
ROWS = (
    ("one HCA", {"requests": "mlx5_1"}, {},
     seen("mlx5_1", facts={"soft memlock": str(MEMLOCK), "ibdev uverbs1": "mlx5_1"})),
    ("read through the view", {"requests": "mlx5_2"}, {},
     # Without abi_version libibverbs finds no device at all.
     seen("mlx5_2", facts={"guid mlx5_2": None, "ibdev uverbs2": "mlx5_2", "abi_version": "6",
                           "write infiniband": READ_ONLY, "write infiniband_verbs": READ_ONLY})),
    ("two", {"requests": "mlx5_0,mlx5_1"}, {},
     seen("mlx5_0", "mlx5_1", other=NOT_PERMITTED,
          views={"infiniband": ["mlx5_0", "mlx5_1"], "infiniband_verbs": ["abi_version", "uverbs0", "uverbs1"]})),
    ("one with a driver, one without", {"requests": "mlx5_0,mlx5_3"}, {}, seen("mlx5_0", "mlx5_3")),
    ("all", {"requests": "all"}, {}, seen(*ALL)),
    ("a count", {"requests": "3"}, {}, seen("mlx5_0", "mlx5_1", "mlx5_2")),
    ("nothing", {"requests": "none"}, {}, seen(facts={"soft memlock": str(SOFT_LIMIT)})),
    ("no request", {}, {}, seen(facts={"soft memlock": str(SOFT_LIMIT)})),
    ("a device plugin's nodes", {"devices": [UVERBS2]}, {}, seen("mlx5_2")),
    ("an existing node", {"requests": "mlx5_1,mlx5_2", "devices": [{**UVERBS2, "fileMode": 0o600}]}, {},
     seen("mlx5_1", "mlx5_2", modes={"uverbs2": "600"})),
    ("exclusive", {"requests": "mlx5_1", "annotations": EXCLUSIVE}, {}, seen("mlx5_1")),
    ("owner and mode", {"requests": "mlx5_1"}, {"nodes": {"mode": "0640", "uid": 3, "gid": 4}},
     seen("mlx5_1", modes={"uverbs1": "640", "rdma_cm": "640"}, owner="3:4")),
    ("no rdma_cm", {"requests": "mlx5_1"}, {"nodes": {"rdma_cm": False}}, seen("mlx5_1", without=["rdma_cm"])),
    ("no view", {"requests": "mlx5_1"}, {"sysfs_view": False}, seen("mlx5_1", views={"infiniband": ALL})),
    ("no limit", {"requests": "mlx5_1"}, {"memlock": None}, seen("mlx5_1", facts={"soft memlock": str(SOFT_LIMIT)})),
    ("a user other than root", {"requests": "mlx5_0,mlx5_1", "uid": 1000}, {},
     seen("mlx5_0", "mlx5_1", facts={"user": "1000"})),
    ("a user namespace", {"requests": "mlx5_0,mlx5_1", "userns": True}, {},
     seen("mlx5_0", "mlx5_1", owner=None, facts={"ibdev uverbs1": "mlx5_1"})),
    ("the node's network", {"requests": "mlx5_1", "netns": False}, {}, seen("mlx5_1")),
    ("a read-only root", {"requests": "mlx5_1", "readonly": True}, {}, seen("mlx5_1")),
    ("no mount at /dev", {"requests": "mlx5_1", "dev": False}, {}, seen("mlx5_1")),
    ("no mount at /sys", {"requests": "mlx5_1", "sys": False}, {}, seen("mlx5_1", views={})),
)
REFUSED = (
    ("unknown HCA", {"requests": "mlx5_7"}),
    ("node of another device", {"requests": "mlx5_1", "devices": [{**UVERBS2, "path": "/dev/infiniband/uverbs1"}]}),
)


def has_ipc_lock(mask):
    return bool(mask >> CAP_IPC_LOCK & 1)


class BothWays(RuntimeTests):
    def setUp(self):
        super().setUp()
        self.wrapper = Wrapped(self, self.runtime_name)
        for runtime in (self.runtime, self.wrapper):
            runtime.prefix = ["prlimit", f"--memlock={SOFT_LIMIT}:{MEMLOCK}"] + runtime.prefix

    def live(self, name, options):
        return self.runtime.report(Bundle(self, name, **options))

    def wrapped(self, name, options):
        return self.wrapper.report(Bundle(self, name, stages=(), **options))

    def wrapped_with_hooks(self, name, options):
        """Runs rdma-runtime and hooks, as a node can have both."""
        return self.wrapper.report(Bundle(self, name, **options))

    def test_container_is_the_same_by_each_way(self):
        for number, (name, options, config, expected) in enumerate(ROWS):
            with self.subTest(name):
                self.configure(config)
                live = self.live(f"live{number}", options)
                self.assert_sees(live, expected)
                if not options.get("sys", True):
                    self.assertEqual(os.listdir(f"{self.work}/live{number}/rootfs/sys"), [])
                for way in self.ways(options):
                    report = way(f"{way.__name__}{number}", options)
                    userns = options.get("userns")
                    self.assertEqual(self.comparable(report.nodes, userns), self.comparable(live.nodes, userns))
                    self.assertEqual(report.other, live.other)
                    self.assertEqual(report.views, live.views)
                    self.assertEqual(self.comparable_facts(report), self.comparable_facts(live))
                    self.assert_only_here_better(report, options, expected)

    def assert_sees(self, report, expected):
        nodes = {}
        for path, node in (self.node.expected(*expected["uverbs"]) if expected["uverbs"] else {}).items():
            name = os.path.basename(path)
            if name not in expected["without"]:
                nodes[path] = (*node[:3], expected["modes"].get(name, node[3]), expected["owner"], node[5])
        if expected["owner"] is None:
            report.nodes = {path: (*node[:4], None, node[5]) for path, node in report.nodes.items()}
        self.assertEqual(report.nodes, nodes)
        for directory, names in expected["views"].items():
            self.assertEqual(report.views[directory], names)
        if expected["views"].get("infiniband", ALL) != ALL:
            self.assertNotIn("umad0", report.views["infiniband_mad"])
        if expected["other"]:
            self.assertEqual(report.other, expected["other"])
        for fact, value in expected["facts"].items():
            value = value or read(f"{self.tree}/sys/class/infiniband/mlx5_2/node_guid").strip()
            self.assertEqual(report.facts[fact].strip(), value)

    def ways(self, options):
        """Returns the ways to compare. crun 1.8 passes `/` as bundle to createRuntime hooks of a container with a user namespace
        and devices."""
        if options.get("userns") and self.runtime.version().startswith("crun version 1.8."):
            return []
        return [self.wrapped, self.wrapped_with_hooks]

    @staticmethod
    def comparable_facts(report):
        return {name: value for name, value in report.facts.items() if name not in ("require", "capabilities")}

    @staticmethod
    def comparable(nodes, userns):
        """With a user namespace runtimes use bind mounts, and the owner of the node in the container depends on the runtime."""
        return {path: node[:3] + node[5:] if userns else node for path, node in nodes.items()}

    def assert_only_here_better(self, report, options, expected):
        """Checks variables and capabilities, which only rdma-runtime can add."""
        if not expected["uverbs"]:
            return
        # RoCE without a rail works only in the node's network namespace.
        self.assertEqual(report.facts["require"] != "", not options.get("netns", True))
        if has_ipc_lock(int(read("/proc/self/status").split("CapBnd:")[1].split()[0], 16)):
            self.assertTrue(has_ipc_lock(int(report.facts["capabilities"], 16)))

    def test_refuses_the_same_by_each_way(self):
        for number, (name, options) in enumerate(REFUSED):
            with self.subTest(name):
                bundle = Bundle(self, f"refused{number}", **options)
                self.refused(self.runtime.run(bundle))
                (by_hook,) = [one for one in self.refusals() if one["container"] == bundle.id]
                refused = self.refused(self.wrapper.run(bundle))
                self.assertEqual(refused.stdout, "")
                (by_wrapper,) = [one for one in self.refusals() if one["container"] == bundle.id]
                self.assertEqual((by_hook["stage"], by_wrapper["stage"]), ("createRuntime", "create"))
                self.assertIn(by_wrapper["message"], refused.stderr)
                self.assertIn(("mlx5_7", "/dev/infiniband/uverbs1")[number], by_hook["message"])
                self.assertIsNone(by_hook["pod"])
                self.assert_ledger_empty()


class Runc(BothWays, harness.NodeCase):
    runtime_name = "runc"


class Crun(BothWays, harness.NodeCase):
    runtime_name = "crun"


class Booked(harness.NodeCase):
    """A grant in config.json: claimed by its container, or released if the container does not start."""

    def setUp(self):
        super().setUp()
        self.runtime = Runtime(self, "runc")

    def assert_next_gets_it(self):
        bundle = exclusive(self, "next")
        self.assertEqual(self.runtime.report(bundle).nodes, self.node.expected("uverbs1"))

    def test_overwrites_token_of_image(self):
        bundle = exclusive(self, annotations={**EXCLUSIVE, "rdma-init.io/grant": "0" * 32})
        self.book(bundle)
        self.assertRegex(bundle.config["annotations"]["rdma-init.io/grant"], "^[0-9a-f]{32}$")
        self.assertNotEqual(bundle.config["annotations"]["rdma-init.io/grant"], "0" * 32)

    def test_token_of_another_container_grants_nothing(self):
        """The token of another container's grant, in a container without a request, allocates and releases nothing."""
        owner = exclusive(self, "owner")
        self.book(owner)
        before = self.devices()
        token = owner.config["annotations"]["rdma-init.io/grant"]
        report = self.runtime.report(Bundle(self, "thief", annotations={"rdma-init.io/grant": token}))
        self.assertEqual(report.nodes, {})
        self.assertEqual(self.devices(), before)

    def book(self, bundle):
        """Books a grant by a process that ends, as a runtime that is killed or fails after rdma-runtime executed it."""
        self.succeeded(Wrapped(self, "true").create(bundle))
        bundle.config = bundle.written()
        self.assertIn("rdma-init.io/grant", bundle.config["annotations"])

    def test_recover_releases_grant_of_ended_requester(self):
        self.book(exclusive(self, "lost"))
        self.assertEqual(len(self.recover()), 1)
        self.assert_ledger_empty()

    def test_request_releases_grant_of_ended_requester(self):
        self.book(exclusive(self, "lost"))
        self.assert_next_gets_it()
        self.assert_ledger_empty()

    def test_keeps_grant_of_running_requester(self):
        waits = write(self.work + "/waits", "#!/bin/sh\nexec sleep 1000\n", 0o755)
        requester = Wrapped(self, waits).begin("create", exclusive(self, "owner"))
        wait_for(lambda: read(f"/proc/{requester.pid}/comm") == "sleep\n", "the runtime's start")
        self.assertEqual(self.recover(), [])
        self.refused(self.runtime.run(exclusive(self, "other")), "mlx5_1", "container that is being created")

    def test_hook_binds_grant_to_container(self):
        """The grant belongs to the container even if the requesting process has ended."""
        bundle = exclusive(self, "bound", args=FOREVER)
        self.book(bundle)
        self.succeeded(self.runtime.create(bundle))
        self.assertEqual(self.recover(), [])
        self.assertEqual(self.holders(), {"mlx5_1": ["container bound"]})
        self.refused(self.runtime.run(exclusive(self, "other")), "mlx5_1", "bound")
        self.succeeded(self.runtime.delete(bundle))
        self.assert_ledger_empty()

    def test_hook_binds_grant_without_reading_node(self):
        """The hook binds the grant without reading the node's HCAs and without adding nodes, rules or limits."""
        bundle = exclusive(self, "bound", args=FOREVER)
        self.book(bundle)
        arguments = bundle.config["hooks"]["createRuntime"][0]["args"]
        arguments[arguments.index("--root") + 1] = "/nowhere"
        self.succeeded(self.runtime.create(bundle.write()))
        self.assertEqual(self.holders(), {"mlx5_1": ["container bound"]})
        self.succeeded(self.runtime.delete(bundle))
        self.assert_ledger_empty()

    def test_container_reads_view_mounted_under_token(self):
        """The view is mounted under the token's name. The container reads it after the hook has bound the grant."""
        bundle = exclusive(self, "viewed")
        self.book(bundle)
        report = self.runtime.report(bundle)
        self.assertEqual(report.views["infiniband"], ["mlx5_1"])
        self.assertEqual(report.facts["ibdev uverbs1"], "mlx5_1")
        self.assert_ledger_empty()

    def test_releases_grant_when_create_fails_before_hooks(self):
        """The runtime fails before it runs hooks, so the grant stays unbound and no hook reports the failure."""
        bundle = exclusive(self, "broken")
        self.book(bundle.mount("/x", "/does/not/exist"))
        self.refused(self.runtime.run(bundle), "/does/not/exist")
        self.assert_next_gets_it()
        self.assertEqual(self.recover(), [])
        self.assert_ledger_empty()

    def test_releases_grant_when_later_hook_fails(self):
        """A later hook of another program fails. crun 1.8 then runs no poststop hooks."""
        for name in ("runc", "crun"):
            with self.subTest(name):
                self.runtime = Runtime(self, name)
                bundle = exclusive(self, "broken-" + name)
                bundle.config["hooks"]["createRuntime"].append({"path": "/bin/false"})
                self.refused(self.runtime.run(bundle.write()))
                report = self.runtime.report(exclusive(self, "next-" + name))
                self.assertEqual(report.nodes, self.node.expected("uverbs1"))
                if name == "crun":
                    self.recover()
                self.assert_ledger_empty()


if __name__ == "__main__":
    harness.main_in_own_machine()
