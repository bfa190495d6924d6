"""What the tests of rdma-runtime share: a directory of its own for every test, a runtime that only writes down how it
was started, and the wrapper in front of it."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.environ.get("TESTED_RUNTIME", "")  # rdma-runtime with the settings of $RDMA_RUNTIME_SETTINGS
HERE = os.path.dirname(os.path.abspath(__file__))
GUARD = "RDMA_RUNTIME_GUARD"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
DEADLINE = 60
SKIP = 77

# Writes what it was started with to a file.
FAKE = """#!{python}
import json, os, sys
record = {{"argv": sys.argv, "env": dict(os.environ), "cwd": os.getcwd(), "pid": os.getpid(),
          "stdin": sys.stdin.buffer.read().decode() if "read-stdin" in sys.argv else None,
          "fds": {{name: os.readlink("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")
                  if os.path.exists("/proc/self/fd/" + name)}}}}
json.dump(record, open({record!r}, "w"))
print("output of the runtime")
print("errors of the runtime", file=sys.stderr)
sys.exit({code})
"""


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text if isinstance(text, str) else json.dumps(text))
    os.chmod(path, mode)
    return path


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def read_json(path):
    return json.loads(read(path))


def hca_lock(ledger, hca):
    """The lock of an HCA that is held: the ledger has it by its device, which the grant names."""
    for file in os.listdir(ledger + "/grants"):
        grant = json.loads(read(f"{ledger}/grants/{file}").splitlines()[0])
        for held in grant["hcas"] + [one for user in grant["users"] for one in user.get("hcas", ())]:
            if held["name"] == hca:
                return f"{ledger}/hca/{held.get('device', hca)}/lock"
    raise LookupError(hca)


def lines(path):
    """The JSON lines of a log."""
    return [json.loads(line) for line in read(path).splitlines()]


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.work = tempfile.mkdtemp(prefix="rdma-runtime-test.")
        os.chmod(self.work, 0o755)
        self.addCleanup(shutil.rmtree, self.work, True)
        self.record_path = self.work + "/record"
        self.settings = {"ledger": self.work + "/ledger"}

    def fake(self, code=0, name="fake-runtime"):
        """A runtime that writes itself down."""
        text = FAKE.format(python=sys.executable, record=self.record_path, code=code)
        return write(f"{self.work}/bin/{name}", text, 0o755)

    def command(self, *arguments):
        return [PROGRAM, *arguments]

    def environment(self, **more):
        write(self.work + "/settings.json", self.settings)
        return {"PATH": PATH, "LANG": "C", "RDMA_RUNTIME_SETTINGS": self.work + "/settings.json", **more}

    def call(self, *arguments, env=None, **settings):
        settings.setdefault("stdin", subprocess.DEVNULL)
        if "input" in settings:
            settings.pop("stdin")
        return subprocess.run(self.command(*arguments), env=self.environment(**(env or {})), capture_output=True,
                              text=True, timeout=DEADLINE, check=False, **settings)

    def record(self):
        return read_json(self.record_path)

    def was_started(self):
        return os.path.exists(self.record_path)


def run_tests():
    """Those of the program that was started. Leaves with 77 when all of them were skipped."""
    program = unittest.main(module="__main__", verbosity=2, exit=False)
    result = program.result
    if not result.wasSuccessful():
        sys.exit(1)
    sys.exit(SKIP if result.testsRun and len(result.skipped) == result.testsRun else 0)


def main():
    if not os.access(PROGRAM, os.X_OK):
        sys.exit("set TESTED_RUNTIME to the path of a program")
    run_tests()
