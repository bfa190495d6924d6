#!/usr/bin/env python3
"""test_install_engines.py RDMA_HOOK: install with the engines of this machine, which then print their configuration. The
configuration files are in a private mount namespace. Skipped without engines or root."""
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

DIRECTORIES = ("/etc/containerd", "/etc/crio", "/etc/docker", "/etc/containers", "/etc/rdma-init", "/var/lib/rdma-init",
               "/usr/share/containers/oci")
CONFIGS = {"containerd": "/etc/containerd/config.toml", "crio": "/etc/crio/crio.conf", "docker": "/etc/docker/daemon.json",
           "podman": "/etc/containers/containers.conf"}
OWN = """version = %d
[plugins."io.containerd.%s".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.%s".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["mine/*"]
[plugins."io.containerd.%s".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/bin/nvidia-container-runtime"
"""


def configurations(engine, major):
    """Yields configurations of nodes; None: no file."""
    yield None
    if engine == "containerd":
        yield subprocess.run(["containerd", "config", "default"], capture_output=True, text=True, check=True).stdout
        yield OWN % (2, *["grpc.v1.cri"] * 3)
        if major > 1:
            yield OWN % (3, *["cri.v1.runtime"] * 3)
            yield 'version = 3\nimports = ["more/*.toml"]\n'
    if engine == "docker":
        yield '{\n    "debug": true,\n    "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}},\n    "data-root": "/x"\n}\n'


def files():
    return {path: hashlib.sha256(path.read_bytes()).digest() for top in DIRECTORIES for path in pathlib.Path(top).rglob("*")
            if path.is_file()}


def put(engine, text):
    for top in DIRECTORIES:
        for one in pathlib.Path(top).iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()
    if text is not None:
        pathlib.Path(CONFIGS[engine]).write_text(text)


def printed_by(engine):
    podman = ["podman", "--storage-driver=vfs", "--root=/mnt/podman", "info", "--format", "{{json .Host.OCIRuntime}}"]
    command = {"containerd": ["containerd", "config", "dump"], "crio": ["crio", "config"], "podman": podman, "docker": ["cat", CONFIGS["docker"]]}[engine]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.replace('"', "'")


def inside(program, engine):
    def install(*arguments, env=None):
        chosen = [] if "--uninstall" in arguments else ["--engine", engine]
        return subprocess.run([program, "install", *chosen, *arguments], capture_output=True, text=True, check=False, env=env)

    no_systemctl = tempfile.mkdtemp(dir="/mnt")
    pathlib.Path(no_systemctl, "systemctl").write_text("#!/bin/sh\necho Unit not found >&2\nexit 5\n")
    pathlib.Path(no_systemctl, "systemctl").chmod(0o755)

    put(engine, None)
    version = subprocess.run([{"docker": "dockerd"}.get(engine, engine), "--version"], capture_output=True, text=True, check=False).stdout
    major = 2 if " 2." in version or "v2" in version else 1
    ways = {"containerd": ("nri", "runtime", "hook"), "crio": ("nri", "runtime", "hook"), "docker": ("runtime", "cdi"),
            "podman": ("runtime", "hook")}[engine]
    for text in configurations(engine, major):
        for way in ways:
            put(engine, text)
            printed, before = printed_by(engine), files()  # in this order: podman with netavark makes a lock file
            done = install("--way", way)
            assert done.returncode == 0, (text, way, done.stderr)
            installed, now = files(), printed_by(engine)
            assert installed != before
            if engine == "containerd":
                wanted = {"nri": "base_runtime_spec = '/etc/containerd/rdma-verify.json'", "runtime": ".runtimes.rdma]",
                          "hook": ".runtimes.rdma-hook]"}[way]
                assert wanted in now, (text, way, now)
                assert "mine/*" not in printed or "mine/*" in now
                assert ("runtimes.nvidia]" in now) == ("runtimes.nvidia]" in printed)
                assert ("runtimes.runc]" in now) >= ("runtimes.runc]" in printed)
            assert install("--way", way).returncode == 0 and files() == installed
            assert install("--uninstall").returncode == 0 and files() == before and printed_by(engine) == printed
            if "restart due: " in done.stdout:
                refused = install("--way", way, "--restart", env={**os.environ, "PATH": no_systemctl + ":" + os.environ["PATH"]})
                assert refused.returncode == 1 and "Unit not found; remedy: correct the cause, then run `systemctl" in refused.stderr, refused
                assert files() == installed and install("--uninstall").returncode == 0 and files() == before
            print(f"{version.strip()}: {way}, {'no configuration' if text is None else text.splitlines()[:2]}")
    put(engine, "[a\n")
    before = files()
    refused = install()
    assert refused.returncode == 1 and files() == before, refused
    print(f"{version.strip()}: refuses a syntax error: {refused.stderr.strip()}")


def main(program):
    if os.environ.get("INSIDE"):
        inside(program, os.environ["INSIDE"])
        return 0
    if os.geteuid() != 0:
        print("skipped: mounts need root")
        return 77
    found = [engine for engine in CONFIGS if shutil.which({"docker": "dockerd"}.get(engine, engine))]
    for engine in CONFIGS.keys() - found:
        print(f"{engine}: not installed")
    if not found:
        print("skipped: no engine is installed")
        return 77
    mounts = "\n".join(f"mkdir -p {directory} && mount -t tmpfs none {directory}" for directory in DIRECTORIES)
    # mkdir writes into an overlay of the parent directories, not into the machine's.
    for engine in found:
        script = f"""set -e
mount -t tmpfs none /mnt
for top in /etc /var/lib /usr/share; do
  work=/mnt$top && mkdir -p $work/upper $work/work
  mount -t overlay none -o lowerdir=$top,upperdir=$work/upper,workdir=$work/work $top
done
{mounts}
exec "$0" "$@"
"""
        ended = subprocess.run(["unshare", "--mount", "sh", "-c", script, sys.argv[0], program], env={**os.environ, "INSIDE": engine}, check=False)
        if ended.returncode != 0:
            return 1
    return 0


sys.exit(main(sys.argv[1]))
