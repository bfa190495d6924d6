"""images/evidence/run with a snapshot in place of a node: the file has all parts, no step without a question, and --redact leaves no
address, so that rdma-init still has the same answer."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = SOURCE / "images/evidence/run"
RDMA_INIT = os.environ["TESTED_PROGRAM"]
RDMA_HOOK = os.environ["TESTED_HOOK"]
SNAPSHOT = SOURCE / "tests/golden/fixtures/24-juniper-h100-dualstack.json"


class Evidence(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.directory)
        self.programs = self.directory / "programs"
        self.programs.mkdir()
        self.program("rdma-init", f"""
            case $1 in
              --version) exec {RDMA_INIT} --version ;;
              snapshot) exec cat {SNAPSHOT} ;;
              --) shift; exec "$@" ;;
              *) exec {RDMA_INIT} --snapshot {SNAPSHOT} "$@" ;;
            esac""")
        self.program("rdma-hook", f"""
            case $1 in
              --version) exec {RDMA_HOOK} --version ;;
              *) exec {RDMA_HOOK} "$@" --snapshot {SNAPSHOT} ;;
            esac""")
        for name in ("rdma-ping", "ib_write_bw"):
            self.program(name, f'echo "{name} $*" | tee -a {self.directory}/started')

    def program(self, name, text):
        (self.programs / name).write_text("#!/bin/bash\n" + text + "\n")
        (self.programs / name).chmod(0o755)

    def run_script(self, *arguments, answer="n\nn\nn\n", code=0):
        environment = {**os.environ, "PATH": f"{self.programs}:{os.environ['PATH']}"}
        result = subprocess.run([SCRIPT, "--programs", self.programs, "--out", self.directory / "out.tar.gz", *arguments], input=answer,
                                capture_output=True, text=True, check=False, env=environment)
        self.assertEqual(result.returncode, code, result.stderr)
        return result.stderr

    def files(self):
        with tarfile.open(self.directory / "out.tar.gz") as tar:
            return {pathlib.Path(member.name).name: tar.extractfile(member).read().decode() for member in tar if member.isfile()}

    def test_only_reads_without_a_yes(self):
        self.run_script("--rank", "0", "--master", "10.0.0.1")
        files = self.files()
        for name in ("snapshot.json", "hook-doctor.txt", "hook-devices.txt", "init-doctor.txt", "init-env.txt", "config.txt", "steps.tsv"):
            self.assertIn(name, files)
        self.assertFalse((self.directory / "started").exists())
        self.assertEqual(json.loads(files["snapshot.json"]), json.loads(SNAPSHOT.read_text()))
        self.assertIn('"pools"', files["config.txt"])

    def test_starts_what_the_user_agrees_to(self):
        self.run_script("--rank", "1", "--master", "10.0.0.1", answer="y\ny\n")
        started = (self.directory / "started").read_text().splitlines()
        self.assertEqual(started[0], "rdma-ping --rank 1 --size 2 --master 10.0.0.1 --bw --json --timeout 300")
        self.assertRegex(started[1], r"^ib_write_bw --ib-dev mlx5_\d+ --ib-port 1 --report_gbits 10.0.0.1$")

    def test_redacts_every_address_and_keeps_the_answer(self):
        self.run_script("--only-read", "--redact")
        files = self.files()
        whole = "\n".join(files.values())
        for secret in (r"2010:200:", r"7aff:fedf", r"\b10\.100\.2\.10\b"):
            self.assertIsNone(re.search(secret, whole), secret)
        self.assertNotIn(os.uname().nodename, whole)
        redacted = self.directory / "redacted.json"
        redacted.write_text(files["snapshot.json"])
        answers = [subprocess.run([RDMA_INIT, "--snapshot", path, "env"], capture_output=True, text=True, check=False).stdout
                   for path in (SNAPSHOT, redacted)]
        ports = [re.findall(r"NCCL_IB_(?:HCA|GID_INDEX)=\S+", answer) for answer in answers]
        self.assertTrue(ports[0])
        self.assertEqual(ports[0], ports[1])

    def test_redacts_addresses_beside_punctuation(self):
        lines = ["rank 0 waits at 10.9.8.7:4792", "range 10.9.8.10-10.9.8.20.", "fd09:9::1: unreachable", "[fd09:9::2]:4791", "::ffff:10.9.8.9",
                 "from 10.9.8.7.", "mac 0a:09:08:07:06:05, next"]
        kept = ["MLNX_OFED_LINUX-24.10-0.7.0.0:", "0000:1a:00.0", "12:30:45 done", "127.0.0.1:80", "kernel 6.1.0-18-amd64"]
        text = "\n".join([*lines, *kept])
        self.program("rdma-ping", f"cat << 'END'\n{text}\nEND")
        self.run_script("--rank", "0", "--master", "10.9.8.7", "--redact", answer="y\nn\n")
        files = self.files()
        self.assertNotRegex("\n".join(files.values()), r"10\.9\.8\.|fd09|0a:09:08")
        shown = files["ping.txt"].splitlines()
        self.assertEqual(shown[len(lines):], kept)
        self.assertRegex(shown[0], r"^rank 0 waits at 10\.200\.\d+\.7:4792$")
        self.assertRegex(shown[1], r"^range 10\.200\.(\d+)\.10-10\.200\.\1\.20\.$")
        self.assertRegex(shown[2], r"^fd00:\S+: unreachable$")

    def test_wrong_calls(self):
        for arguments, text in ((["--rank", "2"], "--rank must be 0 or 1"), (["--rank", "0"], "--master is missing"),
                                (["--unknown"], "unknown argument")):
            self.assertIn(text, self.run_script(*arguments, code=2))
        (self.directory / "out.tar.gz").write_text("x")
        self.assertIn("exists", self.run_script("--only-read", code=2))


if __name__ == "__main__":
    unittest.main()
