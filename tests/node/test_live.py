"""What createRuntime gives a container, under runc and under crun, as the container itself sees it."""
import copy
import json
import os
import re
import subprocess

import harness
from containers import Bundle, Pod, Runtime, stopped

EVENT = re.compile(r'^rdma-hook: (?:container `[^`]*`: )?(?:(?:given|booked) [^:]*: )?'
                   r'(granted|kept|booked|returned|left)((?: [a-z_]+=(?:"(?:[^"\\]|\\.)*"|[^"\s]+))+)$', re.MULTILINE)
FIELD = re.compile(r' ([a-z_]+)=("(?:[^"\\]|\\.)*"|[^"\s]+)')


def events(log):
    """The lines of a log that are for programs, as dictionaries with their word as `event`."""
    found = []
    for event, fields in EVENT.findall(log):
        values = {key: json.loads(value) if value[0] == '"' else value for key, value in FIELD.findall(fields)}
        found.append({"event": event, **values})
    return found


def keep_log(bundle, listener):
    """What this bundle's hooks say from now on is heard there, whichever the runtime."""
    for entries in bundle.config["hooks"].values():
        for entry in entries:
            entry["args"] = ["sh", "-c", f'exec "$0" "$@" 2> {listener.path}', entry["path"], *entry["args"][1:]]
            entry["path"] = "/bin/sh"
    return bundle.write()


class Live:
    runtime_name = ""

    def setUp(self):
        super().setUp()
        self.runtime = Runtime(self, self.runtime_name)

    def tearDown(self):
        self.runtime.delete_all()
        self.assert_ledger_empty()
        self.assert_node_unchanged()

    def refusal(self, bundle):
        """The hook's message. crun throws it away."""
        errors = harness.Listener(self.work + "/errors")
        hooks = copy.deepcopy(bundle.config["hooks"])
        done = self.runtime.run(keep_log(bundle, errors))
        self.refused(done)
        self.assertNotIn("node|", done.stdout)
        self.assertFalse(self.runtime.exists(bundle))
        bundle.config["hooks"] = hooks
        bundle.write()
        return done.stderr + errors.heard()

    # --- what was asked for

    def test_granted_nodes_rules_and_view(self):
        report = self.runtime.report(Bundle(self, asks="mlx5_0,mlx5_1"))
        self.assertEqual(report.nodes, self.node.expected("uverbs0", "uverbs1"))
        self.assertEqual(report.other, "Operation not permitted")
        self.assertEqual(report.views["infiniband"], ["mlx5_0", "mlx5_1"])
        self.assertEqual(report.views["infiniband_verbs"], ["abi_version", "uverbs0", "uverbs1"])
        self.assertNotIn("umad0", report.views["infiniband_mad"])

    def test_attributes_are_read_through_the_view(self):
        facts = self.runtime.report(Bundle(self, asks="mlx5_2")).facts
        guid = harness.read(self.node.tree + "/sys/class/infiniband/mlx5_2/node_guid").strip()
        self.assertEqual(facts["guid mlx5_2"], guid)
        self.assertEqual(facts["ibdev uverbs2"], "mlx5_2")
        # Without it libibverbs finds no device at all.
        self.assertEqual(facts["abi_version"], "6")

    def test_view_is_read_only(self):
        facts = self.runtime.report(Bundle(self, asks="mlx5_2")).facts
        for directory in ("infiniband", "infiniband_verbs"):
            self.assertEqual(facts["write " + directory].strip(), "Read-only file system")

    def test_view_can_be_turned_off(self):
        self.configure({"sysfs_view": False})
        report = self.runtime.report(Bundle(self, asks="mlx5_2"))
        self.assertEqual(report.views["infiniband"], [f"mlx5_{i}" for i in range(self.node.HCAS)])
        self.assertEqual(report.nodes, self.node.expected("uverbs2"))

    def test_nothing_asked_nothing_given(self):
        for name, asks in (("silent", None), ("none", "none")):
            with self.subTest(name):
                report = self.runtime.report(Bundle(self, name, asks=asks))
                self.assertEqual(report.nodes, {})
                self.assertEqual(report.views["infiniband"], [f"mlx5_{i}" for i in range(self.node.HCAS)])

    def test_all(self):
        report = self.runtime.report(Bundle(self, asks="all"))
        self.assertEqual(report.nodes, self.node.expected(*(f"uverbs{i}" for i in range(self.node.HCAS))))

    def test_a_count(self):
        report = self.runtime.report(Bundle(self, asks="3"))
        self.assertEqual(len(report.nodes), 3 + 1)
        self.assertEqual(report.views["infiniband"], ["mlx5_0", "mlx5_1", "mlx5_2"])

    def test_owner_and_mode_as_config_says(self):
        self.configure({"nodes": {"mode": "0660", "uid": 7, "gid": 8}})
        nodes = self.runtime.report(Bundle(self, asks="mlx5_1")).nodes
        self.assertEqual(nodes["/dev/infiniband/uverbs1"][3:5], ("660", "7:8"))

    def test_a_user_other_than_root_opens_the_nodes(self):
        report = self.runtime.report(Bundle(self, asks="mlx5_0,mlx5_1", uid=1000))
        self.assertEqual(report.facts["user"], "1000")
        self.assertEqual(report.nodes, self.node.expected("uverbs0", "uverbs1"))

    # --- the container's own settings

    def test_user_namespace(self):
        report = self.runtime.report(Bundle(self, asks="mlx5_0,mlx5_1", userns=True))
        opened = {path: (node[:4], node[5]) for path, node in report.nodes.items()}
        expected = self.node.expected("uverbs0", "uverbs1")
        self.assertEqual(opened, {path: (node[:4], node[5]) for path, node in expected.items()})
        self.assertEqual(report.views["infiniband"], ["mlx5_0", "mlx5_1"])
        self.assertEqual(report.facts["ibdev uverbs1"], "mlx5_1")

    def test_host_network(self):
        report = self.runtime.report(Bundle(self, asks="mlx5_1", netns=False))
        self.assertEqual(report.nodes, self.node.expected("uverbs1"))

    def test_read_only_root_file_system(self):
        report = self.runtime.report(Bundle(self, asks="mlx5_1", readonly=True))
        self.assertEqual(report.nodes, self.node.expected("uverbs1"))

    def test_no_mount_at_dev(self):
        bundle = Bundle(self, asks="mlx5_1", dev=False)
        report = self.runtime.report(bundle)
        self.assertEqual(report.nodes, self.node.expected("uverbs1"))

    def test_no_mount_at_sys(self):
        bundle = Bundle(self, asks="mlx5_1", sys=False)
        report = self.runtime.report(bundle)
        self.assertEqual(report.nodes, self.node.expected("uverbs1"))
        self.assertEqual(os.listdir(bundle.rootfs + "/sys"), [])

    def test_nodes_of_a_device_plugin_are_the_request(self):
        device = {"path": "/dev/infiniband/uverbs2", "type": "c", "major": 231, "minor": 194, "fileMode": 0o666}
        bundle = Bundle(self, devices=[device])
        report = self.runtime.report(bundle)
        self.assertEqual(report.nodes, self.node.expected("uverbs2"))
        self.assertEqual(report.views["infiniband"], ["mlx5_2"])

    def test_what_is_there_already_is_left_alone(self):
        device = {"path": "/dev/infiniband/uverbs2", "type": "c", "major": 231, "minor": 194, "fileMode": 0o600}
        report = self.runtime.report(Bundle(self, asks="mlx5_1,mlx5_2", devices=[device]))
        self.assertEqual(report.nodes["/dev/infiniband/uverbs2"][3], "600")
        self.assertEqual(report.nodes["/dev/infiniband/uverbs1"][3], "666")

    def test_another_device_in_the_place_of_one_is_an_error(self):
        device = {"path": "/dev/infiniband/uverbs1", "type": "c", "major": 1, "minor": 5, "fileMode": 0o666}
        message = self.refusal(Bundle(self, asks="mlx5_1", devices=[device]))
        self.assertIn("uverbs1", message)
        self.assertIn("1:5", message)

    def test_memlock_is_raised(self):
        limits = (64 << 10, harness.MEMLOCK)
        prefix = ["prlimit", f"--memlock={limits[0]}:{limits[1]}"]
        self.runtime.prefix = prefix + self.runtime.prefix
        self.assertEqual(self.runtime.report(Bundle(self, "silent")).facts["soft memlock"], str(limits[0]))
        facts = self.runtime.report(Bundle(self, "asks", asks="mlx5_1")).facts
        self.assertEqual(facts["soft memlock"], str(limits[1]))

    # --- refusals

    def test_refusals(self):
        self.configure({"pools": [{"name": "shared", "modes": ["shared"], "selectors": {"vendors": ["15b3"]}}]})
        rows = (
            ("unknown HCA", "mlx5_9", {}, ["mlx5_9"]),
            ("more than there are", "5", {}, ["5", "4"]),
            ("malformed", "mlx5_0,,", {}, ["rdma-init.io/devices"]),
            ("no GPU", "gpu", {}, ["GPU"]),
            ("mode of no pool", "mlx5_0", {"rdma-init.io/mode": "exclusive"}, ["shared"]),
            ("unknown mode", "mlx5_0", {"rdma-init.io/mode": "selfish"}, ["selfish"]),
            ("unknown network", "mlx5_0", {"rdma-init.io/network": "rdma"}, ["rdma"]))
        for number, (name, asks, annotations, words) in enumerate(rows):
            with self.subTest(name):
                message = self.refusal(Bundle(self, f"refused{number}", asks=asks, annotations=annotations))
                for word in words + ["rdma-hook"]:
                    self.assertIn(word, message)

    def test_wrong_stage(self):
        bundle = Bundle(self, asks="mlx5_0", stages=())
        for stage in ("createContainer", "startContainer"):
            with self.subTest(stage):
                bundle.config["hooks"] = {stage: [self.entry(stage)]}
                bundle.config["annotations"]["run.oci.hooks.stderr"] = self.work + "/errors"
                bundle.write()
                done = self.runtime.run(bundle)
                # startContainer's path is the container's: there it does not even exist.
                self.refused(done)
                if stage == "createContainer":
                    self.assertIn("exit code: 1" if self.runtime.name == "crun" else "use createRuntime", done.stderr)
                self.runtime.delete_all()

    def test_wrong_stage_called_directly(self):
        for stage in ("createContainer", "startContainer", "poststart"):
            done = self.hook(stage, stopped(Bundle(self, stage, stages=())))
            self.assertEqual(done.returncode, 1)
            self.assertIn("use createRuntime", done.stderr)

    # --- several calls, several containers

    def test_prestart_and_create_runtime_both(self):
        stages = ("prestart", "createRuntime", "poststop")
        report = self.runtime.report(Bundle(self, asks="mlx5_0,mlx5_1", stages=stages))
        self.assertEqual(report.nodes, self.node.expected("uverbs0", "uverbs1"))
        self.assertEqual(report.views["infiniband"], ["mlx5_0", "mlx5_1"])
        self.assertEqual(report.facts["ibdev uverbs0"], "mlx5_0")

    def test_prestart_alone(self):
        report = self.runtime.report(Bundle(self, asks="mlx5_1", stages=("prestart", "poststop")))
        self.assertEqual(report.nodes, self.node.expected("uverbs1"))

    def exclusive(self, name, asks="mlx5_1", **options):
        return Bundle(self, name, asks=asks, annotations={"rdma-init.io/mode": "exclusive"}, **options)

    def test_two_at_once_on_one_exclusive_hca(self):
        first, second = self.exclusive("first", args=("sleep", "1000")), self.exclusive("second")
        self.given(self.runtime.create(first))
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"]})
        message = self.refusal(second)
        self.assertIn("mlx5_1", message)
        self.assertIn("first", message)
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"]})
        self.given(self.runtime.create(Bundle(self, "third", asks="mlx5_2", args=("sleep", "1000"))))
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"], "mlx5_2": ["container third"]})
        self.given(self.runtime.delete(first))
        self.assertEqual(self.runtime.report(second).nodes, self.node.expected("uverbs1"))

    def test_a_shared_hca_is_no_longer_to_be_had_alone(self):
        shared = Bundle(self, "shared", asks="mlx5_1", annotations={"rdma-init.io/mode": "shared"})
        self.given(self.runtime.create(shared))
        self.assertIn("mlx5_1", self.refusal(self.exclusive("exclusive")))

    def test_restart(self):
        bundle = self.exclusive("again")
        for _ in range(3):
            report = self.runtime.report(bundle)
            self.assertEqual(report.nodes, self.node.expected("uverbs1"))
            self.assert_ledger_empty()

    def test_a_killed_container_is_noticed_by_the_next_exclusive_request(self):
        first, second = self.exclusive("first", args=("sleep", "1000")), self.exclusive("second")
        self.given(self.runtime.create(first))
        self.runtime.kill(first)
        self.assertEqual(self.runtime.report(second).nodes, self.node.expected("uverbs1"))

    def test_a_child_that_outlives_init_holds_the_hca(self):
        first = self.exclusive("first", args=("sh", "-c", "sleep 1000 & exec sleep 1000"))
        first.config["linux"]["namespaces"] = [one for one in first.config["linux"]["namespaces"] if one["type"] != "pid"]
        first.write()
        second = self.exclusive("second")
        self.given(self.runtime.create(first))
        self.given(self.runtime.call("start", first.id))
        processes = first.cgroup() + "/cgroup.procs"
        harness.wait_for(lambda: len(harness.read(processes).split()) == 2, "the container's second process")
        self.runtime.kill(first)
        self.assertIn("container first", self.refusal(second))
        self.assertEqual(self.recover(), [])
        for pid in harness.read(processes).split():
            os.kill(int(pid), 9)
        harness.wait_for(lambda: not harness.read(processes), "the end of the container's last process")
        self.assertEqual(self.runtime.report(second).nodes, self.node.expected("uverbs1"))

    def test_a_killed_container_is_returned_by_recover(self):
        bundle = self.exclusive("killed", args=("sleep", "1000"))
        self.given(self.runtime.create(bundle))
        self.assertEqual(self.recover(), [])
        self.runtime.kill(bundle)
        self.assertEqual(self.recover(), ["container killed"])
        self.assert_ledger_empty()

    # --- what is said and counted

    def logged(self, bundle):
        self.log = harness.Listener(self.work + "/log")
        return keep_log(bundle, self.log)

    def said(self):
        return events(self.log.heard())

    def metrics(self):
        """Series -> value; the node is one whose HCA has a counter."""
        harness.write(self.work + "/node/sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "4711\n")
        text = harness.must([harness.PROGRAM, "metrics", "--grants", "--root", self.work + "/node", "--ledger",
                             self.ledger_directory], env={})
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {series.removeprefix("rdma_hook_"): int(value) for series, _, value in lines}

    def assert_times(self, event):
        steps = {key: int(value) for key, value in event.items() if key.endswith("_us") and key != "total_us"}
        self.assertLessEqual(sum(steps.values()), int(event["total_us"]))
        self.assertGreater(sum(steps.values()), 0)
        return set(steps)

    def test_a_line_of_the_grant_and_one_of_its_return(self):
        self.given(self.runtime.run(self.logged(Bundle(self, "web", asks="mlx5_0,mlx5_1"))))
        granted, returned = self.said()
        self.assertEqual(granted["event"], "granted")
        self.assertEqual(granted["container"], "web")
        self.assertEqual((granted["engine"], granted["hcas"], granted["mode"]), ("runc", "mlx5_0,mlx5_1", "hca"))
        self.assertIn("rdma-init.io/devices", granted["source"])
        self.assertLessEqual({"read_us", "decide_us", "container_us", "ledger_us"}, self.assert_times(granted))
        self.assertEqual(returned["event"], "returned")
        self.assertEqual((returned["container"], returned["reason"]), ("web", "poststop"))
        self.assertEqual((returned["hcas"], returned["mode"]), ("mlx5_0,mlx5_1", "hca"))
        self.assertEqual(returned["key"], granted["key"])
        self.assertLessEqual({"read_us", "return_us"}, self.assert_times(returned))

    def test_a_line_of_what_recover_returns(self):
        bundle = self.logged(self.exclusive("killed", args=("sleep", "1000")))
        self.given(self.runtime.create(bundle))
        self.runtime.kill(bundle)
        done = self.given(harness.run([harness.PROGRAM, "recover", "--ledger", self.ledger_directory], env={}))
        (returned,) = events(done.stderr)
        self.assertEqual((returned["event"], returned["container"], returned["reason"]),
                         ("returned", "killed", "recover"))
        self.runtime.delete(bundle)
        self.assertEqual([event["event"] for event in self.said()], ["granted"], "its poststop has nothing to return")
        self.assertEqual(self.metrics().get('returns_total{reason="recover"}'), 1)

    def test_a_line_of_what_others_find(self):
        first = self.exclusive("first", args=("sleep", "1000"))
        self.given(self.runtime.create(first))
        self.runtime.kill(first)
        self.given(self.runtime.run(self.logged(self.exclusive("second"))))
        self.assertEqual([(event["event"], event["container"], event.get("reason")) for event in self.said()],
                         [("granted", "second", None), ("returned", "first", "container-gone"),
                          ("returned", "second", "poststop")])
        self.assertEqual(self.metrics().get('returns_total{reason="container-gone"}'), 1)

    def test_a_pods_container_leaves(self):
        pod = Pod(self)
        self.given(self.runtime.run(self.logged(self.exclusive("worker", netns=pod.path))))
        granted, left = self.said()
        self.assertEqual((left["event"], left["container"], left["reason"]), ("left", "worker", "poststop"))
        self.assertEqual((left["key"], left["netns"]), (granted["key"], pod.path))
        pod.remove()
        self.given(self.runtime.run(self.exclusive("next")))
        metrics = self.metrics()
        self.assertEqual(metrics.get('returns_total{reason="namespace-gone"}'), 1)
        self.assertEqual(metrics.get('returns_total{reason="poststop"}'), 1, "that of the other one")

    def test_one_grant_by_two_stages(self):
        bundle = self.logged(Bundle(self, asks="mlx5_0", stages=("prestart", "createRuntime", "poststop")))
        self.given(self.runtime.run(bundle))
        self.assertEqual([event["event"] for event in self.said()], ["granted", "kept", "returned"])
        self.assertEqual(self.metrics().get('grants_total{engine="runc",mode="hca"}'), 1)

    def test_metrics(self):
        first = self.exclusive("first", args=("sleep", "1000"))
        self.given(self.runtime.create(first))
        self.refusal(self.exclusive("second"))
        self.refusal(self.exclusive("third"))
        self.refusal(Bundle(self, "missing", asks="mlx5_9"))
        self.refusal(Bundle(self, "malformed", asks="mlx5_0,,"))
        config = harness.read(self.config)
        harness.write(self.config, "{")
        self.refusal(Bundle(self, "unconfigured", asks="mlx5_0"))
        harness.write(self.config, config)
        metrics = self.metrics()
        owner = next(series for series in metrics if series.startswith("grant_info"))
        self.assertRegex(owner, '^grant_info{container="first",grant="container-first-[0-9a-f]+",hca="mlx5_1",netns=""}$')
        self.assertEqual(metrics.get('rdma_port_counter{counter="port_rcv_data",hca="mlx5_1",port="1"}'), 4711)
        self.assertEqual(metrics.get('holders{hca="mlx5_1",mode="exclusive"}'), 1)
        self.given(self.runtime.delete(first))
        metrics = self.metrics()
        self.assertEqual({series: value for series, value in metrics.items() if "_total{" in series
                          and not series.startswith("duration")},
                         {'grants_total{engine="runc",mode="exclusive"}': 1, 'returns_total{reason="poststop"}': 1,
                          'failures_total{reason="busy",stage="createRuntime"}': 2,
                          'failures_total{reason="no-hca",stage="createRuntime"}': 1,
                          'failures_total{reason="refused",stage="createRuntime"}': 1,
                          'failures_total{reason="config",stage="createRuntime"}': 1})
        stage = 'stage_duration_microseconds_count{result="%s",stage="%s"}'
        self.assertEqual([metrics.get(stage % labels) for labels in (
            ("done", "createRuntime"), ("failed", "createRuntime"), ("done", "poststop"))], [1, 5, 1])
        self.assertEqual(metrics.get('duration_count{stage="poststop",step="return"}'), 1)
        self.assertNotIn("holders", "".join(metrics))

    # --- pods

    def test_restart_in_a_living_pod(self):
        pod = Pod(self)
        before = self.exclusive("worker", netns=pod.path)
        self.assertEqual(self.runtime.report(before).nodes, self.node.expected("uverbs1"))
        held = self.holders()
        self.assertEqual(list(held), ["mlx5_1"], "poststop of a container does not return the pod's grant")
        self.assertEqual(self.runtime.report(before).nodes, self.node.expected("uverbs1"))
        # A sidecar joins the grant; a stranger does not.
        sidecar = self.exclusive("sidecar", netns=pod.path)
        self.assertEqual(self.runtime.report(sidecar).nodes, self.node.expected("uverbs1"))
        self.assertIn("mlx5_1", self.refusal(self.exclusive("stranger")))
        self.assertEqual(self.holders(), held)
        self.assertEqual(self.recover(), [])
        pod.remove()
        self.assertEqual(self.runtime.report(self.exclusive("next")).nodes, self.node.expected("uverbs1"))

    def test_recover_returns_the_grant_of_a_pod_that_is_gone(self):
        pod = Pod(self)
        self.runtime.report(self.exclusive("worker", netns=pod.path))
        pod.remove()
        self.assertEqual(len(self.recover()), 1)


class Runc(Live, harness.Case):
    runtime_name = "runc"

    def test_eight_containers_at_once(self):
        """As many exclusive requests as HCAs, and as many again: each HCA has one holder."""
        self.configure({"pools": [{"name": "all", "modes": ["exclusive"]}]})
        bundles = [Bundle(self, f"c{i}", asks="1", args=("sleep", "1000")) for i in range(2 * self.node.HCAS)]
        started = [subprocess.Popen(self.runtime.command("create", "--bundle", bundle.directory, bundle.id),
                                    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                   for bundle in bundles]
        codes = [process.wait(harness.DEADLINE) for process in started]
        self.assertEqual(codes.count(0), self.node.HCAS, codes)
        held = self.holders()
        self.assertEqual(sorted(held), [f"mlx5_{i}" for i in range(self.node.HCAS)])
        owners = [owner for owners in held.values() for owner in owners]
        self.assertEqual(sorted(owners), sorted(f"container {b.id}" for b, code in zip(bundles, codes) if code == 0))


class Crun(Live, harness.Case):
    runtime_name = "crun"


if __name__ == "__main__":
    harness.main()
