#!/usr/bin/env python3
"""open-files RDMA_HOOK: with few open files allowed, each error names what was opened, and the limit to raise."""
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

CAUSE = "Too many open files"
NAMED = re.compile(r"(`[^`]+`|a pair of sockets for [^:]+|netlink socket \(protocol \d+\)): " + CAUSE)


def main(program):
    found = 0
    with tempfile.TemporaryDirectory() as bundle:
        pathlib.Path(bundle, "config.json").write_text('{"ociVersion": "1.0.0", "annotations": {"rdma-init.io/devices": "all"}}')
        for command in (["devices"], ["plan", "--bundle", bundle], ["metrics"], ["recover"], ["install", "--dry-run"]):
            for limit in range(3, 9):
                ended = subprocess.run([program, *command], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
                                       preexec_fn=lambda limit=limit: resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit)))
                for line in ended.stderr.splitlines():
                    if CAUSE not in line:
                        continue
                    found += 1
                    assert NAMED.search(line), (command, limit, line)
                    assert "error: " not in line or "; remedy: raise the process's limit of open files: LimitNOFILE=" in line, (command, limit, line)
    assert found > 0
    print(f"{found} errors, each with its object and its remedy")


main(sys.argv[1])
