"""Podman with only files in a hooks directory, and with only rdma-runtime. Annotations, labels and environment of its
containers may come from the image, so they request nothing unless the administrator trusts them."""
import hashlib
import json
import os
import resource
import shutil
import tarfile

import harness
from containers import Report, Runtime, Syslog, Wrapped, make_rootfs
from harness import HOOK, RUNTIME, SOURCE, must, read, write

TRUSTING = {"annotations_may_request": ["*"]}
SAMPLE = SOURCE + "/config/podman/rdma-runtime.conf"
INSTALLED = "/etc/containers/containers.conf.d/rdma-runtime.conf"
HOOKS = SOURCE + "/config/hooks.d"
INSTALLED_HOOK = "/usr/local/bin/rdma-hook"  # path in the files of config/hooks.d


class Podman:
    def __init__(self, case):
        self.case = case
        self.runtime = Runtime(case, "runc").program
        for program in ("podman", "conmon"):
            if not shutil.which(program):
                case.skipTest(f"no {program} (Debian package {program})")
        self.hooks = case.work + "/hooks.d"
        os.makedirs(self.hooks)
        self.rootfs = make_rootfs(case.work + "/rootfs")

    def add_hook(self, stage, engine="podman"):
        write(f"{self.hooks}/50-{stage}.json", {"version": "1.0.0", "hook": self.case.entry(stage, engine),
                                                "when": {"always": True}, "stages": [stage]})

    def use_rdma_runtime(self):
        """Installs the sample of config/podman with the settings of this test."""
        settings = Wrapped(self.case, "runc", engine=None).settings
        program = write(self.case.work + "/rdma-runtime",
                        f'#!/bin/sh\nRDMA_RUNTIME_SETTINGS={settings} exec {RUNTIME} "$@"\n', 0o755)
        sample = read(SAMPLE)
        self.case.assertIn('"/usr/local/bin/rdma-runtime"', sample)
        write(INSTALLED, sample.replace("/usr/local/bin/rdma-runtime", program))
        self.case.addCleanup(os.unlink, INSTALLED)
        self.runtime = "rdma"

    def command(self, *arguments):
        work = self.case.work
        return [*Runtime.HIDE_V2, "podman", "--root", work + "/storage", "--runroot", work + "/runroot", "--tmpdir",
                work + "/tmp", "--storage-driver", "vfs", "--cgroup-manager", "cgroupfs", "--events-backend", "none",
                "--hooks-dir", self.hooks, "--runtime", self.runtime, *arguments]

    def run_command(self, name, *options, image=None, program=("/probe",)):
        """Passes this process's limits: Podman's defaults are above them, and raising them needs CAP_SYS_RESOURCE."""
        limits = [f"nofile={resource.getrlimit(resource.RLIMIT_NOFILE)[1]}",
                  f"nproc={resource.getrlimit(resource.RLIMIT_NPROC)[1]}"]
        what = [image] if image else ["--rootfs", self.rootfs]
        return self.command("run", "--rm", "--name", name, "--network", "none", "--cgroup-parent", "/" + harness.GROUP,
                            *(part for limit in limits for part in ("--ulimit", limit)), "--cap-add", "MKNOD",
                            "--volume", self.case.tree + "/sys:/sys:ro", *options, *what, *program)

    def run(self, name, *options, **more):
        return self.call(self.run_command(name, *options, **more))

    @staticmethod
    def call(command):
        return harness.run(command, env={"PATH": harness.PATH, "HOME": "/root", "LANG": "C"})

    def report(self, name, *options, **more):
        done = self.run(name, *options, **more)
        self.case.assertEqual(done.returncode, 0, done.stderr)
        return Report(done.stdout)


class BothWays:
    def setUp(self):
        super().setUp()
        self.podman = Podman(self)

    def request_options(self, devices="mlx5_1", mode="exclusive"):
        """Returns options that request HCAs. Podman splits `--annotation` at commas, so devices has none."""
        return ["--annotation", f"rdma-init.io/devices={devices}", "--annotation", f"rdma-init.io/mode={mode}"]

    # --- trusted and untrusted requests

    def test_ignores_untrusted_annotations(self):
        report = self.podman.report("untrusted", *self.request_options())
        self.assertEqual(report.nodes, {})
        self.assert_ledger_empty()

    def test_ignores_annotations_labels_and_environment_of_image(self):
        annotations = {"rdma-init.io/devices": "all", "rdma-init.io/mode": "exclusive",
                       "k8s.volcengine.com/pod-networks": '[{"cniConf":{"name":"rdma"}}]',
                       "cni.spidernet.io/rdma-resource-inject": "rdma",
                       "io.kubernetes.cri-o.Namespace": "trusted", "io.kubernetes.pod.namespace": "trusted",
                       "io.kubernetes.cri.sandbox-namespace": "trusted"}
        environment = ["RDMA_VISIBLE_DEVICES=all", "MELLANOX_VISIBLE_DEVICES=all",
                       "PCIDEVICE_NVIDIA_COM_HCA=0000:10:00.0"]
        image = self.make_image(annotations, environment)
        self.configure({"annotations_may_request": ["trusted"]})
        report = self.podman.report("greedy", image=image)
        self.assertEqual(report.nodes, {})
        self.assertNotEqual(report.other, "ok")
        self.assert_ledger_empty()

    def test_environment_of_image_narrows_default_devices(self):
        self.configure({"default_devices": "all"})
        image = self.make_image({}, ["RDMA_VISIBLE_DEVICES=2"])
        self.assertEqual(self.podman.report("narrowed", image=image).nodes, self.node.expected("uverbs2"))
        self.assertEqual(len(self.podman.report("not-narrowed").nodes), self.node.HCAS + 1)
        self.assert_ledger_empty()

    def make_image(self, annotations, environment):
        """Makes an image with these annotations in its manifest and as labels, and with an environment. Returns its ID."""
        name = type(self).__name__.lower() + "-" + self._testMethodName.replace("_", "-")
        layout = "/run/" + name  # self.work can have characters that an image reference does not allow
        blobs = layout + "/blobs/sha256"
        os.makedirs(blobs)

        def blob(data):
            digest = hashlib.sha256(data).hexdigest()
            write(f"{blobs}/{digest}", data)
            return {"digest": "sha256:" + digest, "size": len(data)}
        layer = self.work + "/layer.tar"
        with tarfile.open(layer, "w") as archive:
            archive.add(self.podman.rootfs, ".")
        with open(layer, "rb") as file:
            layer_blob = {"mediaType": "application/vnd.oci.image.layer.v1.tar", **blob(file.read())}
        config = {"architecture": "amd64", "os": "linux",
                  "rootfs": {"type": "layers", "diff_ids": [layer_blob["digest"]]},
                  "config": {"Env": ["PATH=/bin", *environment], "Labels": annotations}}
        manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                    "config": {"mediaType": "application/vnd.oci.image.config.v1+json",
                               **blob(json.dumps(config).encode())},
                    "layers": [layer_blob], "annotations": annotations}
        manifest_blob = {"mediaType": manifest["mediaType"], **blob(json.dumps(manifest).encode())}
        write(layout + "/oci-layout", '{"imageLayoutVersion": "1.0.0"}')
        write(layout + "/index.json", {"schemaVersion": 2, "manifests": [
            {**manifest_blob, "annotations": {"org.opencontainers.image.ref.name": "latest"}}]})
        done = self.succeeded(self.podman.call(self.podman.command("pull", "--quiet", f"oci:{layout}:latest")))
        return done.stdout.split()[-1]

    # --- grants

    def test_grants_by_trusted_annotations(self):
        self.configure(TRUSTING)
        report = self.podman.report("given", *self.request_options("2"))
        self.assertEqual(report.nodes, self.node.expected("uverbs0", "uverbs1"))
        self.assertEqual(report.other, "Operation not permitted")
        self.assertEqual(report.views["infiniband"], ["mlx5_0", "mlx5_1"])
        self.assertEqual(report.facts["require"], "")  # RoCE without a rail
        self.assert_ledger_empty()

    def test_devices_of_option_are_the_request(self):
        node = self.tree + "/dev/infiniband/uverbs2"
        report = self.podman.report("device", "--device", f"{node}:/dev/infiniband/uverbs2")
        self.assertEqual({path: seen[:3] for path, seen in report.nodes.items()},
                         {path: seen[:3] for path, seen in self.node.expected("uverbs2").items()})
        self.assertEqual(report.views["infiniband"], ["mlx5_2"])
        self.assert_ledger_empty()

    def test_refusal_prevents_start_of_container(self):
        self.configure(TRUSTING)
        done = self.refused(self.podman.run("refused", *self.request_options("mlx5_9")))
        self.assertEqual(done.stdout, "")
        self.assert_ledger_empty()

    # --- releases

    def test_releases_grant_when_runtime_fails(self):
        self.configure(TRUSTING)
        self.refused(self.podman.run("failed", *self.request_options(), program=("/no/such/program",)))
        self.assertEqual(self.podman.report("next", *self.request_options()).nodes, self.node.expected("uverbs1"))
        self.recover()
        self.assert_ledger_empty()

    def test_refuses_exclusive_hca_of_running_container(self):
        self.configure(TRUSTING)
        remove = self.podman.command("rm", "--force", "--time", "0", "first")
        self.succeeded(self.podman.run("first", "--detach", *self.request_options(), program=("sleep", "1000")))
        self.addCleanup(self.podman.call, remove)
        # Podman has ended; the container holds the HCA.
        self.assertEqual(self.recover(), [])
        self.assertEqual(list(self.holders()), ["mlx5_1"])
        self.refused(self.podman.run("second", *self.request_options()))
        self.succeeded(self.podman.call(remove))
        self.assertEqual(self.podman.report("third", *self.request_options()).nodes, self.node.expected("uverbs1"))
        self.recover()
        self.assert_ledger_empty()


class Hooks(BothWays, harness.NodeCase):
    def setUp(self):
        super().setUp()
        self.podman.add_hook("createRuntime")
        self.podman.add_hook("poststop")

    def test_grants_at_prestart(self):
        os.unlink(self.podman.hooks + "/50-createRuntime.json")
        self.podman.add_hook("prestart")
        self.configure(TRUSTING)
        self.assertEqual(self.podman.report("given", *self.request_options()).nodes, self.node.expected("uverbs1"))
        self.assert_ledger_empty()

    def test_ignores_annotations_of_image_with_engine_crio(self):
        for stage in ("createRuntime", "poststop"):
            self.podman.add_hook(stage, "crio")
        self.test_ignores_annotations_labels_and_environment_of_image()


class Shipped(harness.NodeCase):
    """The installed files of config/hooks.d and program, without configuration, with crun: as root it opens the paths that an image
    names as the hooks' outputs."""
    make_image = BothWays.make_image

    def setUp(self):
        super().setUp()
        self.podman = Podman(self)
        self.ledger_directory = "/run/rdma-hook"
        self.podman.runtime = Runtime(self, "crun").program
        must(["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", os.path.dirname(INSTALLED_HOOK)])
        self.addCleanup(must, ["umount", os.path.dirname(INSTALLED_HOOK)])
        shutil.copy(HOOK, INSTALLED_HOOK)
        for stage in ("createRuntime", "poststop"):
            shutil.copy(f"{HOOKS}/rdma-hook-podman-annotations-{stage}.json", self.podman.hooks)
        self.syslog = Syslog(self)

    def refuse_image_with_outputs(self, path):
        image = self.make_image({"rdma-init.io/devices": "x:$(cmd)", "run.oci.hooks.stderr": path,
                                 "run.oci.hooks.stdout": path}, [])
        done = self.refused(self.podman.run("named-outputs", image=image))
        self.assertNotIn("x:", done.stdout + done.stderr)
        lines = self.syslog.text()
        self.assertIn(r"x:\x24\x28cmd\x29", lines)
        self.assertNotIn("$(cmd)", lines)
        self.assert_ledger_empty()

    def test_hook_writes_nothing_into_file_that_image_names(self):
        script = self.work + "/profile.sh"
        self.refuse_image_with_outputs(script)
        self.assertEqual(read(script), "")

    def test_hook_writes_nothing_into_pipe_that_image_names(self):
        pipe = harness.Listener(self.work + "/pipe")
        self.refuse_image_with_outputs(pipe.path)
        self.assertEqual(pipe.received(), "")


class RdmaRuntime(BothWays, harness.NodeCase):
    def setUp(self):
        super().setUp()
        self.podman.use_rdma_runtime()

    def test_tells_container_about_untrusted_annotation(self):
        done = self.podman.run("told", *self.request_options(), program=("/bin/sh", "-c", 'echo "$RDMA_INIT_NOTE"'))
        self.assertEqual(self.succeeded(done).stdout, "ignoring annotation rdma-init.io/devices: with podman it may not request "
                         "HCAs, remedy: add * to annotations_may_request in config.json\n")


if __name__ == "__main__":
    harness.main_in_own_machine()
