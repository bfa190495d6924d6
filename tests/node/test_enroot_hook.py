"""The hook of enroot and the TaskProlog of Slurm, with the stand-in for enroot, on a made node: its sysfs, netdevs and device nodes."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import harness
from harness import MAKE_TREE, SOURCE
from rdma_init import PROGRAM

ENROOT = SOURCE + "/tests/slurm/enroot"
SAMPLES = pathlib.Path(SOURCE, "config/slurm")
ALL = "=mlx5_0:1,mlx5_1:1,mlx5_2:1"
# 99-mellanox.sh of enroot 4.1 changes sysfs: it covers the class directories, and links the visible HCAs with absolute paths.
MELLANOX = """#!/bin/sh
for class in infiniband infiniband_verbs; do mount -t tmpfs none "$ENROOT_ROOTFS/sys/class/$class"; done
ln -s "$(readlink -f /sys/class/infiniband_verbs/abi_version)" "$ENROOT_ROOTFS/sys/class/infiniband_verbs"
for hca in %s; do
  ln -s "$(readlink -f "/sys/class/infiniband/mlx5_$hca")" "$ENROOT_ROOTFS/sys/class/infiniband/mlx5_$hca"
  ln -s "$(readlink -f "/sys/class/infiniband_verbs/uverbs$hca")" "$ENROOT_ROOTFS/sys/class/infiniband_verbs/uverbs$hca"
done
"""
# In private namespaces: the tree of make-tree becomes this machine's sysfs and device nodes, and its addresses those of veth netdevs.
NODE = """set -eu
"$1" --synthetic 3 4 "$2/tree"
mkdir "$2/dev"
mount -t tmpfs none "$2/dev"
for node in null zero urandom; do touch "$2/dev/$node"; mount --bind "/dev/$node" "$2/dev/$node"; done
ln -s /proc/self/fd "$2/dev/fd"
cp -r "$2/tree/dev/infiniband" "$2/dev"
mount --move "$2/dev" /dev
while read -r netdev family address; do
  [ -n "$netdev" ] || continue
  ip link show "$netdev" > "$2/link" 2>&1 || ip link add "$netdev" type veth peer name "$netdev-peer"
  ip link set "$netdev-peer" up
  ip link set "$netdev" up
  ip address add "$address" dev "$netdev" $([ "$family" = inet ] || echo nodad)
done < "$2/tree/addrs.txt"
mount --rbind "$2/tree/sys" /sys
"""


def put(path, text, mode=0o644):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    path.chmod(mode)
    return path


class EnrootCase(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.work = pathlib.Path(directory.name)
        self.etc, self.image = self.work / "etc", self.work / "image"
        self.image.joinpath("etc").mkdir(parents=True)
        for name in ("environ.d", "hooks.d"):
            (self.etc / name).mkdir(parents=True)
        system = [top for top in ("/bin", "/lib", "/lib64", "/usr", "/sys", "/dev", "/proc") if os.path.isdir(top)]
        put(self.etc / "mounts.d/10-system.fstab", "".join(f"{top} {top} none rbind 0 -1\n" for top in system))
        put(self.image / "etc/environment", "PATH=/usr/bin:/bin\n")

    def use_hook(self, program=PROGRAM):
        text = (SAMPLES / "99-rdma.sh").read_text()
        assert "rdma_init=/usr/bin/rdma-init\n" in text
        return put(self.etc / "hooks.d/99-rdma.sh", text.replace("/usr/bin/rdma-init", program), 0o755)

    def start(self, command=("env", "-0"), conf=None, **job):
        """Returns the ended `enroot start`. job: the environment of the job."""
        conf = ["--conf", str(put(self.work / "conf", "environ() {\n" + conf + "}\n"))] if conf else []
        environment = {"PATH": harness.PATH, "HOME": "/root", "ENROOT_SYSCONF_PATH": str(self.etc), **job}
        return subprocess.run([ENROOT, "start", *conf, str(self.image), *command], env=environment, capture_output=True, text=True,
                              check=False, timeout=harness.DEADLINE)

    def variables(self, conf=None, **job):
        """Returns the variables of a task as pyxis makes them: those of the container over those of the job."""
        result = self.start(conf=conf, **job)
        self.assertEqual(result.returncode, 0, result)
        self.messages = result.stderr
        return job | dict(entry.split("=", 1) for entry in result.stdout.split("\0") if entry)


    def use_entrypoint(self, *words):
        """The image has these words as its ENTRYPOINT: /etc/rc, as `enroot import` writes it."""
        put(self.image / "etc/rc", '[ ! -s /etc/rc.local ] || . /etc/rc.local\nexec ' + " ".join(words) + ' "$@"\n')
        if words:
            put(self.image / "run/rdma-init", pathlib.Path(PROGRAM).read_bytes(), 0o755)

    def pyxis_variables(self, entrypoint=True, **job):
        """Returns the variables of a task by pyxis, which waits until its own child is stopped, and reads /proc/PID/environ."""
        environment = {"PATH": harness.PATH, "HOME": "/root", "ENROOT_SYSCONF_PATH": str(self.etc), **job}
        hooks = "" if entrypoint else "hooks() {\n echo 'exec \"$@\"' > $ENROOT_ROOTFS/etc/rc.local\n}\n"
        conf = put(self.work / "conf", hooks)
        with open(self.work / "log", "w+", encoding="utf8") as log:
            child = subprocess.Popen([ENROOT, "start", "--conf", conf, self.image, "sh", "-c", "kill -STOP $$ ; exit 0"], env=environment,
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.addCleanup(child.wait)
            self.addCleanup(child.kill)
            found = []

            def has_changed():
                found[:] = os.waitpid(child.pid, os.WUNTRACED | os.WNOHANG)
                return found[0] != 0
            harness.wait_for(has_changed, "the stop of the container's process")
            log.seek(0)
            self.messages = log.read()
        self.assertTrue(os.WIFSTOPPED(found[1]), self.messages)
        entries = pathlib.Path(f"/proc/{child.pid}/environ").read_bytes().decode().split("\0")
        child.send_signal(signal.SIGCONT)
        self.assertEqual(child.wait(harness.DEADLINE), 0)
        return job | dict(entry.split("=", 1) for entry in entries if entry)


class StandIn(EnrootCase):
    """The stand-in does what enroot does, as far as the hook depends on it."""

    def test_last_line_wins_and_file_is_normalised(self):
        put(self.image / "etc/environment", 'PATH=/usr/bin:/bin\nA="a b"\n  B=1\n#C=1\nno name\nENROOT_X=1\n9=1\nD=\'d" \nE=1')
        put(self.etc / "environ.d/10.env", "B=2\nE=2\n")
        put(self.etc / "hooks.d/50.sh", '#!/bin/sh\ncat "$ENROOT_ENVIRON" >&2\necho " F=\\"f\\"" >> "$ENROOT_ENVIRON"\n', 0o755)
        found = self.variables(conf="echo E=3\n", JOB="1")
        expected = {"JOB": "1", "PATH": "/usr/bin:/bin", "A": "a b", "B": "2", "D": "d", "E": "3", "F": "f"}
        self.assertEqual({name: found[name] for name in found if name not in ("PWD", "SHLVL", "_")}, expected)
        self.assertEqual(self.messages.splitlines()[:3], ["PATH=/usr/bin:/bin", "A=a b", "B=1"])

    def test_hooks_run_in_order_after_first_mounts(self):
        put(self.work / "node.conf", "node\n")
        put(self.image / "etc/nccl.conf", "image\n")
        put(self.etc / "mounts.d/50.fstab", f"{self.work}/node.conf /etc/nccl.conf none bind 0 -1\n{self.work} /late none bind\n")
        for name, mode in (("20.sh", 0o755), ("10.sh", 0o755), ("30.sh", 0o644), ("40", 0o755)):
            put(self.etc / "hooks.d" / name, '#!/bin/sh\necho "$0 $(cat $ENROOT_ROOTFS/etc/nccl.conf) $ENROOT_PID" >&2\n', mode)
        lines = [line.split() for line in self.start(["true"]).stderr.splitlines()]
        self.assertEqual([(os.path.basename(line[0]), line[1]) for line in lines], [("10.sh", "node"), ("20.sh", "node")])

    def test_failing_hook_ends_start(self):
        put(self.etc / "hooks.d/10.sh", "#!/bin/sh\nexit 3\n", 0o755)
        result = self.start(["echo", "started"])
        self.assertEqual((result.returncode, result.stdout), (1, ""))
        self.assertIn("10.sh exited with return code 3", result.stderr)

    def test_entrypoint_sees_variables_of_container_only(self):
        put(self.image / "etc/environment", "PATH=/usr/bin:/bin\nIMAGE=1\n")
        self.use_entrypoint("env", "FOUND=$IMAGE-$JOB")
        self.assertEqual(self.pyxis_variables(JOB="1")["FOUND"], "1-")
        # pyxis leaves a file in the image that skips the ENTRYPOINT, and never removes it.
        self.assertNotIn("FOUND", self.pyxis_variables(entrypoint=False))
        self.assertNotIn("FOUND", self.pyxis_variables())

    def test_mount_point_stays_with_mode_000(self):
        fstab = put(self.etc / "mounts.d/50.fstab", f"{self.work} /etc/late none x-create=dir,rbind 0 0\n")
        self.assertEqual(self.start(["true"]).returncode, 0)
        fstab.unlink()
        self.assertEqual(os.stat(self.image / "etc/late").st_mode & 0o777, 0)

    def test_restricted_devices_have_no_uverbs(self):
        for name in ("ENROOT_RESTRICT_DEV", "ENROOT_UNSHARE_IPC"):
            result = self.start(["ls", "/dev"], **{name: "y"})
            self.assertIn("null", result.stdout, result)
            self.assertNotIn("infiniband", result.stdout)


class Hook(EnrootCase):
    def test_unchanged_image_gets_all_hcas(self):
        self.use_hook()
        put(self.image / "etc/environment", "PATH=/usr/bin:/bin\nLAST=1", 0o644)
        found = self.variables()
        self.assertEqual((found["NCCL_IB_HCA"], found["NCCL_IB_GID_INDEX"], found["LAST"]), (ALL, "3", "1"))
        self.assertIn("3 of 3 ports", self.messages)

    def test_earlier_hook_without_line_break(self):
        self.use_hook()
        put(self.etc / "hooks.d/50-site.sh", '#!/bin/sh\nprintf SITE=1 >> "$ENROOT_ENVIRON"\n', 0o755)
        found = self.variables()
        self.assertEqual((found["SITE"], found["NCCL_IB_HCA"]), ("1", ALL))

    def test_subset_of_mellanox_hook_is_exact(self):
        self.use_hook()
        for visible, expected in (("0 2", "=mlx5_0:1,mlx5_2:1"), ("1", "=mlx5_1:1")):
            put(self.etc / "hooks.d/99-mellanox.sh", MELLANOX % visible, 0o755)
            self.assertEqual(self.variables(MELLANOX_VISIBLE_DEVICES=visible.replace(" ", ","))["NCCL_IB_HCA"], expected)
        put(self.etc / "hooks.d/99-mellanox.sh", MELLANOX % "", 0o755)
        self.assertNotIn("NCCL_IB_HCA", self.variables(MELLANOX_VISIBLE_DEVICES="all"))
        self.assertIn("99-mellanox.sh hides all others", self.messages.replace("\n ", ""))

    def test_hcas_without_device_node_are_left_out(self):
        """99-mellanox.sh hides no HCA, but enroot mounts a /dev of its own."""
        self.use_hook()
        for name in ("ENROOT_RESTRICT_DEV", "ENROOT_UNSHARE_IPC"):
            self.assertNotIn("NCCL_IB_HCA", self.variables(**{name: "y"}))
            self.assertIn("no device node /dev/infiniband/uverbs", self.messages)
        put(self.etc / "hooks.d/50-site.sh", '#!/bin/sh\nmkdir $ENROOT_ROOTFS/dev/infiniband\n'
            'touch $ENROOT_ROOTFS/dev/infiniband/uverbs1\n', 0o755)
        self.assertEqual(self.variables(ENROOT_RESTRICT_DEV="y")["NCCL_IB_HCA"], "=mlx5_1:1")

    def test_void_and_none_append_nothing(self):
        self.use_hook()
        for value in ("void", "none"):
            self.assertNotIn("NCCL_IB_HCA", self.variables(MELLANOX_VISIBLE_DEVICES=value))
            put(self.image / "etc/environment", f"PATH=/bin\nMELLANOX_VISIBLE_DEVICES=all\nMELLANOX_VISIBLE_DEVICES={value}\n")
            self.assertNotIn("NCCL_IB_HCA", self.variables())
            # The job's value precedes the image's.
            self.assertEqual(self.variables(MELLANOX_VISIBLE_DEVICES="all")["NCCL_IB_HCA"], ALL)

    def test_value_of_user_wins_from_six_places(self):
        self.use_hook()
        own = self.image / "etc/environment"
        places = {
            "job": lambda: self.variables(NCCL_IB_HCA="mlx5_1"),
            "--container-env": lambda: self.variables(conf="echo NCCL_IB_HCA=mlx5_1\n", NCCL_IB_HCA="mlx5_1"),
            "image": lambda: (put(own, "PATH=/bin\nNCCL_IB_HCA=mlx5_1\n"), self.variables(NCCL_IB_HCA="mlx5_0"))[1],
            "environ.d": lambda: (put(self.etc / "environ.d/50.env", "NCCL_IB_HCA=mlx5_1\n"), self.variables())[1]}
        for name, variables in places.items():
            found = variables()
            self.assertEqual(found["NCCL_IB_HCA"], "mlx5_1", name)
            # The other variables are those for this HCA.
            self.assertEqual(found["NCCL_IB_GID_INDEX"], "3", name)
            put(own, "PATH=/usr/bin:/bin\n")
            (self.etc / "environ.d/50.env").unlink(missing_ok=True)
        for name in ("nccl.conf", "rccl.conf"):
            # The image has the file.
            conf = put(self.image / "etc" / name, "NCCL_IB_HCA=mlx5_1\n")
            self.assertNotIn("NCCL_IB_HCA", self.variables(), name)
            # The node has it, and the site mounts it into all containers.
            conf.write_text("")
            fstab = put(self.etc / "mounts.d/50.fstab", f"{put(self.work / name, 'NCCL_IB_HCA=mlx5_2')} /etc/{name} none bind 0 -1\n")
            self.assertNotIn("NCCL_IB_HCA", self.variables(), name)
            fstab.unlink()
            self.assertEqual(self.variables()["NCCL_IB_HCA"], ALL)
            conf.unlink()

    def test_kept_value_is_checked(self):
        self.use_hook()
        put(self.image / "etc/environment", "PATH=/bin\nNCCL_IB_HCA=mlx5_7\n")
        self.assertEqual(self.variables()["NCCL_IB_HCA"], "mlx5_7")
        self.assertIn("mlx5_7", self.messages)

    def test_failure_of_rdma_init_starts_container(self):
        for script in (None, "exit 2", "kill -KILL $$"):
            self.use_hook(str(put(self.work / "bad", f"#!/bin/sh\n{script}\n", 0o755)) if script else "/nonexistent")
            found = self.variables(HOME="/root")
            self.assertEqual(set(found) - {"HOME", "PATH", "PWD", "SHLVL", "_"}, {"RDMA_INIT_NOTE"}, script)
            self.assertIn("rdma-init failed in 99-rdma.sh", found["RDMA_INIT_NOTE"])
            self.assertEqual(self.messages.count("warning: rdma-init failed"), 1, script)

    def test_value_of_job_wins_over_entrypoint(self):
        self.use_hook()
        self.use_entrypoint("/run/rdma-init", "--")
        own = self.image / "etc/environment"
        self.assertEqual(self.pyxis_variables()["NCCL_IB_HCA"], ALL)
        for devices in ({}, {"MELLANOX_VISIBLE_DEVICES": "void"}):
            found = self.pyxis_variables(NCCL_IB_HCA="=mlx5_1", UCX_TLS="it's", NCCL_DEBUG_FILE="a b", NCCL_NET="a\nNCCL_IB_SL=1", **devices)
            self.assertEqual((found["NCCL_IB_HCA"], found["NCCL_DEBUG_FILE"], found.get("NCCL_IB_SL")), ("=mlx5_1", "a b", None))
            self.assertNotIn("UCX_NET_DEVICES", self.pyxis_variables(RDMA_INIT_EXPORT="nccl", **devices))
        put(own, "PATH=/bin\nNCCL_IB_HCA=mlx5_2\nRDMA_INIT_EXPORT=nccl\n")
        found = self.pyxis_variables(NCCL_IB_HCA="=mlx5_1", RDMA_INIT_EXPORT="ucx", NCCL_IB_TC="106")
        self.assertEqual((found["NCCL_IB_HCA"], found["RDMA_INIT_EXPORT"], found["NCCL_IB_TC"]), ("mlx5_2", "nccl", "106"))

    def test_requirement_of_job_or_image_refuses_start(self):
        self.use_hook()
        own = self.image / "etc/environment"
        for job in ({"RDMA_INIT_REQUIRE": "4"}, {"RDMA_INIT_REQUIRE_USED": "4"}, {"RDMA_INIT_STRICT": "1", "NCCL_IB_HCA": "mlx5_7"}):
            for in_image in (False, True):
                put(own, "PATH=/bin\n" + "".join(f"{name}={value}\n" for name, value in job.items() if in_image))
                result = self.start(**({} if in_image else job))
                self.assertEqual((result.returncode, result.stdout), (1, ""), job)
                self.assertIn("99-rdma.sh exited with return code 1", result.stderr)
                self.assertRegex(result.stderr, "error: --(require|strict)")
                self.assertEqual(self.start(**job, MELLANOX_VISIBLE_DEVICES="void").returncode, 0, job)
        put(own, "PATH=/bin\n")
        self.assertEqual(self.start(RDMA_INIT_REQUIRE="3").returncode, 0)

    def test_task_with_other_hcas_than_the_hook(self):
        """GRES per task: one run of the hook serves all tasks of a node, and each task opens its own HCA."""
        self.use_hook()
        job = self.variables()
        self.assertEqual(job["NCCL_IB_HCA"], ALL)
        show = 'mount -t tmpfs none /dev/infiniband; touch /dev/infiniband/uverbs1; exec "$0" -- sh -c \'echo $NCCL_IB_HCA $UCX_NET_DEVICES\''
        for hcas, mark, expected in ((ALL, ALL, "=mlx5_1:1 mlx5_1:1"), ("=mlx5_0:1", "=mlx5_0:1", "=mlx5_1:1 mlx5_1:1"),
                                     ("=mlx5_0:1", ALL, "=mlx5_0:1 ")):
            own = {"NCCL_IB_HCA": hcas, "RDMA_INIT_EXPORTS": job["RDMA_INIT_EXPORTS"].replace(f"NCCL_IB_HCA={ALL}", f"NCCL_IB_HCA={mark}")}
            result = subprocess.run(["unshare", "--mount", "sh", "-c", show, PROGRAM], env=job | own, capture_output=True, text=True, check=False)
            self.assertTrue(result.stdout.startswith(expected), result)

    def test_warning_reaches_user_as_note(self):
        self.use_hook()
        self.assertIn("NCCL_IB_TIMEOUT=40 [environment]: 0 to 31 is the range", self.variables(NCCL_IB_TIMEOUT="40")["RDMA_INIT_NOTE"])
        self.assertNotIn("RDMA_INIT_NOTE", self.variables(NCCL_IB_HCA="=mlx5_1"))
        put(self.etc / "hooks.d/99-mellanox.sh", MELLANOX % "", 0o755)
        note = self.variables(MELLANOX_VISIBLE_DEVICES="all")["RDMA_INIT_NOTE"]
        self.assertIn("no RDMA device", note)
        own = {"PATH": harness.PATH, "NCCL_IB_TIMEOUT": "40", "RDMA_INIT_NOTE": note}
        shown = subprocess.run([PROGRAM, "env"], env=own, capture_output=True, text=True, check=True).stderr
        self.assertIn("note of the node: no RDMA device", shown.replace("\n ", ""))
        # A warning that this run finds too does not hide the other warnings.
        (self.etc / "hooks.d/99-mellanox.sh").unlink()
        note = self.variables(NCCL_IB_GID_INDEX="99", NCCL_IB_TIMEOUT="40")["RDMA_INIT_NOTE"]
        self.assertRegex(note, "NCCL_IB_GID_INDEX=99 .*NCCL_IB_TIMEOUT=40 ")
        own = {"PATH": harness.PATH, "NCCL_IB_GID_INDEX": "99", "RDMA_INIT_NOTE": note}
        shown = subprocess.run([PROGRAM, "env"], env=own, capture_output=True, text=True, check=True).stderr
        self.assertIn("note of the node: NCCL_IB_GID_INDEX=99", shown.replace("\n ", ""))

    def test_note_of_another_container_is_hidden(self):
        """A job that begins in a container has its note, and srun takes it to other nodes."""
        self.use_hook()
        self.assertEqual(self.variables(RDMA_INIT_NOTE="of another node")["RDMA_INIT_NOTE"], "")
        note = self.variables(RDMA_INIT_NOTE="of another node", NCCL_IB_TIMEOUT="40")["RDMA_INIT_NOTE"]
        self.assertTrue(note.startswith("NCCL_IB_TIMEOUT=40"), note)

    def test_entrypoint_in_shell_form_is_named(self):
        self.use_entrypoint("/bin/sh", "-c", "'/run/rdma-init --'")
        result = self.start(["true"])
        self.assertEqual(result.returncode, 2, result)
        self.assertIn("error: no command after `--`; remedy: name a command; in an image, write ENTRYPOINT", result.stderr.replace("\n ", ""))

    def test_reaping_entrypoint_does_not_keep_pyxis_waiting(self):
        self.use_hook()
        self.use_entrypoint("/run/rdma-init", "--reap", "--")
        self.assertEqual(self.pyxis_variables()["NCCL_IB_HCA"], ALL)
        self.use_entrypoint("/run/rdma-init", "--", "env")
        put(self.image / "etc/environment", "PATH=/bin\nRDMA_INIT_REAP=1\n")
        self.assertEqual(self.pyxis_variables()["NCCL_IB_HCA"], ALL)

    def test_container_without_rdma_starts(self):
        self.use_hook()
        put(self.etc / "hooks.d/99-mellanox.sh", MELLANOX % "", 0o755)
        self.assertEqual(self.variables()["PATH"], "/usr/bin:/bin")
        self.assertEqual(len(self.messages.splitlines()), 1, self.messages)

    def test_image_cannot_delay_start(self):
        self.use_hook()
        put(self.image / "etc/environment", "PATH=/bin\nRDMA_INIT_WAIT=86400\nRDMA_INIT_CIDR=203.0.113.0/24\n")
        self.assertNotIn("NCCL_IB_HCA", self.variables())
        # A step per pair of variables would take minutes.
        names = put(self.work / "environ", "".join(f"V{number}=\n" for number in range(400000)) + "NCCL_IB_HCA=mlx5_0\nNCCL_IB_HCA=mlx5_1\n")
        result = subprocess.run([PROGRAM, "--environ", names, "env"], capture_output=True, text=True, check=False, timeout=harness.DEADLINE)
        self.assertEqual(result.returncode, 0, result.stderr[:1000])
        self.assertTrue(result.stderr.endswith(" mlx5_1:1\n"), result.stderr[:1000])

    def test_hostile_image(self):
        self.use_hook()
        outside = put(self.work / "outside", "NCCL_IB_HCA=mlx5_1\n")
        (self.image / "etc/nccl.conf").symlink_to(outside)
        os.mkfifo(self.image / "etc/rccl.conf")
        touch, file = f"touch {self.work}/executed", put(self.work / "env", "NCCL_IB_SL=9\n")
        put(self.image / "etc/environment", f"PATH=/usr/bin:/bin\nMELLANOX_VISIBLE_DEVICES=all; {touch}\n"
            f"X=$({touch})`{touch}`\nNCCL_IB_TC='1\" \nRDMA_INIT_ENV_FILE={file}\nY=" + "y" * 100000)
        before = sorted(self.work.iterdir())
        found = self.variables()
        self.assertEqual(sorted(self.work.iterdir()), before)
        # Neither the linked file nor the file of RDMA_INIT_ENV_FILE is in the image.
        self.assertEqual((found["NCCL_IB_HCA"], found["Y"], found.get("NCCL_IB_SL")), (ALL, "y" * 100000, None))


class Starter(EnrootCase):
    """The variables of an engine name its remedy only in a container of this engine, because a job that was submitted from one keeps them."""

    def remedy(self, mounts, **variables):
        show = f'mount -t tmpfs none /dev/infiniband; {mounts} exec "$0" env'
        result = subprocess.run(["unshare", "--mount", "sh", "-c", show, PROGRAM], env={"PATH": harness.PATH} | variables, capture_output=True,
                                text=True, check=False)
        return result.stderr.replace("\n ", "")

    def test_engine_has_variable_and_mount(self):
        mounts = pathlib.Path("/proc/self/mountinfo").read_text()
        if " /etc/passwd " in mounts or " /etc/resolv.conf " in mounts:
            self.skipTest("this machine is a container, and has the mounts of one")
        bind = "mount --bind /etc/passwd /etc/passwd;"
        for name in ("APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "CH_RUNNING"):
            self.assertIn("start the container with `--bind /dev/infiniband`", self.remedy(bind, **{name: "image"}))
            self.assertIn("if this is a container, add the device", self.remedy("", **{name: "image"}))
        self.assertIn("if this is a container, add the device", self.remedy(bind))

    def test_lock_of_enroot_precedes_variable_of_job(self):
        self.use_entrypoint("/run/rdma-init", "env")
        put(self.image / "etc/environment", "PATH=/usr/bin:/bin\nAPPTAINER_CONTAINER=image\n")
        put(self.etc / "mounts.d/50.fstab", "/etc/passwd /etc/passwd none bind 0 -1\n")
        self.assertIn("leave ENROOT_RESTRICT_DEV", self.start([], ENROOT_RESTRICT_DEV="y").stderr.replace("\n ", ""))


class TaskProlog(EnrootCase):
    def run_prolog(self, program=PROGRAM, code=0, **job):
        script = put(self.work / "task-prolog", (SAMPLES / "task-prolog").read_text().replace("/usr/bin/rdma-init", program), 0o755)
        result = subprocess.run([script], env={"PATH": harness.PATH, **job}, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, code, result)
        return result.stdout.splitlines()

    def test_prints_exports_of_unset_variables(self):
        self.assertIn(f"export NCCL_IB_HCA={ALL}", self.run_prolog())
        lines = self.run_prolog(NCCL_IB_HCA="mlx5_1")
        self.assertTrue(lines and all(line.startswith("export ") and not line.startswith("export NCCL_IB_HCA=") for line in lines), lines)

    def test_prints_values_without_quotes(self):
        policy = put(self.work / "policy", "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p\nNCCL_NET_PLUGIN=it's \"a b\"\n")
        job = {"RDMA_INIT_ENV_FILE": str(policy)}
        shown = subprocess.run([PROGRAM, "--log=quiet", "env", "--format=json"], env={"PATH": harness.PATH, **job}, capture_output=True,
                               text=True, check=True)
        expected = [f"export {name}={value}" for name, value in json.loads(shown.stdout)["env"].items()]
        self.assertIn("export NCCL_NET_PLUGIN=it's \"a b\"", expected)
        self.assertEqual(sorted(self.run_prolog(**job)), sorted(expected))

    def test_values_of_another_node_are_replaced(self):
        """Slurm executes the TaskProlog for the batch script too, whose srun takes the values to all nodes."""
        self.use_hook()
        batch = {"NCCL_IB_HCA": "=mlx5_1:1,rxe0-0:1", "NCCL_IB_GID_INDEX": "7", "UCX_NET_DEVICES": "rxe0-0:1"}
        for hcas in (batch["NCCL_IB_HCA"], "=mlx5_1:1", "=rxe0-0:1"):
            batch["NCCL_IB_HCA"] = hcas
            batch["RDMA_INIT_EXPORTS"] = ";".join(f"{name}={batch[name]}" for name in ("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "UCX_NET_DEVICES")) + ";host=batch-node"
            lines = self.run_prolog(**batch)
            for line in (f"NCCL_IB_HCA={ALL}", "NCCL_IB_GID_INDEX=3"):
                self.assertIn("export " + line, lines)
            found = self.variables(**batch)
            self.assertEqual((found["NCCL_IB_HCA"], found["NCCL_IB_GID_INDEX"]), (ALL, "3"))
            self.assertNotIn("rxe0-0", found["UCX_NET_DEVICES"])

    def test_requirement_of_job_refuses_task(self):
        """Slurm ends a task whose TaskProlog fails, with its status."""
        for job in ({"RDMA_INIT_REQUIRE": "4"}, {"RDMA_INIT_REQUIRE_USED": "4"}, {"RDMA_INIT_STRICT": "1", "NCCL_IB_HCA": "mlx5_7"}):
            lines = self.run_prolog(code=1, RDMA_INIT_WAIT="0", **job)
            self.assertTrue(all(line.startswith("print ") for line in lines), lines)
            self.assertRegex(" ".join(lines), "print rdma-init: error: --(require|strict)")
        self.assertTrue(self.run_prolog(RDMA_INIT_REQUIRE="3"))

    def test_prints_nothing_without_rdma_init(self):
        self.assertEqual(self.run_prolog("/nonexistent"), [])


if __name__ == "__main__":
    if len(sys.argv) > 1 and sys.argv[1] == "inside":
        del sys.argv[1]
        subprocess.run(["sh", "-c", NODE, "sh", MAKE_TREE, sys.argv.pop(1)], check=True)
        harness.main(PROGRAM, MAKE_TREE)
    NAMESPACES = ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), "--mount", "--net"]
    VETH = ["ip", "link", "add", "x", "type", "veth", "peer", "name", "y"]
    if subprocess.run([*NAMESPACES, *VETH], capture_output=True, check=False).returncode:
        print("skipped: no network namespace with a veth netdev here")
        sys.exit(harness.SKIP)
    with tempfile.TemporaryDirectory() as made:
        sys.exit(subprocess.run([*NAMESPACES, sys.executable, __file__, "inside", made, *sys.argv[1:]], check=False).returncode)
