"""`rdma-hook cdi generate`: the file is valid by the schema of the Container Device Interface for every node of the golden tests;
its devices, refusals, and the replacement of the file. Engines load the file in the virtual machine."""
import glob
import json
import os
import re
import stat

import harness
from harness import HOOK, MAKE_TREE, SOURCE, must, read, read_json, run, write

GOLDEN = SOURCE + "/tests/golden"
# Debian 12 has both below the first directory, later releases below the second.
SCHEMAS = [f"/usr/share/gocode/src/{project}/container-device-interface/schema/schema.json"
           for project in ("github.com/container-orchestrated-devices", "tags.cncf.io")]
SCHEMA_PACKAGE = "golang-github-container-orchestrated-devices-container-device-interface-dev"
HOOK_NAMES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NOTHING_TO_OFFER = "this node has no HCA for containers"


def nodes_of(edits):
    return [node["path"].rpartition("/")[2] for node in edits.get("deviceNodes", [])]


def minimum_version(spec):
    """Returns the lowest version of CDI that has all members of the specification (CDI 1.1, pkg/cdi/version.go)."""
    edits = [spec.get("containerEdits", {})] + [device["containerEdits"] for device in spec["devices"]]
    if any("netDevices" in edit for edit in edits):
        return (1, 1, 0)
    if any("intelRdt" in edit or "additionalGids" in edit for edit in edits):
        return (0, 7, 0)
    if "." in spec["kind"].partition("/")[2] or any("annotations" in part for part in (spec, *spec["devices"])):
        return (0, 6, 0)
    if (any("hostPath" in node for edit in edits for node in edit.get("deviceNodes", []))
            or any(device["name"][0].isdigit() for device in spec["devices"])):
        return (0, 5, 0)
    return (0, 4, 0) if any("type" in mount for edit in edits for mount in edit.get("mounts", [])) else (0, 3, 0)


def broken_rules(spec):
    """Checks the rules of CDI's library that its schema lacks (CDI 1.1, pkg/cdi/spec.go, pkg/parser/parser.go)."""
    broken = []
    if tuple(map(int, spec["cdiVersion"].split("."))) < minimum_version(spec):
        broken.append(f"cdiVersion {spec['cdiVersion']} is below {minimum_version(spec)}")
    if not re.fullmatch(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?", spec["kind"]):
        broken.append(f"kind {spec['kind']}")
    names = [device["name"] for device in spec["devices"]]
    broken += [f"name {name}" for name in names if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?", name)]
    if not names or len(names) != len(set(names)):
        broken.append("no device, or one twice")
    for edits in [spec.get("containerEdits"), *(device["containerEdits"] for device in spec["devices"])]:
        if edits is not None and not any(edits.values()):
            broken.append("edits that are empty")
        for node in (edits or {}).get("deviceNodes", []):
            if node.get("type", "c") not in ("b", "c", "u", "p") or set(node.get("permissions", "")) - set("rwm"):
                broken.append(f"node {node}")
        for hook in (edits or {}).get("hooks", []):
            if hook["hookName"] not in HOOK_NAMES or not hook["path"].startswith("/"):
                broken.append(f"hook {hook}")
    return broken


class CdiCase(harness.TreeCase):
    def setUp(self):
        super().setUp()
        self.out = self.work + "/cdi/rdma-init.json"
        os.mkdir(self.work + "/cdi")

    def call(self, *options, **settings):
        return run([HOOK, "cdi", "generate", "--config", self.config, *options], **settings)

    def generate(self, *options, **settings):
        return self.succeeded(self.call("--root", self.tree, *options, **settings))

    def spec(self, *options):
        return json.loads(self.generate(*options).stdout)

    def refuses(self, *options, words):
        """Checks a refusal with these words, without output, and with an unchanged file."""
        before = self.written()
        done = self.call("--root", self.tree, *options)
        self.assertIn(done.returncode, (1, 2))
        self.assertIn(words, done.stderr)
        self.assertEqual(done.stdout, "")
        self.assertEqual(self.written(), before)

    def written(self):
        """Returns content and identity of every file in the directory of the specification."""
        found = {}
        for name in os.listdir(os.path.dirname(self.out)):
            path = os.path.join(os.path.dirname(self.out), name)
            status = os.stat(path)
            found[name] = (read(path), status.st_ino, status.st_mtime_ns)
        return found

    @staticmethod
    def offered(spec):
        return {device["name"]: nodes_of(device["containerEdits"]) for device in spec["devices"]}


class Schema(CdiCase):
    """Against the schema of CDI's own project, as Debian packages it."""

    def setUp(self):
        super().setUp()
        try:
            import jsonschema
        except ImportError:
            self.skipTest("no module jsonschema (Debian package python3-jsonschema)")
        path = next(filter(os.path.exists, SCHEMAS), None)
        if not path:
            self.skipTest(f"no schema of CDI (Debian package {SCHEMA_PACKAGE})")
        here = "#/definitions/"
        schema, definitions = (json.loads(read(file).replace("defs.json" + here, here))
                               for file in (path, os.path.dirname(path) + "/defs.json"))
        schema["definitions"] = definitions["definitions"]
        # The schema lacks the edits that all devices share, which have the form of a device's edits, and `fileMode`.
        schema["properties"]["containerEdits"] = {"$ref": here + "containerEdits"}
        schema["definitions"]["DeviceNode"]["properties"]["fileMode"] = {"type": "integer"}
        # The schema accepts unknown members. The strict parsers of engines do not.
        self.close(schema)
        self.validator = jsonschema.Draft7Validator(schema)

    def close(self, part):
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict) and part.get("type") == "object":
                part["additionalProperties"] = False
            for member in part.values():
                self.close(member)

    def problems(self, spec):
        return [f"{'/'.join(map(str, error.absolute_path))}: {error.message}" for error in self.validator.iter_errors(spec)] + (
            broken_rules(spec) if self.validator.is_valid(spec) else [])

    def test_is_valid_for_every_node_of_golden_tests(self):
        snapshots = sorted(path for directory in ("snapshots", "fixtures")
                           for path in glob.glob(f"{GOLDEN}/{directory}/*.json") if not path.endswith(".expect.json"))
        self.assertGreater(len(snapshots), 30)
        valid = 0
        for snapshot in snapshots:
            with self.subTest(os.path.basename(snapshot)):
                tree = f"{self.work}/{os.path.basename(snapshot)}"
                must([MAKE_TREE, snapshot, tree, "--full"])
                done = self.call("--root", tree)
                if done.returncode != 0:
                    self.assertIn(NOTHING_TO_OFFER, done.stderr)
                    continue
                self.assertEqual(self.problems(json.loads(done.stdout)), [])
                valid += 1
        self.assertGreater(valid, 25)

    def test_is_valid_for_every_option_of_nodes(self):
        self.make_tree(2)
        for nodes in ({"rdma_cm": False}, {"mode": "0660", "uid": 7, "gid": 44}, {"umad": True}):
            self.configure({"nodes": nodes})
            self.assertEqual(self.problems(self.spec("--engine", "docker", "--kind", "example.com/net")), [])

    def test_schema_detects_mistakes(self):
        """The schema finds each of these mistakes in a specification of this program."""
        self.make_tree(1)
        self.assertEqual(self.problems(self.spec()), [])

        shared, device = (lambda spec: spec["containerEdits"]), (lambda spec: spec["devices"][0])
        hook, node = (lambda spec: shared(spec)["hooks"][0]), (lambda spec: device(spec)["containerEdits"]["deviceNodes"][0])
        for number, mistake in enumerate((
                lambda spec: spec.pop("kind"), lambda spec: spec.update(cdiVersion=3), lambda spec: spec.update(unknown=1),
                lambda spec: device(spec).pop("name"), lambda spec: node(spec).update(major="231"),
                lambda spec: node(spec).pop("path"), lambda spec: hook(spec).pop("hookName"),
                lambda spec: hook(spec).update(timeout=-1), lambda spec: hook(spec).update(hookName="createruntime"),
                lambda spec: spec.update(kind="rdma-init.io/hca."),
                lambda spec: spec["devices"][1].update(name=device(spec)["name"]),
                lambda spec: device(spec).update(name="mlx5_0-"),
                lambda spec: device(spec).update(containerEdits={"env": []}),
                lambda spec: node(spec).update(hostPath="/dev/null"))):
            with self.subTest(number):
                spec = self.spec()
                mistake(spec)
                self.assertNotEqual(self.problems(spec), [])


class Offer(CdiCase):
    def test_offers_device_for_each_hca_and_for_all(self):
        self.make_tree(3)
        spec = self.spec()
        self.assertEqual(spec["kind"], "rdma-init.io/hca")
        self.assertEqual(self.offered(spec), {"mlx5_0": ["uverbs0"], "mlx5_1": ["uverbs1"], "mlx5_2": ["uverbs2"],
                                              "all": ["uverbs0", "uverbs1", "uverbs2"]})
        self.assertEqual(nodes_of(spec["containerEdits"]), ["rdma_cm"])

    def test_names_paths_and_leaves_numbers_to_engine(self):
        self.make_tree(1)
        for node in self.spec()["devices"][0]["containerEdits"]["deviceNodes"]:
            self.assertEqual(node["path"], "/dev/infiniband/uverbs0")
            self.assertEqual(set(node) & {"major", "minor", "hostPath"}, set())

    def test_adds_this_program_as_hooks(self):
        self.make_tree(1)
        hooks = self.spec()["containerEdits"]["hooks"]
        self.assertEqual([hook["args"] for hook in hooks], [["rdma-hook", "createRuntime"], ["rdma-hook", "poststop"]],
                         "the hook would assume Podman for each engine")
        for engine in ("podman", "docker", "containerd", "crio"):
            hooks = self.spec("--engine", engine)["containerEdits"]["hooks"]
            self.assertEqual(hooks, [{"hookName": stage, "path": os.path.realpath(HOOK),
                                      "args": ["rdma-hook", stage, "--engine", engine]}
                                     for stage in ("createRuntime", "poststop")])
        # Without --engine the hook must not assume an engine.
        self.assertEqual(self.spec("--hook", "/opt/rdma-hook")["containerEdits"]["hooks"][1]["path"], "/opt/rdma-hook")

    def test_omits_hca_outside_of_pools(self):
        self.make_tree(3)
        self.configure({"pools": [{"name": "rails", "selectors": {"ifNames": ["rail0", "rail2"]}}]})
        self.assertEqual(self.offered(self.spec()), {"mlx5_0": ["uverbs0"], "mlx5_2": ["uverbs2"],
                                                     "all": ["uverbs0", "uverbs2"]})

    def test_omits_and_reports_hca_without_node(self):
        self.make_tree(2)
        must(["rm", "-r", self.tree + "/sys/class/infiniband_verbs/uverbs0"])
        self.assert_left_out("`mlx5_0` is skipped: it has no uverbs node")

    def assert_left_out(self, words):
        """Renames the first of two HCAs."""
        done = self.generate()
        self.assertEqual(self.offered(json.loads(done.stdout)), {"mlx5_1": ["uverbs1"], "all": ["uverbs1"]})
        self.assertIn(words, done.stderr)

    def test_omits_and_reports_invalid_name(self):
        self.make_tree(2)
        os.rename(self.tree + "/sys/class/infiniband/mlx5_0", self.tree + "/sys/class/infiniband/mlx5+0")
        write(self.tree + "/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5+0\n")
        self.assert_left_out("`mlx5+0` is skipped: CDI does not allow this name")

    def test_refuses_node_without_hcas(self):
        self.make_tree(1)
        self.configure({"pools": [{"name": "rails", "selectors": {"ifNames": ["no-such"]}}]})
        self.refuses(words=NOTHING_TO_OFFER)

    def test_accepts_kinds(self):
        self.make_tree(1)
        for kind in ("example.com/hca", "example.com/net-rdma", "a/b", "Vendor_1.x/c_d-e"):
            self.assertEqual(self.spec("--kind", kind)["kind"], kind)
        for kind in ("", "hca", "/hca", "v/", "1v/c", "v-/c", "v/c.d", "v/c/d", "v c/d", "v/c\n", "../x"):
            self.refuses("--kind", kind, "--out", self.out, words="is not a CDI kind")

    def test_refuses_invalid_command_line(self):
        self.make_tree(1)
        for options in (("--out",), ("--engine", "lxc"), ("surplus",)):
            done = self.call(*options)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        done = run([HOOK, "cdi", "list"])
        self.assertEqual(done.returncode, 2)
        self.assertIn("cdi generate", done.stderr)


class File(CdiCase):
    def setUp(self):
        super().setUp()
        self.make_tree(2)

    def test_writes_printed_text_readable_for_all_users(self):
        done = self.generate("--out", self.out, umask=0o077)
        self.assertEqual(done.stdout, "")
        self.assertEqual(read(self.out), self.generate().stdout)
        status = os.stat(self.out)
        self.assertEqual((stat.S_IMODE(status.st_mode), status.st_uid), (0o644, 0))
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["rdma-init.json"])

    def test_keeps_unchanged_file(self):
        self.generate("--out", self.out)
        before = self.written()
        self.generate("--out", self.out)
        self.assertEqual(self.written(), before)

    def test_replaces_file_as_a_whole(self):
        self.generate("--out", self.out)
        with open(self.out, encoding="utf-8") as reader:
            before = read(self.out)
            self.make_tree(3)
            self.generate("--out", self.out)
            self.assertEqual(reader.read(), before)
        self.assertEqual(set(self.offered(read_json(self.out))), {"mlx5_0", "mlx5_1", "mlx5_2", "all"})
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["rdma-init.json"])

    def test_keeps_file_after_error(self):
        self.generate("--out", self.out)
        self.configure({"pools": 7})
        self.refuses("--out", self.out, words="config.json")
        self.configure({"pools": [{"name": "rails", "selectors": {"ifNames": ["no-such"]}}]})
        self.refuses("--out", self.out, words=NOTHING_TO_OFFER)
        self.configure({})
        os.rename(self.tree + "/sys/class/infiniband", self.work + "/infiniband")
        self.refuses("--out", self.out, words=NOTHING_TO_OFFER)

    def test_reports_file_that_cannot_be_written(self):
        self.refuses("--out", self.work + "/missing/rdma-init.json", words="engines read /etc/cdi and /var/run/cdi")
        os.mkdir(self.out)
        done = self.call("--root", self.tree, "--out", self.out)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"cannot write `{self.out}`", done.stderr)
        self.assertEqual(os.listdir(os.path.dirname(self.out)), ["rdma-init.json"])

    def test_keeps_file_on_full_disk(self):
        self.out = self.work + "/full/rdma-init.json"
        self.mount_or_skip(self.work + "/full", "-t", "tmpfs", "-o", "size=8k", "tmpfs")
        self.generate("--out", self.out)
        self.make_tree(40)
        self.refuses("--out", self.out, words="No space left on device")


if __name__ == "__main__":
    harness.main(HOOK, MAKE_TREE)
