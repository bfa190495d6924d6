"""Messages and snapshots contain no values and no raw lines of other programs' files, and no values of variables that no library
reads."""
import json
import os

import rdma_init
from harness import write
from rdma_init import PROGRAM

SECRETS = "HF_TOKEN=hf_secret\nhf_secret_alone\nsecretAAAA==\nroot:$6$secret:19000:0:::::\nexport API_KEY=secret\n"


class Secrets(rdma_init.Case):
    def run_program(self, *arguments, **variables):
        result = self.run_direct([PROGRAM, *arguments], env=self.environment(RDMA_INIT_LOG="debug", **variables))
        output = (result.stdout + result.stderr).decode()
        self.assertNotIn("secret", output)
        return output

    def test_prints_no_line_of_env_file_with_other_variables(self):
        path = write(self.work + "/.env", SECRETS + "NCCL_IB_TC=106\n")
        for command in (["env"], ["env", "--format", "json"], ["doctor"], ["--", "true"]):
            output = self.run_program(*command, RDMA_INIT_ENV_FILE=path)
            if command != ["doctor"]:
                self.assertIn(f"{path}:1: HF_TOKEN belongs to no library", output)
                for number in range(2, 6):
                    self.assertIn(f"{path}:{number}: no NAME=value line", output)
        self.assertIn("NCCL_IB_TC='106'", self.run_program("env", RDMA_INIT_ENV_FILE=path))

    def test_prints_nothing_of_linked_file_in_env_d(self):
        write(self.work + "/etc/shadow", SECRETS + "NCCL_IB_TC=106\n")
        os.makedirs(self.work + "/etc/rdma-init/env.d")
        os.symlink("/etc/shadow", self.work + "/etc/rdma-init/env.d/10.conf")
        output = self.run_program("--root", self.work, "env")
        self.assertIn("/etc/rdma-init/env.d/10.conf is a symbolic link", output)
        self.assertNotIn("NCCL_IB_TC", output)

    def test_snapshot_has_only_nccl_lines_of_conf_file(self):
        path = write(self.work + "/.env", SECRETS + "NCCL_IB_TC=106\n")
        output = self.run_program("snapshot", NCCL_CONF_FILE=path, HF_TOKEN="hf_secret")
        self.assertEqual(json.loads(output[output.index("{"):])["conf"][path], "NCCL_IB_TC=106\n")

    def test_prints_no_value_of_unknown_option(self):
        self.assertIn("unknown option `--hf-token`", self.run_program("--hf-token=secret", "--", "true"))


if __name__ == "__main__":
    rdma_init.main()
