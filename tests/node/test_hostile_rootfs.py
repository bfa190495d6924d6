"""Images with links and files that lead to the node's files: the hook changes nothing outside of the container."""
import os
import shutil
import signal
import stat
import subprocess
import sys

import harness
from containers import Bundle, FakeContainer, Report, Runtime
from harness import must, process_state, read, wait_for, write
from node import differences, walk

RACE_ROUNDS = 200


def replace(path, make):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    make(path)


def link_to(target):
    return lambda path: os.symlink(target, path)


def node_of(kind, major, minor):
    return lambda path: os.mknod(path, kind | 0o666, os.makedev(major, minor))


class HostileRootfs(harness.NodeCase):
    def rows(self):
        """Returns rows of name, replaced path in the rootfs, function that makes the replacement, and words of the refusal, for
        images without a mount at /dev."""
        victim = self.victim
        upwards = "../" * 12
        return (
            ("dev is a link to a directory of the node", "dev", link_to(victim), ["/dev", "symlink"]),
            ("dev is a link to the node's /dev", "dev", link_to("/dev"), ["/dev", "symlink"]),
            ("dev is a link that climbs", "dev", link_to(upwards + victim[1:]), ["/dev", "symlink"]),
            ("dev is a link through proc", "dev", link_to("/proc/1/root" + victim), ["/dev", "symlink"]),
            ("dev is a link to nowhere", "dev", link_to("/nowhere"), ["/dev", "symlink"]),
            ("dev is a link to itself", "dev", link_to("dev"), ["/dev", "symlink"]),
            ("dev is a file", "dev", lambda path: write(path, ""), ["/dev"]),
            ("infiniband is a link to /etc", "dev/infiniband", link_to("/etc"), ["infiniband", "symlink"]),
            ("infiniband is a link to the node", "dev/infiniband", link_to(victim), ["infiniband", "symlink"]),
            ("infiniband is a link that climbs", "dev/infiniband", link_to(upwards + victim[1:]), ["symlink"]),
            ("infiniband is a link inside the image", "dev/infiniband", link_to("/tmp"), ["infiniband", "symlink"]),
            ("infiniband is a file", "dev/infiniband", lambda path: write(path, ""), ["infiniband"]),
            ("uverbs1 is a file", "dev/infiniband/uverbs1", lambda path: write(path, "x"),
             ["uverbs1", "regular file"]),
            ("uverbs1 is a file of the node", "dev/infiniband/uverbs1", lambda path: os.link(victim + "/a-file", path),
             ["uverbs1", "regular file"]),
            ("uverbs1 is a link to a file of the node", "dev/infiniband/uverbs1", link_to(victim + "/a-file"),
             ["uverbs1", "symlink"]),
            ("uverbs1 is a link to a node of the node", "dev/infiniband/uverbs1", link_to("/dev/null"),
             ["uverbs1", "symlink"]),
            ("uverbs1 is a link to a missing path", "dev/infiniband/uverbs1", link_to(victim + "/new"),
             ["uverbs1", "symlink"]),
            ("uverbs1 is a block device", "dev/infiniband/uverbs1", node_of(stat.S_IFBLK, 231, 193),
             ["uverbs1", "block device"]),
            ("uverbs1 is another device", "dev/infiniband/uverbs1", node_of(stat.S_IFCHR, 1, 5), ["uverbs1", "1:5"]),
            ("uverbs1 is a FIFO", "dev/infiniband/uverbs1", os.mkfifo, ["uverbs1", "FIFO"]),
            ("uverbs1 is a directory", "dev/infiniband/uverbs1", os.mkdir, ["uverbs1", "directory"]))

    def test_follows_no_link_of_image(self):
        for number, (name, path, make, words) in enumerate(self.rows()):
            with self.subTest(name):
                bundle = Bundle(self, f"c{number}", requests="mlx5_1", dev=False, stages=())
                replace(f"{bundle.rootfs}/{path}", make)
                before = walk(self.victim)
                container = FakeContainer(bundle)
                self.refused(self.hook("createRuntime", container.state()), *words)
                self.assertEqual(differences(before, walk(self.victim)), [])
                self.assert_ledger_empty()
                container.end()
        self.assert_node_unchanged()

    def test_follows_no_link_of_image_with_runc(self):
        """Skips the rows where /dev is a link: runc 1.1.5 itself follows it when it creates /dev/fd and other links."""
        runtime = Runtime(self, "runc")
        for number, (name, path, make, words) in enumerate(self.rows()):
            if path == "dev":
                continue
            with self.subTest(name):
                bundle = Bundle(self, f"c{number}", requests="mlx5_1", dev=False)
                replace(f"{bundle.rootfs}/{path}", make)
                done = self.refused(runtime.run(bundle), *words)
                self.assertEqual(done.stdout, "")
                self.assert_ledger_empty()
        self.assert_node_unchanged()

    def test_creates_no_node_in_dev_of_the_node(self):
        """With `-v /dev:/dev` the container uses existing nodes; to create one would create it on the node."""
        runtime = Runtime(self, "runc")
        for name, requests in (("there", "mlx5_1"), ("missing", "mlx5_3")):
            bundle = Bundle(self, name, requests=requests, dev=False)
            done = runtime.run(bundle.mount("/dev", "/dev"))
            if name == "there":
                self.succeeded(done)
                self.assertEqual(Report(done.stdout).nodes["/dev/infiniband/uverbs1"],
                                 self.node.expected("uverbs1")["/dev/infiniband/uverbs1"])
            else:
                self.refused(done, "/dev", "mounted from the node")
            self.assert_nothing_left()

    def test_refuses_directory_of_node_at_dev_infiniband(self):
        runtime = Runtime(self, "runc")
        bundle = Bundle(self, requests="mlx5_1").mount("/dev/infiniband", self.victim)
        self.refused(runtime.run(bundle), "/dev/infiniband")
        self.assert_nothing_left()

    def test_refuses_memory_volume_at_dev_infiniband(self):
        """The tmpfs of a memory volume also belongs to other containers of the pod."""
        runtime = Runtime(self, "runc")
        volume = self.work + "/volume"
        self.mount(volume)
        for number, mount in enumerate(({"type": "bind", "options": ["rbind"]}, {"options": ["bind", "rw"]})):
            bundle = Bundle(self, f"c{number}", requests="mlx5_1")
            bundle.config["mounts"].append({"destination": "/dev/infiniband", "source": volume, **mount})
            bundle.write()
            self.refused(runtime.run(bundle), "/dev/infiniband", "mounted from the node")
            self.assertEqual(os.listdir(volume), [])
            self.assert_ledger_empty()
        must(["umount", volume])
        self.assert_node_unchanged()

    def test_refuses_mounts_that_would_appear_on_node(self):
        """The container's /sys is a bind mount of the node's: with rshared propagation a mount below it appears on the node."""
        runtime = Runtime(self, "runc")
        directory = self.node.tree + "/sys"
        self.mount(directory, "--bind", directory)
        must(["mount", "--make-shared", directory])
        mounts, self.mounts = self.mounts, self.mounted()
        for name, settings in (("view", {}), ("none", {"sysfs_view": False})):
            self.configure(settings)
            bundle = Bundle(self, name, requests="mlx5_1")
            bundle.config["linux"]["rootfsPropagation"] = "rshared"
            bundle.write()
            done = runtime.run(bundle)
            if settings:
                self.succeeded(done)
            else:
                self.refused(done, "/sys/class/infiniband", "shared with the node (rootfsPropagation)")
            self.assert_nothing_left()
        must(["umount", directory])
        self.mounts = mounts
        self.assert_node_unchanged()

    def test_refuses_link_at_sys(self):
        """The hook mounts the sysfs view only onto a directory of the container."""
        rows = (("sys", self.victim), ("sys/class", self.victim), ("sys/class/infiniband", self.victim + "/infiniband"),
                ("sys/class/infiniband_verbs", "/etc"))
        for number, (path, target) in enumerate(rows):
            with self.subTest(path):
                bundle = Bundle(self, f"c{number}", requests="mlx5_1", sys=False, stages=())
                replace(f"{bundle.rootfs}/{path}", link_to(target))
                container = FakeContainer(bundle)
                before = container.mounts()
                self.refused(self.hook("createRuntime", container.state()), "sys", "symlink")
                self.assertEqual(container.mounts(), before)
                self.assert_ledger_empty()
        self.assert_node_unchanged()

    def test_mount_of_nri_behind_link_of_image_adds_only_empty_directories_to_volume(self):
        """rdma-nri does not see the image, so its mounts stay where the image links them into a volume. SECURITY.md documents that."""
        copies = os.path.dirname(write(self.work + "/copies/topology.xml", "<system/>"))
        for name in ("runc", "crun"):
            with self.subTest(name):
                runtime = Runtime(self, name)
                volume = os.path.dirname(write(f"{self.work}/volume-{name}/file", "of the user"))
                bundle = Bundle(self, "by-" + name, stages=(), args=("cat", "/run/rdma-init/topology/topology.xml"))
                replace(bundle.rootfs + "/run", link_to("/data"))
                bundle.mount("/data", volume).mount("/run/rdma-init/topology", copies, options=("bind", "ro"))
                before = walk(volume)
                self.assertEqual(self.succeeded(runtime.run(bundle)).stdout, "<system/>")
                self.assertEqual(sorted(set(walk(volume)) - set(before)), ["rdma-init", "rdma-init/topology"])
                self.assertEqual(os.listdir(volume + "/rdma-init/topology"), [])
                self.assertEqual(read(volume + "/file"), "of the user")
                bundle.config["process"]["args"] = ["true"]
                bundle.config["mounts"][-1]["destination"] = "/run/rdma-init/lib"
                bundle.config["mounts"][-2]["options"] = ["bind", "ro"]
                self.assertEqual(runtime.run(bundle.write()).returncode == 0, name == "crun")
                self.assertEqual("rdma-init/lib" in walk(volume), name == "crun")

    def race(self, first, second, bundle):
        """Calls the hook repeatedly while another process exchanges two names of the image without pause."""
        self.configure({"sysfs_view": False})  # the mount of a view would stay for the next round
        container = FakeContainer(bundle)
        codes = []
        exchanger = Exchanger(self, first, second)
        for _ in range(RACE_ROUNDS):
            with exchanger:
                done = self.hook("createRuntime", container.state())
            # Either result is correct: a refusal, or the requested nodes in the container.
            self.assertIn(done.returncode, (0, 1), done.stderr)
            codes.append(done.returncode)
            directory = first if os.path.islink(second) else second
            must(["rm", "-rf", *(f"{directory}/{name}" for name in ("infiniband", "uverbs1", "rdma_cm"))])
        harness.end_process(exchanger.process)
        container.end()
        self.recover()
        self.assert_nothing_left()
        print(f"{self.id()}: refused {codes.count(1)} of {RACE_ROUNDS}", file=sys.stderr)

    def test_writes_nothing_on_node_while_dev_infiniband_is_swapped(self):
        bundle = Bundle(self, requests="mlx5_1", dev=False, stages=())
        os.makedirs(bundle.rootfs + "/dev/infiniband")
        os.symlink(self.victim, bundle.rootfs + "/dev/evil")
        self.race(bundle.rootfs + "/dev/infiniband", bundle.rootfs + "/dev/evil", bundle)

    def test_writes_nothing_on_node_while_dev_is_swapped(self):
        bundle = Bundle(self, requests="mlx5_1", dev=False, stages=())
        os.symlink(self.victim, bundle.rootfs + "/evil")
        self.race(bundle.rootfs + "/dev", bundle.rootfs + "/evil", bundle)


class Exchanger:
    """A process that exchanges two names without pause inside of a `with`, and is stopped outside of it."""
    CODE = ("import ctypes,sys\n"
            "f=ctypes.CDLL(None).renameat2\n"
            "a,b=(x.encode() for x in sys.argv[1:])\n"
            "print('ready',flush=True)\n"
            "while True:\n f(-100,a,-100,b,2)\n")  # AT_FDCWD, RENAME_EXCHANGE

    def __init__(self, case, first, second):
        self.process = case.start([sys.executable, "-I", "-S", "-c", self.CODE, first, second], stdout=subprocess.PIPE)
        self.process.stdout.readline()
        self.stop()

    def __enter__(self):
        self.process.send_signal(signal.SIGCONT)

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        wait_for(lambda: process_state(self.process.pid) == "T", "stop of the exchanger")


if __name__ == "__main__":
    harness.main_in_own_machine()
