"""An upgrade while containers run. The ledger was written by an earlier program, with the containers old0 (mlx5_0, exclusive), old1
and old2 (mlx5_1, shared) and old3 (mlx5_2, exclusive, with lent libraries); the test fills in processes and bundles of containers that
run now. By the code of that program, two parts were added: token0, a container that is being created (mlx5_3, exclusive), and a pod of
pod0a and pod0b (mlx5_1, shared) with a rail and its address. The earlier program was the last one before grants listed contexts as
ranges and copies of files lay outside of the views."""
import fcntl
import json
import os
import struct
import subprocess
import sys

import harness
from containers import EXCLUSIVE, SHARED, Bundle, FakeContainer, stopped
from harness import HERE, SOURCE

sys.path.append(SOURCE + "/tests/support")
import grant_record  # noqa: E402

RECORDED = HERE + "/recorded/ledger-0.1.0-before-ranges.json"
TOKEN = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
OLD = {"old0": ("mlx5_0", EXCLUSIVE), "old1": ("mlx5_1", SHARED), "old2": ("mlx5_1", SHARED), "old3": ("mlx5_2", EXCLUSIVE),
       "token0": ("mlx5_3", {**EXCLUSIVE, "rdma-init.io/grant": TOKEN}), "pod0a": ("mlx5_1", SHARED), "pod0b": ("mlx5_1", SHARED)}
OWN_COPY = "views/set-a7087b21f23e65c584da450edc0ed631/lib/libmlx5-rdmav34.so"


OFD_SETLK = 37  # F_OFD_SETLK of Linux


def start_time(pid):
    return int(harness.read(f"/proc/{pid}/stat").rpartition(") ")[2].split()[19])


class Upgrade(harness.NodeCase):
    def setUp(self):
        super().setUp()
        self.configure({"annotations_may_request": ["*"], "pools": [{"name": "all", "modes": ["exclusive", "shared"]}]})
        self.sandbox = self.start(["unshare", "--net", "sh", "-c", "echo made; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.assertEqual(self.sandbox.stdout.readline(), b"made\n")
        netns = f"/proc/{self.sandbox.pid}/ns/net"
        self.old = {name: FakeContainer(Bundle(self, name, requests=hca, stages=(), annotations=mode, netns=netns if name.startswith("pod") else True))
                    for name, (hca, mode) in OLD.items()}
        os.makedirs(self.ledger_directory, mode=0o700, exist_ok=True)
        seen = os.stat(netns)
        text = harness.read(RECORDED).replace("@PATH@", netns)
        for name, number in (("@DEV@", seen.st_dev), ("@INO@", seen.st_ino)):
            for quoted in (f'\\"{name}\\"', f'"{name}"', name):
                text = text.replace(quoted, str(number))
        self.pod = f"netns-{seen.st_dev}-{seen.st_ino}"
        for path, entry in json.loads(text).items():
            self.lay_out(f"{self.ledger_directory}/{path}", entry)

    def lay_out(self, path, entry):
        text = entry.get("text")
        if "link" in entry:
            os.symlink(entry["link"], path)
        elif text is None:
            os.mkdir(path)
            os.chmod(path, int(entry["mode"], 8))
        elif isinstance(text, dict):
            for user in text["users"]:
                container = self.old[user["id"]]
                user.update(bundle=container.bundle.directory,
                            process={"pid": container.pid, "start_time": start_time(container.pid)})
            grant_record.write(path, text)
        else:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(path, int(entry["mode"], 8))

    def start_of(self, name, hca, mode):
        """Starts a container and returns the result of createRuntime. A refused container ends."""
        container = FakeContainer(Bundle(self, name, requests=hca, stages=(), annotations=mode))
        done = self.hook("createRuntime", container.state())
        if done.returncode != 0:
            container.end()
        return done

    def test_nothing_is_lost_or_given_twice(self):
        pod = f"pod namespace /proc/{self.sandbox.pid}/ns/net"
        held = {"mlx5_0": ["container old0"], "mlx5_1": ["container old1", "container old2", pod], "mlx5_2": ["container old3"],
                "mlx5_3": ["a container that is being created"]}
        self.assertEqual(self.holders(), held)
        for number, (hca, mode) in enumerate((("mlx5_0", EXCLUSIVE), ("mlx5_0", SHARED), ("mlx5_1", EXCLUSIVE), ("mlx5_2", SHARED), ("mlx5_3", EXCLUSIVE))):
            self.refused(self.start_of(f"refused{number}", hca, mode), hca)
        self.assertEqual(self.holders(), held)
        self.assertEqual(self.start_of("new", "mlx5_1", SHARED).returncode, 0)
        self.assertTrue(os.path.exists(f"{self.ledger_directory}/{OWN_COPY}"))

        # recover releases the grant of the ended container with its own copies, and no other.
        self.old["old3"].end()
        self.recover()
        del held["mlx5_2"]
        held["mlx5_1"] = ["container new", *held["mlx5_1"]]
        self.assertEqual(self.holders(), held)
        self.assertFalse(os.path.exists(f"{self.ledger_directory}/{OWN_COPY}"))
        self.assertEqual(self.start_of("next", "mlx5_2", EXCLUSIVE).returncode, 0)

        # The new program releases a grant that the earlier one booked.
        self.old["old0"].end()
        self.assertEqual(self.hook("poststop", stopped(self.old["old0"].bundle)).returncode, 0)
        self.assertNotIn("mlx5_0", self.holders())
        self.assertEqual(self.start_of("after", "mlx5_0", EXCLUSIVE).returncode, 0)

    def test_a_container_that_is_being_created_gets_its_hca(self):
        container = self.old["token0"]
        self.assertEqual(self.hook("createRuntime", container.state()).returncode, 0)
        self.assertEqual(self.holders()["mlx5_3"], ["container token0"])
        self.refused(self.start_of("other", "mlx5_3", SHARED), "mlx5_3")
        container.end()
        self.assertEqual(self.hook("poststop", stopped(container.bundle)).returncode, 0)
        self.assertNotIn("mlx5_3", self.holders())

    def test_a_token_whose_caller_has_ended_is_released(self):
        self.old["token0"].end()
        self.recover()
        self.assertNotIn("mlx5_3", self.holders())

    def test_a_pod_keeps_rail_and_address_until_it_ends(self):
        of_pod = [f"network/{self.pod}.json", "addresses/rails/1/10.77.1.5"]
        self.old["pod0a"].end()
        self.recover()
        self.assertEqual([os.path.lexists(f"{self.ledger_directory}/{path}") for path in of_pod], [True, True])
        self.assertIn(f"pod namespace /proc/{self.sandbox.pid}/ns/net", self.holders()["mlx5_1"])
        self.old["pod0b"].end()
        harness.end_process(self.sandbox)
        self.recover()
        self.assertEqual([os.path.lexists(f"{self.ledger_directory}/{path}") for path in of_pod], [False, False])
        self.assertEqual(self.holders()["mlx5_1"], ["container old1", "container old2"])

    def test_locks_of_a_running_old_program_are_respected(self):
        """The old program holds the lock of an HCA, or of a grant: the byte of the grant's key in the file `lock`."""
        with open(f"{self.ledger_directory}/hca/0000.11.00.0/lock", "r+", encoding="utf-8") as lock:
            lock.write(f"{os.getpid()} {start_time(os.getpid())} web\n")
            lock.flush()
            fcntl.flock(lock, fcntl.LOCK_EX)
            done = self.start_of("waits", "mlx5_1", SHARED)
            self.refused(done, "cannot lock HCA `0000.11.00.0`", f"process {os.getpid()}", "container `web`")
        self.assertEqual(self.start_of("after", "mlx5_1", SHARED).returncode, 0)

        self.old["old0"].end()
        (record,) = [name for name in os.listdir(f"{self.ledger_directory}/grants") if name.startswith("container-old0-")]
        with open(f"{self.ledger_directory}/lock", "r+", encoding="utf-8") as lock:
            of_key = grant_record.checksum(record.removesuffix(".json").encode()) >> 2
            fcntl.fcntl(lock, OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, of_key, 1, 0))
            self.assertIn("cannot lock grant `container-old0-", self.hook("poststop", stopped(self.old["old0"].bundle)).stderr)
            self.assertIn("mlx5_0", self.holders())
        self.assertEqual(self.hook("poststop", stopped(self.old["old0"].bundle)).returncode, 0)
        self.assertNotIn("mlx5_0", self.holders())

    def test_a_removed_index_gives_nothing_twice(self):
        for path in ("hca", "ids"):
            os.rename(f"{self.ledger_directory}/{path}", f"{self.work}/{path}")
        self.refused(self.start_of("first", "mlx5_0", SHARED), "mlx5_0")
        self.refused(self.start_of("second", "mlx5_1", EXCLUSIVE), "mlx5_1")


if __name__ == "__main__":
    harness.main_in_own_machine()
