"""A container to which rdma-runtime granted all HCAs of its request has no createRuntime hook: the state of its runtime shows
whether it runs. Its HCA stays allocated from before `create` returns until the end of the container, also if a process is killed."""
import itertools
import os
import shutil
import sys

import harness
from containers import EXCLUSIVE, FOREVER, Bundle, Pod, Runtime, RuntimeTests, Wrapped
from harness import HOOK, RUNTIME, read, run, wait_for, write

ROUNDS = 20


class Alive(RuntimeTests):
    def setUp(self):
        super().setUp()
        self.runtime = self.wrapped()
        os.mkdir(self.runtime.root)  # as after the first container
        self.others = itertools.count()

    def wrapped(self, program=None, root=None):
        runtime = Wrapped(self, program or self.runtime_name)
        runtime.name = self.runtime_name
        runtime.prefix = [] if self.runtime_name == "runc" else list(Runtime.HIDE_V2)
        runtime.root = root or f"{self.work}/root"
        return runtime

    def bundle(self, name="first", **options):
        return Bundle(self, name, **{"stages": (), "requests": "mlx5_1", "annotations": EXCLUSIVE, "args": FOREVER, **options})

    def created(self, bundle=None, runtime=None):
        return super().created(bundle or self.bundle(), runtime)

    def hooks(self, bundle):
        return set(bundle.written()["hooks"])

    def assert_held(self, why=None):
        """Checks that `recover` and a request for the HCA find the container running. No hook reports its end: they read the
        runtime's state."""
        self.assertEqual(self.recover(), [], why)
        self.refused(self.runtime.create(self.bundle(f"other{next(self.others)}")), "mlx5_1")

    def assert_free(self):
        self.succeeded(self.runtime.delete(self.created(self.bundle(f"other{next(self.others)}"))))

    # --- containers with the hook

    def test_omits_hook_that_is_not_needed(self):
        first = self.created()
        self.assertEqual(self.hooks(first), {"poststop"})
        self.assertNotIn("rdma-init.io/grant", read(first.directory + "/config.json"))
        self.assertEqual(self.holders(), {"mlx5_1": ["container first"]})

    def test_first_container_of_root_has_hook(self):
        os.rmdir(self.runtime.root)
        first = self.created()
        self.assertEqual(self.hooks(first), {"createRuntime", "poststop"})
        self.assert_held()
        self.succeeded(self.runtime.delete(first))
        self.assertEqual(self.hooks(self.created(self.bundle("second"))), {"poststop"})

    def test_adds_hook_where_needed(self):
        shares = self.bundle("shares").share("pid")
        has = self.bundle("has", stages=("createRuntime",))
        for bundle in (shares, has):
            self.created(bundle)
            self.assertEqual(self.hooks(bundle), {"createRuntime", "poststop"}, bundle.id)
            self.assert_held()
            self.succeeded(self.runtime.delete(bundle))
            self.assert_free()

    def test_adds_hook_for_another_wrapper(self):
        program = write(self.work + "/bin/another-runtime",
                                f'#!/bin/sh\nexec {self.runtime_name} "$@"\n', 0o755)
        runtime = self.wrapped(program)
        first = self.created(runtime=runtime)
        self.assertEqual(self.hooks(first), {"createRuntime", "poststop"})
        self.assert_held()
        self.succeeded(runtime.delete(first))

    def test_hook_detects_node_swapped_by_wrapper(self):
        """The hook compares the numbers of the nodes with the booked HCAs."""
        program = write(self.work + "/bin/swap", f'''#!/bin/sh
for directory; do [ ! -f "$directory/config.json" ] || sed -i -e 's/"minor":193/"minor":194/g' "$directory/config.json"; done
exec {self.runtime_name} "$@"
''', 0o755)
        holder = self.created(self.bundle("holder", requests="mlx5_2"))
        runtime = self.wrapped(program)
        first = self.bundle()
        self.refused(runtime.create(first), "hook")  # crun does not show the hook's message
        self.assertEqual(self.holders(), {"mlx5_2": ["container holder"]})
        self.succeeded(self.runtime.delete(holder))

    def test_follows_link_with_another_name(self):
        link = self.work + "/runtime"
        os.symlink(Runtime(self, self.runtime_name).program, link)
        runtime = self.wrapped(link)
        first = self.created(runtime=runtime)
        # By its name the command line has Go's syntax, which is not crun's.
        self.assertEqual(self.hooks(first),
                         {"poststop"} if self.runtime_name == "runc" else {"createRuntime", "poststop"})
        self.assert_held()
        self.succeeded(runtime.delete(first))

    # --- running containers

    def test_holds_hca_until_container_ends(self):
        first = self.created()
        self.assert_held("created")
        self.succeeded(self.runtime.call("start", first.id))
        self.assert_held("running")
        if self.runtime.call("pause", first.id).returncode == 0:
            self.assert_held("paused")
            self.succeeded(self.runtime.call("resume", first.id))
        else:
            print(f"{self.id()}: nothing can be paused here", file=sys.stderr)
        self.succeeded(self.runtime.delete(first))
        self.assert_ledger_empty()
        self.assert_free()

    def test_frees_hca_of_killed_init(self):
        first = self.created()
        self.succeeded(self.runtime.call("start", first.id))
        self.runtime.kill(first)
        self.assertEqual(self.recover(), ["container first"])
        self.assert_free()

    def test_next_request_detects_end(self):
        first = self.created()
        self.runtime.kill(first)
        self.assert_free()

    def test_grants_to_same_container_again(self):
        first = self.created()
        again = self.runtime.create(first)
        self.refused(again)
        self.assertEqual(self.runtime.state(first)["status"], "created")
        self.assert_held("a second create of the same id has failed")
        self.succeeded(self.runtime.delete(first))
        self.created(first)
        self.assert_held("and a third has not")

    def test_separates_same_id_in_other_root(self):
        other = self.wrapped(root=self.work + "/other")
        os.mkdir(other.root)
        first = self.created()
        elsewhere = self.bundle("elsewhere", requests="mlx5_2")
        elsewhere.id = first.id
        self.created(elsewhere, other)
        self.assertEqual(self.hooks(elsewhere), {"poststop"})
        self.succeeded(self.runtime.delete(first))
        self.assertEqual(list(self.holders()), ["mlx5_2"])
        self.assertEqual(self.recover(), [])
        self.succeeded(other.delete(elsewhere))
        self.assert_ledger_empty()

    def test_separates_same_bundle_in_other_root(self):
        """The poststop of the second container names no root: the first container keeps its HCA while it runs."""
        other = self.wrapped(root=self.work + "/other")
        os.mkdir(other.root)
        for mode in ("exclusive", "shared"):
            first = self.created(self.bundle(mode, annotations={"rdma-init.io/mode": mode}))
            first.config["linux"]["cgroupsPath"] += "-other"
            second = other.create(first.write())
            if mode == "exclusive":
                self.refused(second, "mlx5_1")
            else:
                self.succeeded(second)
                self.assertEqual(self.holders(), {"mlx5_1": ["container shared"] * 2})
            other.delete(first)
            self.assertEqual(self.runtime.state(first)["status"], "created")
            self.assertEqual(self.holders(), {"mlx5_1": ["container " + mode]})
            self.assert_held()
            self.succeeded(self.runtime.delete(first))
            self.assert_free()

    def test_detects_same_root_and_bundle_by_other_paths(self):
        """Root and bundle are one container under each of their paths: the second call is refused before it books."""
        first = self.created()
        held = self.holders()
        os.symlink(self.runtime.root, self.work + "/link")
        os.symlink(first.directory, self.work + "/bundle-link")
        for root, bundle in ((self.work + "/link", first.directory),
                             (self.runtime.root + "/", self.work + "/bundle-link")):
            again = self.wrapped(root=root).call("create", "--bundle", bundle, first.id)
            self.refused(again, "a container of this id and bundle exists below")
            self.assertEqual(self.holders(), held)
        self.succeeded(self.runtime.delete(first))
        self.assert_ledger_empty()

    def test_separates_same_bundle_in_other_root_with_hook(self):
        """The hook does not know the root."""
        runtimes = [Runtime(self, self.runtime_name), Runtime(self, self.runtime_name)]
        runtimes[1].root += "-other"
        first = self.bundle(stages=("createRuntime", "poststop"))
        self.succeeded(runtimes[0].create(first))
        first.config["linux"]["cgroupsPath"] += "-other"
        second = runtimes[1].create(first.write())
        self.assertNotEqual(second.returncode, 0)
        runtimes[1].delete(first)
        self.assert_held()
        self.succeeded(runtimes[0].delete(first))
        self.assert_free()

    def test_two_creates_at_once_grant_one(self):
        """The refused `create` usually ends first, while the other `create` still runs with the HCA."""
        for round in range(ROUNDS):
            other = self.bundle(f"other-than-{round}")
            twin = self.bundle(f"twin{round}")
            both = [self.runtime.begin("create", twin) for _ in range(2)]
            wait_for(lambda both=both: any(process.poll() is not None for process in both), "the end of a create")
            self.refused(self.runtime.create(other), "mlx5_1")
            codes = [process.wait() for process in both]
            self.assertEqual(codes.count(0), 1, codes)
            self.assertEqual(self.runtime.state(twin)["status"], "created")
            self.assertEqual(self.holders(), {"mlx5_1": [f"container twin{round}"]})
            self.assert_held(f"round {round}")
            self.succeeded(self.runtime.delete(twin))
            self.assertEqual(self.holders(), {})

    def test_two_creates_with_tokens_at_once_grant_one(self):
        """In the node's PID namespace each call has its own token, and both would write config.json."""
        for round in range(ROUNDS):
            twin = self.bundle(f"twin{round}", requests="1").share("pid")
            both = [self.runtime.begin("create", twin) for _ in range(2)]
            codes = [process.wait() for process in both]
            self.assertEqual(codes.count(0), 1, codes)
            nodes = os.listdir(f"/proc/{self.runtime.state(twin)['pid']}/root/dev/infiniband")
            held = self.holders()
            self.assertEqual([name.replace("mlx5_", "uverbs") for name in held], [name for name in nodes if name.startswith("uverbs")], held)
            self.succeeded(self.runtime.delete(twin))
            self.assertEqual(self.holders(), {})

    def test_accepts_bundle_behind_link(self):
        """The runtime records the directory, not the link that the engine passed."""
        first = self.bundle()
        os.symlink(first.directory, self.work + "/link")
        directory, first.directory = first.directory, self.work + "/link"
        self.created(first)
        first.directory = directory
        self.assertEqual(self.hooks(first), {"poststop"})
        self.assert_held()
        self.succeeded(self.runtime.delete(first))
        self.assert_ledger_empty()

    def test_holds_hca_in_pod(self):
        pod = Pod(self)
        first, beside = (self.created(self.bundle(name, netns=pod.path)) for name in ("first", "beside"))
        for bundle in (first, beside):
            self.assertEqual(self.hooks(bundle), {"poststop"})
            self.assert_held()
            self.succeeded(self.runtime.delete(bundle))
        self.assert_held("it is the pod's as long as its namespace is there")
        pod.remove()
        self.assert_free()

    def test_releases_pod_after_missed_poststop(self):
        pod = Pod(self)
        first = self.created(self.bundle(netns=pod.path))
        self.runtime.kill(first)
        shutil.rmtree(f"{self.runtime.root}/{first.id}")
        self.assert_held("the next container of the pod is due")
        self.succeeded(self.runtime.delete(self.created(self.bundle("next", netns=pod.path))))
        self.assert_held("and the one after it")
        pod.remove()
        self.assert_free()

    # --- failed creates

    def test_failed_create_frees_hca(self):
        first = self.bundle().mount("/x", "/does/not/exist")
        self.refused(self.runtime.create(first), "/does/not/exist")
        self.assertFalse(self.runtime.exists(first))
        self.assert_free()
        self.recover()

    def stopped_at(self, stage, command):
        """Starts a `create` or `run` that blocks in a foreign hook, and returns its process."""
        first = self.bundle()
        mark = self.work + "/reached"
        first.config["hooks"][stage] = [{"path": "/bin/sh", "args": ["sh", "-c", f"echo >{mark}; exec sleep 1000"]}]
        requester = self.runtime.begin(command, first.write())
        wait_for(lambda: os.path.exists(mark), f"the hook at {stage}")
        return first, requester

    def test_killed_create_frees_hca(self):
        first, requester = self.stopped_at("createRuntime", "create")
        self.assert_held("the runtime works on it")
        requester.kill()
        requester.wait()
        wait_for(lambda: read(first.cgroup() + "/cgroup.procs") == "", "the end of its init")
        self.assert_held("whether another process of the runtime goes on cannot be known")
        remedy = f"{self.runtime_name} --root {self.runtime.root} delete --force first"
        warned = run([HOOK, "recover", "--ledger", self.ledger_directory], env={})
        self.assertIn(remedy, warned.stderr)
        again = self.runtime.create(first)
        self.refused(again, remedy)
        self.assertEqual(run(remedy.split(), env={"PATH": harness.PATH}).returncode, 0)
        self.assert_free()

    def test_killed_run_frees_hca(self):
        first, requester = self.stopped_at("poststart", "run")
        self.assert_held("the runtime works on it")
        requester.kill()
        requester.wait()
        self.assertIsNotNone(self.runtime.state(first))
        self.assert_held("its init lives")
        self.runtime.kill(first)
        self.assert_free()
        self.runtime.delete(first)


class Runc(Alive, harness.NodeCase):
    runtime_name = "runc"


class Crun(Alive, harness.NodeCase):
    runtime_name = "crun"


if __name__ == "__main__":
    harness.main_in_own_machine(RUNTIME)
