"""An upgrade while containers run. The ledger was written by an earlier program, with the containers old0 (mlx5_0, exclusive), old1
and old2 (mlx5_1, shared) and old3 (mlx5_2, exclusive); the test fills in processes and bundles of containers that run now. The
earlier program was the last one before grants listed contexts as ranges and copies of files lay outside of the views."""
import json
import os
import sys

import harness
from containers import EXCLUSIVE, SHARED, Bundle, FakeContainer, stopped
from harness import HERE, SOURCE

sys.path.append(SOURCE + "/tests/support")
import grant_record  # noqa: E402

RECORDED = HERE + "/recorded/ledger-0.1.0-before-ranges.json"
OLD = {"old0": ("mlx5_0", EXCLUSIVE), "old1": ("mlx5_1", SHARED), "old2": ("mlx5_1", SHARED), "old3": ("mlx5_2", EXCLUSIVE)}


def start_time(pid):
    return int(harness.read(f"/proc/{pid}/stat").rpartition(") ")[2].split()[19])


class Upgrade(harness.NodeCase):
    def setUp(self):
        super().setUp()
        self.configure({"annotations_may_request": ["*"], "pools": [{"name": "all", "modes": ["exclusive", "shared"]}]})
        self.old = {name: FakeContainer(Bundle(self, name, requests=hca, stages=(), annotations=mode)) for name, (hca, mode) in OLD.items()}
        os.makedirs(self.ledger_directory, mode=0o700, exist_ok=True)
        with open(RECORDED, encoding="utf-8") as file:
            for path, entry in json.load(file).items():
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
        held = {"mlx5_0": ["container old0"], "mlx5_1": ["container old1", "container old2"], "mlx5_2": ["container old3"]}
        self.assertEqual(self.holders(), held)
        for number, (hca, mode) in enumerate((("mlx5_0", EXCLUSIVE), ("mlx5_0", SHARED), ("mlx5_1", EXCLUSIVE), ("mlx5_2", SHARED))):
            self.refused(self.start_of(f"refused{number}", hca, mode), hca)
        self.assertEqual(self.holders(), held)
        self.assertEqual(self.start_of("new", "mlx5_1", SHARED).returncode, 0)

        # recover releases the grant of the ended container, and no other.
        self.old["old3"].end()
        harness.must([harness.HOOK, "recover", *self.places()], env={})
        del held["mlx5_2"]
        held["mlx5_1"] = ["container new", *held["mlx5_1"]]
        self.assertEqual(self.holders(), held)
        self.assertEqual(self.start_of("next", "mlx5_2", EXCLUSIVE).returncode, 0)

        # The new program releases a grant that the earlier one booked.
        self.old["old0"].end()
        self.assertEqual(self.hook("poststop", stopped(self.old["old0"].bundle)).returncode, 0)
        self.assertNotIn("mlx5_0", self.holders())
        self.assertEqual(self.start_of("after", "mlx5_0", EXCLUSIVE).returncode, 0)

    def test_a_removed_index_gives_nothing_twice(self):
        for path in ("hca", "ids"):
            os.rename(f"{self.ledger_directory}/{path}", f"{self.work}/{path}")
        self.refused(self.start_of("first", "mlx5_0", SHARED), "mlx5_0")
        self.refused(self.start_of("second", "mlx5_1", EXCLUSIVE), "mlx5_1")


if __name__ == "__main__":
    harness.main_in_own_machine()
