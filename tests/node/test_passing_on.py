"""rdma-runtime passes its whole process state to the runtime unchanged, and executes the runtime that created the container."""
import json
import os
import signal

import harness
from containers import write_recorder
from harness import PATH, RUNTIME, read, read_json, write

GUARD = "RDMA_RUNTIME_GUARD"


def lines(path):
    """Returns the JSON lines of a log."""
    return [json.loads(line) for line in read(path).splitlines()]


class PassingOn(harness.Case):
    def setUp(self):
        super().setUp()
        self.record_path = self.work + "/record"
        self.json_log = self.work + "/log.json"
        self.settings = {"ledger": self.work + "/ledger", "runtimes": [self.fake()]}

    def fake(self, code=0, name="fake-runtime"):
        """Writes a runtime that records its arguments and state. Returns its path."""
        return write_recorder(f"{self.work}/bin/{name}", self.record_path, code)

    def environment(self, **more):
        write(self.work + "/settings.json", self.settings)
        return {"PATH": PATH, "LANG": "C", "RDMA_RUNTIME_SETTINGS": self.work + "/settings.json", **more}

    def call(self, *arguments, env=None, **settings):
        return harness.run([RUNTIME, *arguments], env=self.environment(**(env or {})), **settings)

    def record(self):
        return read_json(self.record_path)

    def was_started(self):
        return os.path.exists(self.record_path)

    def test_passes_arguments_environment_and_directory(self):
        arguments = ["--root", "/r", "--log", "/l", "state", "", "a b", "création", "--", "\t*"]
        self.succeeded(self.call(*arguments, env={"EMPTY": "", "ODD": "a=b\nc"}, cwd=self.work))
        record = self.record()
        self.assertEqual(record["argv"], [self.settings["runtimes"][0], *arguments])
        guard = record["env"].pop(GUARD)
        self.assertTrue(guard.startswith(f"{record['pid']}."))
        record["env"].pop("LC_CTYPE", None)  # Python's own
        self.assertEqual(record["env"], self.environment(EMPTY="", ODD="a=b\nc"))
        self.assertEqual(record["cwd"], self.work)

    def test_becomes_runtime_in_same_process(self):
        process = self.start([RUNTIME, "state", "x"], env=self.environment())
        self.assertEqual(process.wait(harness.DEADLINE), 0)
        self.assertEqual(self.record()["pid"], process.pid)

    def test_passes_output_and_exit_code(self):
        self.settings["runtimes"] = [self.fake(code=42)]
        for command in (["features"], ["list"], []):
            done = self.call(*command)
            self.assertEqual((done.returncode, done.stdout, done.stderr),
                             (42, "output of the runtime\n", "errors of the runtime\n"))

    def test_passes_standard_input(self):
        self.succeeded(self.call("read-stdin", input="what the engine writes\n"))
        self.assertEqual(self.record()["stdin"], "what the engine writes\n")

    def test_passes_descriptors_and_adds_none(self):
        bundle = self.bundle()
        read_end, write_end = os.pipe()
        try:
            for command in (["state", "x"], ["create", "--bundle", bundle, "x"]):
                self.call(*command, pass_fds=(read_end,))
                fds = {int(number): path for number, path in self.record()["fds"].items() if "/proc/" not in path}
                self.assertIn("pipe:", fds[read_end])
                self.assertEqual(sorted(fds), [0, 1, 2, read_end])
        finally:
            os.close(read_end)
            os.close(write_end)

    def test_keeps_closed_standard_descriptors_closed(self):
        bundle = self.bundle("{")
        script = 'exec "$0" "$@" 0<&- 1>&- 2>&-'
        done = harness.run(["sh", "-c", script, RUNTIME, "create", "--bundle", bundle, "x"], env=self.environment())
        self.assertEqual(done.returncode, 1)
        self.assertEqual(read(bundle + "/config.json"), "{")  # the message was not written into it

    def test_passes_signals_and_umask(self):
        def prepare(disposition):
            def prepare_child():
                os.umask(0o27)
                signal.signal(signal.SIGPIPE, disposition)
                signal.signal(signal.SIGXFSZ, disposition)
            return prepare_child
        for disposition, ignored in ((signal.SIG_DFL, []), (signal.SIG_IGN, [signal.SIGPIPE, signal.SIGXFSZ])):
            # A shell, because Python changes both at its start.
            script = f"grep SigIgn /proc/self/status >{self.record_path}; umask >>{self.record_path}"
            self.settings["runtimes"] = [write(self.work + "/bin/signals", f"#!/bin/sh\n{script}\n", 0o755)]
            self.call("state", "x", preexec_fn=prepare(disposition), restore_signals=False)
            mask, umask = read(self.record_path).split("\n")[:2]
            found = [number for number in (signal.SIGPIPE, signal.SIGXFSZ)
                     if int(mask.split()[1], 16) >> (number - 1) & 1]
            self.assertEqual((found, umask), (ignored, "0027"))

    def test_adds_its_name_to_version_and_help(self):
        done = self.call("--version")
        first, rest = done.stdout.split("\n", 1)
        self.assertRegex(first, r"^rdma-runtime \d+\.\d+\.\d+$")
        self.assertEqual(rest, "output of the runtime\n")
        self.assertEqual(self.record()["argv"][1:], ["--version"])
        done = self.call("--help")
        self.assertTrue(done.stdout.startswith("rdma-runtime "))
        self.assertTrue(done.stdout.endswith("output of the runtime\n"))
        self.assertEqual(self.call("create", "--help").stdout, "output of the runtime\n")

    # --- choice of the runtime

    def test_searches_name_in_path_and_skips_itself(self):
        """Installed under the runtime's name, before the runtime in $PATH."""
        self.settings["runtimes"] = ["fake-runtime"]
        os.makedirs(self.work + "/first")
        os.symlink(RUNTIME, self.work + "/first/fake-runtime")
        self.succeeded(self.call("list", env={"PATH": f"{self.work}/first:{self.work}/bin"}))
        self.assertEqual(self.record()["argv"][0], self.work + "/bin/fake-runtime")

    def test_reports_missing_runtime(self):
        self.settings["runtimes"] = ["no-such-runtime"]
        self.failed("no-such-runtime", "--log", self.json_log, "--log-format", "json", "state", "x")
        self.assertEqual([line["level"] for line in lines(self.json_log)], ["error"])

    def failed(self, words, *arguments, **settings):
        """The message comes from rdma-runtime."""
        done = self.call(*arguments, **settings)
        self.assertEqual(done.returncode, 1)
        self.assertIn(words, done.stderr)
        return done

    def test_reports_runtime_that_cannot_be_executed(self):
        self.settings["runtimes"] = [write(self.work + "/broken", "#!/no/such/interpreter\n", 0o755)]
        self.failed("broken", "state", "x")

    def test_detects_wrapper_that_executes_it_again(self):
        """Another wrapper finds rdma-runtime under the runtime's name."""
        other = write(self.work + "/wrapper", f'#!/bin/sh\nexec {RUNTIME} "$@"\n', 0o755)
        self.settings["runtimes"] = [other]
        self.failed("executes rdma-runtime again", "state", "x")

    def test_ignores_guard_variable_of_another_process(self):
        self.succeeded(self.call("state", "x", env={GUARD: "1.1"}))
        self.assertNotEqual(self.record()["env"][GUARD], "1.1")

    # --- the runtime of a container

    def bundle(self, text=None, **config):
        return os.path.dirname(write(self.work + "/bundle/config.json", text or {"ociVersion": "1.0.2", **config}))

    def became(self, *command, root="/r"):
        """Returns the runtime that a command reached, and the warnings."""
        for path in (self.json_log, self.record_path):
            if os.path.exists(path):
                os.remove(path)
        self.succeeded(self.call("--root", root, "--log", self.json_log, "--log-format", "json", *command))
        warnings = [line["msg"] for line in lines(self.json_log)] if os.path.exists(self.json_log) else []
        return os.path.basename(self.record()["argv"][0]), " ".join(warnings)

    def records(self, directory="containers"):
        return os.listdir(f"{self.work}/ledger/runtime/{directory}")

    def break_configuration(self):
        self.settings["config"] = write(self.work + "/etc/config.json", {"unknown": 1})

    def test_container_keeps_runtime_that_created_it(self):
        for first, second in (("first", "second"), ("crun", "runc"), ("runc", "crun")):
            self.settings["runtimes"] = [self.fake(name=first)]
            self.assertEqual(self.became("create", "--bundle", self.bundle(), "x" + first), (first, ""))
            self.settings["runtimes"] = [self.fake(name=second)]
            for command in (["state"], ["start"], ["exec"], ["kill", "--all"], ["ps", "-f", "json"]):
                self.assertEqual(self.became(*command, "x" + first), (first, ""), command)
            self.assertEqual(self.became("state", "y" + first), (second, ""))
            self.assertEqual(self.became("state", "x" + first, root="/other"), (second, ""))
            self.assertEqual(self.became("delete", "x" + first), (first, ""))
            self.assertEqual(self.became("state", "x" + first), (first, ""), "the delete may have failed")
            self.assertEqual(self.became("create", "--bundle", self.bundle(), "y" + first), (second, ""))

    def test_refuses_id_that_another_runtime_has(self):
        root = self.work + "/root"
        os.makedirs(root + "/x")
        self.settings["runtimes"] = [self.fake(name="runc")]
        create = ["create", "--bundle", self.bundle(), "x"]
        for _ in range(2):  # the runtime itself refuses an existing id
            self.assertEqual(self.became(*create, root=root), ("runc", ""))
        self.settings["runtimes"] = [self.fake(name="crun")]
        self.failed("bin/runc` created", "--root", root, *create)
        os.rmdir(root + "/x")
        self.assertEqual(self.became(*create, root=root), ("crun", ""))
        self.assertEqual(self.became("state", "x", root=root), ("crun", ""))

    def test_removes_records_of_ended_containers(self):
        root = self.work + "/root"
        self.settings["runtimes"] = [self.fake(name="runc")]
        self.became("delete", "--force", "never", root=root)
        self.assertFalse(os.path.exists(self.work + "/ledger/runtime"))
        for name in ("a", "b", "c"):
            self.became("create", "--bundle", self.bundle(), name, root=root)
            os.makedirs(f"{root}/{name}")
        self.became("delete", "--force", "never", root=root)
        self.assertEqual((len(self.records()), self.records("ending")), (3, []))
        for name, left in (("a", 3), ("b", 2), ("c", 1)):
            self.became("delete", name, root=root)
            self.assertEqual((len(self.records()), len(self.records("ending"))), (left, 1))
            os.rmdir(f"{root}/{name}")
        # The container ends without a delete.
        self.became("run", "--bundle", self.bundle(), "d", root=root)
        self.became("create", "--bundle", self.bundle(), "e", root=root)
        self.became("delete", "e", root=root)
        self.assertEqual((self.records(), self.records("ending")), ([], []))

    def test_prints_its_version_when_no_runtime_is_known(self):
        self.break_configuration()
        done = self.failed("no runtime is known", "--version")
        self.assertRegex(done.stdout, r"^rdma-runtime \d+\.\d+\.\d+\n$")
        self.assertEqual(self.failed("no runtime is known", "list").stdout, "")

    def test_uses_last_runtime_when_configuration_is_invalid(self):
        """An unknown key must not turn crun into runc."""
        self.settings["runtimes"] = [self.fake(name="crun")]
        self.settings["engine"] = "runc"
        create = ["create", "--bundle", self.bundle()]
        self.assertEqual(self.became(*create, "x"), ("crun", ""))
        self.break_configuration()
        self.assertEqual(self.became("state", "x"), ("crun", ""))
        for command in ([*create, "y"], ["list"], ["state", "z"]):
            runtime, warnings = self.became(*command)
            self.assertEqual(runtime, "crun")
            self.assertIn(self.work + "/bin/crun", warnings)
            self.assertIn("unknown", warnings)
            self.assertEqual(warnings.count("/etc/config.json"), 1, warnings)
        os.remove(self.record_path)
        self.bundle(annotations={"rdma-init.io/devices": "1"})
        self.failed("unknown", *create, "requests")
        self.assertFalse(self.was_started())

    def test_fails_without_any_readable_configuration(self):
        self.break_configuration()
        done = self.call("create", "--bundle", self.bundle(), "x")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^rdma-runtime: error: no runtime is known: no configuration was readable since the node "
                         r"started: .*/etc/config.json:1: `unknown`: unknown key; remedy: .+\n$")
        self.assertFalse(self.was_started())

    def test_warns_about_read_only_ledger(self):
        self.settings["ledger"] = write(self.work + "/file", "")
        runtime, warning = self.became("create", "--bundle", self.bundle(), "x")
        self.assertEqual(runtime, "fake-runtime")
        self.assertIn(self.work + "/file", warning)
        self.assertEqual(self.became("delete", "x"), ("fake-runtime", ""))

    # --- errors

    def test_writes_errors_to_log_and_stderr(self):
        bundle = self.bundle('{"annotations": {"a": "\x01\\u0000\u2028"}, "a')
        write(self.json_log, '{"level":"info","msg":"before"}\n')
        done = self.call("--log", self.json_log, "--log-format", "json", "create", "--bundle", bundle, "x")
        self.assertEqual(done.returncode, 1)
        self.assertFalse(self.was_started())
        entries = lines(self.json_log)
        self.assertEqual([entry["level"] for entry in entries], ["info", "error"])
        self.assertRegex(entries[1]["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        self.assertIn(entries[1]["msg"].removeprefix("rdma-runtime: "), done.stderr)

    def test_writes_text_to_text_log(self):
        bundle = self.bundle("{")
        log = self.work + "/log"
        self.assertEqual(self.call("--log", log, "create", "--bundle", bundle, "x").returncode, 1)
        self.assertRegex(read(log), r'^time="[^"]+" level=error msg="rdma-runtime: .*"\n$')

    def test_ignores_log_that_cannot_be_written(self):
        bundle = self.bundle("{")
        os.mkfifo(self.work + "/pipe")
        for log in (self.work + "/missing/log", self.work + "/pipe", self.work):
            self.failed("config.json", "--log", log, "create", "--bundle", bundle, "x")

    def test_runtime_reports_missing_bundle(self):
        for arguments in (["create", "--bundle", self.work + "/missing", "x"], ["run", "x"], ["create"]):
            done = self.call(*arguments, cwd=self.work)
            self.assertEqual((done.returncode, done.stderr), (0, "errors of the runtime\n"))


if __name__ == "__main__":
    harness.main(RUNTIME)
