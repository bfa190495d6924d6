"""Copies of the node's files that views lend to containers: rdma-nri makes them for a thousand containers. The node is a file tree."""
import os
import re

import harness
import nri_runtime as nri
from harness import MAKE_TREE, NRI, children_of, must, read, wait_for, write
from test_nri import TRUSTING, NriCase

MIB = 1 << 20
SETS, CONTAINERS = 100, 1000
HCAS = 15


class Copies(NriCase):
    def make_tree(self, hcas=HCAS):
        super().make_tree(hcas)

    def lend(self, size, room=64 * MIB):
        """Lends a file of this size. The ledger is on a tmpfs of its own, like /run."""
        write(self.tree + "/topology.xml", "x" * size)
        os.chown(self.tree + "/topology.xml", 0, 0)
        self.configure({**TRUSTING, "topology_file": "/topology.xml"})
        self.mount_or_skip(self.ledger_directory, "-t", "tmpfs", "-o", f"mode=0700,size={room},nr_inodes=100k", "tmpfs")

    def used(self):
        """Returns the bytes of the ledger's files."""
        status = os.statvfs(self.ledger_directory)
        return (status.f_blocks - status.f_bfree) * status.f_frsize

    def memory(self, field):
        """Returns the bytes of this field of /proc/PID/status, of the plugin and its worker together."""
        return sum(1024 * int(re.search(rf"^{field}:\s+(\d+)", read(f"/proc/{pid}/status"), re.M)[1])
                   for pid in (self.plugin.pid, *children_of(self.plugin.pid)))

    def of(self, number):
        """Returns pod and container with this number. The pod requests one of SETS sets of HCAs."""
        pairs = [f"mlx5_{a},mlx5_{b}" for a in range(HCAS) for b in range(a)]
        pod = nri.pod(f"pod{number}", {"rdma-init.io/devices": pairs[number % SETS]})
        return pod, nri.container(f"c{number}", f"pod{number}", network=False)

    def lent(self):
        return [name for name in os.listdir(self.ledger_directory + "/views") if name.startswith("lent-")]

    def test_thousand_containers_share_the_copies_and_the_memory(self):
        self.lend(2 * MIB)
        connection = self.connect(timeout_ms=60000)
        before = None
        for number in range(CONTAINERS):
            got = connection.create(*self.of(number))
            copy = got["mounts"]["/run/rdma-init/topology"] + "/topology.xml"
            self.assertEqual(os.stat(copy).st_size, 2 * MIB)
            if number % SETS == SETS - 1:
                self.assertLess(self.used(), 8 * MIB)
                before = before or self.memory("RssAnon")
                self.assertLess(self.memory("RssAnon") - before, MIB)
        self.assertEqual(len(self.lent()), SETS)
        self.assertEqual(os.stat(copy).st_nlink, SETS + 1)
        for number in range(CONTAINERS):
            pod, container = self.of(number)
            connection.event("StopContainer", pod, container)
            connection.event("StopPodSandbox", pod)
            if number == CONTAINERS - SETS:
                # The first set has lost its last container.
                wait_for(lambda: len(self.lent()) == SETS - 1, "the release removes the view that no container uses")
        wait_for(lambda: not os.listdir(self.ledger_directory + "/copies"), "the last release removes the copies")
        self.assertEqual(self.lent(), [])

    def test_large_file_needs_no_buffer_of_its_size(self):
        self.lend(48 * MIB)
        connection = self.connect(timeout_ms=60000)
        got = connection.create(*self.of(0))
        self.assertEqual(os.stat(got["mounts"]["/run/rdma-init/topology"] + "/topology.xml").st_size, 48 * MIB)
        self.assertLess(self.memory("VmHWM"), 48 * MIB)

    def test_full_file_system_costs_only_the_copy(self):
        """The container starts without the copy. When there is room, the next one gets it."""
        self.lend(2 * MIB, room=MIB)
        connection = self.connect(timeout_ms=60000)
        got = connection.create(*self.of(0))
        self.assertEqual(os.listdir(got["mounts"]["/run/rdma-init/topology"]), [])
        self.wait_for_log("No space left on device")
        self.assertLess(self.used(), MIB // 2)
        must(["mount", "-o", "remount,size=8m", self.ledger_directory])
        got = connection.create(*self.of(SETS))
        self.assertEqual(os.listdir(got["mounts"]["/run/rdma-init/topology"]), ["topology.xml"])


if __name__ == "__main__":
    harness.main(NRI, MAKE_TREE)
