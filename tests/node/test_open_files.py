"""With a low limit of open files, each error of rdma-hook names the file or socket, and the limit to raise."""
import resource

import harness
from harness import HOOK, run, write

CAUSE = "Too many open files"
NAMED = r"(`[^`]+`|a pair of sockets for [^:]+|netlink socket \(protocol \d+\)): " + CAUSE
REMEDY = "; remedy: raise the process's limit of open files: LimitNOFILE="


class OpenFiles(harness.Case):
    def test_each_error_names_object_and_remedy(self):
        found = 0
        write(self.work + "/config.json", {"ociVersion": "1.0.0", "annotations": {"rdma-init.io/devices": "all"}})
        for command in (["devices"], ["plan", "--bundle", self.work], ["metrics"], ["recover"], ["install", "--dry-run"]):
            for limit in range(3, 9):
                ended = run([HOOK, *command],
                            preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
                for line in ended.stderr.splitlines():
                    if CAUSE in line:
                        found += 1
                        self.assertRegex(line, NAMED)
                        if "error: " in line:
                            self.assertIn(REMEDY, line)
        self.assertGreater(found, 0)


if __name__ == "__main__":
    harness.main(HOOK)
