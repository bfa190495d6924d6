"""`rdma-hook metrics --listen` with curl, Prometheus and hostile clients: the serving process has its own user and filter, the text
has the grants of the ledger with the names of pods, and a thousand silent clients do not block other clients."""
import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import time
import urllib.request

import harness
from harness import HOOK, SOURCE, children_of, must, read, run, status_of, wait_for, write

sys.path.append(SOURCE + "/tests/support")
import grant_record  # noqa: E402

SERVING_USER = 65526
MOST_OF_ONE_PEER = 16
HOSTILE = 'a"b\\c\nd\x1b{}=,#'
GET = b"GET /metrics HTTP/1.1\r\n\r\n"


def own_start_time():
    return int(read("/proc/self/stat").rsplit(")", 1)[1].split()[19])


def free_port(family=socket.AF_INET, host="127.0.0.1"):
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return probe.getsockname()[1]


class Case(harness.Case):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("needs root: the ledger belongs to root")
        self.ledger = self.work + "/ledger"
        os.makedirs(self.ledger + "/grants", 0o700)
        os.chmod(self.ledger, 0o700)
        self.socket = self.work + "/s/metrics.sock"
        self.grant("k1", "c1", {"io.kubernetes.cri.sandbox-namespace": "team-a", "io.kubernetes.cri.sandbox-name": "train-0",
                                "io.kubernetes.cri.container-name": HOSTILE})

    def grant(self, key, container, annotations, pid=None):
        bundle = f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{container}"
        write(self.work + bundle + "/config.json", {"annotations": annotations, "linux": {}})
        record = {"owner": {"kind": "container", "key": key, "label": "container " + container}, "since": 1,
                  "hcas": [{"name": "mlx5_0", "mode": "shared", "units": 1, "held_only": False}],
                  "users": [{"key": key, "id": container, "bundle": bundle, "settled": True,
                             "process": {"pid": pid or os.getpid(), "start_time": own_start_time()}}]}
        grant_record.write(f"{self.ledger}/grants/{key}.json", record)

    def words(self, *command):
        return [HOOK, *command, "--ledger", self.ledger, "--root", self.work]

    def command(self, where=None):
        return self.words("metrics", "--listen", where or "unix:" + self.socket)

    def serve(self, where=None):
        if os.path.exists(self.log):
            os.unlink(self.log)
        child = self.start_logged(self.command(where))
        self.until(lambda: "serving at" in read(self.log) or child.poll() is not None, "service")
        self.assertIsNone(child.poll(), read(self.log))
        return child

    def refuses(self, *words, where=None, before=()):
        done = run([*before, *self.command(where)])
        self.assertEqual(done.returncode, 1)
        for word in words:
            self.assertIn(word, done.stderr)

    def connect(self):
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        client.connect(self.socket)  # waits for space in the backlog; a socket with a timeout would fail
        client.settimeout(harness.DEADLINE)
        self.addCleanup(client.close)
        return client

    def fetch(self, request=b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"):
        with self.connect() as client:
            return self.answer_of(client, request)

    @staticmethod
    def answer_of(client, request):
        if request:
            try:
                client.sendall(request)
            except BrokenPipeError:
                pass  # the server sent 503 before it read the request, for lack of space
        answer = b""
        while True:
            try:
                part = client.recv(65536)
            except ConnectionResetError:
                part = b""
            if not part:
                return answer.decode()
            answer += part

    def code(self, request):
        answer = self.fetch(request)
        return int(answer.split(" ")[1]) if answer else None


class Serving(Case):
    def test_adds_names_of_pods(self):
        self.serve()
        answer = self.fetch()
        self.assertTrue(answer.startswith("HTTP/1.1 200 OK\r\n"), answer)
        body = answer.split("\r\n\r\n", 1)[1]
        self.assertIn(f"Content-Length: {len(body.encode())}\r\n", answer)
        self.assertIn("Connection: close\r\n", answer)
        name = next(line for line in body.splitlines() if line.startswith("rdma_hook_grant_info"))
        self.assertIn('namespace="team-a"', name)
        self.assertIn('pod="train-0"', name)
        self.assertIn('container="c1"', name)
        self.assertIn('container_name="a\\"b\\\\c\\nd', name)
        self.assertNotIn("\x1b", body)
        self.assertEqual(body, must(self.words("metrics", "--grants")))

    def test_shows_new_grant_within_a_second(self):
        self.serve()
        self.assertIn('rdma_hook_holders{hca="mlx5_0",mode="shared"} 1\n', self.fetch())
        self.grant("k2", "c2", {})
        time.sleep(1.1)
        self.assertIn('rdma_hook_holders{hca="mlx5_0",mode="shared"} 2\n', self.fetch())

    def test_answers_requests(self):
        self.serve()
        for request, code in ((b"GET / HTTP/1.1\r\n\r\n", 200), (b"GET /healthz HTTP/1.0\r\n\r\n", 200),
                              (b"GET /other HTTP/1.1\r\n\r\n", 404), (b"PUT /metrics HTTP/1.1\r\n\r\n", 405),
                              (b"rubbish\r\n\r\n", 400), (b"GET /metrics HTTP/3\r\n\r\n", 505),
                              (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 9000 + b"\r\n\r\n", 431),
                              (b"POST /metrics HTTP/1.1\r\nContent-Length: 100000\r\n\r\n" + b"x" * 100000, 405),
                              (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
                              (b"GET /metrics HTTP/1.1\r\n\r\nGET /metrics HTTP/1.1\r\n\r\n", 200)):
            self.assertEqual(self.code(request), code, request[:60])

    def test_answers_503_for_unreadable_ledger(self):
        self.serve()
        shutil.rmtree(self.ledger + "/grants")
        write(self.ledger + "/grants", "")
        self.assertEqual(self.code(GET), 503)
        self.assertEqual(self.code(b"GET /healthz HTTP/1.1\r\n\r\n"), 200)
        os.unlink(self.ledger + "/grants")
        os.mkdir(self.ledger + "/grants", 0o700)
        self.assertEqual(self.code(GET), 200)

    def test_root_does_not_serve(self):
        reader = self.serve()
        (server,) = children_of(reader.pid)
        seen = {field: value.split() for field, value in status_of(server).items()}
        self.assertEqual((seen["Uid"], seen["Gid"], seen["Groups"]), ([str(SERVING_USER)] * 4, [str(SERVING_USER)] * 4, []))
        self.assertEqual([int(seen[field][0], 16) for field in ("CapPrm", "CapEff", "CapAmb")], [0, 0, 0])
        self.assertEqual((seen["NoNewPrivs"], seen["Seccomp"]), (["1"], ["2"]))
        # Root's process has no connection of a client, and no listening socket.
        sockets = [os.readlink(f"/proc/{reader.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{reader.pid}/fd")]
        self.assertEqual(sum(name.startswith("socket:") for name in sockets), 1, sockets)

    def test_refuses_when_another_user_has_its_number(self):
        self.needs_namespace("--mount")
        passwd = write(self.work + "/passwd", f"root:x:0:0::/root:/bin/sh\nsomebody:x:{SERVING_USER}:1::/:/bin/false\n")
        self.refuses(f"ID {SERVING_USER} of the serving process belongs to `somebody`",
                     before=["unshare", "--mount", "--propagation", "private", "sh", "-c",
                             'mount --bind "$0" /etc/passwd && exec "$@"', passwd])

    def needs_namespace(self, kind):
        if run(["unshare", kind, "--fork", "true"]).returncode != 0:
            self.skipTest(f"unshare {kind} is not allowed")

    def test_reads_ledger_of_another_pid_namespace(self):
        """Prints all grants as recorded: no owner is checked, so none is stale."""
        self.needs_namespace("--pid")
        self.grant("k2", "c2", {}, pid=4194303)
        os.symlink("pid-1.time-1", self.ledger + "/place")
        shown = ["unshare", "--pid", "--fork", "--mount-proc", *self.words("metrics", "--grants")]
        done = run(shown)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.count("rdma_hook_grant_info{"), 2)
        self.assertIn('rdma_hook_holders{hca="mlx5_0",mode="shared"} 2\n', done.stdout)
        # Without the engines' directories only the names of pods are missing.
        shutil.rmtree(self.work + "/run")
        done = run(shown)
        self.assertEqual((done.returncode, done.stdout.count("rdma_hook_grant_info{"), done.stdout.count("namespace=")), (0, 2, 0))

    def test_masks_tokens(self):
        token = "token-" + "5ec2e7" * 5 + "ab"
        self.grant(token, "c2", {})
        digest = "token-" + hashlib.sha256(token.encode()).hexdigest()[:32]
        for options in (["metrics", "--grants"], ["devices"], ["devices", "--json"]):
            done = run(self.words(*options))
            self.assertNotIn("5ec2e7", done.stdout + done.stderr, options)
            if options == ["metrics", "--grants"]:
                self.assertIn(f'grant="{digest}"', done.stdout)

    def test_refuses_root_without_capability_to_change_user(self):
        self.needs("setpriv")
        self.refuses(f"cannot become user {SERVING_USER}", "SETUID", before=["setpriv", "--bounding-set=-setuid,-setgid", "--inh-caps=-all"])

    def test_ends_at_sigterm_and_replaces_stale_socket(self):
        child = self.serve()
        self.assertEqual(os.stat(self.socket).st_mode & 0o7777, 0o660)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(harness.DEADLINE), 0)
        self.assertFalse(os.path.exists(self.socket))
        # The socket of a killed process is replaced, and its serving process ends too.
        child = self.serve()
        (server,) = children_of(child.pid)
        harness.end_process(child)
        wait_for(lambda: harness.process_state(server) in ("Z", ""), "the end of the server with its reader")
        self.assertTrue(os.path.exists(self.socket))
        self.serve()
        self.assertIn("200 OK", self.fetch())
        # A second process at the same socket, and a file that is not a socket.
        self.refuses("another process uses it")
        self.refuses("not a socket", where="unix:" + write(self.work + "/file", "precious"))

    def test_serves_tcp(self):
        for family, host, text in ((socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")):
            try:
                port = free_port(family, host)
            except OSError:
                continue  # no IPv6 here
            self.serve(f"{text}:{port}")
            with urllib.request.urlopen(f"http://{text}:{port}/metrics", timeout=harness.DEADLINE) as answer:
                self.assertIn(b"rdma_hook_grant_info", answer.read())

    def test_refuses_unavailable_address(self):
        self.refuses("cannot listen on `192.0.2.1:9839`: Cannot assign requested address; remedy: pass an address of this "
                     "network namespace", where="192.0.2.1:9839")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            self.refuses("Address already in use; remedy: stop the process that uses this port",
                         where=f"127.0.0.1:{other.getsockname()[1]}")


class Load(Case):
    @classmethod
    def setUpClass(cls):
        enough, hard = 2048, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (enough if hard == resource.RLIM_INFINITY else min(enough, hard), hard))

    def test_serves_other_clients_beside_slow_ones(self):
        self.serve()
        slow = [self.connect() for _ in range(MOST_OF_ONE_PEER)]
        began = time.monotonic()
        for client in slow:
            client.sendall(b"GET /metrics HT")
        self.assertIn("200 OK", self.fetch())
        self.assertIn("503", self.answer_of(slow.pop(0), b"").split("\r\n")[0], "the oldest client was closed")
        # Single bytes do not extend the deadline.
        while time.monotonic() - began < 4:
            for client in slow:
                client.sendall(b"x")
            time.sleep(0.5)
        for client in slow:
            self.assertIn("408", self.answer_of(client, b"").split("\r\n")[0])
        self.assertIn("200 OK", self.fetch())

    def test_answers_beside_thousand_silent_clients_of_unix_socket(self):
        self.serve()
        silent = [self.connect() for _ in range(1000)]
        for _ in range(3):
            self.assertIn("200 OK", self.fetch())
        self.assertEqual(len(silent), 1000)

    def test_answers_beside_thousand_silent_clients_of_tcp(self):
        for sources in (["127.0.0.9"], [f"127.0.1.{number}" for number in range(1, 101)]):
            port = free_port()
            self.serve(f"127.0.0.1:{port}")
            silent = []
            for number in range(1000):
                silent.append(socket.create_connection(("127.0.0.1", port), harness.DEADLINE, (sources[number % len(sources)], 0)))
                self.addCleanup(silent[-1].close)
            for source in ("127.0.0.2", sources[0]):
                with socket.create_connection(("127.0.0.1", port), harness.DEADLINE, (source, 0)) as client:
                    self.assertIn("200 OK", self.answer_of(client, GET))
            for client in silent:
                client.close()

    def test_serves_64_clients_at_once(self):
        self.serve()
        clients = [self.connect() for _ in range(64)]
        time.sleep(0.5)
        codes = []
        for client in clients:
            codes.append(self.answer_of(client, GET).split(" ")[1])
        self.assertEqual((codes.count("200"), codes.count("503")), (16, 48))
        self.assertIn("200 OK", self.fetch())

    def test_closes_client_that_reads_nothing(self):
        for number in range(2, 400):
            self.grant(f"k{number}", f"c{number}", {})
        self.serve()
        lazy = [self.connect() for _ in range(8)]
        for client in lazy:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
            client.sendall(GET)
        for _ in range(5):
            self.assertEqual(self.fetch().count("rdma_hook_grant_info{"), 399)

    @staticmethod
    def resident(*pids):
        return [int(status_of(pid)["VmRSS"].split()[0]) for pid in pids]

    def test_thousand_requests_use_constant_memory(self):
        child = self.serve()
        (server,) = children_of(child.pid)
        for _ in range(50):
            self.fetch()
        before = self.resident(child.pid, server)
        for number in range(1000):
            if number % 10 == 0:
                self.connect().close()
            self.fetch(b"GET /healthz HTTP/1.1\r\n\r\n" if number % 2 else GET)
        after = self.resident(child.pid, server)
        for old, new in zip(before, after):
            self.assertLess(new, old + 512, "kB")
        self.assertLess(max(after), 16 * 1024)
        self.assertLess(len(os.listdir(f"/proc/{server}/fd")), 16)


class Scrapers(Case):
    def test_curl(self):
        self.needs("curl")
        self.serve()
        curl = ["curl", "-sS", "--fail", "--unix-socket", self.socket]
        self.assertIn('pod="train-0"', self.succeeded(run([*curl, "http://node/metrics"])).stdout)
        many = run([*curl, "--parallel", "http://node/metrics?[1-12]"])
        self.assertEqual((many.returncode, many.stdout.count("rdma_hook_grant_info{")), (0, 12), many.stderr)

    def test_promtool_accepts_text(self):
        self.needs("promtool")
        self.serve()
        body = self.fetch().split("\r\n\r\n", 1)[1]
        done = run(["promtool", "check", "metrics"], input=body)
        # promtool prefers other names for units. An unreadable text has another exit code.
        self.assertIn(done.returncode, (0, 3), done.stderr)

    def test_prometheus_scrapes_text(self):
        self.needs("prometheus")
        port = free_port()
        self.serve(f"127.0.0.1:{port}")
        own = free_port()
        config = write(self.work + "/prometheus.yml", f"""global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
- job_name: rdma
  static_configs: [{{targets: ['127.0.0.1:{port}']}}]
""")
        self.start_logged(["prometheus", "--config.file=" + config, "--storage.tsdb.path=" + self.work + "/data",
                           f"--web.listen-address=127.0.0.1:{own}"])
        query = f"http://127.0.0.1:{own}/api/v1/query?query=rdma_hook_grant_info"

        def result():
            with contextlib.suppress(OSError), urllib.request.urlopen(query, timeout=5) as answer:
                return json.load(answer)["data"]["result"]

        found = self.until(result, "series in Prometheus")
        labels = found[0]["metric"]
        self.assertEqual((labels["namespace"], labels["pod"], labels["container"], labels["hca"]), ("team-a", "train-0", "c1", "mlx5_0"))
        self.assertTrue(labels["container_name"].startswith('a"b\\c\nd'), labels)


if __name__ == "__main__":
    harness.main(HOOK)
