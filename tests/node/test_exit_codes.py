"""Exit codes, the search for the command, and the command line around "--", in both modes."""
import os
import resource
import signal
import struct
import subprocess

import rdma_init
from harness import PATH
from rdma_init import PROGRAM

FOREIGN_ELF = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xff\xfe\x01" + bytes(43)  # for an unknown machine


def elf_with_loader(loader, end=b"\0"):
    """The headers of a program of this machine that names a dynamic loader (elf.h: ET_DYN, PT_INTERP)."""
    machine = {"x86_64": 62, "aarch64": 183}[os.uname().machine]
    header = struct.pack("<4sBBB9xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 3, machine, 1, 0, 64, 0, 0, 64, 56, 1, 64, 0, 0)
    size = len(loader + end)
    return header + struct.pack("<IIQQQQQQ", 3, 4, 120, 120, 120, size, size, 1) + loader + end + bytes(8)


class ExitCodes(rdma_init.Case):
    def check_error(self, command, code, *words, **settings):
        """Checks that rdma-init fails with this code and one line that contains the words."""
        result = self.run_init(command, **settings)
        self.assertEqual(result.returncode, code, result.stderr)
        lines = result.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith("rdma-init: error: "), lines)
        for word in words:
            self.assertIn(word, lines[0])

    def test_returns_code_of_command(self):
        for code in (0, 1, 77, 126, 127, 255):
            with self.subTest(code=code):
                self.assertEqual(self.run_init(["sh", "-c", f"exit {code}"]).returncode, code)

    def test_returns_code_for_signal_of_command(self):
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT, signal.SIGSEGV, signal.SIGUSR1, 34, 64):
            with self.subTest(signal=int(number)):
                result = self.run_init(["sh", "-c", f"kill -{int(number)} $$"])
                self.assertEqual(result.returncode, self.code_of_signal(number))

    @staticmethod
    def code_of_signal(number):
        return -number  # the command has replaced the program

    def test_fails_with_127_without_command_file(self):
        self.check_error(["no-such-command"], 127, "`no-such-command`", "not found", PATH)
        self.check_error(["/no/such/file"], 127, "`/no/such/file`", "No such file")
        self.check_error([self.write_program("file", b"") + "/below"], 127, "Not a directory")
        self.check_error([""], 127, "``", "not found")
        self.check_error(["x" * 5000], 127, "not found")
        self.check_error(["two\nlines"], 127, "two?lines")

    def test_refuses_to_run_set_user_id(self):
        with open(PROGRAM, "rb") as file:
            program = self.write_program("rdma-init", file.read())
        if os.geteuid() != 0 or os.statvfs(program).f_flag & os.ST_NOSUID:
            self.skipTest("needs root, and a temporary directory without nosuid")
        os.chown(program, 65534, 65534)
        os.chmod(program, 0o4755)
        result = subprocess.run([program, "--", "true"], capture_output=True, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"set-user-ID", result.stderr)

    def test_fails_with_126_if_command_is_not_executable(self):
        self.check_error([self.write_program("plain", b"#!/bin/sh\n", 0o644)], 126, "plain", "chmod")
        self.check_error([self.work], 126, "directory")
        self.check_error([self.write_program("foreign", FOREIGN_ELF)], 126, "Exec format", "architecture")

    def test_fails_with_127_without_interpreter(self):
        # 127 as in dash and bash, although the script itself exists.
        self.check_error([self.write_program("script", b"#!/no/interpreter\n")], 127, "/no/interpreter")
        self.check_error([self.write_program("crlf", b"#!/bin/sh\r\nexit 0\r\n")], 127, "CRLF")

    def test_fails_with_127_without_dynamic_loader(self):
        for loader, library in (("/lib64/ld-linux-gone.so.9", "(glibc)"), ("/lib/ld-musl-gone.so.1", "(musl)"), ("/lib/ld-none", "")):
            self.check_error([self.write_program("dynamic", elf_with_loader(loader.encode()))], 127, f"`{loader}`", f"C library {library}".strip())
        # The kernel refuses a program whose name of the loader does not end with a zero byte.
        self.check_error([self.write_program("dynamic", elf_with_loader(b"/lib/ld-none", b""))], 126, "Exec format")

    def test_runs_script_without_interpreter_line_by_sh(self):
        script = self.write_program("script", b'echo "$#" "$1" "$2"; exit 9\n')
        result = self.run_init([script, "a b", ""])
        self.assertEqual((result.returncode, result.stdout), (9, b"2 a b \n"))
        self.assertEqual(self.run_init([self.write_program("empty", b"")]).returncode, 0)

    def test_searches_path_in_order(self):
        for number, name in enumerate(("directory", "plain", "first", "second")):
            if name == "directory":
                os.makedirs(f"{self.work}/{name}/tool")
            else:
                self.write_program(f"{name}/tool", f"#!/bin/sh\nexit {number}\n".encode(),
                                   0o644 if name == "plain" else 0o755)

        def code(*names):
            path = ":".join(f"{self.work}/{name}" for name in names)
            return self.run_init(["tool"], env=self.environment(PATH=path)).returncode

        self.assertEqual(code("missing", "directory", "plain", "first", "second"), 2)
        self.assertEqual(code("second", "first"), 3)
        self.assertEqual(code("plain"), 126)
        self.assertEqual(code("directory"), 127)

    def test_empty_path_entry_means_current_directory(self):
        self.write_program("-tool", b"exit 5\n")
        for path in ("", ":/nowhere", "/nowhere:", "/nowhere::/nowhere", "."):
            with self.subTest(path=path):
                result = self.run_init(["-tool"], env=self.environment(PATH=path), cwd=self.work)
                self.assertEqual(result.returncode, 5, result.stderr)

    def test_uses_default_path_if_path_is_unset(self):
        environment = self.environment()
        del environment["PATH"]
        self.assertEqual(self.run_init(["true"], env=environment).returncode, 0)
        self.check_error(["no-such-command"], 127, "PATH is not set", env=environment)

    def test_passes_all_words_after_double_dash(self):
        result = self.run_init(["printf", "<%s>", "--", "-x", "--reap", "--", "--help"])
        self.assertEqual((result.returncode, result.stdout), (0, b"<--><-x><--reap><--><--help>"))
        self.check_error(["--"], 127, "`--`")
        self.check_error(["--help"], 127, "`--help`")

    def test_fails_with_usage_without_command(self):
        for argv in ([PROGRAM], [PROGRAM, *self.options, "--"], [PROGRAM, *self.options]):
            with self.subTest(argv=argv):
                result = self.run_direct(argv)
                self.assertEqual((result.returncode, result.stdout), (2, b""))
                self.assertIn(b"rdma-init", result.stderr)

    def test_prints_one_warning_without_rdma_devices(self):
        if os.path.isdir("/sys/class/infiniband") and os.listdir("/sys/class/infiniband"):
            self.skipTest("this machine has RDMA devices, on which the messages depend")
        result = self.run_init(["sh", "-c", "exit 7"], env=self.environment_with_messages())
        self.assertEqual((result.returncode, result.stdout), (7, b""))
        self.assertEqual(len(result.stderr.decode().splitlines()), 1, result.stderr)
        self.assertIn(b"warning", result.stderr)


class ReapExitCodes(ExitCodes):
    options = ["--reap"]

    @staticmethod
    def code_of_signal(number):
        return 128 + number

    def test_fails_with_125_if_fork_fails(self):
        if os.geteuid() == 0:
            self.skipTest("the limit of processes does not apply to root")

        def no_more_processes():
            resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))

        # A program built with LeakSanitizer would check for leaks in a separate process.
        self.check_error(["true"], 125, "`true`", "ulimit -u", preexec_fn=no_more_processes,
                         env=self.environment(ASAN_OPTIONS="detect_leaks=0"))


if __name__ == "__main__":
    rdma_init.main()
