"""SIGKILL at random system calls of every stage: the next call repairs what was left, and nothing stays behind."""
import json
import os
import sys

import harness
from containers import Bundle, FakeContainer, Pod, Runtime, Wrapped, stopped

ROUNDS = 50
FEWER_ROUNDS = 12
KILLED = 137
TRACER = [sys.executable, "-I", "-S", harness.HERE + "/kill_at.py"]


class Killed(harness.NodeCase):
    def setUp(self):
        super().setUp()
        self.configure({"pools": [{"name": "all", "modes": ["exclusive"]}]})
        self.choice = self.random()

    def kill_at(self, number, stage, state):
        argv = [*TRACER, str(number), harness.HOOK, *self.arguments(stage)]
        return harness.run(argv, input=json.dumps(state).encode())

    def stops(self, stage, state):
        done = self.given(self.kill_at(0, stage, state))
        return int(done.stderr.split()[-1])

    def numbers(self, stops, rounds=ROUNDS):
        """Of stops, random ones, from all parts of the stage."""
        return [self.choice.randint(1 + stops * part // rounds, stops * (part + 1) // rounds) for part in range(rounds)]

    def assert_killed(self, done, number, stops):
        """What a call does depends a little on what it finds: a kill at its very end may come too late."""
        if number < stops * 9 // 10:
            self.assertEqual(done.returncode, KILLED, done.stderr)

    def give(self, container):
        self.given(self.hook("createRuntime", container.state()))

    def take_back(self, bundle):
        self.given(self.hook("poststop", stopped(bundle)))

    def come_and_go(self, bundle):
        """The first call on a node makes directories."""
        container = FakeContainer(bundle)
        self.give(container)
        container.end()
        self.take_back(bundle)

    def assert_next_call_repairs(self, other, part):
        """By a container that wants the same HCA, or by `recover`."""
        if part % 2:
            container = FakeContainer(other)
            self.give(container)
            self.assertEqual(self.holders(), {"mlx5_1": ["container other"]})
            container.end()
            self.take_back(other)
        else:
            self.recover()
        self.assert_ledger_empty()
        self.assert_node_unchanged()

    def test_create_runtime(self):
        bundle, other = (Bundle(self, name, asks="mlx5_1", stages=()) for name in ("killed", "other"))
        self.come_and_go(bundle)
        with_all = FakeContainer(bundle)
        stops = self.stops("createRuntime", with_all.state())
        with_all.end()
        self.take_back(bundle)
        for part, number in enumerate(self.numbers(stops)):
            with self.subTest(stop=number, of=stops):
                container = FakeContainer(bundle)
                self.assert_killed(self.kill_at(number, "createRuntime", container.state()), number, stops)
                # The runtime destroys the container whose hook failed.
                container.end()
                self.assert_next_call_repairs(other, part)

    def test_create_runtime_again_for_the_same_container(self):
        bundle = Bundle(self, "killed", asks="mlx5_1", stages=())
        self.come_and_go(bundle)
        container = FakeContainer(bundle)
        stops = self.stops("createRuntime", container.state())
        container.end()
        self.take_back(bundle)
        for number in self.numbers(stops, FEWER_ROUNDS):
            with self.subTest(stop=number, of=stops):
                container = FakeContainer(bundle)
                self.assert_killed(self.kill_at(number, "createRuntime", container.state()), number, stops)
                self.give(container)
                self.assertEqual(container.nodes(), {"uverbs1": ("c", 231, 193, "0o666"),
                                                     "rdma_cm": ("c", *self.node.numbers["rdma_cm"], "0o666")})
                self.assertEqual(self.holders(), {"mlx5_1": ["container killed"]})
                container.end()
                self.take_back(bundle)
                self.assert_ledger_empty()

    def test_poststop(self):
        bundle, other = (Bundle(self, name, asks="mlx5_1", stages=()) for name in ("killed", "other"))

        def held():
            container = FakeContainer(bundle)
            self.give(container)
            container.end()
        held()
        stops = self.stops("poststop", stopped(bundle))
        for part, number in enumerate(self.numbers(stops)):
            with self.subTest(stop=number, of=stops):
                held()
                self.assert_killed(self.kill_at(number, "poststop", stopped(bundle)), number, stops)
                self.assert_next_call_repairs(other, part)

    def test_poststop_in_a_pod_whose_grant_stays(self):
        pod = Pod(self)
        bundle = Bundle(self, "killed", asks="mlx5_1", stages=(), netns=pod.path)
        container = FakeContainer(bundle)
        self.give(container)
        container.end()
        stops = self.stops("poststop", stopped(bundle))
        for number in self.numbers(stops, FEWER_ROUNDS):
            with self.subTest(stop=number, of=stops):
                container = FakeContainer(bundle)
                self.give(container)
                container.end()
                self.assert_killed(self.kill_at(number, "poststop", stopped(bundle)), number, stops)
                self.assertEqual(self.recover(), [])
                self.assertEqual(list(self.holders()), ["mlx5_1"])
        pod.remove()
        self.recover()
        self.assert_ledger_empty()

    def test_rdma_runtime(self):
        """In front of a runtime that makes nothing: whoever asked is gone as well."""
        bundle, other = (Bundle(self, name, asks="mlx5_1", stages=()) for name in ("killed", "other"))
        runtime = Wrapped(self, "true")

        def kill_at(number):
            argv = [*TRACER, str(number), runtime.program, runtime.program, "create", "--bundle", bundle.directory,
                    bundle.id]
            return harness.run(argv, env=runtime.env)
        self.given(kill_at(0))  # the first call on a node makes directories
        self.recover()
        stops = int(self.given(kill_at(0)).stderr.split()[-1])
        self.recover()
        for part, number in enumerate(self.numbers(stops)):
            with self.subTest(stop=number, of=stops):
                self.assert_killed(kill_at(number), number, stops)
                self.assert_next_call_repairs(other, part)

    def test_recover(self):
        bundle, other = (Bundle(self, name, asks="mlx5_1", stages=()) for name in ("killed", "other"))
        arguments = ["rdma-hook", "recover", "--ledger", self.ledger_directory]

        def vanished():
            container = FakeContainer(bundle)
            self.give(container)
            container.end()
        vanished()
        stops = int(self.given(harness.run([*TRACER, "0", harness.HOOK, *arguments])).stderr.split()[-1])
        for part, number in enumerate(self.numbers(stops, FEWER_ROUNDS)):
            with self.subTest(stop=number, of=stops):
                vanished()
                self.assert_killed(harness.run([*TRACER, str(number), harness.HOOK, *arguments]), number, stops)
                self.assert_next_call_repairs(other, part)

    def test_under_runc(self):
        """The same with a real runtime, which cleans up behind the hook."""
        runtime = Runtime(self, "runc")
        bundle = Bundle(self, "killed", asks="mlx5_1")
        self.given(runtime.run(bundle))
        container = FakeContainer(Bundle(self, "count", asks="mlx5_1", stages=()))
        stops = self.stops("createRuntime", container.state())
        container.end()
        self.take_back(container.bundle)
        entry = self.entry("createRuntime")
        for number in self.numbers(stops * 8 // 10, FEWER_ROUNDS):
            bundle.config["hooks"]["createRuntime"] = [
                {"path": TRACER[0], "args": [*TRACER, str(number), entry["path"], *entry["args"]]}]
            bundle.write()
            self.refused(runtime.run(bundle))
            self.assertIsNone(runtime.state(bundle))
            self.assertFalse(os.path.exists(bundle.cgroup()))
            self.recover()
            self.assert_ledger_empty()
            self.assert_node_unchanged()


if __name__ == "__main__":
    harness.main_in_own_machine()
