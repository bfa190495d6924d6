"""The view of /sys/class: containers with the same HCAs share a view, which none of them can change. With runc and crun, and
with a hook at createRuntime and rdma-runtime."""
import os

import harness
from containers import EXCLUSIVE, FOREVER, Bundle, RuntimeTests, Runtime, Wrapped
from node import walk

CLASSES = ("infiniband", "infiniband_verbs")
# Makes its view writable, as far as it can, and fills it.
SPOILS = """
for class in infiniband infiniband_verbs; do
  at=/sys/class/$class
  mount -o remount,bind,rw $at
  mount -o remount,rw $at
  true > $at/file
  mkdir -p $at/full/of/files
  true > $at/full/of/files/one
  rm -f $at/mlx5_1 $at/uverbs1
done 2> /dev/null
[ ! -e /sys/class/infiniband/full ] || echo filled
echo "seen: $(cd /sys/class/infiniband && echo *)"
"""


class Views(RuntimeTests):
    stages = ("createRuntime", "poststop")

    def setUp(self):
        super().setUp()
        self.views = self.ledger_directory + "/views"

    def bundle(self, name, *, capability=None, is_node_root=False, **options):
        bundle = Bundle(self, name, stages=self.stages, **options)
        if is_node_root:
            ids = [{"containerID": 0, "hostID": 0, "size": 65536}]
            bundle.config["linux"].update(uidMappings=ids, gidMappings=ids)
        if capability:
            for names in bundle.config["process"]["capabilities"].values():
                names.append(capability)
        return bundle.write()

    def views_in(self, bundle):
        """Returns for each class the file system, root, options and inode of the container's mount, and its names."""
        pid = self.runtime.state(bundle)["pid"]
        mounts = {}
        for line in harness.read(f"/proc/{pid}/mountinfo").splitlines():
            fields = line.split()
            mounts[fields[4]] = (fields[2], fields[3], fields[5])
        found = {}
        for name in CLASSES:
            at = f"/proc/{pid}/root/sys/class/{name}"
            found[name] = (*mounts[f"/sys/class/{name}"], os.stat(at).st_ino, sorted(os.listdir(at)))
        return found

    def content(self):
        return {path: entry for path, entry in walk(self.views).items()
                if "/" in path and not path.startswith("none") and not path.endswith("/checked")}

    def test_containers_with_same_hcas_share_one_view(self):
        first, second, other = (self.bundle(name, requests=requests, args=FOREVER) for name, requests in
                                (("first", "mlx5_1,mlx5_2"), ("second", "mlx5_2,mlx5_1"), ("other", "mlx5_1")))
        for bundle in (first, second, other):
            self.created(bundle)
        self.assertEqual(self.views_in(first), self.views_in(second))
        for name in CLASSES:
            one, another = self.views_in(first)[name], self.views_in(other)[name]
            self.assertNotEqual(one[:2], another[:2])
            for flag in ("ro", "nosuid", "nodev", "noexec"):
                self.assertIn(flag, one[2].split(","))
        self.assertEqual(len(os.listdir(self.views)), 2)
        # The remaining container keeps the view.
        self.succeeded(self.runtime.delete(first))
        self.assertEqual(self.recover(), [])
        self.assertEqual(self.views_in(second)["infiniband"][-1], ["mlx5_1", "mlx5_2"])

    def test_container_cannot_change_its_view(self):
        beside = self.created(self.bundle("beside", requests="mlx5_1", args=FOREVER))
        before, content = self.views_in(beside), self.content()
        for name, options in (("ordinary", {}), ("remounting", {"capability": "CAP_SYS_ADMIN"}),
                              ("user namespace", {"capability": "CAP_SYS_ADMIN", "userns": True}),
                              ("node root", {"capability": "CAP_SYS_ADMIN", "userns": True, "is_node_root": True})):
            with self.subTest(name):
                if options.get("userns") and Runtime(self, self.runtime_name).version().startswith("crun version 1.8."):
                    continue  # as in test_both_ways.py
                done = self.succeeded(self.runtime.run(self.bundle(name.replace(" ", "-"), requests="mlx5_1",
                                                               args=("sh", "-c", SPOILS), **options)))
                self.assertNotIn("filled", done.stdout)
                self.assertIn("seen: mlx5_1\n", done.stdout)
                self.assertEqual(self.views_in(beside), before)
                self.assertEqual(self.content(), content)

    def test_releases_hca_of_container_that_writes_into_its_view(self):
        alone = {"requests": "mlx5_1", "annotations": EXCLUSIVE}
        spoiling = self.bundle("spoiling", capability="CAP_SYS_ADMIN", args=("sh", "-c", SPOILS), **alone)
        self.succeeded(self.runtime.run(spoiling))
        self.assertEqual(self.holders(), {})
        self.assertEqual(self.recover(), [])
        for name in ("next", "next-but-one"):
            report = self.runtime.report(self.bundle(name, **alone))
            self.assertEqual(report.views["infiniband"], ["mlx5_1"])
            self.assertEqual(report.facts["ibdev uverbs1"], "mlx5_1")

    def test_replaces_view_that_was_changed_on_node(self):
        beside = self.created(self.bundle("beside", requests="mlx5_1", args=FOREVER))
        (view,) = os.listdir(self.views)
        harness.write(f"{self.views}/{view}/infiniband/full/of/files/one", "")
        report = self.runtime.report(self.bundle("next", requests="mlx5_1"))
        self.assertEqual(report.views["infiniband"], ["mlx5_1"])
        self.assertEqual(self.views_in(beside)["infiniband"][-1], ["full", "mlx5_1"], "a running container keeps its mounted view")
        self.assertEqual(self.recover(), [])
        self.assertEqual(self.views_in(beside)["infiniband"][-1], ["full", "mlx5_1"])


class Runc(Views, harness.NodeCase):
    runtime_name = "runc"


class Crun(Views, harness.NodeCase):
    runtime_name = "crun"


class WrappedRunc(Runc):
    kind = Wrapped
    stages = ()


class WrappedCrun(Crun):
    kind = Wrapped
    stages = ()


if __name__ == "__main__":
    harness.main_in_own_machine()
