"""Each option of each command, with a wrong value, a missing file and a missing permission, as options.table lists them.

The table has a row for each option of each `--help`; rdma-runtime has none, because all its options are those of the runtime. A cell
has an exit code and one of these words:

  remedy    one error line, which names the remedy, and the path if the option has one
  other     one error line, which names the remedy, about an object that is checked first
  expected  one error line, which names the remedy, the option, and the values that are accepted
  report    the command's report on stdout names the path and the remedy
  warned    no error line; a line of stderr, or of the report on stdout, names the path
  fine      no error line
  runs      the program logs a warning with the path, and ends with the code after SIGTERM

A cell with another word than `remedy` and `expected` needs a reason in the last column. So does `expected` for a path, because the
message then does not name it. `-`: the option has no path. The man page must list every exit code. A command can have several rows for
an option: `install --dry-run` is install with this option.
"""
import concurrent.futures
import contextlib
import functools
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess

import harness
from containers import Syslog
from harness import HERE, HOOK, NRI, PATH, SOURCE, must, read, run, wait_for, write

INIT, PING, DEVICE_PLUGIN, DRA = (os.environ.get(name, "") for name in (
    "TESTED_PROGRAM", "TESTED_PING", "TESTED_DEVICE_PLUGIN", "TESTED_DRA"))
PROGRAMS = {"rdma-init": (INIT, "init/rdma-init.1"),
            "rdma-ping": (PING, "init/rdma-ping.1"),
            "rdma-hook": (HOOK, "hook/rdma-hook.8"),
            "rdma-nri": (NRI, "shim/nri/rdma-nri.8"),
            "rdma-device-plugin": (DEVICE_PLUGIN, "shim/device_plugin/rdma-device-plugin.8"),
            "rdma-dra": (DRA, "shim/dra/rdma-dra.8")}
TABLE = HERE + "/options.table"
NOBODY = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
WRONG = "\x01bad value"
CASES = ("wrong", "missing", "denied")
ERRORS = ("remedy", "other", "expected")
PATH_VALUES = ("FILE", "DIR", "PATH", "WHERE")

# The arguments of each command, with which it does its work: {} is the place of the tested option, which replaces an option of the same
# name. ON_NODE is a node of four HCAs, and a ledger that does not exist, as after a boot.
ON_NODE = "--root {node} --config {config} --ledger {ledger}"
ARGUMENTS = {
    "rdma-init --": "{} -- true",
    "rdma-init env": "{} --root {node} env",
    "rdma-init doctor": "{} --root {node} doctor",
    "rdma-init topo": "{} --root {node} topo",
    "rdma-init snapshot": "{} --root {node} snapshot",
    "rdma-ping -": "{} --rank 0 --size 1 --timeout 1",
    "rdma-hook createRuntime": "createRuntime {} --engine runc " + ON_NODE,
    "rdma-hook poststop": "poststop {} --engine runc " + ON_NODE,
    "rdma-hook verify": "verify {} --engine runc " + ON_NODE,
    "rdma-hook plan": "plan {} --bundle {requesting} " + ON_NODE,
    "rdma-hook devices": "devices {} " + ON_NODE,
    "rdma-hook recover": "recover {} " + ON_NODE,
    "rdma-hook metrics": "metrics {} --root {node} --ledger {ledger}",
    "rdma-hook check-config": "check-config {} --root {node} --config {config}",
    "rdma-hook config": "config apply {map} {} --root {host}",
    "rdma-hook config generate": "config generate {} --root {node}",
    "rdma-hook cdi": "cdi generate {} --root {node} --config {config}",
    "rdma-hook base-spec": "base-spec {} --root {node}",
    "rdma-hook doctor": "doctor {} " + ON_NODE,
    "rdma-hook install": "install {} --engine slurm --root {slurm}",
    "rdma-hook install --dry-run": "install {} --dry-run --engine slurm --root {slurm}",
    "rdma-hook install --status": "install {} --status --root {slurm}",
    "rdma-hook install --uninstall": "install {} --uninstall --root {slurm}",
    "rdma-nri -": "{} --socket {socket} " + ON_NODE,
    "rdma-device-plugin -": "{} --plugins {directory} " + ON_NODE,
    "rdma-dra -": "{} --slices --node n1 " + ON_NODE,
}
# Options of ARGUMENTS that the tested option excludes.
EXCLUDED = {"--snapshot": ("--root",), "--rootfs": ("--root",), "--annotation": ("--bundle",), "--namespace": ("--bundle",)}
# Options of ARGUMENTS without a value.
SWITCHES = ("--dry-run", "--status", "--uninstall", "--slices")
# Arguments that an option needs.
NEEDED = {"--namespace": ["--annotation", "rdma-init.io/devices=1"]}
# Exit codes of ARGUMENTS without the tested option, if not 0.
WORKING = {"rdma-hook doctor": 2}
EXCEPTION = re.compile(r"json\.exception|what\(\)|terminate called|std::|basic_string|bad_alloc")
EXPECTED = re.compile(r"expected |takes no value|accepts |is no option of .*, but of: ")


class Row:
    def __init__(self, line):
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 8:
            raise ValueError(f"{TABLE}: not 8 columns: {line}")
        self.program, self.command, self.option, self.value, *cells, self.reason = fields
        self.cells = dict(zip(CASES, cells))

    def name(self):
        """Returns "PROGRAM COMMAND OPTION" as listed_options()."""
        return f"{self.program} {self.command.split()[0]} {self.option}"

    def title(self):
        return f"{self.key()} {self.option}"

    def key(self):
        return f"{self.program} {self.command}"


def rows():
    return [Row(line) for line in read(TABLE).splitlines() if line and not line.startswith("#")]


def options_of(text):
    """Returns a map from each option of a help text to the name of its value, which is empty for a switch."""
    return {option: value for option, value in re.findall(r"(?m)^  (--[a-z][a-z-]*)(?: (\S+))?(?:  |$)", text)}


def commands_of(program, text):
    if program == "rdma-init":
        return re.findall(r"(?m)^  rdma-init \[options\] (\S+)", text)
    return sorted(set(re.findall(r"(?m)^  rdma-hook ([a-zA-Z-]+)", text))) or ["-"]


def listed_options():
    """Returns a map from each "PROGRAM COMMAND OPTION" of the helps to the name of its value."""
    found = {}
    for program, (path, _) in PROGRAMS.items():
        whole = must([path, "--help"])
        for command in commands_of(program, whole):
            text = whole if command in ("-", "--") else must([path, command, "--help"])
            found.update({f"{program} {command} {option}": value for option, value in options_of(text).items()})
    return found


def printable(value):
    """Returns the value as messages quote it."""
    return re.sub(r"[\x00-\x1f]", "?", value)


@functools.lru_cache
def codes_of(manual):
    """Returns the exit codes that the man page lists."""
    section = re.search(r"(?ms)^\.Sh EXIT STATUS\n(.*?)^\.Sh ", read(f"{SOURCE}/{manual}"))[1]
    return {int(code) for line in re.findall(r"(?m)^\.It ([0-9 ,]+)$", section) for code in re.findall("[0-9]+", line)}


class Table(harness.TreeCase):
    """The programs are copied, because another user may not be able to reach the build."""
    place = "/run"

    def setUp(self):
        super().setUp()
        self.places = {"node": self.tree, "config": self.config, "host": self.work + "/host", "map": self.work + "/map",
                       "bundle": self.work + "/bundle", "requesting": self.work + "/requesting", "socket": self.work + "/socket",
                       "directory": self.work + "/directory", "file": self.work + "/file",
                       "private": self.work + "/private"}
        self.bins = {}
        for program, (path, _) in PROGRAMS.items():
            self.bins[program] = f"{self.work}/bin/{program}"
            os.makedirs(self.work + "/bin", exist_ok=True)
            shutil.copy(path, self.bins[program])
        os.makedirs(self.places["directory"])
        os.makedirs(self.places["host"] + "/etc/rdma-init/cluster")
        write(self.places["map"] + "/config.json", {"rails": ["a"]})
        write(self.places["file"], "not what any option expects\n")
        for name, annotations in (("bundle", {}), ("requesting", {"rdma-init.io/devices": "1"})):
            write(self.places[name] + "/config.json", {"ociVersion": "1.0.2", "annotations": annotations, "root": {"path": "rootfs"},
                                                       "process": {"args": ["sh"], "cwd": "/"}, "linux": {}})
        write(self.places["private"] + "/x", "{}")
        shutil.copy(HOOK, self.work + "/bin/rdma-runtime")  # `install --programs` copies it
        os.chmod(self.places["private"], 0o700)
        os.mkdir(self.work + "/ledgers")
        self.gone = self.pid_of_ended()
        self.numbers = itertools.count()

    @staticmethod
    def pid_of_ended():
        with subprocess.Popen(["true"]) as process:
            process.wait()
            return process.pid

    def state(self, bundle):
        return {"ociVersion": "1.0.2", "id": "c", "status": "created", "pid": self.gone, "bundle": self.places[bundle]}

    def input_of(self, row):
        """A stage reads the state of a container. Only that of --config requests HCAs: others must start without the files."""
        if row.command == "base-spec":
            return read(self.places["bundle"] + "/config.json")
        if row.command in ("createRuntime", "poststop", "verify"):
            return json.dumps(self.state("requesting" if row.option == "--config" else "bundle"))
        return ""

    def own_places(self):
        """Returns the places of one run: another may have made a missing path."""
        number = next(self.numbers)
        slurm = f"{self.work}/slurm/{number}"  # a node with slurmd and the programs
        for program in ("sbin/slurmd", "bin/rdma-hook", "bin/rdma-runtime", "bin/rdma-init"):
            write(f"{slurm}/usr/{program}", "#!/bin/sh\n", 0o755)
        os.makedirs(slurm + "/etc")
        return {**self.places, "slurm": slurm, "ledger": f"{self.work}/ledgers/{number}", "missing": f"{self.work}/none/{number}/x"}

    def value_of(self, row, case, kind, places):
        if not kind:
            return "x"
        if case == "wrong":
            return (row.value or WRONG).format(**places)
        path = places["missing"] if case == "missing" else places["private"] + ("" if kind == "DIR" else "/x")
        if row.option == "--hook":
            path = os.path.dirname(path) + "/rdma-hook"
        return ("unix:" if kind == "WHERE" else "") + path

    def argv_of(self, key, tested, places, without=()):
        """tested: the words in the place of {}. without: options of ARGUMENTS to leave out."""
        argv = []
        words = iter(shlex.split(ARGUMENTS[key]))
        for word in words:
            if word in without:
                if word not in SWITCHES:
                    next(words)
            else:
                argv += tested if word == "{}" else [word.format(**places)]
        return [self.bins[key.split()[0]], *argv]

    def settings(self):
        return {"env": {"PATH": PATH, "LANG": "C", "RDMA_INIT_WAIT": "0"}, "cwd": self.work}

    def run_until_warning(self, argv, value):
        """Ends the program after a line that names the value. Returns its exit code and stderr."""
        log = f"{self.work}/log.{next(self.numbers)}"
        with open(log, "wb") as file:
            process = self.start(argv, stderr=file, **self.settings())
        wait_for(lambda: printable(value) in read(log) or process.poll() is not None, lambda: f"`{value}` in {argv}: {read(log)}")
        process.send_signal(signal.SIGTERM)
        return subprocess.CompletedProcess(argv, process.wait(harness.DEADLINE), "", read(log))

    def problems_of(self, row, case, kind):
        """Runs one cell of the table. Returns what differs from it."""
        code, word = row.cells[case].split()
        places = self.own_places()
        value = self.value_of(row, case, kind, places)
        tested = [row.option, value, *NEEDED.get(row.option, [])] if kind else [f"{row.option}={value}"]
        without = (row.option, *EXCLUDED.get(row.option, ()))
        argv = [*(NOBODY if case == "denied" else []), *self.argv_of(row.key(), tested, places, without)]
        done = (self.run_until_warning(argv, value) if word == "runs"
                else run(argv, input=self.input_of(row), **self.settings()))
        wrong = self.differences(row, code, word, done)
        said = done.stderr + (done.stdout if word in ("report", "warned") else "")
        if kind in PATH_VALUES and word in ("remedy", "report", "warned") and printable(value).removeprefix("unix:") not in said:
            wrong.append("the path is not named")
        if not row.reason and word != "remedy" and (kind in PATH_VALUES or word != "expected"):
            wrong.append("no reason in the table")
        return [f"{row.title()} {case}: {', '.join(wrong)}; expected: {code} {word}; {shlex.join(argv)}: exit code {done.returncode}\n"
                f"{said}"] if wrong else []

    @staticmethod
    def differences(row, code, word, done):
        lines = done.stderr.splitlines()
        errors = [line for line in lines if line.startswith(f"{row.program}: error: ")]
        manual = PROGRAMS[row.program][1]
        checks = {
            "the exit code": done.returncode == int(code),
            f"an exit code that {manual} lacks": int(code) in codes_of(manual),
            "the text of an exception": not EXCEPTION.search(done.stderr + done.stdout),
            "a line without the program's name": all(line.startswith(row.program + ": ") for line in lines),
            f"{len(errors)} error lines": len(errors) == (word in ERRORS),
            "no remedy": word not in ERRORS or "; remedy: " in "".join(errors),
            "no remedy in the report": word != "report" or "remedy: " in done.stdout,
            "neither option nor expected values in the error": word != "expected" or (
                row.option in "".join(errors) and EXPECTED.search("".join(errors))),
            f"unknown word {word}": word in (*ERRORS, "report", "warned", "fine", "runs"),
        }
        return [what for what, holds in checks.items() if not holds]

    def test_table_has_each_option_of_each_help(self):
        listed, named = listed_options(), [row.name() for row in rows()]
        titles = [row.title() for row in rows()]
        self.assertEqual(len(titles), len(set(titles)), "a row occurs twice")
        self.assertEqual(sorted(set(listed) - set(named)), [], f"options without a row in {TABLE}")
        self.assertEqual(sorted(set(named) - set(listed)), [], f"rows without an option in {TABLE}")
        for row in rows():
            has_path = listed[row.name()] in PATH_VALUES
            self.assertEqual([row.cells[case] != "-" for case in CASES], [True, has_path, has_path], row.name())

    def test_commands_do_their_work_without_the_option(self):
        """Without this, an error could be that of the other arguments. Programs without commands run until a signal."""
        for key in ARGUMENTS:
            with self.subTest(key):
                if key.split()[0] in ("rdma-nri", "rdma-device-plugin"):
                    continue
                places = self.own_places()
                row = Row(key.replace(" ", "|", 1) + "|--none|||||")
                done = run(self.argv_of(key, [], places), input=self.input_of(row), **self.settings())
                self.assertEqual((done.returncode, "error: " in done.stderr), (WORKING.get(key, 0), False), done)

    def test_bare_option_h_is_help(self):
        for program, path in self.bins.items():
            done = run([path, "-h"], **self.settings())
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, must([path, "--help"]), ""), program)

    def test_plan_reads_named_files_of_container_without_request(self):
        for option in ("--config", "--snapshot"):
            places = self.own_places()
            argv = self.argv_of("rdma-hook plan", [option, places["missing"], "--bundle", places["bundle"]], places,
                                (option, "--bundle", "--root"))
            done = self.refused(run(argv, **self.settings()), "error: ", "remedy: ")
            self.assertIn(places["missing"], done.stderr)

    def fixed_line(self, argv, code, **settings):
        """Returns what a stage with this exit code writes to a stderr that is a file."""
        path = f"{self.work}/stderr.{next(self.numbers)}"
        with open(path, "wb") as file:
            done = subprocess.run(argv, stderr=file, stdout=subprocess.PIPE, env={}, check=False, **settings)
        self.assertEqual((done.returncode, done.stdout), (code, b""), read(path))
        return read(path)

    def test_stage_writes_fixed_line_to_file_if_syslog_takes_no_error(self):
        hook = self.bins["rdma-hook"]
        line = "rdma-hook: error: {}, and neither syslog nor a pipe takes the reason; remedy: add `2>&1 | cat`\n"
        rows = (([hook, "createRuntime"], 1, "stdin has no state of a container"),
                ([hook, "createRuntime", "--junk"], 2, "the command line is wrong"))
        with contextlib.suppress(FileNotFoundError):
            os.unlink("/dev/log")
        for argv, code, text in rows:
            self.assertEqual(self.fixed_line(argv, code, input=b"junk"), line.format(text))
        syslog = Syslog(self)
        for argv, code, text in rows:
            self.assertEqual(self.fixed_line(argv, code, input=b"junk"), "")
            self.assertIn("error: ", syslog.text())
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as filler, contextlib.suppress(BlockingIOError):
            while True:
                filler.sendto(b"x", "/dev/log")
        for argv, code, text in rows:
            self.assertEqual(self.fixed_line(argv, code, input=b"junk"), line.format(text))

    def test_stage_that_cannot_start_writes_fixed_line_to_file(self):
        def enter_root_without_devices():
            os.chroot(self.work)
            os.close(0)
        try:
            written = self.fixed_line(["/bin/rdma-hook", "createRuntime"], 1, preexec_fn=enter_root_without_devices)
        except FileNotFoundError:
            self.skipTest("a program with sanitizers needs libraries, which the root lacks")
        self.assertTrue(written.startswith("rdma-hook: error: the stage cannot start, and neither syslog "), written)

    def check(self, case):
        listed = listed_options()
        tested = [row for row in rows() if row.name() in listed and row.cells[case] != "-"]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = pool.map(lambda row: self.problems_of(row, case, listed[row.name()]), tested)
        problems = [problem for of_row in found for problem in of_row]
        self.assertEqual(problems, [], "\n".join(problems))

    def test_wrong_value(self):
        self.check("wrong")

    def test_missing_path(self):
        self.check("missing")

    def test_missing_permission(self):
        if run([*NOBODY, "true"]).returncode != 0:
            self.skipTest("needs root: this user cannot become user 65534")
        self.check("denied")


if __name__ == "__main__":
    harness.main_in_own_machine(*(path for path, _ in PROGRAMS.values()), device_groups=False)
