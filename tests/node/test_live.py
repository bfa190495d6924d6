"""createRuntime and poststop with runc and crun: grants, refusals, releases, log lines and metrics. test_both_ways.py checks
devices and files in the container."""
import copy
import json
import os
import re

import harness
from containers import FOREVER, SHARED, Bundle, Pod, RuntimeTests, exclusive, stopped
from harness import HOOK, must, read, run, wait_for, write

EVENT = re.compile(r'^rdma-hook: (?:container `[^`]*`: )?(?:(?:allocated|booked) [^:]*: )?'
                   r'(granted|kept|booked|returned|left)((?: [a-z_]+=(?:"(?:[^"\\]|\\.)*"|[^"\s]+))+)$', re.MULTILINE)
FIELD = re.compile(r' ([a-z_]+)=("(?:[^"\\]|\\.)*"|[^"\s]+)')


def events(log):
    """Returns the machine-readable lines of a log as dictionaries, with their first word as `event`."""
    found = []
    for event, fields in EVENT.findall(log):
        values = {key: json.loads(value) if value[0] == '"' else value for key, value in FIELD.findall(fields)}
        found.append({"event": event, **values})
    return found


def keep_log(bundle, listener):
    """Redirects the stderr of this bundle's hooks to the listener, with each runtime."""
    for entries in bundle.config["hooks"].values():
        for entry in entries:
            entry["args"] = ["sh", "-c", f'exec "$0" "$@" 2> {listener.path}', entry["path"], *entry["args"][1:]]
            entry["path"] = "/bin/sh"
    return bundle.write()


class Live(RuntimeTests):
    def refusal(self, bundle):
        """Checks that the container is refused, and returns the hook's message, which crun discards."""
        errors = harness.Listener(self.work + "/errors")
        hooks = copy.deepcopy(bundle.config["hooks"])
        done = self.runtime.run(keep_log(bundle, errors))
        self.refused(done)
        self.assertNotIn("node|", done.stdout)
        self.assertFalse(self.runtime.exists(bundle))
        bundle.config["hooks"] = hooks
        bundle.write()
        return done.stderr + errors.received()

    # --- refusals

    def test_refuses_node_of_another_device(self):
        device = {"path": "/dev/infiniband/uverbs1", "type": "c", "major": 1, "minor": 5, "fileMode": 0o666}
        message = self.refusal(Bundle(self, requests="mlx5_1", devices=[device]))
        self.assertIn("uverbs1", message)
        self.assertIn("1:5", message)

    def test_refuses_invalid_requests_with_reason(self):
        self.configure({"pools": [{"name": "shared", "modes": ["shared"], "selectors": {"vendors": ["15b3"]}}]})
        rows = (
            ("unknown HCA", "mlx5_9", {}, ["mlx5_9"]),
            ("more than there are", "5", {}, ["5", "4"]),
            ("malformed", "mlx5_0,,", {}, ["rdma-init.io/devices"]),
            ("no GPU", "gpu", {}, ["GPU"]),
            ("mode of no pool", "mlx5_0", {"rdma-init.io/mode": "exclusive"}, ["shared"]),
            ("unknown mode", "mlx5_0", {"rdma-init.io/mode": "selfish"}, ["selfish"]),
            ("unknown network", "mlx5_0", {"rdma-init.io/network": "rdma"}, ["rdma"]))
        for number, (name, requests, annotations, words) in enumerate(rows):
            with self.subTest(name):
                message = self.refusal(Bundle(self, f"refused{number}", requests=requests, annotations=annotations))
                for word in words + ["rdma-hook"]:
                    self.assertIn(word, message)

    def test_fails_at_wrong_stage(self):
        bundle = Bundle(self, requests="mlx5_0", stages=())
        for stage in ("createContainer", "startContainer"):
            with self.subTest(stage):
                bundle.config["hooks"] = {stage: [self.entry(stage)]}
                bundle.config["annotations"]["run.oci.hooks.stderr"] = self.work + "/errors"
                bundle.write()
                done = self.runtime.run(bundle)
                # The runtime resolves startContainer's path in the container, where the hook does not exist.
                self.refused(done)
                if stage == "createContainer":
                    self.assertIn("exit code: 1" if self.runtime.name == "crun" else "use createRuntime", done.stderr)
                self.runtime.delete_all()

    def test_names_create_runtime_when_called_at_wrong_stage(self):
        for stage in ("createContainer", "startContainer", "poststart"):
            done = self.hook(stage, stopped(Bundle(self, stage, stages=())))
            self.assertEqual(done.returncode, 1)
            self.assertIn("use createRuntime", done.stderr)

    # --- several calls, several containers

    def test_grants_once_with_prestart_and_create_runtime(self):
        stages = ("prestart", "createRuntime", "poststop")
        report = self.runtime.report(Bundle(self, requests="mlx5_0,mlx5_1", stages=stages))
        self.assertEqual(report.nodes, self.node.expected("uverbs0", "uverbs1"))
        self.assertEqual(report.views["infiniband"], ["mlx5_0", "mlx5_1"])
        self.assertEqual(report.facts["ibdev uverbs0"], "mlx5_0")

    def test_grants_at_prestart(self):
        bundle = Bundle(self, requests="mlx5_1", stages=("prestart", "poststop"))
        self.assertEqual(self.nodes_of(bundle), self.node.expected("uverbs1"))

    def test_refuses_exclusive_hca_of_another_container(self):
        first, second = exclusive(self, "first", args=FOREVER), exclusive(self, "second")
        self.created(first)
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"]})
        message = self.refusal(second)
        self.assertIn("mlx5_1", message)
        self.assertIn("first", message)
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"]})
        self.created(Bundle(self, "third", requests="mlx5_2", args=FOREVER))
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"], "mlx5_2": ["container third"]})
        self.succeeded(self.runtime.delete(first))
        self.assertEqual(self.nodes_of(second), self.node.expected("uverbs1"))

    def test_refuses_exclusive_request_for_shared_hca(self):
        self.created(Bundle(self, "shared", requests="mlx5_1", annotations=SHARED))
        self.assertIn("mlx5_1", self.refusal(exclusive(self, "exclusive")))

    def test_grants_same_hca_after_each_restart(self):
        bundle = exclusive(self, "again")
        for _ in range(3):
            self.assertEqual(self.nodes_of(bundle), self.node.expected("uverbs1"))
            self.assert_ledger_empty()

    def test_exclusive_request_releases_grant_of_killed_container(self):
        first, second = exclusive(self, "first", args=FOREVER), exclusive(self, "second")
        self.created(first)
        self.runtime.kill(first)
        self.assertEqual(self.nodes_of(second), self.node.expected("uverbs1"))

    def test_keeps_grant_while_child_of_killed_init_runs(self):
        first = exclusive(self, "first", args=("sh", "-c", "sleep 1000 & exec sleep 1000"))
        first.share("pid")
        second = exclusive(self, "second")
        self.created(first)
        self.succeeded(self.runtime.call("start", first.id))
        processes = first.cgroup() + "/cgroup.procs"
        wait_for(lambda: len(read(processes).split()) == 2, "the container's second process")
        self.runtime.kill(first)
        self.assertIn("container first", self.refusal(second))
        self.assertEqual(self.recover(), [])
        for pid in read(processes).split():
            os.kill(int(pid), 9)
        wait_for(lambda: not read(processes), "the end of the container's last process")
        self.assertEqual(self.nodes_of(second), self.node.expected("uverbs1"))

    def test_recover_releases_grant_of_killed_container(self):
        bundle = self.created(exclusive(self, "killed", args=FOREVER))
        self.assertEqual(self.recover(), [])
        self.runtime.kill(bundle)
        self.assertEqual(self.recover(), ["container killed"])
        self.assert_ledger_empty()

    # --- log lines and metrics

    def logged(self, bundle):
        self.log = harness.Listener(self.work + "/log")
        return keep_log(bundle, self.log)

    def logged_events(self):
        return events(self.log.received())

    def metrics(self):
        """Returns a map from series to value, for a node with a port counter."""
        write(self.work + "/node/sys/class/infiniband/mlx5_1/ports/1/counters/port_rcv_data", "4711\n")
        text = must([HOOK, "metrics", "--grants", "--root", self.work + "/node", "--ledger",
                             self.ledger_directory], env={})
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {series.removeprefix("rdma_hook_"): int(value) for series, _, value in lines}

    def assert_times(self, event):
        steps = {key: int(value) for key, value in event.items() if key.endswith("_us") and key != "total_us"}
        self.assertLessEqual(sum(steps.values()), int(event["total_us"]))
        self.assertGreater(sum(steps.values()), 0)
        return set(steps)

    def test_logs_grant_and_release(self):
        self.succeeded(self.runtime.run(self.logged(Bundle(self, "web", requests="mlx5_0,mlx5_1"))))
        granted, returned = self.logged_events()
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

    def test_recover_logs_release(self):
        bundle = self.logged(exclusive(self, "killed", args=FOREVER))
        self.created(bundle)
        self.runtime.kill(bundle)
        done = self.succeeded(run([HOOK, "recover", "--ledger", self.ledger_directory], env={}))
        (returned,) = events(done.stderr)
        self.assertEqual((returned["event"], returned["container"], returned["reason"]),
                         ("returned", "killed", "recover"))
        self.runtime.delete(bundle)
        self.assertEqual([event["event"] for event in self.logged_events()], ["granted"], "poststop finds no grant to release")
        self.assertEqual(self.metrics().get('returns_total{reason="recover"}'), 1)

    def test_logs_release_of_killed_container_at_next_request(self):
        first = self.created(exclusive(self, "first", args=FOREVER))
        self.runtime.kill(first)
        self.succeeded(self.runtime.run(self.logged(exclusive(self, "second"))))
        self.assertEqual([(event["event"], event["container"], event.get("reason")) for event in self.logged_events()],
                         [("granted", "second", None), ("returned", "first", "container-gone"),
                          ("returned", "second", "poststop")])
        self.assertEqual(self.metrics().get('returns_total{reason="container-gone"}'), 1)

    def test_logs_end_of_container_in_living_pod(self):
        pod = Pod(self)
        self.succeeded(self.runtime.run(self.logged(exclusive(self, "worker", netns=pod.path))))
        granted, left = self.logged_events()
        self.assertEqual((left["event"], left["container"], left["reason"]), ("left", "worker", "poststop"))
        self.assertEqual((left["key"], left["netns"]), (granted["key"], pod.path))
        pod.remove()
        self.succeeded(self.runtime.run(exclusive(self, "next")))
        metrics = self.metrics()
        self.assertEqual(metrics.get('returns_total{reason="namespace-gone"}'), 1)
        self.assertEqual(metrics.get('returns_total{reason="poststop"}'), 1, "release of the second container")

    def test_logs_one_grant_for_two_stages(self):
        bundle = self.logged(Bundle(self, requests="mlx5_0", stages=("prestart", "createRuntime", "poststop")))
        self.succeeded(self.runtime.run(bundle))
        self.assertEqual([event["event"] for event in self.logged_events()], ["granted", "kept", "returned"])
        self.assertEqual(self.metrics().get('grants_total{engine="runc",mode="hca"}'), 1)

    def test_counts_grants_releases_and_refusals(self):
        first = self.created(exclusive(self, "first", args=FOREVER))
        self.refusal(exclusive(self, "second"))
        self.refusal(exclusive(self, "third"))
        self.refusal(Bundle(self, "missing", requests="mlx5_9"))
        self.refusal(Bundle(self, "malformed", requests="mlx5_0,,"))
        config = read(self.config)
        write(self.config, "{")
        self.refusal(Bundle(self, "unconfigured", requests="mlx5_0"))
        write(self.config, config)
        metrics = self.metrics()
        owner = next(series for series in metrics if series.startswith("grant_info"))
        self.assertRegex(owner, '^grant_info{container="first",grant="container-first-[0-9a-f]+",hca="mlx5_1",netns=""}$')
        self.assertEqual(metrics.get('rdma_port_counter{counter="port_rcv_data",hca="mlx5_1",port="1"}'), 4711)
        self.assertEqual(metrics.get('holders{hca="mlx5_1",mode="exclusive"}'), 1)
        self.succeeded(self.runtime.delete(first))
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

    def test_container_restarts_with_grant_of_its_pod(self):
        pod = Pod(self)
        before = exclusive(self, "worker", netns=pod.path)
        self.assertEqual(self.nodes_of(before), self.node.expected("uverbs1"))
        held = self.holders()
        self.assertEqual(list(held), ["mlx5_1"], "poststop of a container does not release the pod's grant")
        self.assertEqual(self.nodes_of(before), self.node.expected("uverbs1"))
        # A container of the pod joins the grant; a container outside of the pod is refused.
        sidecar = exclusive(self, "sidecar", netns=pod.path)
        self.assertEqual(self.nodes_of(sidecar), self.node.expected("uverbs1"))
        self.assertIn("mlx5_1", self.refusal(exclusive(self, "stranger")))
        self.assertEqual(self.holders(), held)
        self.assertEqual(self.recover(), [])
        pod.remove()
        self.assertEqual(self.nodes_of(exclusive(self, "next")), self.node.expected("uverbs1"))

    def test_recover_releases_grant_of_ended_pod(self):
        pod = Pod(self)
        self.runtime.report(exclusive(self, "worker", netns=pod.path))
        pod.remove()
        self.assertEqual(len(self.recover()), 1)


class Runc(Live, harness.NodeCase):
    runtime_name = "runc"

    def test_concurrent_exclusive_requests_get_one_hca_each(self):
        """Twice as many exclusive requests as HCAs: each HCA gets one owner."""
        self.configure({"pools": [{"name": "all", "modes": ["exclusive"]}]})
        bundles = [Bundle(self, f"c{i}", requests="1", args=FOREVER) for i in range(2 * self.node.HCAS)]
        started = [self.runtime.begin("create", bundle) for bundle in bundles]
        codes = [process.wait(harness.DEADLINE) for process in started]
        self.assertEqual(codes.count(0), self.node.HCAS, codes)
        held = self.holders()
        self.assertEqual(sorted(held), [f"mlx5_{i}" for i in range(self.node.HCAS)])
        owners = [owner for owners in held.values() for owner in owners]
        self.assertEqual(sorted(owners), sorted(f"container {b.id}" for b, code in zip(bundles, codes) if code == 0))


class Crun(Live, harness.NodeCase):
    runtime_name = "crun"


if __name__ == "__main__":
    harness.main_in_own_machine()
