"""test_install_roots.py RDMA_HOOK [every-point]: install, second install, status and uninstall on file trees with stand-ins for engines. Afterwards
each file has its former state, also if `rdma-hook install` was killed before one of its changes: every eleventh, or with every-point any."""
import fcntl
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

RECORD = "var/lib/rdma-init/install.json"
VERSIONS = {"containerd": "containerd x/v2 2.1.9", "containerd-1": "containerd x 1.7.24", "containerd-0": "containerd x 1.6.20", "crio": "crio version 1.34.1",
            "dockerd": "Docker version 26.1.5", "podman": "podman version 5.4.2", "podman-6": "podman version 6.0.0", "slurmd": "slurm 24.11.5"}
# Prints the file and its imports, as containerd prints its configuration. It refuses a table that occurs twice, and a version above that of
# the first file (containerd 2.3, cmd/containerd/server/config, LoadConfigWithPlugins). Without a command the engine starts: then CRI-O also
# refuses a handler of type oci without a monitor (pkg/config, TranslateMonitorFields), dockerd an option that daemon.json has, too
# (daemon/config, findConfigurationConflicts), and containerd 1 tables of handlers without the default one (pkg/cri/config,
# ValidatePluginConfig).
STAND_IN = r"""#!/bin/sh
case "$*" in
  # Podman does not print its version if its configuration is invalid.
  --version) echo "VERSION"; case $0 in *podman) ;; *) exit ;; esac ;;
  "oci spec") echo '{"process": {"rlimits": []}, "hooks": {}}'; exit ;;
esac
file=${CONTAINERS_CONF:-DEFAULT}
flags=$* first=0
while [ $# != 0 ]; do
  case $1 in
    -c | --config-file) file=$2; shift ;;
    default) file=/dev/null ;;
  esac
  shift
done
read_all() {
  [ -e "$1" ] || return 0
  twice=$(grep '^\[' "$1" | sort | uniq -d)
  [ -z "$twice" ] || echo "duplicated tables: $twice" >> /tmp/twice
  [ "$(tr -cd '[' < "$1" | wc -c)" = "$(tr -cd ']' < "$1" | wc -c)" ] || echo "half an array" >> /tmp/twice
  version=$(sed -n -e '/^\[/q' -e 's/^version = \([0-9]*\).*/\1/p' "$1")
  [ "$first" != 0 ] || first=${version:-0}
  [ "${version:-0}" -le "$first" ] || echo "drop-in config version $version higher than root config version $first" >> /tmp/twice
  sed -e 's/^imports = \[ *\].*/imports = []/' "$1"
  case "$0 $1" in */crio\ *.conf) cat /etc/crio/crio.conf.d/*.conf ;; esac
  sed -n -e 's/^imports = \[\(.*\)\]$/\1/p' "$1" | tr -d '",' | while read -r imports; do
    for one in $imports; do read_all "$one"; done
  done
}
: > /tmp/twice
read_all "$file" > /tmp/all
if grep -q 'syntax error' /tmp/all; then echo "level=error" >&2; echo "line 1: syntax error" >&2; exit 1; fi
if [ -s /tmp/twice ]; then cat /tmp/twice >&2; exit 1; fi
case "$0 $flags" in
  */crio*config*) ;;
  */crio*)
    awk '/^\[crio.runtime.runtimes/ {if (name && !monitor) print name; name = $0; monitor = 0} /^\[/ && !/^\[crio.runtime.runtimes/ {if (name && !monitor) print name; name = ""}
      /^monitor_path/ {monitor = 1} END {if (name && !monitor) print name}' /tmp/all > /tmp/without
    if [ -s /tmp/without ]; then echo "failed to translate monitor fields for runtime $(cat /tmp/without): exec: conmon: not found" >&2; exit 1; fi ;;
  */dockerd*--validate*) ;;
  */dockerd*--feature*) if grep -q '"features"' /tmp/all; then echo "specified both as a flag and in the configuration file: features" >&2; exit 1; fi ;;
  */containerd\ *config*) ;;
  */containerd\ *)
    if ! grep -q 'default_runtime_name' /tmp/all && grep -q 'cri"\.containerd\.runtimes\.' /tmp/all && ! grep -q 'cri"\.containerd\.runtimes\.runc\]' /tmp/all; then
      case "VERSION" in *\ 1.*) echo "no corresponding runtime configured in runtimes for default_runtime_name = runc" >&2; exit 1 ;; esac
    fi ;;
esac
# containerd 2 prints the names of version 3.
case "VERSION" in */v2*) sed -e 's/io\.containerd\.grpc\.v1\.cri"\.containerd/io.containerd.cri.v1.runtime".containerd/' -e 's/  # .*//' /tmp/all ;;
  *) sed -e 's/  # .*//' /tmp/all ;;
esac
"""
CONFIGS = {"containerd": "/etc/containerd/config.toml", "crio": "/etc/crio/crio.conf", "docker": "/etc/docker/daemon.json",
           "podman": "/etc/containers/containers.conf", "slurm": "/etc/slurm/slurm.conf"}
NVIDIA = '{\n "runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime"}},\n "debug": true,\n "z": 1, "a": 2\n}'
HANDLER = """version = %d
[plugins."io.containerd.%s".containerd]
  default_runtime_name = "nvidia"
[plugins."io.containerd.%s".containerd.runtimes.nvidia]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["a/*"]
[plugins."io.containerd.%s".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
  SystemdCgroup = true
"""
TWO = HANDLER % (3, *["cri.v1.runtime"] * 3)
ONE_EMPTY = "version = 2\n"
ONE = HANDLER % (2, *["grpc.v1.cri"] * 3)
# Part of the output of `containerd config default`.
DEFAULTS = """  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    base_runtime_spec = ""
    pod_annotations = []
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.nri.v1.nri"]
    disable = true
"""
# install does not edit a value with several lines.
LINES = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma]\n  pod_annotations = [\n    "x/*"]\n'
OTHERS = 'version = %d\n[plugins."io.containerd.%s".containerd.runtimes.rdma.options]\n  BinaryName = "/x"\n'
# As CRI-O 1.37 prints it: a setting with its default is commented out between comments in English, and a list has a line per item.
CRIO = """[crio.runtime]
# Restoring a container needs more privileges: see the
# [crio.checkpoint_restore] table and its option.
# default_runtime = "crun"
# Each entry has the form:
#
# [crio.runtime.runtimes.runtime-handler]
# runtime_path = "/path/to/the/executable"
# monitor_path = "/path/to/container/monitor"
# A handler without `inherit_default_runtime = true` names its own runtime_path = "..." below.
[crio.runtime.runtimes.crun]
runtime_path = "/usr/libexec/crio/crun"
runtime_root = "/run/crun"
allowed_annotations = [
	"io.kubernetes.cri-o.Devices",
	"io.kubernetes.cri-o.ShmSize",
]
inherit_default_runtime = false
monitor_path = "/usr/libexec/crio/conmon"
monitor_cgroup = "pod"
monitor_env = [
	"PATH=/usr/libexec/crio",
]
platform_runtime_paths = {"linux/arm64" = "/usr/libexec/crio/crun-arm64"}
a_later_release = 7
"""
# The settings that a handler has from the default one, with the order of their names.
CRIO_COPY = """a_later_release = 7
allowed_annotations = ["io.kubernetes.cri-o.Devices", "io.kubernetes.cri-o.ShmSize"]
monitor_cgroup = "pod"
monitor_env = ["PATH=/usr/libexec/crio"]
monitor_path = "/usr/libexec/crio/conmon"
platform_runtime_paths = {"linux/arm64" = "/usr/libexec/crio/crun-arm64"}
"""
BEHIND = "etc/rdma-init/conf.d/90-engine.json"
# Engine, its stand-in, way (None: install selects it), configuration, {file: a part of its content afterwards}
CASES = [
    ("containerd", "containerd", None, None, {
        "etc/containerd/config.toml": 'imports = ["/etc/containerd/conf.d/*.toml"]', "etc/containerd/rdma-verify.json": '"verify"',
        "etc/containerd/conf.d/rdma-init.toml": "disable = false"}),
    ("containerd", "containerd", None, TWO, {
        "etc/containerd/conf.d/rdma-init.toml": '.runtimes.nvidia]\n  base_runtime_spec = "/etc/containerd/rdma-verify.json"\n  '
        'pod_annotations = ["a/*", "rdma-init.io/*"'}),
    ("containerd", "containerd", "nri", TWO, {
        "etc/containerd/conf.d/rdma-init.toml": '.runtimes.rdma]\n  runtime_type = "io.containerd.runc.v2"\n'
        '  base_runtime_spec = "/etc/containerd/rdma-verify.json"\n  pod_annotations = ["a/*", "rdma-init.io/*"'}),
    ("containerd", "containerd", "nri", TWO, {
        "etc/containerd/conf.d/rdma-init.toml": '.runtimes.rdma.options]\n  BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"\n'
        '  SystemdCgroup = true'}),
    ("containerd", "containerd", "runtime", TWO, {
        BEHIND: '{"runtime":{"runtimes":["/usr/local/nvidia/toolkit/nvidia-container-runtime","runc"]}}',
        "etc/containerd/conf.d/rdma-init.toml": '"/opt/rdma/bin/rdma-runtime"\n  SystemdCgroup = true'}),
    ("containerd", "containerd", "runtime", 'imports = ["/etc/other/*.toml"]\n', {"etc/other/rdma-init.toml": "rdma-runtime"}),
    ("containerd", "containerd", "runtime", "# mine\nimports = []\n[debug]\n", {
        "etc/containerd/config.toml": '# mine\nimports = ["/etc/containerd/conf.d/*.toml"]\n[debug]\n'}),
    ("containerd", "containerd", "runtime", "imports = [ ] # none\n", {"etc/containerd/config.toml": 'imports = ["/etc/containerd/conf.d/*.toml"]\n'}),
    ("containerd", "containerd", "hook", TWO, {"etc/containerd/rdma-hook.json": "poststop"}),
    ("containerd", "containerd-1", "runtime", ONE, {"etc/containerd/config.toml": ".runtimes.rdma]"}),
    # New lines in existing tables, and a block with new tables.
    ("containerd", "containerd-1", None, ONE + DEFAULTS, {
        "etc/containerd/config.toml": """
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
  base_runtime_spec = "/etc/containerd/rdma-verify.json"  # rdma-hook install
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["a/*", "rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]  # rdma-hook install
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
  BinaryName = "/usr/local/nvidia/toolkit/nvidia-container-runtime"
  SystemdCgroup = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    base_runtime_spec = "/etc/containerd/rdma-verify.json"  # rdma-hook install
    pod_annotations = ["rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]  # rdma-hook install
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.nri.v1.nri"]
    disable = false  # rdma-hook install

# Written by `rdma-hook install`; `rdma-hook install --uninstall` removes it.
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma]
"""}),
    ("containerd", "containerd-1", None, "version = 2\n[debug]", {"etc/containerd/config.toml": "[debug]\n\n# Written by `rdma-hook"}),
    ("docker", "dockerd", None, NVIDIA, {
        "etc/docker/daemon.json": '"debug": true,\n "z": 1,\n "a": 2\n}',
        BEHIND: '{"runtime":{"runtimes":["/usr/bin/nvidia-container-runtime","runc"]}}'}),
    ("docker", "dockerd", "runtime", " \n", {"etc/docker/daemon.json": '{\n  "runtimes": {\n    "rdma"'}),
    ("docker", "dockerd", "cdi", None, {"etc/docker/daemon.json": '"cdi": true'}),
    ("podman", "podman", None, "[engine]\n", {"etc/containers/containers.conf.d/90-rdma-init.conf": "/opt/rdma/bin/rdma-runtime"}),
    ("podman", "podman", "hook", None, {
        "usr/share/containers/oci/hooks.d/rdma-hook-podman-annotations-poststop.json": '"/opt/rdma/bin/rdma-hook"'}),
    ("crio", "crio", None, CRIO, {
        "etc/crio/crio.conf.d/90-rdma-init.conf":
        f'enable_nri = true\n\n[crio.runtime.runtimes.rdma]\n{CRIO_COPY}runtime_path = "/usr/libexec/crio/crun"\nruntime_root = "/run/crun"\n',
        "usr/share/containers/oci/hooks.d/rdma-hook-crio-verify-createRuntime.json": '"/opt/rdma/bin/rdma-hook"'}),
    ("crio", "crio", "runtime", CRIO, {
        "etc/crio/crio.conf.d/90-rdma-init.conf":
        f'[crio.runtime.runtimes.rdma]\n{CRIO_COPY.partition("platform")[0]}runtime_path = "/opt/rdma/bin/rdma-runtime"\nruntime_root = "/run/crun"\nruntime_type = "oci"\n',
        BEHIND: "/usr/libexec/crio/crun"}),
    # config.toml of each version, and drop-ins of a version below.
    *[("containerd", "containerd", way, f"version = {version}  # x\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n" + TWO.partition("\n")[2], {
        "etc/containerd/conf.d/rdma-init.toml": "version = 3\n"}) for version in (3, 4, 5) for way in ("nri", "runtime")],
    ("containerd", "containerd", "runtime", ONE, {"etc/containerd/conf.d/rdma-init.toml": "version = 2\n"}),
    # A handler has all settings of the default one.
    ("containerd", "containerd", "runtime", TWO.replace("  SystemdCgroup", "  NoPivotRoot = true\n  SystemdCgroup").replace("  pod_ann", '  snapshotter = "x"\n  pod_ann'), {
        "etc/containerd/conf.d/rdma-init.toml": '  snapshotter = "x"\n  pod_annotations = ["a/*", "rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]\n\n'
        '[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rdma.options]\n  BinaryName = "/opt/rdma/bin/rdma-runtime"\n  SystemdCgroup = true\n  NoPivotRoot = true\n'}),
]
# A first table of a handler removes the built-in default handler of containerd 1.
CASES.append(("containerd", "containerd-1", "runtime", ONE_EMPTY, {"etc/containerd/config.toml": '.runtimes.runc]\n  runtime_type = "io.containerd.runc.v2"\n'}))
CASES += [
    ("slurm", "slurmd", None, "ClusterName=x\nProlog=/site/prolog\n", {
        "etc/slurm/rdma-init/prolog": "\nrdma_hook=/opt/rdma/bin/rdma-hook\n", "etc/slurm/rdma-init/epilog": "#!/bin/sh",
        "etc/slurm/rdma-init/health-check": "#!/bin/sh", "etc/slurm/rdma-init/task-prolog": "\nrdma_init=/opt/rdma/bin/rdma-init\n",
        "etc/enroot/hooks.d/99-rdma.sh": "\nrdma_init=/opt/rdma/bin/rdma-init\n"}),
    ("slurm", "slurmd", None, None, {"etc/slurm/rdma-init/prolog": "#!/bin/sh"})]
# Exit code of install if it can set nothing up on this node.
UNSUPPORTED = 3
# Engine, its stand-in, way, configuration, a part of the error, and the exit code if it is not 1.
REFUSED = [
    ("containerd", "containerd", None, "syntax error", "refuses its present configuration: line 1: syntax error"),
    ("containerd", "containerd-1", None, "syntax error", "refuses its present configuration: line 1: syntax error"),
    ("containerd", "containerd-1", "runtime", LINES, "--dry-run` by hand"),
    ("containerd", "containerd", "nri", 'imports = ["/x/one.toml"]\n', "line 1: `imports` names no directory: ['/x/one.toml']; remedy: add \"/etc/containerd/conf.d/*.toml\""),
    ("containerd", "containerd-1", "cdi", ONE, "use another `--way`", UNSUPPORTED),
    ("containerd", "containerd-0", "nri", ONE, "containerd 1.6 has no NRI", UNSUPPORTED),
    ("docker", "dockerd", None, '{"debug": true,}', "daemon.json"),
    ("docker", "dockerd", None, '{\n"runtimes": {"rdma": {"path": "/x"}}}', "/etc/docker/daemon.json, line 2: there is already a different runtime `rdma`"),
    ("podman", "podman", None, '[engine.runtimes]\nrdma = ["/x"]\n', "/etc/containers/containers.conf, line 2: there is already a different runtime `rdma`"),
    ("crio", "crio", "runtime", CRIO + '[crio.runtime.runtimes.rdma]\nruntime_path = "/x"\nmonitor_path = "/usr/libexec/crio/conmon"\n',
     f"/etc/crio/crio.conf, line {CRIO.count(chr(10)) + 2}: there is already a different runtime `rdma`"),
    ("crio", "crio", None, "[crio.runtime]\n", "prints no `default_runtime`"),
    ("containerd", "containerd", "runtime", OTHERS % (3, "cri.v1.runtime"), "/etc/containerd/config.toml, line 3: handler `rdma` already exists with another BinaryName: '/x'"),
    ("containerd", "containerd-1", "runtime", OTHERS % (2, "grpc.v1.cri"), "/etc/containerd/config.toml, line 3: handler `rdma` already exists with another BinaryName: '/x'"),
    ("containerd", "containerd", None, '# x\ndisabled_plugins = ["io.containerd.nri.v1.nri"]\n',
     "/etc/containerd/config.toml, line 2: `disabled_plugins` lists `io.containerd.nri.v1.nri`; remedy: remove it from that list or use `--way runtime`", UNSUPPORTED),
    ("containerd", "containerd-1", "runtime", 'disabled_plugins = ["cri"]\n', "/etc/containerd/config.toml, line 1: `disabled_plugins` lists `cri`; remedy: remove it"),
    ("containerd", "containerd", "runtime", "# x\nversion = 1\n", "/etc/containerd/config.toml, line 2: containerd loads no drop-in of version 2 or 3 below version 1"),
    ("docker", "dockerd", "nri", None, "use `--way runtime` or `--way cdi`", UNSUPPORTED),
    ("docker", "dockerd", None, b'{"a": "\xff"}', "daemon.json"),
    ("crio", "crio", None, "syntax error", "syntax error"),
    ("podman", "podman", None, "syntax error", "syntax error"),
    ("crio", "podman", None, None, "`crio` is not installed on this node", UNSUPPORTED),
    ("slurm", "podman", None, None, "`slurmd` is not installed on this node", UNSUPPORTED),
    ("slurm", "slurmd", "hook", None, "--engine slurm is only for install without --way", 2),
]


def files(root):
    return {str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() else "")
            for top in ("etc", "var", "usr/share") for path in sorted((root / top).rglob("*")) if not path.is_dir()}


def everything(root):
    """Returns files and directories, except /run and /tmp, into which the start of an engine and the stand-ins write."""
    return {str(path.relative_to(root)): (path.lstat().st_mode, path.read_bytes() if path.is_file() and not path.is_symlink() else "")
            for top in ("bin", "etc", "opt", "usr", "var") for path in sorted([root / top, *(root / top).rglob("*")]) if path.exists()}


def lay_out(root, engine, stand_in, text):
    for directory in ("bin", "etc", "tmp", "usr/bin", "usr/share", "var"):
        (root / directory).mkdir(parents=True)
    shutil.copy(shutil.which("busybox"), root / "bin/busybox")
    for applet in ("sh", "cat", "sed", "tr", "grep", "sort", "uniq", "wc", "awk"):
        (root / "bin" / applet).symlink_to("busybox")
    for name in (stand_in, "ctr"):
        program = root / "usr/bin" / name.partition("-")[0]
        program.write_text(STAND_IN.replace("VERSION", VERSIONS.get(name, "")).replace("DEFAULT", CONFIGS[engine]))
        program.chmod(0o755)
    if engine == "slurm":
        (root / "etc/enroot/hooks.d").mkdir(parents=True)
    if engine == "crio":  # as in the packages of pkgs.k8s.io: none of them is in PATH
        (root / "usr/libexec/crio").mkdir(parents=True)
        for name in ("crun", "conmon"):
            (root / "usr/libexec/crio" / name).touch(0o755)
    if text is not None:
        file = root / CONFIGS[engine][1:]
        file.parent.mkdir(parents=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        file.chmod(0o640)
    return files(root)


class Node:
    """A node as a file tree, which exists inside of a `with`."""
    program = ""  # rdma-hook

    def __init__(self, engine, stand_in=None, way=None, text=None):
        self.directory = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.directory.name)
        self.before = lay_out(self.root, engine, stand_in or engine, text)
        # As an ordinary user, `unshare` allows chroot(2).
        self.call = ([] if os.geteuid() == 0 else ["unshare", "--map-root-user"]) + [
            self.program, "install", "--root", self.root, "--hook", "/opt/rdma/bin/rdma-hook"]
        self.chosen = ["--engine", engine] + (["--way", way] if way else [])
        self.restart = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.directory.cleanup()

    def run(self, *arguments, tracer=()):
        environment = {**os.environ, "ASAN_OPTIONS": "detect_leaks=0"} if tracer else None  # LeakSanitizer fails in a traced process
        call = list(self.call)
        if {"--uninstall", "--status"} & set(arguments) and "--hook" in call:  # these do not use it
            at = call.index("--hook")
            del call[at:at + 2]
        return subprocess.run([*tracer, *call, *arguments], capture_output=True, text=True, check=False, env=environment)

    def call_for(self, command):
        return ["--uninstall", *self.restart] if command == "uninstall" else self.chosen

    def done(self, *arguments):
        result = self.run(*arguments)
        assert result.returncode == 0, (arguments, result.stderr)
        return result.stdout

    def refused(self, words, *arguments, code=1):
        result = self.run(*arguments)
        assert result.returncode == code and words in result.stderr, result
        return result

    def unchanged(self, words, *arguments, code=1):
        """Checks a refusal that changes nothing."""
        before = self.now()
        result = self.refused(words, *arguments, code=code)
        assert self.now() == before, sorted(set(self.now()) ^ set(before))
        return result

    def starts(self, *flags):
        """Checks that the engine starts, with the options of its unit."""
        name = {"docker": "dockerd"}.get(self.chosen[1], self.chosen[1])
        started = subprocess.run([*self.call[:-6], "chroot", self.root, f"/usr/bin/{name}", *flags], capture_output=True, text=True, check=False)
        assert started.returncode == 0, started

    def uninstalled(self, *arguments):
        """Uninstalls, and checks that each file has its former state."""
        self.done("--uninstall", *arguments)
        assert self.now() == self.before, sorted(set(self.now()) ^ set(self.before))

    def now(self):
        return files(self.root)

    def put(self, path, text, mode=0o644):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file


def patched(node, diff):
    """Returns the texts of the files of the node after patch(1) with the printed diffs."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(node.root / "etc", pathlib.Path(copy, "etc"), symlinks=True)
        shutil.copytree(node.root / "usr/share", pathlib.Path(copy, "usr/share"))
        relative = re.sub(r"^(---|\+\+\+) /(?!dev/null)", r"\1 ", diff, flags=re.MULTILINE)
        subprocess.run(["patch", "-s", "-p0", "--fuzz=0", "-E"], cwd=copy, input=relative, text=True, check=True)
        return {str(path.relative_to(copy)): path.read_bytes() for path in pathlib.Path(copy).rglob("*") if path.is_file()}


def install_and_uninstall(node, wanted):
    engine, cdi = node.chosen[1], "cdi" in node.chosen
    output = node.done(*node.chosen, "--dry-run")
    assert "would write" in output and node.now() == node.before
    foreseen = patched(node, output) if shutil.which("patch") else None
    said = node.done(*node.chosen)
    line = f"write the CDI devices: /opt/rdma/bin/rdma-hook cdi generate --engine {engine} --out /var/run/cdi/rdma-init.json\n"
    assert "wrote" in said and (line in said) == cdi, said
    if engine != "slurm":
        node.starts()
    installed = node.now()
    assert foreseen in (None, {path: content for path, (_, content) in installed.items() if path != RECORD}), output
    for path, text in wanted.items():
        assert text in installed[path][1].decode(), (path, installed[path][1].decode())
    assert not [path for path in installed if path.endswith(".rdma-init")]
    assert "nothing to change" in node.done(*node.chosen) and node.now() == installed
    assert "nothing to change" in node.done() and node.now() == installed
    assert "changed since" not in node.done("--status")
    states = json.loads(node.done("--status", "--json"))
    assert {entry["state"] for entry in states["files"]} == {"installed"}, states
    for entry in json.loads(installed[RECORD][1])["files"]:
        assert len(entry["after_hash"]) == 32
    other = "hook" if node.chosen[1] in ("podman", "crio") and "hook" not in node.chosen else "cdi"
    if "cdi" not in node.chosen:
        node.refused("is installed", *(["--engine", "docker"] if node.chosen[1] == "slurm" else ["--engine", node.chosen[1], "--way", other]))
    # A file of install that was changed is kept and named, by install too; all other files are restored.
    own = next((file["path"] for file in json.loads(installed[RECORD][1])["files"] if "before" not in file), None)
    if own is None:
        node.uninstalled()
        return
    changed = node.root / own[1:]
    kept = changed.read_bytes()
    changed.write_bytes(kept + b"\n")
    assert node.run(*node.chosen).returncode == 1
    node.refused(changed.name, "--uninstall")
    assert changed.read_bytes() == kept + b"\n"
    left = {path for path in node.now() if node.now()[path] != node.before.get(path)} - {RECORD}
    assert left == {str(changed.relative_to(node.root))}, left
    assert f"would keep `{own}`" in node.unchanged("files changed since install were kept", "--uninstall", "--dry-run").stdout
    changed.write_bytes(kept)
    assert f"would remove `{own}`:\n--- {own}\n+++ /dev/null\n" in node.done("--uninstall", "--dry-run") and changed.read_bytes() == kept
    node.uninstalled()
    assert "nothing is installed" in node.done("--uninstall")


# System calls that change files; openat(2) only if it creates a file.
CHANGES = ("openat", "rename", "unlink", "mkdir", "write", "fsync", "fchmod", "fchown", "rmdir")


def points(make_node, first, calls):
    """Yields (system call, its number) for each change by `install` or `uninstall`, without calls that only read."""
    with make_node() as node, tempfile.NamedTemporaryFile("r") as log:
        if first == "uninstall":
            node.done(*node.chosen)
        node.run(*node.call_for(first), tracer=["strace", "-qq", "-o", log.name, "-e", f"trace={','.join(calls)}"])
        seen = {}
        for line in log:
            call, _, arguments = line.partition("(")
            if call not in calls:  # the line of a signal
                continue
            seen[call] = seen.get(call, 0) + 1
            if call != "openat" or "O_CREAT" in arguments:
                yield call, seen[call]


def fault(make_node, first, call, number, deed):
    """Returns a node after the first command, of which one system call failed or was replaced by a kill. The node has its files
    before the command as `start`, and before any install as `untouched`."""
    node = make_node()
    node.untouched = everything(node.root)
    if first == "uninstall":
        node.done(*node.chosen)
    node.start = everything(node.root)
    inject = f"inject={call}:{deed}:when={number}"
    node.ended = node.run(*node.call_for(first), tracer=["strace", "-qq", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject])
    return node


def is_sanitized():
    return "ASAN_OPTIONS" in os.environ


def stride():
    """Of every so many points one is tested. A file takes five to seven calls, so that 11 takes each of these calls in turn."""
    return 1 if "every-point" in sys.argv else 13 if is_sanitized() else 11  # a program with sanitizers starts slowly


def killed(make_node):
    """Kills the command before each of its changes: the next call completes it, or rolls it back completely."""
    count = 0
    for first in ("install", "uninstall"):
        for call, number in list(points(make_node, first, CHANGES))[::stride()]:
            # Install and uninstall take turns as the next call.
            second = ("install", "uninstall")[count % 2]
            with fault(make_node, first, call, number, "signal=KILL") as node:
                where = (first, second, call, number)
                assert node.ended.returncode in (-9, 137), (where, node.ended)
                count += 1
                if second == "install":
                    node.done(*node.chosen)
                    assert "nothing to change" in node.done(*node.chosen)
                node.done("--uninstall", *node.restart)
                assert everything(node.root) == node.untouched, (where, sorted(set(everything(node.root)) ^ set(node.untouched)))
    return count


def without_room(make_node):
    """Fails each call that needs disk space with ENOSPC: the command restores the former state, or succeeds."""
    count = 0
    for first in ("install", "uninstall"):
        # The sanitizers' run-time library writes to a pipe to learn whether memory is readable.
        calls = ("openat", "mkdir", "fsync") + (() if is_sanitized() else ("write",)) + (("rename",) if first == "install" else ())
        for call, number in list(points(make_node, first, calls))[::stride()]:
            with fault(make_node, first, call, number, "error=ENOSPC") as node:
                where = (first, call, number, node.ended)
                count += 1
                now = everything(node.root)
                if node.ended.returncode != 0:
                    assert "No space left on device" in node.ended.stderr, where
                    assert now == node.start, (where, sorted(set(now) ^ set(node.start)))
                    began = first == "install" and "/run/rdma-hook`" not in node.ended.stderr
                    assert not began or "correct the cause and run install again; nothing was changed" in node.ended.stderr, where
                    node.done(*node.call_for(first))
                node.done(*(node.call_for("uninstall") if first == "install" else node.chosen))
                node.done("--uninstall", *node.restart)
                assert everything(node.root) == node.untouched, where
    return count


def replaced_files():
    """A replacement of an installed file is kept and named; all other files are restored."""
    for put in (lambda file: file.symlink_to("there.json"), lambda file: file.mkdir(), lambda file: file.write_bytes(b'{"a": "\xff"}')):
        with Node("docker", "dockerd", None, NVIDIA) as node:
            node.done(*node.chosen)
            file, there = node.root / "etc/docker/daemon.json", node.root / "etc/docker/there.json"
            file.rename(there)
            put(file)
            kept = node.now()
            assert "changed since  /etc/docker/daemon.json" in node.done("--status")
            for arguments in (node.chosen, ["--uninstall"]):
                node.refused("files changed since install were kept: `/etc/docker/daemon.json`", *arguments)
            node.refused("files changed since install were kept: `/etc/docker/daemon.json`", "--uninstall", "--force")
            assert node.now() == {path: kept[path] for path in node.now()} | {RECORD: node.now()[RECORD]} and BEHIND not in node.now()
            file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
            there.rename(file)
            node.uninstalled()


def changed_elsewhere():
    """Uninstall removes only its own changes from a file with later changes. With --force it removes the later changes too."""
    mark, end = "# Written by `rdma-hook install`", "# End of the lines of `rdma-hook install`.\n"
    changes = {
        "containerd-1": (ONE + DEFAULTS, [
            lambda text: "# mine\n" + text + '[debug]\n  level = "debug"\n',
            lambda text: re.sub("(    pod_annotations = .*\n)", r"\1    mine = 1\n", text),
            lambda text: text.replace('runtime_type = "io.containerd.runc.v2"\n  pod', 'runtime_type = "other"\n  pod')]),
        "containerd": ('imports = []\n' + TWO, [lambda text: text + "[debug]\n", lambda text: text.replace("version", "# mine\nversion")]),
        "dockerd": ('{\n  "a": 1,\n  "b": 2\n}\n', [lambda text: text.replace('{\n  "a": 1', '{\n  "mine": 0,\n  "a": 1')])}
    for stand_in, (text, edits) in changes.items():
        engine = {"dockerd": "docker", "containerd-1": "containerd"}.get(stand_in, stand_in)
        with Node(engine, stand_in, None, text) as node:
            file = node.root / CONFIGS[engine][1:]
            for edit in edits:
                node.done(*node.chosen)
                written = file.read_text()
                file.write_text(edit(written))
                assert edit(written) != written and edit(text) != text, (stand_in, edits.index(edit))
                assert node.run(*node.chosen).returncode == 1
                assert f"would restore `{CONFIGS[engine]}`" in node.done("--uninstall", "--dry-run")
                record = (node.root / RECORD).read_text()
                output = node.done("--uninstall")
                assert f"removed the changes of install from `{CONFIGS[engine]}`; later changes stay" in output, output
                assert file.read_text() == edit(text), (stand_in, edits.index(edit), file.read_text())
                # A call that was killed before it removed its record.
                node.put(RECORD, record)
                node.done("--uninstall")
                assert file.read_text() == edit(text) and not (node.root / RECORD).exists()
                file.write_text(text)
                for path in ("var/lib/rdma-init", "var/lib"):
                    if (node.root / path).exists():
                        (node.root / path).rmdir()
                node.before = {path: what if path != CONFIGS[engine][1:] else node.now()[path] for path, what in node.before.items()}
    # The block belongs to install, with all lines in it.
    with Node("containerd", "containerd-1", None, ONE) as node:
        file = node.root / "etc/containerd/config.toml"
        node.done(*node.chosen)
        written = file.read_text()
        assert mark in written and written.endswith(end)
        file.write_text("# mine\n" + written.replace("[plugins.\"io.containerd.nri", "  snapshotter = \"x\"\n[plugins.\"io.containerd.nri") + "[debug]\n")
        node.done("--uninstall")
        assert file.read_text() == "# mine\n" + ONE + "[debug]\n"
    # A line and a file that install wrote were changed.
    with Node("containerd", "containerd-1", None, ONE + DEFAULTS) as node:
        file, own = node.root / "etc/containerd/config.toml", node.root / "etc/containerd/rdma-verify.json"
        node.done(*node.chosen)
        file.write_text(file.read_text().replace("disable = false  # rdma-hook install", "disable = true"))
        own.write_text(own.read_text() + "\n")
        node.refused("files changed since install were kept: `/etc/containerd/rdma-verify.json`, `/etc/containerd/config.toml`; "
                     "remedy: remove the lines of rdma-init from these files, or add --force", "--uninstall")
        assert "disable = true" in file.read_text() and own.exists()
        assert node.run("--force").returncode == 2
        assert "would remove `/etc/containerd/rdma-verify.json`" in node.done("--uninstall", "--force", "--dry-run") and own.exists()
        output = node.done("--uninstall", "--force")
        assert "-    disable = false  # rdma-hook install\n+    disable = true\n" in output, output
        assert node.now() == node.before
    # A new member after the last member of install: without it, install's comma would stay.
    with Node("docker", "dockerd", None, '{\n  "a": 1\n}\n') as node:
        file = node.root / "etc/docker/daemon.json"
        node.done(*node.chosen)
        file.write_text(file.read_text().replace("  }\n}\n", '  },\n  "mine": 0\n}\n'))
        node.refused("were kept: `/etc/docker/daemon.json`", "--uninstall")
    # Install's own lines were removed by hand, beside other changes.
    with Node("containerd", "containerd-1", None, ONE) as node:
        file = node.root / "etc/containerd/config.toml"
        node.done(*node.chosen)
        file.write_text("# mine\n" + ONE)
        node.done("--uninstall")
        assert file.read_text() == "# mine\n" + ONE and not (node.root / RECORD).exists()


def by_another_version():
    """Files of another version are replaced. They stay if the engine refuses the replacement."""
    with Node("containerd", "containerd", "runtime", TWO) as node:
        node.done(*node.chosen)
        record = node.root / RECORD
        record.write_text(record.read_text().replace('"version": "', '"version": "0.0.'))
        installed = node.now()
        broken = node.put("etc/containerd/conf.d/zz.toml", "syntax error\n")
        node.refused("syntax error; remedy: merge the output of `rdma-hook install --dry-run` by hand; nothing was changed")
        broken.unlink()
        assert {path: what[1] for path, what in node.now().items()} == {path: what[1] for path, what in installed.items()}
        assert "wrote" in node.done() and '"0.0.' not in record.read_text()
        node.uninstalled()


def overridden():
    """CRI-O reads a later drop-in with other values, so install is refused."""
    for way, text in (("nri", "[crio.nri]\nenable_nri = false\n"), ("runtime", '[crio.runtime.runtimes.rdma]\nruntime_path = "/x"\n')):
        with Node("crio", "crio", way, CRIO) as node:
            other = node.put("etc/crio/crio.conf.d/99-mine.conf", text if way == "nri" else "")
            if way == "runtime":  # accepted with the path of rdma-runtime, refused with another path
                other.write_text(text.replace("/x", "/opt/rdma/bin/rdma-runtime"))
                node.done(*node.chosen)
                node.done("--uninstall")
                other.write_text(text)
            words = "99-mine.conf, line 2: enable_nri = false would win over" if way == "nri" else "99-mine.conf, line 2: there is already a different runtime `rdma`"
            for dry_run in ([], ["--dry-run"]):
                node.unchanged(words, *node.chosen, *dry_run)


UNITS = "etc/systemd/system"
# Engine, stand-in, way, {file: its text}, a part of the error; "": install succeeds, and the engine starts with the options.
START_RULES = [
    # dockerd merges both since 18.09.
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd --add-runtime=kata=/k\n"}, ""),
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd --add-runtime kata=/k --add-runtime rdma=/x\n"},
     "line 1: `--add-runtime rdma=/x`: this is a different `rdma` than the one of install"),
    ("docker", "dockerd", "cdi", {f"{UNITS}/docker.service": "[Service]\nExecStart=/usr/bin/dockerd \\\n  --feature buildkit\n"},
     f"/{UNITS}/docker.service, line 2: `--feature`: dockerd would not start with this option and `features` in daemon.json"),
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd --feature buildkit\n"}, ""),
    # An option and a key were there before: dockerd would not start after the restart by install.
    *[("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": f"ExecStart=/usr/bin/dockerd {option}\n", "etc/docker/daemon.json": text},
       f"line 1: `{option.split()[0].split('=')[0]}`: dockerd would not start with this option and `{key}` in daemon.json") for option, text, key in (
           ("-H fd://", '{"hosts": []}', "hosts"), ("-DH fd://", '{"hosts": []}', "hosts"), ("--host=fd://", '{"hosts": []}', "hosts"),
           ("-D", '{"debug": false}', "debug"), ("--label a=b", '{"labels": ["a=c"]}', "labels"),
           ("--insecure-registry x", '{"insecure-registries": []}', "insecure-registries"), ("--log-opt a=b", '{"log-opts": {}}', "log-opts"),
           # The members of an object count as keys, unless the object is the value of an option.
           ("--http-proxy=http://user:secret@x", '{"proxies": {"http-proxy": "y"}}', "http-proxy"))],
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd -H fd:// --containerd=/x --group x\n",
                                      "etc/docker/daemon.json": '{"debug": true, "log-opts": {"group": "x"}, "labels": ["host"]}'}, ""),
    # The drop-in replaces the command of the unit, and its variable is in a file.
    ("docker", "dockerd", "runtime", {
        "usr/lib/systemd/system/docker.service": "ExecStart=/usr/bin/dockerd --add-runtime=kata=/k\n",
        f"{UNITS}/docker.service.d/10-x.conf": "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd $OPTS\nEnvironmentFile=-/etc/default/docker\n",
        "etc/default/docker": "OPTS='--config-file /etc/d.json'\n"}, f"/{UNITS}/docker.service.d/10-x.conf, line 3: `--config-file /etc/d.json`: docker would not read"),
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd --config-file=/etc/docker/daemon.json\n"}, ""),
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd --config-file=/etc/docker/../docker/daemon.json\n"}, ""),
    # The last of two files that match has the variable.
    ("docker", "dockerd", "runtime", {
        f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd $OPTS\nEnvironmentFile=/etc/docker/*.env\n", "etc/docker/b.env": "OPTS='--config-file /b'\n",
        "etc/docker/a.env": "OPTS=\n", "etc/docker/.c.env": "OPTS=\n"}, "`--config-file /b`: docker would not read"),
    ("docker", "dockerd", "runtime", {f"{UNITS}/docker.service": "ExecStart=/usr/bin/dockerd\nEnvironmentFile=-docker.env\n"}, ""),
    ("containerd", "containerd", "nri", {f"{UNITS}/containerd.service": "ExecStart=/usr/bin/containerd -c /etc/c.toml\n"}, "`-c /etc/c.toml`: containerd would not read"),
    ("containerd", "containerd", "nri", {f"{UNITS}/containerd.service": "ExecStart=/usr/bin/containerd --config /etc/containerd/config.toml\n"}, ""),
    ("containerd", "containerd", "cdi", {f"{UNITS}/containerd.service": "ExecStart=/usr/bin/containerd -c /etc/c.toml\n"}, ""),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_CONFIG_DIR=/x\n"}, "line 2: `CONTAINER_CONFIG_DIR=/x`: crio would not read"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio -c /x\n"}, "`-c /x`: crio would not read `/etc/crio/crio.conf`"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --config=/x\n"}, "`--config=/x`: crio would not read"),
    ("crio", "crio", "hook", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_CONFIG=/x\n"}, "`CONTAINER_CONFIG=/x`: crio would not read"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --default-runtime runc\n"},
     "`--default-runtime runc`: crio would use it in place of `default_runtime` in its files; remedy: move its value into a file of /etc/crio/crio.conf.d"),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_DEFAULT_RUNTIME=runc\n"}, "line 2: `CONTAINER_DEFAULT_RUNTIME=runc`"),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --default-runtime=crun\n"}, ""),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --conmon=/x\n"}, "`--conmon=/x`: crio would use it in place of `conmon`"),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_CONMON=/x\n"}, "`CONTAINER_CONMON=/x`: crio would use it"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --hooks-dir=/a\n"}, "`--hooks-dir=/a`: crio would use it in place of `hooks_dir`"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_HOOKS_DIR=/a\n"}, "`CONTAINER_HOOKS_DIR=/a`: crio would use it"),
    ("crio", "crio", "hook", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --hooks-dir=/a\n"}, "`--hooks-dir=/a`: crio would use it"),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_RUNTIMES=kata:/k:/r,rdma:/x:/y\n"},
     "`CONTAINER_RUNTIMES=kata:/k:/r,rdma:/x:/y`: this is a different `rdma`"),
    ("containerd", "containerd", "nri", {f"{UNITS}/containerd.service": "ExecStart=/usr/bin/containerd --config=/etc/c.toml\n"}, "`--config=/etc/c.toml`: containerd would not read"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio -d /x\n"}, "`-d /x`: crio would not read"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --enable-nri=false\n"}, "`--enable-nri=false`: crio would use it in place of `enable_nri`"),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --enable-nri=F\n"}, "`--enable-nri=F`: crio would use it in place of `enable_nri`"),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --enable-nri=false\n"}, ""),
    ("crio", "crio", "nri", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --config-dir /etc/x/\n"}, "`--config-dir /etc/x/`: crio would not read `/etc/crio/crio.conf.d`"),
    ("crio", "crio", "hook", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=CONTAINER_HOOKS_DIR=/a,/b\n"}, "line 2: `CONTAINER_HOOKS_DIR=/a,/b`: crio would use it"),
    ("crio", "crio", "hook", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio --hooks-dir /a --hooks-dir /usr/share/containers/oci/hooks.d\n"}, ""),
    ("crio", "crio", "runtime", {f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio $A\nEnvironment='A=--runtimes rdma:/x'\n"}, "`--runtimes rdma:/x`: this is a different `rdma`"),
]


def each_rule_has_a_node():
    """START_RULES has a refusal for each row of kStartRules: for its engine and way by its option, its short option and its variable."""
    text = (pathlib.Path(__file__).parents[2] / "hook/admin/install/start_rules.cpp").read_text()
    rows = re.findall(r'\{Engine::k(\w+), Clash::\w+, "([^"]*)", "([^"]*)", "([^"]*)",\s*"[^"]*"(?:,\s*InstallWay::k(\w+))?\}', text)
    assert len(rows) == text.count("{Engine::k") >= 11, rows
    for engine, option, short, variable, way in rows:
        errors = [error for name, _, by, _, error in START_RULES if name == engine.lower() and way.lower() in ("", by)]
        for form in [f"`--{option}[ =]", *([f"`-{short} "] if short else []), *([f"`{variable}="] if variable else [])]:
            assert any(re.search(form, error) for error in errors), (engine, way, form)


def start_rules():
    """What an engine checks only when it starts is checked before a file is written, by a dry run too."""
    for engine, stand_in, way, texts, error in START_RULES:
        with Node(engine, stand_in, way, CRIO if engine == "crio" else None) as node:
            for path, text in texts.items():
                node.put(path, text)
            if error:
                for dry_run in ([], ["--dry-run"]):
                    node.unchanged(error, *node.chosen, *dry_run)
                continue
            node.done(*node.chosen)
            flags = next(iter(texts.values())).partition("ExecStart=")[2].split("\n")[0].split()[1:]
            node.starts(*flags)
            node.done("--uninstall")


def started_by_another_program():
    """A unit that starts a script hides the options of the engine, so the command line of its process counts: not that of a stranger."""
    words = "/proc/17/cmdline, line 1: `--add-runtime=rdma=/k`: this is a different `rdma`"
    for unit, program, error in (
            ("ExecStart=/bin/sh -c 'exec /usr/bin/dockerd --add-runtime=rdma=/k'\n", "/usr/bin/dockerd", words),
            (None, "/usr/bin/dockerd", words), (None, "/home/x/dockerd", ""),
            # The next start uses the unit, in whatever way the process was started.
            ("ExecStart=/usr/bin/dockerd\n", "/usr/bin/dockerd", "")):
        with Node("docker", "dockerd", "runtime") as node:
            if unit:
                node.put(f"{UNITS}/docker.service", unit)
            process = node.put("proc/17/comm", "dockerd\n").parent
            node.put("proc/17/status", "Name:\tdockerd\nNSpid:\t17\n")
            node.put("proc/17/cmdline", "dockerd\0--add-runtime=rdma=/k\0")
            (process / "exe").symlink_to(program)
            if error:
                node.unchanged(error, *node.chosen)
            else:
                node.done(*node.chosen)


def crio_behind():
    """CRI-O would execute a path of `platform_runtime_paths` in place of rdma-runtime. A handler of type vm has no OCI runtime."""
    kata = ('[crio.runtime.runtimes.kata]\nruntime_path = "/usr/bin/containerd-shim-kata-v2"\nruntime_type = "vm"\n'
            'runtime_config_path = "/opt/kata.toml"\nmonitor_path = "/x"\n')
    for text in (CRIO.replace("linux/arm64", "linux/amd64"), CRIO.replace('# default_runtime = "crun"', 'default_runtime = "kata"') + kata):
        with Node("crio", "crio", "runtime", text) as node:
            node.put("usr/bin/containerd-shim-kata-v2", "")
            said = node.done(*node.chosen)
            line = "`platform_runtime_paths` of [crio.runtime.runtimes.crun] has no effect on handler `rdma`: rdma-runtime executes `/usr/libexec/crio/crun` for images"
            assert line in said, said
            written = (node.root / "etc/crio/crio.conf.d/90-rdma-init.conf").read_text()
            assert "platform_runtime_paths" not in written and 'runtime_type = "oci"' in written and "kata" not in written, written
            assert 'monitor_path = "/usr/libexec/crio/conmon"\n' in written, written
            assert json.loads((node.root / BEHIND).read_text()) == {"runtime": {"runtimes": ["/usr/libexec/crio/crun", "runc"]}}
            node.done("--uninstall")
    with Node("crio", "crio", "runtime", f'[crio.runtime]\ndefault_runtime = "kata"\n{kata}') as node:
        node.put("usr/bin/containerd-shim-kata-v2", "")
        node.unchanged("prints no handler with an OCI runtime for rdma-runtime: the default one is [crio.runtime.runtimes.kata]", *node.chosen)
    # The administrator made `rdma` the default handler. Another version must not put rdma-runtime behind itself.
    with Node("crio", "crio", "runtime", CRIO) as node:
        node.done(*node.chosen)
        node.put("etc/crio/crio.conf.d/95-mine.conf", '[crio.runtime]\ndefault_runtime = "rdma"\n')
        record = node.root / RECORD
        record.write_text(record.read_text().replace('"version": "', '"version": "0.0.'))
        node.done()
        assert json.loads((node.root / BEHIND).read_text()) == {"runtime": {"runtimes": ["/usr/libexec/crio/crun", "runc"]}}


BROKEN_FILES = [
    # Another program added a handler without a monitor.
    ("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime.runtimes.nvidia]\nruntime_path = "/usr/libexec/crio/crun"\n'},
     "/etc/crio/crio.conf.d/50-x.conf, line 2: crio would not start: [crio.runtime.runtimes.nvidia] has no `monitor_path`, and conmon is not in PATH; "
     "remedy: add `monitor_path = \"PATH OF CONMON\"` to this table; nothing was changed\n"),
    ("crio", "runtime", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime.runtimes.x]\nruntime_path = "/usr/libexec/crio/crun"\nmonitor_path = "/gone"\n'},
     "50-x.conf, line 3: crio would not start: `/gone` does not exist"),
    ("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": "[crio.runtime.runtimes.x]\ninherit_default_runtime = true\n"}, "[crio.runtime.runtimes.x]: crio would not start"),
    ("crio", "hook", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime]\nconmon = "/gone"\n'}, "50-x.conf, line 2: crio would not start: `conmon` names `/gone`"),
    ("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime.runtimes.crun]\nruntime_path = "/gone"\n'},
     "50-x.conf, line 2: crio would not start: the runtime of the default handler"),
    *[("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": f'[crio.runtime]\n{key} = "/gone"\n', "sys/fs/resctrl/info/last_cmd_status": ""},
       "50-x.conf, line 2: crio would not start: `/gone` does not exist") for key in ("blockio_config_file", "rdt_config_file")],
    # A node without RDT, to which the same file was rolled out.
    ("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime]\nrdt_config_file = "/gone"\n'}, ""),
    ("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime.runtimes.x]\nruntime_path = "/usr/libexec/crio/crun"\n',
                     f"{UNITS}/crio.service": "ExecStart=/usr/bin/crio\nEnvironment=PATH=/usr/libexec/crio\n"}, ""),
    ("crio", "nri", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime]\nconmon = "/usr/libexec/crio/conmon"\n[crio.runtime.runtimes.x]\nruntime_path = "/usr/libexec/crio/crun"\n'}, ""),
    ("crio", "runtime", {"etc/crio/crio.conf.d/50-x.conf": '[crio.runtime.runtimes.x]\nruntime_path = "/gone"\n[crio.runtime.runtimes.y]\nruntime_path = "/usr/libexec/crio/crun"\nruntime_type = "vm"\n'}, ""),
    # A file with the same names after the one of install.
    ("crio", "hook", {"etc/crio/crio.conf.d/99-x.conf": '[crio.runtime]\nhooks_dir = [\n  "/etc/x/y", # below a file\n]\n', "etc/x": ""}, "99-x.conf, line 2: hooks_dir = ['/etc/x/y'] would win over"),
    ("podman", "hook", {"etc/containers/containers.conf.d/99-x.conf": '[engine]\nhooks_dir = ["/etc/x/y"]\n', "etc/x": ""}, "99-x.conf, line 2: hooks_dir = ['/etc/x/y'] would win over"),
    ("podman", "runtime", {"etc/containers/containers.conf.d/20-x.conf": '[engine.runtimes]\n"rdma" = [\n  "/x",\n]\n'},
     "/etc/containers/containers.conf.d/20-x.conf, line 2: there is already a different runtime `rdma`"),
    ("podman", "runtime", {"usr/share/containers/containers.rootful.conf.d/20-x.conf": '[engine.runtimes]\nrdma = ["/x"]\n'}, ""),
    ("podman-6", "runtime", {"usr/share/containers/containers.rootful.conf.d/20-x.conf": '[engine.runtimes]\nrdma = ["/x"]\n'},
     "/usr/share/containers/containers.rootful.conf.d/20-x.conf, line 2: there is already"),
    ("podman-6", "runtime", {"usr/share/containers/containers.conf.d/20-x.conf": '[engine.runtimes]\nrdma = ["/x"]\n', "etc/containers/containers.conf.d/20-x.conf": ""}, ""),
    ("podman-6", "runtime", {"usr/share/containers/containers.conf": '[engine.runtimes]\nrdma = ["/x"]\n', "etc/containers/containers.conf": ""}, ""),
    ("containerd", "runtime", {"etc/containerd/config.toml": TWO.replace("  pod_ann", '  base_runtime_spec = "/gone.json"\n  pod_ann')},
     "/etc/containerd/config.toml, line 6: containerd would not start: `/gone.json` does not exist; remedy: correct this file, or remove the line"),
    ("containerd", "runtime", {"etc/containerd/config.toml": ONE.replace("  pod_ann", '  base_runtime_spec = "/gone.json"\n  pod_ann')},
     "/etc/containerd/config.toml, line 6: containerd would not start: `/gone.json` does not exist"),
    ("containerd", "runtime", {"etc/containerd/config.toml": "# x\n" + OTHERS % (2, "grpc.v1.cri")}, "/etc/containerd/config.toml, line 4: handler `rdma` already exists"),
    ("containerd", "nri", {"etc/containerd/config.toml": TWO.replace("  pod_ann", '  base_runtime_spec = "/etc/x.json"\n  pod_ann'), "etc/x.json": "{"},
     "line 6: containerd would not start: `/etc/x.json` is not JSON"),
    ("containerd", "nri", {"etc/containerd/config.toml": TWO.replace("  pod_ann", '  base_runtime_spec = "/etc/x.json"\n  pod_ann'), "etc/x.json": "{}"}, ""),
    # Go accepts a key that occurs twice. systemd starts engines in /.
    ("containerd", "nri", {"etc/containerd/config.toml": TWO.replace("  pod_ann", '  base_runtime_spec = "/etc/x.json"\n  pod_ann'), "etc/x.json": '{"a": 1, "a": 2}'}, ""),
    ("containerd", "nri", {"etc/containerd/config.toml": TWO.replace("  pod_ann", '  base_runtime_spec = "x.json"\n  pod_ann'), "x.json": "{}"}, ""),
    ("containerd", "nri", {"etc/containerd/config.toml": TWO.replace("  pod_ann", '  base_runtime_spec = "x.json"\n  pod_ann')}, "line 6: containerd would not start: `x.json` does not exist"),
    # The rest of another version: containerd ignores tables of a plugin that it does not have.
    ("containerd", "nri", {"etc/containerd/config.toml": TWO + '[plugins."io.containerd.cri.v9.runtime".containerd]\n  default_runtime_name = "gone"\n'}, ""),
    ("containerd-1", "runtime", {"etc/containerd/config.toml": ONE.replace('name = "nvidia"', 'name = "gone"')},
     "/etc/containerd/config.toml, line 3: containerd would not start: the default handler `gone` has no table"),
    ("containerd", "nri", {"etc/containerd/config.toml": 'version = 3\nimports = ["/etc/containerd/conf.d/*.toml"]\n',
                           "etc/containerd/conf.d/x.toml": "disabled_plugins = [\n  'io.containerd.nri.v1.nri',\n]\n"},
     "/etc/containerd/conf.d/x.toml, line 1: `disabled_plugins` lists `io.containerd.nri.v1.nri`"),
]


def broken_by_others():
    """An engine that would not start is not restarted by install: the refusal has file and line, and changes nothing."""
    for stand_in, way, texts, error in BROKEN_FILES:
        engine = stand_in.partition("-")[0]
        with Node(engine, stand_in, way, CRIO if engine == "crio" else None) as node:
            for path, text in texts.items():
                node.put(path, text)
            try:
                if error:
                    for dry_run in ([], ["--dry-run"]):
                        node.unchanged(error, *node.chosen, *dry_run, code=UNSUPPORTED if "nri.v1.nri" in error else 1)
                else:
                    node.done(*node.chosen)
            except AssertionError:
                print(f"{stand_in}, {way}: {texts}", file=sys.stderr)
                raise


def own_handler_is_the_default():
    """The administrator made `rdma` the default handler in a drop-in, which containerd reads while an upgrade replaces the one of install."""
    imports = 'imports = ["/etc/containerd/conf.d/*.toml"]\n'
    for way in ("runtime", "nri"):
        with Node("containerd", "containerd", way, imports + TWO.replace('  default_runtime_name = "nvidia"\n', "")) as node:
            node.done(*node.chosen)
            node.put("etc/containerd/conf.d/99-mine.toml", 'version = 3\n[plugins."io.containerd.cri.v1.runtime".containerd]\n  default_runtime_name = "rdma"\n')
            record = node.root / RECORD
            record.write_text(record.read_text().replace('"version": "', '"version": "0.0.'))
            node.done()
            written = (node.root / "etc/containerd/conf.d/rdma-init.toml").read_text()
            assert ".runtimes.rdma.options]\n" in written and "SystemdCgroup = true" in written, written


def linked_by_others():
    """Files and directories that install only reads can be links below the node's root. Podman ignores directories."""
    with Node("podman", "podman", "runtime") as node:
        drop_ins = node.root / "etc/containers/containers.conf.d"
        (drop_ins / "directory.conf").mkdir(parents=True)
        (drop_ins / "hidden.conf").symlink_to("/dev/null")
        (drop_ins / "site.conf").symlink_to("/usr/lib/site.conf")
        site = node.put("usr/lib/site.conf", '[engine.runtimes]\nnvidia = ["/usr/bin/nvidia-container-runtime"]\n')
        assert "`/usr/bin/nvidia-container-runtime` stays in use behind rdma-runtime" in node.done(*node.chosen)
        node.done("--uninstall")
        site.write_text('[engine.runtimes]\nrdma = ["/x"]\n')
        node.unchanged("/usr/lib/site.conf, line 2: there is already a different runtime `rdma`", *node.chosen)
    with Node("docker", "dockerd", "runtime") as node:
        node.put(f"{UNITS}/docker.service", "ExecStart=/usr/bin/dockerd\n")
        node.put("usr/lib/site/x.conf", "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd --config-file /x\n")
        (node.root / f"{UNITS}/docker.service.d").symlink_to("/usr/lib/site")
        node.unchanged("`--config-file /x`: docker would not read", *node.chosen)


def unknown_version():
    """A version of config.toml that install does not know is named, and the check by containerd decides."""
    text = 'version = 5\nimports = ["/etc/containerd/conf.d/*.toml"]\n'
    with Node("containerd", text=text) as node:
        said = node.done(*node.chosen)
        assert "/etc/containerd/config.toml, line 1: this release does not know version 5: containerd's check decides\n" in said, said
        node.uninstalled()
        program = node.root / "usr/bin/containerd"
        program.write_text(program.read_text().replace(': > /tmp/twice', ': > /tmp/twice\n[ "$flags" = "config dump" ] || echo "unsupported version 5" >> /tmp/twice', 1))
        node.refused("refuses the new configuration: unsupported version 5", *node.chosen)
        assert node.now() == node.before


def failed_unit():
    """An engine that did not start before install: nothing is changed or repaired, also by an upgrade or on an installed node."""
    broken = "#!/bin/sh\necho \"$*\" >> /tmp/asked\necho '{}'\n"
    states = [broken.format(state) for state in ("ActiveState=failed\nSubState=failed", "ActiveState=activating\nSubState=auto-restart")]
    for engine, stand_in, text, unit in (("containerd", "containerd", TWO, "containerd"), ("crio", "crio", CRIO, "crio"), ("docker", "dockerd", None, "docker"),
                                         ("slurm", "slurmd", None, "slurmd")):
        with Node(engine, stand_in, None, text) as node:
            words = f"`{unit}.service` does not start: systemd reports"

            def all_unchanged():
                for state in states:
                    node.put("usr/bin/systemctl", state, 0o755)
                    for arguments in (node.chosen, [*node.chosen, "--dry-run"], [*node.chosen, *(["--restart"] if engine != "slurm" else [])]):
                        node.unchanged(words, *arguments)
                node.put("usr/bin/systemctl", broken.format("ActiveState=inactive\nSubState=dead"), 0o755)

            leftover = node.put(RECORD + ".rdma-init", "{")  # a killed call leaves this file
            all_unchanged()
            leftover.unlink()
            node.done(*node.chosen)
            all_unchanged()
            record = (node.root / RECORD).read_text()
            node.put(RECORD, record.replace('"version": "', '"version": "0.0.'))
            all_unchanged()
            node.put(RECORD, record)
            own = node.root / next(file["path"] for file in json.loads(record)["files"])[1:]
            written = own.read_bytes()
            own.unlink()
            all_unchanged()
            own.write_bytes(written)
    # Programs are not copied to a node of a distribution, and podman needs no unit.
    with Image("containerd") as node:
        node.put(f"{K3S}/config.toml", (TEMPLATE % "/opt/rdma-init/bin").partition("\n")[2])
        node.put(f"{K3S}/config-v3.toml.tmpl", TEMPLATE % "/opt/rdma-init/bin")
        node.put("usr/bin/systemctl", states[0], 0o755)
        node.unchanged("`k3s` does not start: systemd reports failed")
        assert not (node.root / "opt").exists()
    with Node("podman") as node:
        node.put("usr/bin/systemctl", states[0], 0o755)
        node.done(*node.chosen)
        assert not (node.root / "tmp/asked").exists()


def not_a_node():
    """The error has a remedy if --root names a directory that is no root of a node."""
    with Node("podman") as node:
        shutil.rmtree(node.root / "etc")
        for call in (node.chosen, [*node.chosen, "--dry-run"], ["--uninstall"]):
            node.refused("No such file or directory; remedy: name the root directory of a node with --root", *call)


def read_only():
    """On a read-only file system install reports the cause and leaves no file, also no record."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
    for directory in ("etc/containerd", "etc", "var"):
        with Node("containerd", text=TWO) as node:
            node.call = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, node.root / directory, *node.call[-6:]]
            dry = node.unchanged(": Read-only file system; remedy: mount it writable\n", *node.chosen, "--dry-run")
            assert "would write `/etc/containerd/config.toml`:\n" in dry.stdout, dry
            refused = node.unchanged("Read-only file system; remedy: correct the cause and run install again; nothing was changed", *node.chosen)
            assert ": remove " not in refused.stderr, refused
            assert not (node.root / "var/lib").exists()
    with Node("containerd", text=TWO) as node:
        (node.root / "run").mkdir()
        node.call = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, node.root / "run", *node.call[-6:]]
        node.unchanged("/run/rdma-hook`: Read-only file system; remedy: install needs a writable /run; nothing was changed", *node.chosen)
        node.unchanged("make files in `/run`: Read-only file system; remedy: mount it writable\n", *node.chosen, "--dry-run")
    with Node("containerd", text=TWO) as node:
        node.done(*node.chosen)
        node.call = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, node.root / "etc/containerd", *node.call[-6:]]
        node.unchanged("Read-only file system; remedy: correct the cause, then run this again\n", "--uninstall")
        node.unchanged("make files in `/etc/containerd`: Read-only file system; remedy: mount it writable\n", "--uninstall", "--dry-run")


def image_based():
    """All directories except /etc, /run and /var are read-only, and /opt is a link, as on OpenShift and Fedora CoreOS."""
    script = ('mount --bind "$0" "$0" && for i in etc run var tmp; do mount --bind "$0/$i" "$0/$i" || exit; done && '
              'mount -o remount,ro,bind "$0" && cd / && exec "$@"')
    hooks, podman = "etc/containers/oci/hooks.d", "etc/containers/containers.conf.d/90-rdma-init.conf"
    both = 'hooks_dir = ["/usr/share/containers/oci/hooks.d", "/etc/containers/oci/hooks.d"]'
    for engine, stand_in, way, text, wanted in (
            ("containerd", "containerd", None, TWO, {"etc/containerd/rdma-verify.json": "verify"}),
            ("crio", "crio", None, CRIO, {f"{hooks}/rdma-hook-crio-verify-createRuntime.json": "rdma-hook",
                                          "etc/crio/crio.conf.d/90-rdma-init.conf": f"[crio.runtime]\n{both}\n\n[crio.nri]\n"}),
            ("crio", "crio", "hook", CRIO.replace("[crio.runtime]\n", '[crio.runtime]\nhooks_dir = [\n\t"/var/mine",\n]\n'), {
                "var/mine/rdma-hook-crio-annotations-createRuntime.json": "rdma-hook"}),
            ("crio", "crio", "hook", CRIO, {f"{hooks}/rdma-hook-crio-annotations-createRuntime.json": "rdma-hook",
                                            "etc/crio/crio.conf.d/90-rdma-init.conf": both}),
            ("docker", "dockerd", None, NVIDIA, {"etc/docker/daemon.json": "rdma-runtime"}),
            ("podman", "podman", None, None, {podman: "rdma-runtime"}),
            ("podman", "podman", "hook", '[engine]\nhooks_dir = ["/usr/x"]\n', {
                podman: '[engine]\nhooks_dir = ["/usr/x", "/etc/containers/oci/hooks.d"]',
                f"{hooks}/rdma-hook-podman-annotations-createRuntime.json": "rdma-hook"})):
        with Image(engine, stand_in, way, text) as node:
            (node.root / "var/opt").mkdir()
            (node.root / "opt").symlink_to("var/opt")
            (node.root / "run").mkdir(exist_ok=True)
            before = files(node.root)
            node.call = ["unshare", "--map-root-user", "--mount", "sh", "-c", script, node.root, *node.call]
            output = node.done(*node.chosen)
            now = node.now()
            for path, part in wanted.items():
                assert path in now and part in now[path][1].decode(), (engine, way, path, now.get(path), output)
            assert "nothing to change" in node.done(*node.chosen)
            node.done("--uninstall", "--restart")
            assert node.now() == before, (engine, way, sorted(set(node.now()) ^ set(before)))


def links_in_the_way():
    with Node("docker", "dockerd", None, "{}") as node:
        file = node.root / "etc/docker/daemon.json"
        file.rename(node.root / "etc/docker/there.json")
        file.symlink_to("there.json")
        node.unchanged("is a link", *node.chosen)
    # A link to a directory is resolved below the node's root.
    with Node("containerd") as node:
        (node.root / "etc/containerd").symlink_to("/tmp")
        node.done(*node.chosen)
        assert (node.root / "tmp/config.toml").is_file() and not os.path.exists("/tmp/rdma-verify.json")
        node.uninstalled()
        assert not (node.root / "tmp/config.toml").exists()
    with Node("containerd") as node:
        (node.root / "etc/containerd").symlink_to("/nowhere")
        node.unchanged("is a link to a missing path", *node.chosen)
    with Node("podman") as node:
        (node.root / "etc/containers").mkdir()
        (node.root / "etc/containers/containers.conf.d").symlink_to("/nix/somewhere")
        assert "way hook" in node.done(*node.chosen)


def changeable_programs():
    """A program that users other than root can change is not executed, and nothing is changed. The printed remedy works."""
    for changeable, mode in (("usr/bin/containerd", 0o775), ("usr/bin", 0o777), ("usr/bin/ctr", 0o757), ("usr", 0o757)):
        with Node("containerd", text=TWO) as node:
            executed = node.root / "tmp/executed"
            if changeable == "usr/bin/containerd":
                engine = node.root / changeable
                engine.write_text(engine.read_text().replace("case", "echo > /tmp/executed\ncase", 1))
            node.root.joinpath(changeable).chmod(mode)
            queried = "ctr" if changeable.endswith("ctr") else "containerd"
            path = f"/{changeable}"
            # The command names the path with the root: the caller's own /usr is another directory.
            remedy = f"chown root {node.root}{path} && chmod go-w {node.root}{path}"
            node.unchanged(f"cannot execute `/usr/bin/{queried}`: users other than root can change `{path}`; remedy: run `{remedy}`\n", *node.chosen)
            assert not executed.exists()
            subprocess.run([*([] if os.geteuid() == 0 else ["unshare", "--map-root-user"]), "sh", "-c", remedy], check=True)
            node.done(*node.chosen)
    # The engine would execute the programs in place, so their directory must belong to root only, and all above it.
    for changeable in ("opt/rdma/bin/rdma-runtime", "opt/rdma/bin", "opt", ""):
        with Node("containerd", text=TWO) as node:
            for name in ("rdma-hook", "rdma-runtime"):
                node.put(f"opt/rdma/bin/{name}", "", 0o755)
            node.root.joinpath(changeable).chmod(0o777)
            for dry_run in ([], ["--dry-run"]):
                node.unchanged(f"cannot install: users other than root can change `/{changeable}`; remedy: copy the programs to a directory that "
                               "only root can change\n", *node.chosen, *dry_run)
            assert not list((node.root / "run/rdma-hook").iterdir())
            node.root.joinpath(changeable).chmod(0o755)
            node.done(*node.chosen)
            node.root.joinpath(changeable).chmod(0o777)
            node.uninstalled()
    # The engine would execute the copied programs, so their directory must belong to root only.
    with Image("containerd", text=TWO) as node:
        (node.root / "opt").mkdir()
        (node.root / "opt").chmod(0o777)
        for dry_run in ([], ["--dry-run"]):
            node.unchanged("program `/opt/rdma-init/bin/rdma-hook` is not safe to execute as root: users other than root can change `/opt`", *node.chosen,
                           *dry_run)
        assert not list((node.root / "opt").iterdir())


def locked(path, program="flock", user=0):
    """Returns a process of this user that has locked the directory; the process executes a copy of flock(1) with this name."""
    directory = tempfile.mkdtemp()
    os.chmod(directory, 0o755)
    copy = shutil.copy(shutil.which("flock"), f"{directory}/{program}")
    process = subprocess.Popen([copy, "--close", path, "sleep", "1000"], user=user, start_new_session=True)
    fd = os.open(path, os.O_RDONLY)
    while process.poll() is None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            break
        fcntl.flock(fd, fcntl.LOCK_UN)
        time.sleep(0.01)
    os.close(fd)
    shutil.rmtree(directory)
    assert process.poll() is None, process
    return process


def locks():
    """Another user's lock of /etc, which earlier versions lock, stops neither install nor uninstall. Another install does."""
    with Node("containerd", text=TWO) as node:
        node.root.chmod(0o755)
        stranger = locked(node.root / "etc", "rdma-hook", user=65534)
        for arguments in (["--dry-run"], []):
            output = node.done(*node.chosen, *arguments)
            assert f"process {stranger.pid} (" in output and ", user 65534) has locked" in output, output
        assert os.stat(node.root / "run/rdma-hook").st_mode & 0o7777 == 0o700
        node.done("--uninstall")
        assert node.now() == node.before
        os.killpg(stranger.pid, signal.SIGKILL)
        stranger.wait()
        # The lock of another install, of this version and of an earlier one.
        for place, program, words in (("run/rdma-hook", "flock", "another `rdma-hook install` or uninstall is running: process"),
                                      ("etc", "rdma-hook", "has locked")):
            other = locked(node.root / place, program)
            node.unchanged(words, *node.chosen)
            node.unchanged(words, *node.chosen, "--dry-run")
            node.unchanged(words, "--uninstall")
            os.killpg(other.pid, signal.SIGKILL)
            other.wait()
        node.done(*node.chosen)
        # An engine made the directory of the ledger for a mount: it becomes private again.
        (node.root / "run/rdma-hook").chmod(0o755)
        node.uninstalled()
        assert os.stat(node.root / "run/rdma-hook").st_mode & 0o7777 == 0o700


def without_bound():
    """An engine that prints without end is killed."""
    with Node("containerd", text=TWO) as node:
        node.put("usr/bin/containerd", "#!/bin/sh\nwhile :; do echo " + "x" * 10000 + "; done\n", 0o755)
        node.unchanged("`/usr/bin/containerd` writes more than 16777216 bytes", *node.chosen)


def as_the_samples():
    """The installed files of hooks.d are the samples if the programs have the samples' paths."""
    samples = pathlib.Path(__file__).parents[2] / "config/hooks.d"
    with Node("podman", "podman", "hook", None) as node:
        node.call[-1] = "/usr/local/bin/rdma-hook"
        node.done(*node.chosen)
        for path in (node.root / "usr/share/containers/oci/hooks.d").iterdir():
            assert path.read_bytes() == (samples / path.name).read_bytes(), path
    with Node("slurm", "slurmd") as node:
        node.call[-1] = "/usr/bin/rdma-hook"
        node.done(*node.chosen)
        scripts = {path.name: path for directory in ("etc/slurm/rdma-init", "etc/enroot/hooks.d") for path in (node.root / directory).iterdir()}
        assert set(scripts) == {path.name for path in (samples.parent / "slurm").iterdir()}, scripts
        for name, path in scripts.items():
            assert path.read_bytes() == (samples.parent / "slurm" / name).read_bytes() and path.stat().st_mode & 0o777 == 0o755, path


def slurm_lines():
    """install prints what to add to slurm.conf and to a site's scripts, and changes neither."""
    conf = "prolog=/site/prolog # ours\nTaskProlog=/site/task\x1b\nEpilog=/etc/slurm/rdma-init/epilog\nPropagateResourceLimits=NONE\n"
    with Node("slurm", "slurmd", None, conf) as node:
        said = node.done(*node.chosen)
        assert "has Prolog=/site/prolog: add to that script: [ ! -x /etc/slurm/rdma-init/prolog ] || /etc/slurm/rdma-init/prolog || exit 1\n" in said, said
        assert "has TaskProlog=/site/task?: add to that script: [ ! -x /etc/slurm/rdma-init/task-prolog ] || /etc/slurm/rdma-init/task-prolog || exit 1\n" in said, said
        assert "when all nodes have these files, run on one node: scontrol reconfigure\n" in said and "Epilog=" not in said and "MEMLOCK" not in said, said
        node.unchanged("remove Epilog=/etc/slurm/rdma-init/epilog from it on all nodes", "--uninstall", "--dry-run")
        node.unchanged("`/etc/slurm/slurm.conf` names `/etc/slurm/rdma-init/epilog`", "--uninstall")
        (node.root / "etc/slurm/slurm.conf").write_text("Include missing.conf\n")
        assert "remove lines that name a removed file\n" in node.done("--uninstall", "--dry-run")
        (node.root / "etc/slurm/slurm.conf").write_text("ClusterName=x\n")
        node.done("--uninstall")
        assert not (node.root / "etc/slurm/rdma-init").exists()
    with Node("slurm", "slurmd", None, "Prolog=/site/prolog.d/*\nEpilog=\nInclude missing.conf\nTaskProlog=/etc/slurm/rdma-init/task-prolog\nTaskProlog=/site/task\nPropagateResourceLimitsExcept=NOFILE\n") as node:
        said = node.done(*node.chosen, "--dry-run")
        assert "has Prolog=/site/prolog.d/*: add to a script that matches: [ ! -x /etc/slurm/rdma-init/prolog ] || /etc/slurm/rdma-init/prolog || exit 1\n" in said, said
        assert "set in `/etc/slurm/slurm.conf`: PropagateResourceLimitsExcept=NOFILE,MEMLOCK\n" in said, said
    with Node("slurm", "slurmd") as node:
        (node.root / "etc/enroot/hooks.d").rmdir()
        unit = node.put("etc/systemd/system/slurmd.service", "[Service]\nExecStart=/usr/sbin/slurmd\n")
        said = node.done(*node.chosen)
        assert "add to `/etc/slurm/slurm.conf`: HealthCheckProgram=/etc/slurm/rdma-init/health-check, and a HealthCheckInterval" in said, said
        assert "add to `/etc/slurm/slurm.conf`: TaskProlog=/etc/slurm/rdma-init/task-prolog: steps without" in said, said
        assert "add LimitMEMLOCK=infinity to [Service] with `systemctl edit slurmd.service`" in said, said
        unit.unlink()
        assert "set in `/etc/slurm/slurm.conf`: PropagateResourceLimitsExcept=MEMLOCK\n" in said, said
        for line in ("Prolog=/etc/slurm/rdma-init/prolog", "Epilog=/etc/slurm/rdma-init/epilog"):
            assert f"add to `/etc/slurm/slurm.conf`: {line}\n" in said, said
        assert "/opt/rdma/bin/rdma-init` is missing" in said and not (node.root / "etc/enroot/hooks.d").exists(), said
        node.uninstalled()
        assert not (node.root / "etc/slurm").exists()
        node.call[-1] = "/opt/$(id)/rdma-hook"
        node.unchanged("a shell would interpret characters of", *node.chosen)


def selected_engine():
    with Node("containerd", "containerd-0") as node:
        assert "containerd, way runtime: containerd before 1.7 has no NRI" in node.done(*node.chosen)
    with Node("docker", "dockerd") as node:
        shutil.copy(node.root / "usr/bin/dockerd", node.root / "usr/bin/containerd")
        assert "docker, way runtime" in node.done("--dry-run")
        (node.root / "var/lib/kubelet").mkdir(parents=True)
        assert "containerd, way nri" in node.done("--dry-run")
        shutil.copy(node.root / "usr/bin/dockerd", node.root / "usr/bin/crio")
        node.refused("select one with --engine")
        k3s = node.root / "var/lib/rancher/k3s"
        k3s.mkdir(parents=True)
        assert "rdma-runtime" in node.unchanged("nothing was changed; remedy: add the printed lines", code=UNSUPPORTED).stdout
        assert "containerd, way nri" in node.done("--engine", "containerd", "--dry-run")
        k3s.rmdir()
    with Node("docker", "dockerd") as node:
        # The rest of a removed engine.
        node.put("usr/bin/crio", "#!/usr/libexec/gone\n", 0o755)
        assert "found engines: crio (version unknown), docker 26.1" in node.done("--engine", "docker", "--dry-run")
        node.refused("several container engines are installed on this node: crio (version unknown), docker")
        node.refused("cannot execute `/usr/bin/crio`: its interpreter `/usr/libexec/gone`: open", "--engine", "crio")
    with Node("docker", "dockerd") as node:
        (node.root / "usr/bin/dockerd").unlink()
        node.unchanged("no container engine is installed on this node; remedy: install containerd", code=UNSUPPORTED)
        slurmd = node.put("usr/bin/slurmd", "#!/bin/sh\n", 0o755)
        node.unchanged("no container engine is installed on this node; remedy: for Slurm, add `--engine slurm`", code=UNSUPPORTED)
        slurmd.unlink()
        for name in ("k3s", "rke2", "microk8s"):
            node.unchanged(f"`{name}` is not installed on this node; remedy: install it", "--engine", name, code=UNSUPPORTED)
        assert node.run("--engine", "k3s", "--way", "hook").returncode == 2


K3S = "var/lib/rancher/k3s/agent/etc/containerd"
# A part of the text that k3s generates for containerd 2. Since February 2026 it has imports.
GENERATED = """# File generated by k3s. DO NOT EDIT. Use config-v3.toml.tmpl instead.
version = 3
%s
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
  SystemdCgroup = false
"""
TEMPLATE = """{{ template "base" . }}

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rdma]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["rdma-init.io/*", "k8s.volcengine.com/*", "cni.spidernet.io/*"]

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.rdma.options]
  BinaryName = "%s/rdma-runtime"
  SystemdCgroup = false
"""


def lines_of(output):
    """Returns the printed lines, which the administrator adds by hand."""
    head, _, lines = output.partition(":\n\n")
    assert head.startswith("lines for `"), output
    return lines.removesuffix("\n")


def distributions():
    """On a node of a distribution install names the file and its lines. When its containerd has them, install copies the programs."""
    programs = "/opt/rdma-init/bin"
    for imports, name in (("", "config-v3.toml.tmpl"), (f'imports = ["/{K3S}/config-v3.toml.d/*.toml"]\n', "config-v3.toml.d/rdma-init.toml")):
        with Image("containerd") as node:
            (node.root / "usr/bin/containerd").unlink()
            generated = node.put(f"{K3S}/config.toml", GENERATED % imports)
            node.put("etc/systemd/system/k3s-agent.service", "[Service]\nType=notify\n")
            features = node.root / FEATURES
            features.mkdir(parents=True)
            file = node.root / K3S / name
            for arguments in ([], ["--engine", "k3s"], ["--dry-run"]):
                output = node.unchanged(
                    f"k3s generates the configuration of its containerd, which does not name `{programs}/rdma-runtime`; nothing was changed; "
                    f"remedy: add the printed lines to `/{K3S}/{name}`, run `systemctl restart k3s-agent`, then run install again\n",
                    *arguments, code=UNSUPPORTED) if arguments else node.refused("nothing was changed", code=UNSUPPORTED)
                lines = lines_of(output.stdout)
                if name.endswith("tmpl"):
                    assert lines == TEMPLATE % programs, lines
                else:
                    assert lines == TEMPLATE.replace('{{ template "base" . }}', "version = 3") % programs, lines
            assert (features / "rdma-init").read_text() == "rdma-init.io/state=unsupported\n" and not (node.root / "opt").exists()
            node.put(f"{K3S}/{name}", lines)
            if name.endswith("tmpl"):
                output = node.refused("nothing was changed; remedy: run `systemctl restart k3s-agent`, then run install again", code=UNSUPPORTED)
                generated.write_text(GENERATED % "" + (TEMPLATE % programs).partition("\n")[2])
            for _ in range(2):
                assert f"k3s, way runtime: `/{K3S}/{name}` has the lines of rdma-init, nothing to change" in node.done()
                assert sorted(os.listdir(node.there)) == ["rdma-hook", "rdma-runtime"]
            assert (features / "rdma-init").read_text() == "rdma-init.io/state=ready\n"
            node.refused("cannot install: `k3s`, way runtime, is installed already", "--engine", "containerd")
            assert "k3s, way runtime" in node.done("--status")
            node.refused(f"kept the programs in `{programs}`: `/{K3S}/{name}` names rdma-runtime; remedy: remove the lines", "--uninstall", "--restart")
            file.unlink()
            generated.write_text(GENERATED % imports)
            node.done("--uninstall", "--restart")
            assert not (node.root / "opt").exists() and not node.restarts() and not list(features.iterdir())
    # containerd 1 replaces a whole table by an import; a template that exists keeps its lines.
    with Image("containerd") as node:
        (node.root / "usr/bin/containerd").unlink()
        node.put(f"{K3S}/config.toml", f'version = 2\nimports = ["/{K3S}/config.toml.d/*.toml"]\n')
        node.put(f"{K3S}/config.toml.tmpl", "mine\n")
        output = node.refused(f"add the printed lines to `/{K3S}/config.toml.tmpl`, run `systemctl restart k3s`", code=UNSUPPORTED).stdout
        assert lines_of(output).startswith('[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.rdma]\n'), output
        # Drop-ins of all services make no unit.
        node.put("usr/lib/systemd/system/service.d/10-timeout-abort.conf", "[Service]\nTimeoutStopFailureMode=abort\n")
        node.refused("run `systemctl restart k3s`, then", code=UNSUPPORTED)
    # RKE2's archive has both units, and the restart of one stops the other.
    for unit in ("rke2-server", "rke2-agent"):
        with Image("containerd") as node:
            (node.root / "usr/bin/containerd").unlink()
            node.put("var/lib/rancher/rke2/agent/etc/containerd/config.toml", GENERATED % "")
            for name in ("rke2-server", "rke2-agent"):
                node.put(f"usr/local/lib/systemd/system/{name}.service", "[Service]\nType=notify\n")
            wants = node.root / "etc/systemd/system/multi-user.target.wants"
            wants.mkdir(parents=True)
            (wants / f"{unit}.service").symlink_to(f"/usr/local/lib/systemd/system/{unit}.service")
            node.refused(f"run `systemctl restart {unit}`, then", code=UNSUPPORTED)


FEATURES = "etc/kubernetes/node-feature-discovery/features.d"


def labels():
    """The state of the node, as node-feature-discovery reads it: lines KEY=VALUE of files that do not begin with a dot."""
    with Image("containerd", text=TWO) as node:
        node.done()
        assert not (node.root / "etc/kubernetes").exists()
        node.done("--uninstall", "--restart")

        def labels():
            lines = [line for file in (node.root / FEATURES).iterdir() if file.name[0] != "." for line in file.read_text().split("\n") if line]
            assert all(re.fullmatch(r"rdma-init\.io/[a-z-]+=[a-z-]+", line) for line in lines), lines
            return lines

        features = node.root / FEATURES
        features.mkdir(parents=True)
        node.done("--dry-run")
        assert labels() == []
        node.done()
        assert labels() == ["rdma-init.io/state=restart-due"] and (features / "rdma-init").stat().st_mode & 0o777 == 0o644
        inode = (features / "rdma-init").stat().st_ino
        node.done()
        assert (features / "rdma-init").stat().st_ino == inode
        node.done("--restart")
        assert labels() == ["rdma-init.io/state=ready"] and os.listdir(features) == ["rdma-init"]
        assert node.run("--uninstall").returncode == 1 and labels() == []
        node.done()
        assert labels() == ["rdma-init.io/state=restart-due"]
        # Left by a call that was killed.
        node.put(f"{FEATURES}/.rdma-init", "rdma-init.io/st")
        # Written by `config apply` or `recover`.
        node.put(f"{FEATURES}/rdma-init-complete", "rdma-init.io/complete=true\n")
        node.put("etc/rdma-init/cluster/pools-seen.json", '["rails"]\n')
        node.done("--uninstall", "--restart")
        assert os.listdir(features) == [] and not (node.root / "etc/rdma-init/cluster").exists()
        (node.root / "usr/bin/containerd").rename(node.root / "usr/bin/gone")
        node.refused("no container engine", code=UNSUPPORTED)
        assert labels() == ["rdma-init.io/state=unsupported"]
        assert "nothing is installed" in node.done("--uninstall") and labels() == []
    # A package without an image.
    with Node("podman") as node:
        (node.root / FEATURES).mkdir(parents=True)
        node.done(*node.chosen)
        assert (node.root / FEATURES / "rdma-init").read_text() == "rdma-init.io/state=ready\n"
        node.uninstalled()


def with_features(node):
    (node.root / FEATURES).mkdir(parents=True)
    return node


def without_root():
    """Only --status and --dry-run work for other users."""
    if os.geteuid() != 0:
        return
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        program = shutil.copy(Node.program, directory)

        def run(*arguments):
            return subprocess.run([program, "install", *arguments], capture_output=True, text=True, check=False, user=65534, group=65534,
                                  extra_groups=[], cwd="/")

        for arguments in ([], ["--engine", "docker"], ["--uninstall"], ["--root", directory]):
            refused = run(*arguments)
            assert refused.returncode == 1 and refused.stderr == "rdma-hook: error: install: requires root; remedy: run as root\n", refused
        for arguments in (["--status"], ["--dry-run"], ["--uninstall", "--dry-run"]):
            assert "requires root" not in run(*arguments).stderr, arguments


def queried_engine():
    """install queries the running engine, otherwise the program of its unit, otherwise the program in PATH."""
    with Node("containerd", "containerd-1") as node:
        node.put("opt/new/bin/containerd", (node.root / "usr/bin/containerd").read_text().replace("1.7.24", "2.1.9"), 0o755)
        shutil.copy(node.root / "usr/bin/ctr", node.root / "opt/new/bin")

        def found(version):
            output = node.done(*node.chosen, "--dry-run")
            assert f"found engines: containerd {version}" in output, (version, output)

        found("1.7")
        unit = node.put("etc/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n")
        drop_in = node.put("etc/systemd/system/containerd.service.d/new.conf",
                           "[Service]\nExecStart=\nExecStart=-/opt/new/bin/containerd --config /etc/containerd/config.toml\n")
        found("2.1")
        unit.unlink()
        drop_in.unlink()
        process = node.put("proc/17/comm", "containerd\n").parent
        # Rows: the engine of the node, one in a container, another program, and a process of another user.
        for executed, pids, owner, version in (("containerd (deleted)", "17", 0, "2.1"), ("containerd (deleted)", "17\t1", 0, "1.7"),
                                               ("ctr", "17", 0, "1.7"), ("containerd", "17", 1000, "1.7")):
            if owner and os.geteuid() != 0:
                continue
            node.put("proc/17/status", f"Name:\tcontainerd\nNSpid:\t{pids}\n")
            (process / "exe").unlink(missing_ok=True)
            (process / "exe").symlink_to("/opt/new/bin/" + executed)
            if owner:
                os.chown(process, owner, owner)
            found(version)


SYSTEMCTL = '#!/bin/sh\n[ "$1" != show ] || exit 0\nif [ -e /tmp/fail ]; then echo "no such unit" >&2; exit 1; fi\necho "$SYSTEMD_IGNORE_CHROOT $*" >> /tmp/systemctl\n'


class Image(Node):
    """A node, and the directory of an image with the programs that install copies to it. A stand-in for systemctl logs restarts."""

    def __init__(self, engine, stand_in=None, way=None, text=None):
        super().__init__(engine, stand_in, way, text)
        self.programs = tempfile.TemporaryDirectory()
        image = pathlib.Path(self.programs.name)
        self.own = image / "rdma-hook"
        shutil.copy(self.program, self.own)
        (image / "rdma-runtime").write_text("one")
        (image / "rdma-runtime").chmod(0o755)
        (image / "rdma-nri").write_text("for the image alone")
        self.call = self.call[:self.call.index(self.program)] + [self.own, "install", "--root", self.root]
        self.put("usr/bin/systemctl", SYSTEMCTL, 0o755)
        self.there = self.root / "opt/rdma-init/bin"

    def __exit__(self, *_):
        super().__exit__()
        self.programs.cleanup()

    def restarts(self):
        log = self.root / "tmp/systemctl"
        return log.read_text().splitlines() if log.exists() else []


def put_from_an_image(engine, stand_in, way, text):
    with Image(engine, stand_in, way, text) as node:
        assert f"would copy `/opt/rdma-init/bin/rdma-hook`" in node.done(*node.chosen, "--dry-run")
        assert node.now() == node.before and not (node.root / "opt").exists() and not (node.root / "run").exists()
        node.done(*node.chosen, "--restart")
        assert sorted(os.listdir(node.there)) == ["rdma-hook", "rdma-runtime"]
        for name in ("rdma-hook", "rdma-runtime"):
            seen = (node.there / name).stat()
            assert (node.there / name).read_bytes() == (node.own.parent / name).read_bytes() and seen.st_mode & 0o7777 == 0o755, name
        named = [path for path, (_, content) in node.now().items() if path != RECORD and b"/opt/rdma-init/bin/rdma-" in (content or b"")]
        assert named or way == "cdi", node.now()
        assert (node.root / "run/rdma-hook").stat().st_mode & 0o7777 == 0o700
        assert (node.root / "etc/rdma-init/cluster").stat().st_mode & 0o7777 == 0o755
        wanted = [] if engine == "podman" else [f"1 {'reload' if engine == 'docker' else 'restart'} {'crio' if engine == 'crio' else engine}"]
        assert node.restarts() == wanted, node.restarts()
        # The same image again: install writes and restarts nothing.
        before = {path: path.stat().st_ino for path in node.there.iterdir()}
        installed = node.now()
        assert "nothing to change" in node.done("--restart") and node.restarts() == wanted and node.now() == installed
        assert {path: path.stat().st_ino for path in node.there.iterdir()} == before
        # Another version: running processes keep the old file, and the engine is not restarted.
        with open(node.there / "rdma-runtime", "rb") as running:
            (node.own.parent / "rdma-runtime").write_text("two")
            assert "copied `/opt/rdma-init/bin/rdma-runtime`" in node.done("--restart")
            assert running.read() == b"one" and (node.there / "rdma-runtime").read_text() == "two"
        # A grant that a program of another format booked: only that program can release it.
        (node.root / "run/rdma-hook/grants").mkdir(mode=0o700)
        grant = node.put("run/rdma-hook/grants/container-web.json", '{"format":1,"owner":{}}\n', 0o600)
        if os.geteuid() == 0:
            (node.own.parent / "rdma-runtime").write_text("three")
            refused = node.refused("1 grants have the format of another version", "--restart")
            assert "container-web.json" in refused.stderr and (node.there / "rdma-runtime").read_text() == "two", refused
            (node.own.parent / "rdma-runtime").write_text("two")
        grant.unlink()
        grant.parent.rmdir()
        record = json.loads((node.root / RECORD).read_text())
        (node.root / RECORD).write_text(json.dumps(record | {"version": "0.0.1"}))
        node.done("--restart")
        assert node.restarts() == wanted and json.loads((node.root / RECORD).read_text()) == record
        # A changed program is restored.
        (node.there / "rdma-hook").chmod(0o777)
        node.done("--restart")
        assert (node.there / "rdma-hook").stat().st_mode & 0o7777 == 0o755
        # Programs are removed only after the restart of the engine.
        if wanted:
            node.refused("--restart", "--uninstall")
            assert len(list(node.there.iterdir())) == 2
            failing = node.put("tmp/fail", "")
            node.refused("no such unit", "--uninstall", "--restart")
            assert len(list(node.there.iterdir())) == 2
            failing.unlink()
            assert [path for path in node.now() if path not in node.before] == [RECORD]
        node.done("--uninstall", "--restart")
        assert node.restarts() == wanted * 2 and node.now() == node.before and not (node.root / "opt").exists(), node.now().keys()
        assert "nothing is installed" in node.done("--uninstall", "--restart")


def restarted_later():
    """The next call repeats a restart that failed."""
    with Image("containerd", text=TWO) as node:
        failing = node.put("tmp/fail", "")
        node.refused("no such unit", "--restart")
        failing.unlink()
        assert "done: systemctl restart containerd" in node.done("--restart") and node.restarts() == ["1 restart containerd"]
        assert "done" not in node.done("--restart")
        # install cancels an uninstall that waits for the restart.
        assert node.run("--uninstall").returncode == 1
        node.done("--restart")
        assert {entry["state"] for entry in json.loads(node.done("--status", "--json"))["files"]} == {"installed"}


def runs(node, name, started):
    """Lays out a process of an engine that started so many clock ticks after the boot."""
    node.put("proc/17/comm", f"{name}\n")
    node.put("proc/17/status", f"Name:\t{name}\nNSpid:\t17\n")
    node.put("proc/17/stat", f"17 (a ) b) S 1 {'0 ' * 17}{started} 0\n")


def ticks(later=0.0):
    return int((time.clock_gettime(time.CLOCK_BOOTTIME) + later) * os.sysconf("SC_CLK_TCK"))


DUE = "restart due: {} has not read `{}`; remedy: systemctl {}\n"


def restart_is_due():
    """Each call reports that a restart is due, until install, the administrator or a boot of the node has restarted the engine."""
    due = DUE.format("containerd", "/etc/containerd/conf.d/rdma-init.toml", "restart containerd")
    for directory in ("before", "after"):
        with Image("containerd", text='imports = ["/etc/containerd/conf.d/*.toml"]\n') as node:
            runs(node, "containerd", ticks(-100))
            for _ in range(3):
                output = node.done()
                assert output.count("restart due") == 1 and due in output, output
            assert due in node.done("--status") and json.loads(node.done("--status", "--json"))["restart_due"] is True
            written = json.loads((node.root / RECORD).read_text())["written"]
            assert 0 < written["ticks"] <= ticks() and written["boot"] == pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            if directory == "before":  # a restart by hand
                runs(node, "containerd", ticks(1))
            else:  # the node was booted
                record = (node.root / RECORD).read_text()
                (node.root / RECORD).write_text(record.replace(written["boot"], "of-before"))
            assert "restart due" not in node.done("--status")
            assert json.loads(node.done("--status", "--json"))["restart_due"] is False
            assert node.done("--restart") == "containerd, way nri: installed, nothing to change\n" and not node.restarts()
            assert node.done() == "containerd, way nri: installed, nothing to change\n"
            # The restored files are not read either.
            runs(node, "containerd", written["ticks"])
            assert node.run("--uninstall").returncode == 1
            assert "restart due: containerd has not read its restored configuration" in node.done("--status")
            runs(node, "containerd", ticks(1))
            node.done("--uninstall")
            assert not node.restarts() and not (node.root / "opt").exists()
    # A killed call or an earlier version records no time: the next call records its own.
    with Image("containerd", text=TWO) as node:
        node.done()
        record = json.loads((node.root / RECORD).read_text())
        del record["written"]
        (node.root / RECORD).write_text(json.dumps(record))
        runs(node, "containerd", ticks(1))
        assert "restart due" in node.done("--status") and "restart due" in node.done()
        runs(node, "containerd", ticks(1))
        assert "restart due" not in node.done()
    # Two processes of the engine, of which one is in a container.
    with Image("crio", text=CRIO) as node:
        node.done()
        runs(node, "crio", ticks(1))
        node.put("proc/18/comm", "crio\n")
        node.put("proc/18/stat", f"18 (crio) S 1 {'0 ' * 17}5 0\n")
        assert DUE.format("crio", "/etc/crio/crio.conf.d/90-rdma-init.conf", "restart crio") in node.done()
        node.put("proc/18/status", "NSpid:\t18\t1\n")
        assert "restart due" not in node.done()


def docker_is_reloaded():
    """A reload does not change the start time of dockerd: `docker info` names the runtimes that it has."""
    due = DUE.format("docker", "/etc/docker/daemon.json", "reload docker")
    with Image("docker", "dockerd") as node:
        runs(node, "dockerd", ticks(-100))
        node.put("usr/bin/docker", '#!/bin/sh\ncat /tmp/runtimes\n', 0o755)
        node.put("tmp/runtimes", '{"runc":{}}\n')
        assert due in node.done() and due in node.done()
        node.put("tmp/runtimes", '{"rdma":{"path":"/opt/rdma-init/bin/rdma-runtime"},"runc":{}}\n')
        assert "restart due" not in node.done("--status") and "restart due" not in node.done()
        assert node.run("--uninstall").returncode == 1
        node.put("tmp/runtimes", '{"runc":{}}\n')
        node.done("--uninstall")
        assert not node.restarts()


def where_programs_are():
    # Programs of a package are used in place: nothing is copied.
    with Image("containerd", text=TWO) as node:
        node.put("usr/bin/rdma-runtime", "", 0o755)
        node.done()
        assert not (node.root / "opt").exists() and "/usr/bin/rdma-hook" in (node.root / "etc/containerd/rdma-verify.json").read_text()
    # /opt is a link on nodes whose /usr is read-only, and programs may be links.
    with Image("containerd", text=TWO) as node:
        (node.root / "opt").symlink_to("/var/opt")
        (node.root / "var/opt").mkdir()
        (node.root / "usr/lib").mkdir()
        (node.root / "usr/bin/containerd").rename(node.root / "usr/lib/containerd")
        (node.root / "usr/bin/containerd").symlink_to("/usr/lib/containerd")
        node.done("--restart")
        assert (node.root / "var/opt/rdma-init/bin/rdma-hook").is_file() and not os.path.exists("/var/opt/rdma-init")
        node.done("--uninstall", "--restart")
        assert not list((node.root / "var/opt").iterdir())
    with Image("containerd", text=TWO) as node:
        node.done("--programs", "/var/lib/bin")
        assert (node.root / "var/lib/bin/rdma-runtime").is_file()
        refused = node.run()
        assert refused.returncode == 0 or "installed" in refused.stderr, refused
        assert node.run("--programs", "bin").returncode == 2
    # A refused configuration leaves nothing on the node.
    with Image("containerd", "containerd-1", "runtime", LINES) as node:
        assert node.run(*node.chosen).returncode == 1 and node.now() == node.before and not (node.root / "opt").exists()


def static_busybox():
    busybox = shutil.which("busybox")
    return busybox and b"static" in subprocess.run(["file", "-L", busybox], capture_output=True, check=False).stdout


def main():
    if not static_busybox():
        print("skipped: the stand-ins need a static busybox")
        return 77
    for engine, stand_in, way, text, wanted in CASES:
        with Node(engine, stand_in, way, text) as node:
            try:
                install_and_uninstall(node, wanted)
            except AssertionError:
                print(f"{engine}, {stand_in}, {way}:", file=sys.stderr)
                raise
    for engine, stand_in, way, text, words, *code in REFUSED:
        with Node(engine, stand_in, way, text) as node:
            node.unchanged(words, *node.chosen, code=code[0] if code else 1)
            assert not list(node.root.glob("etc/containerd/conf.d")) and not list(node.root.glob("var/lib/*"))
    checks = [each_rule_has_a_node, broken_by_others, own_handler_is_the_default, linked_by_others, unknown_version, overridden, start_rules, started_by_another_program, crio_behind, not_a_node, failed_unit, changed_elsewhere, by_another_version, replaced_files, links_in_the_way, selected_engine, distributions, labels, without_root, queried_engine,
              changeable_programs, without_bound, *([locks] if os.geteuid() == 0 and shutil.which("flock") else []), as_the_samples, slurm_lines, restarted_later, restart_is_due, docker_is_reloaded, where_programs_are]
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], check=False).returncode == 0:
        checks += [read_only, image_based]
    else:
        print("read-only file systems skipped: cannot mount")
    for check in checks:
        check()
    for engine, stand_in, way, text in (("containerd", None, None, TWO), ("containerd", "containerd-1", None, ONE_EMPTY),
                                        ("containerd", None, "runtime", TWO), ("crio", None, None, CRIO),
                                        ("docker", "dockerd", None, NVIDIA), ("podman", None, None, None)):
        put_from_an_image(engine, stand_in, way, text)
    if shutil.which("strace"):
        makers = [lambda: Node("containerd", "containerd", "runtime", TWO), lambda: Node("containerd", "containerd-1", None, ONE),
                  lambda: with_features(Image("podman")), lambda: Node("slurm", "slurmd", None, "ClusterName=x\n")]
        print(f"killed at {sum(map(killed, makers))} points, without room at {sum(map(without_room, makers))}")
    else:
        print("kills skipped: strace is not installed")
    return 0


if __name__ == "__main__":
    Node.program = sys.argv[1]
    sys.exit(main())
