"""rdma-device-plugin with a scripted kubelet: announcements, allocations, and recovery from failures of the kubelet, the disk, the
configuration or a second instance. The node is a file tree."""
import concurrent.futures
import os
import shutil
import signal
import socket
import sys
import time

import harness
from harness import HOOK, MAKE_TREE, must, read, run, status_of, write

try:
    import grpc
    import kubelet as kubelets
except ImportError:
    print("python3-grpcio is not installed: nothing checked")
    sys.exit(harness.SKIP)

PROGRAM = os.environ.get("TESTED_DEVICE_PLUGIN", "")
RAILS = "rdma-init.io/rails"
SOCKET = "rdma-init-rdma-init.io_rails.sock"
EXCLUSIVE = {"pools": [{"name": "rails", "modes": ["exclusive"], "resource": RAILS}], "device_plugin": {"poll_seconds": 1}}
SHARED = {"pools": [{"name": "rails", "modes": ["hca"], "limits": {"hca": 3}, "resource": RAILS}],
          "device_plugin": {"poll_seconds": 1}}
MOST_RESIDENT_KB = 10 * 1024


def node(number):
    path = f"/dev/infiniband/uverbs{number}"
    return (path, path, "rw")


RDMA_CM = ("/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm", "rw")


class DevicePluginCase(harness.TreeCase):
    def setUp(self):
        super().setUp()
        self.directory = self.work + "/plugins"
        os.mkdir(self.directory)
        self.configure(EXCLUSIVE)

    def configure(self, members):
        """Replaces the file at once, because the plugin reads it at any time."""
        os.rename(write(self.work + "/new.json", members), self.config)

    def start_plugin(self, *before):
        return self.start_logged([*before, PROGRAM, "--plugins", self.directory, *self.places()])

    def kubelet(self, **more):
        kubelet = kubelets.Kubelet(self.directory, **more)
        self.addCleanup(kubelet.stop)
        return kubelet

    def endpoint(self, name=SOCKET):
        plugin = kubelets.Plugin(f"{self.directory}/{name}")
        self.addCleanup(plugin.close)
        return plugin

    def begin(self):
        """Returns (kubelet, process, endpoint, watch) of a plugin that is registered and watched."""
        kubelet = self.kubelet()
        process = self.start_plugin()
        kubelet.wait()
        endpoint = self.endpoint()
        watch = endpoint.watch()
        watch.wait_for(lambda devices: True)
        return kubelet, process, endpoint, watch

    def port(self, number, state):
        write(f"{self.tree}/sys/class/infiniband/mlx5_{number}/ports/1/state", state + "\n")

    def refuses(self, ids, code=grpc.StatusCode.FAILED_PRECONDITION):
        with self.assertRaises(grpc.RpcError) as caught:
            self.endpoint().allocate(ids)
        self.assertEqual(caught.exception.code(), code)
        return caught.exception.details()

    def files(self):
        """The files of the kubelet's directory, without the directory that the plugin locks if other users can open the kubelet's."""
        return sorted(name for name in os.listdir(self.directory) if name != ".rdma-device-plugin")


class Announcements(DevicePluginCase):
    def test_registers_and_lists_devices(self):
        kubelet = self.kubelet()
        self.start_plugin()
        self.assertEqual(kubelet.wait()[:4], ("v1beta1", SOCKET, RAILS, 1))
        self.assertEqual(self.endpoint().call("GetDevicePluginOptions"), b"\x10\x01")
        devices = self.endpoint().watch().wait_for(lambda devices: True)
        self.assertEqual(devices, {f"mlx5_{i}": (True, 0) for i in range(4)})

    def test_allocates_nodes(self):
        _, _, endpoint, _ = self.begin()
        self.assertEqual(endpoint.allocate(["mlx5_2", "mlx5_0"], ["mlx5_3"], []),
                         [([node(0), RDMA_CM, node(2)], []), ([node(3), RDMA_CM], []), ([], [])])
        self.wait_for_log(f"allocated resource={RAILS} hcas=mlx5_0,mlx5_2")
        self.assertEqual(self.refuses(["mlx5_0", "mlx5_\x1b9"]), f"{RAILS} has no device `mlx5_?9`")
        self.wait_for_log(f"refused resource={RAILS}")

    def test_allocates_one_node_for_several_ids_of_hca(self):
        self.configure(SHARED)
        _, _, endpoint, watch = self.begin()
        self.assertEqual(sorted(watch.lists[-1]), [f"mlx5_{i}#{n}" for i in range(4) for n in (1, 2, 3)])
        self.assertEqual(endpoint.allocate(["mlx5_1#1", "mlx5_1#3"]), [([node(1), RDMA_CM], [])])
        self.assertEqual(endpoint.preferred(["mlx5_0#1", "mlx5_0#2", "mlx5_1#3"], [], 2), ["mlx5_0#1", "mlx5_1#3"])
        with self.assertRaises(grpc.RpcError) as caught:
            endpoint.preferred(["mlx5_0#1"], [], 2)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_allocates_cdi_devices(self):
        self.configure({**EXCLUSIVE, "device_plugin": {"cdi": True, "poll_seconds": 1}})
        kubelet, _, endpoint, _ = self.begin()
        def generate(file):
            must([HOOK, "cdi", "generate", "--root", self.tree, "--config", self.config, "--out", file])

        nodes = [([node(1), RDMA_CM], [])]
        self.assertEqual(endpoint.allocate(["mlx5_1"]), nodes, "no CDI file was written")
        self.wait_for_log("no file in /etc/cdi or /var/run/cdi describes `rdma-init.io/hca=mlx5_1`")
        for place in ("var/run/cdi", "etc/cdi"):
            file = f"{self.tree}/{place}/rdma-init.json"
            os.makedirs(os.path.dirname(file))
            for text in ("{", "[]", '{"kind": "rdma-init.io/hca", "devices": [{"name": "mlx5_0"}, {}, 3]}',
                         '{"kind": "example.com/hca", "devices": [{"name": "mlx5_1"}]}'):
                write(file, text)
                self.assertEqual(endpoint.allocate(["mlx5_1"]), nodes, text)
            generate(file)
            self.assertEqual(endpoint.allocate(["mlx5_1"]), [([], ["rdma-init.io/hca=mlx5_1"])])
            os.unlink(file)
        generate(file)
        self.assertEqual(endpoint.allocate(["mlx5_1"]), [([], ["rdma-init.io/hca=mlx5_1"])])
        self.configure(EXCLUSIVE)
        kubelet.wait(2)
        self.assertEqual(self.endpoint().allocate(["mlx5_1"]), [([node(1), RDMA_CM], [])])

    def test_follows_changes_of_pools(self):
        kubelet, _, _, watch = self.begin()
        two = [{"name": "a", "selectors": {"ifNames": ["rail0"]}, "modes": ["exclusive"], "resource": "a.io/b"},
               {"name": "rails", "modes": ["exclusive"], "resource": RAILS}]
        self.configure({**EXCLUSIVE, "pools": two})
        self.assertEqual(kubelet.wait(2)[1:3], ("rdma-init-a.io_b.sock", "a.io/b"))
        self.assertEqual(len(watch.wait_for(lambda devices: len(devices) == 3)), 3)
        self.assertEqual(list(self.endpoint("rdma-init-a.io_b.sock").watch().wait_for(bool)), ["mlx5_0"])
        self.configure({**EXCLUSIVE, "pools": two[1:]})
        watch.wait_for(lambda devices: len(devices) == 4)
        self.until(lambda: self.files() == ["kubelet.sock", SOCKET])

    def test_reports_port_that_goes_down_and_up(self):
        _, _, _, watch = self.begin()
        self.port(2, "1: DOWN")
        self.assertEqual(watch.wait_for(lambda devices: not devices["mlx5_2"][0])["mlx5_1"], (True, 0))
        self.wait_for_log(f"{RAILS} mlx5_2 is not healthy: mlx5_2 has no active port: port 1 is DOWN")
        self.assertEqual(self.refuses(["mlx5_2"]), "mlx5_2 has no active port: port 1 is DOWN")
        self.port(2, "4: ACTIVE")
        watch.wait_for(lambda devices: devices["mlx5_2"][0])
        self.wait_for_log(f"{RAILS} mlx5_2 is healthy again")

    def take_away(self):
        for place, away in self.places_of_mlx5_3():
            os.rename(place, away)

    def bring_home(self):
        for place, away in self.places_of_mlx5_3():
            os.rename(away, place)

    def places_of_mlx5_3(self):
        return [(f"{self.tree}/sys/class/{name}", f"{self.work}/{os.path.basename(name)}")
                for name in ("infiniband/mlx5_3", "infiniband_verbs/uverbs3")]

    def test_reports_removed_hca(self):
        _, _, _, watch = self.begin()
        self.take_away()
        watch.wait_for(lambda devices: not devices["mlx5_3"][0])
        self.assertEqual(self.refuses(["mlx5_3"]), "mlx5_3 is no longer on the node")
        self.bring_home()
        watch.wait_for(lambda devices: devices["mlx5_3"][0])

    def test_allocate_waits_for_hca_of_ended_pod(self):
        """The scheduler may assign it again as soon as the pod has ended, before the pod's sandbox is removed."""
        self.configure({**EXCLUSIVE, "device_plugin": {"cdi": True, "poll_seconds": 2}})
        _, _, endpoint, _ = self.begin()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            self.take_away()
            asked = pool.submit(endpoint.allocate, ["mlx5_3"])
            time.sleep(0.5)
            self.assertEqual(endpoint.allocate(["mlx5_2"]), [([node(2), RDMA_CM], [])], "requests for other HCAs do not wait")
            self.assertFalse(asked.done())
            self.bring_home()
            self.assertEqual(asked.result(timeout=30), [([node(3), RDMA_CM], [])])
        for hca in ("mlx5_2", "mlx5_3"):  # CDI files are read after the wait, not at each attempt
            self.assertEqual(read(self.log).count(f"describes `rdma-init.io/hca={hca}`"), 1)

    def test_allocate_refuses_hca_that_stays_missing(self):
        _, process, _, watch = self.begin()
        self.take_away()
        began = time.monotonic()
        self.assertRegex(self.refuses(["mlx5_3"]), "mlx5_3 (has another device node now|is no longer on the node)")
        self.assertGreater(time.monotonic() - began, 9)
        self.bring_home()
        watch.wait_for(lambda devices: devices["mlx5_3"][0])
        self.take_away()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(self.refuses, ["mlx5_3"])
            time.sleep(0.5)
            process.terminate()
            self.assertRegex(asked.result(timeout=30), "has another device node now|is no longer on the node")
        self.assertEqual(process.wait(timeout=30), 0)


class Events(DevicePluginCase):
    """The plugin has its own network namespace, and the tree is its /sys: without --root it relies on the kernel's events. Its next
    read without an event is an hour away."""
    POLL = {"poll_seconds": 3600}

    def setUp(self):
        super().setUp()
        if run(["unshare", "--mount", "--net", "true"]).returncode != 0:
            self.skipTest("cannot unshare namespaces")
        # inotify watches the directory of the configuration.
        os.mkdir(self.work + "/etc")
        self.config = self.work + "/etc/config.json"
        self.configure({**EXCLUSIVE, "device_plugin": self.POLL})

    def start_plugin(self, *before):
        script = 'mount --bind "$1/sys" /sys && shift && exec "$@"'
        return self.start_logged([*before, "unshare", "--mount", "--net", "--propagation", "private", "sh", "-c", script, "-", self.tree,
                                  PROGRAM, "--plugins", self.directory, *self.places()[2:]])

    def link_event(self, process, number):
        """The kernel reports a change of the netdev of an HCA in the plugin's network namespace."""
        (netdev,) = os.listdir(f"{self.tree}/sys/class/infiniband/mlx5_{number}/device/net")
        must(["nsenter", f"--net=/proc/{process.pid}/ns/net", "ip", "link", "add", netdev, "type", "veth",
              "peer", "name", f"peer{number}"])

    def test_netlink_event_announces_port(self):
        _, process, _, watch = self.begin()
        for number in range(2):
            self.port(number, "1: DOWN")
            self.link_event(process, number)
            watch.wait_for(lambda devices, hca=f"mlx5_{number}": not devices[hca][0])

    def test_file_event_applies_configuration(self):
        kubelet, _, _, _ = self.begin()
        self.configure({"pools": [{"name": "a", "modes": ["exclusive"], "resource": "a.io/b"}]})
        self.assertEqual(kubelet.wait(2)[2], "a.io/b")

    def test_lost_events_cause_read(self):
        _, process, _, watch = self.begin()
        process.send_signal(signal.SIGSTOP)
        # The socket's buffer holds some hundred events; the kernel drops the next ones. The last event is then not about this change.
        inside = ["nsenter", f"--net=/proc/{process.pid}/ns/net", "sh", "-c"]
        must([*inside, "for i in $(seq 600); do echo link set lo up; echo link set lo down; done | ip -batch -"])
        self.port(2, "1: DOWN")
        process.send_signal(signal.SIGCONT)
        watch.wait_for(lambda devices: not devices["mlx5_2"][0])
        self.port(3, "1: DOWN")
        self.link_event(process, 3)  # the socket reports events after the loss
        watch.wait_for(lambda devices: not devices["mlx5_3"][0])

    def test_polls_silent_port(self):
        write(f"{self.tree}/sys/class/infiniband/mlx5_1/ports/1/link_layer", "InfiniBand\n")
        self.configure({"pools": [{**EXCLUSIVE["pools"][0], "selectors": {"linkTypes": ["infiniband"]}}],
                        "device_plugin": {"poll_seconds": 1}})
        _, _, _, watch = self.begin()
        self.port(1, "1: DOWN")
        watch.wait_for(lambda devices: not devices["mlx5_1"][0])


class Failures(DevicePluginCase):
    def test_registers_again_after_restart_of_kubelet(self):
        kubelet, _, _, watch = self.begin()
        for round in range(3):
            # A kubelet that stops before its answer has not registered the plugin.
            self.wait_for_log("is registered with the kubelet\n", round + 1)
            kubelet.stop()
            kubelet = self.kubelet()
            self.assertLess(kubelet.wait()[4] - kubelet.started, 2)
            self.assertTrue(watch.wait_for_end())
            watch = self.endpoint().watch()
            watch.wait_for(lambda devices: len(devices) == 4)
        self.assertEqual(len(kubelet.registered), 1)
        self.wait_for_log("is registered with the kubelet\n", 4)
        self.assertEqual(len([line for line in read(self.log).splitlines() if "kubelet" in line]), 4)

    def test_waits_for_kubelet(self):
        self.start_plugin()
        time.sleep(1)
        self.assertEqual(self.files(), [SOCKET])
        kubelet = self.kubelet()
        self.assertLess(kubelet.wait()[4] - kubelet.started, 2)

    def test_registers_again_after_removal_of_its_socket(self):
        kubelet, _, _, _ = self.begin()
        os.unlink(f"{self.directory}/{SOCKET}")
        kubelet.wait(2)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)

    def test_registers_again_in_replaced_directory(self):
        kubelet, _, _, _ = self.begin()
        kubelet.stop()
        shutil.rmtree(self.directory)
        self.wait_for_log("cannot open")
        os.mkdir(self.directory)
        self.kubelet().wait()

    def test_retries_refused_or_unanswered_registration(self):
        def refuse(context):
            if len(calls) < 2:
                calls.append(1)
                context.abort(grpc.StatusCode.UNAVAILABLE, "not \x1b[2J yet")

        calls = []
        kubelet = self.kubelet(answer=refuse)
        self.start_plugin()
        kubelet.wait()
        self.wait_for_log("cannot register rdma-init.io/rails: not ?[2J yet; trying again")
        kubelet.stop()
        silent = self.kubelet(answer=lambda context: time.sleep(3))
        time.sleep(1)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)  # it serves requests meanwhile
        silent.wait()

    def test_registers_again_when_kubelet_stops_watching(self):
        kubelet, _, _, watch = self.begin()
        watch.call.cancel()
        kubelet.wait(2)
        self.wait_for_log("is registered with the kubelet", 2)

    def test_waits_for_kubelet_that_has_stopped(self):
        kubelet, _, _, _ = self.begin()
        kubelet.stop()
        self.leave_socket()
        self.wait_for_log("cannot register rdma-init.io/rails")

    def test_waits_at_socket_without_kubelet(self):
        self.leave_socket()
        self.start_plugin()
        self.wait_for_log("cannot register")
        kubelet = self.kubelet()
        self.assertLess(kubelet.wait()[4] - kubelet.started, 2)

    def leave_socket(self):
        """As the socket of a kubelet that was killed."""
        with socket.socket(socket.AF_UNIX) as left:
            left.bind(self.directory + "/kubelet.sock")

    def test_accepts_any_order_and_refuses_invalid_frames(self):
        kubelet = self.kubelet()
        self.start_plugin()
        kubelet.wait()
        endpoint = self.endpoint()
        self.assertEqual(endpoint.allocate(["mlx5_0"]), [([node(0), RDMA_CM], [])])  # before ListAndWatch
        self.assertEqual(endpoint.call("PreStartContainer", b"\x0a\x06mlx5_0"), b"")
        watches = [endpoint.watch() for _ in range(3)]
        for watch in watches:
            self.assertEqual(len(watch.wait_for(bool)), 4)
        watches[0].call.cancel()
        for method, request, code in (("Stop", b"", grpc.StatusCode.UNIMPLEMENTED),
                                      ("Allocate", b"\x0a\xff", grpc.StatusCode.INTERNAL),  # gRPC's status for an invalid message
                                      ("GetPreferredAllocation", b"\x0a\x03\x18\xff", grpc.StatusCode.INTERNAL),
                                      ("GetPreferredAllocation", b"\x0a\x0b\x18" + b"\xff" * 9 + b"\x01",
                                       grpc.StatusCode.INVALID_ARGUMENT)):
            with self.assertRaises(grpc.RpcError) as caught:
                endpoint.call(method, request)
            self.assertEqual(caught.exception.code(), code, method)
        # Truncated, invalid or missing HTTP/2 frames, together with calls.
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        half = []
        for data in (b"", preface[:9], preface, preface + b"\0\0\0\4\0\0\0\0\0" + b"\0\0\x40\1", b"\xff" * 5000,
                     preface + b"\0\x40\0\1\4\0\0\0\1" + b"\x82" * 100):
            half.append(socket.socket(socket.AF_UNIX))
            half[-1].connect(f"{self.directory}/{SOCKET}")
            half[-1].sendall(data)
        self.assertEqual(endpoint.allocate(["mlx5_0"]), [([node(0), RDMA_CM], [])])
        self.port(1, "1: DOWN")
        watches[1].wait_for(lambda devices: not devices["mlx5_1"][0])
        watches[2].wait_for(lambda devices: not devices["mlx5_1"][0])
        for one in half:
            one.close()
        self.assertEqual(endpoint.allocate(["mlx5_0"]), [([node(0), RDMA_CM], [])])

    def second_waits(self, kubelet, first):
        """Checks that a second program serves only after the first has ended."""
        self.start_plugin()
        self.wait_for_log("another rdma-device-plugin serves")
        self.assertEqual(len(kubelet.registered), 1)
        first.send_signal(signal.SIGTERM)
        self.assertEqual(first.wait(20), 0)
        kubelet.wait(2)

    def test_second_instance_waits(self):
        kubelet, process, _, _ = self.begin()
        self.second_waits(kubelet, process)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)

    def test_lock_of_stranger_stops_nothing(self):
        os.chmod(self.work, 0o755)
        os.chmod(self.directory, 0o755)
        stranger = self.start(["flock", "--no-fork", self.directory, "sleep", "1000"], user=65534)
        self.until(lambda: os.path.basename(os.readlink(f"/proc/{stranger.pid}/exe")) == "sleep", "the lock")
        kubelet, process, _, _ = self.begin()
        self.assertEqual(stranger.poll(), None)
        self.second_waits(kubelet, process)

    def test_runs_without_capabilities(self):
        kubelet = self.kubelet()
        plugin = self.start_plugin("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs")
        kubelet.wait()
        self.assertEqual(status_of(plugin.pid)["CapEff"], "0000000000000000")
        watch = self.endpoint().watch()
        watch.wait_for(lambda devices: len(devices) == 4)
        self.port(1, "1: DOWN")
        watch.wait_for(lambda devices: not devices["mlx5_1"][0])

    def test_waits_for_space_on_full_disk(self):
        self.mount_or_skip(self.directory, "-t", "tmpfs", "-o", "nr_inodes=3", "none")
        blocking = write(self.directory + "/full", "")
        self.start_plugin()
        self.wait_for_log("No space left on device; trying again")
        os.unlink(blocking)
        self.until(self.listens)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)

    def listens(self):
        # The check why listening fails leaves a socket there for a moment.
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(f"{self.directory}/{SOCKET}") == 0

    def test_keeps_previous_configuration_after_error(self):
        self.configure("{")
        kubelet = self.kubelet()
        self.start_plugin()
        self.wait_for_log("invalid JSON")
        self.assertEqual(kubelet.registered, [])
        self.configure(EXCLUSIVE)
        kubelet.wait()
        watch = self.endpoint().watch()
        watch.wait_for(lambda devices: len(devices) == 4)
        self.configure({"pools": 1})
        self.wait_for_log("the previous configuration stays in use")
        self.port(1, "1: DOWN")
        watch.wait_for(lambda devices: not devices["mlx5_1"][0])

    def test_refuses_invalid_usage(self):
        for arguments, code, words in ((["--help"], 0, "--plugins DIR"), (["--version"], 0, "rdma-device-plugin "),
                                       (["--what=1"], 2, "unknown option"), (["--plugins", "a"], 2, "absolute path"),
                                       (["--plugins=/" + "a" * 100], 2, "absolute path"), (["x"], 2, "unexpected")):
            done = run([PROGRAM, *arguments])
            self.assertEqual((done.returncode, words in done.stdout + done.stderr), (code, True), done)


class Probe(DevicePluginCase):
    def test_follows_registration(self):
        self.until_probe(PROGRAM, 1, "rdma-device-plugin: not ready: no running process has recorded a state")
        process = self.start_plugin()
        self.until_probe(PROGRAM, 1, f"not ready: {RAILS} is not registered with the kubelet: the kubelet has no socket "
                                     f"`{self.directory}/kubelet.sock`")
        kubelet = self.kubelet()
        kubelet.wait()
        self.until_probe(PROGRAM, 0, f"rdma-device-plugin: ready: registered with the kubelet: {RAILS}")
        kubelet.stop()
        self.until_probe(PROGRAM, 1, f"{RAILS} is not registered with the kubelet")
        self.kubelet().wait()
        self.until_probe(PROGRAM, 0, "registered")
        process.kill()
        process.wait(30)
        self.until_probe(PROGRAM, 1, "no running process")

    def test_reports_refused_registration(self):
        self.kubelet(answer=lambda context: context.abort(grpc.StatusCode.UNAVAILABLE, "not now"))
        self.start_plugin()
        self.until_probe(PROGRAM, 1, f"{RAILS} is not registered with the kubelet: cannot register {RAILS}: ")
        self.assertIn("not now", self.probe(PROGRAM)[1])

    def test_reports_invalid_configuration(self):
        self.configure("{")
        self.start_plugin()
        self.until_probe(PROGRAM, 1, "invalid JSON")
        self.configure({"pools": [{"name": "rails", "modes": ["exclusive"]}]})
        self.until_probe(PROGRAM, 0, f'ready: no pool of `{self.config}` has a "resource": nothing to register')

    def test_reports_second_instance(self):
        _, process, _, _ = self.begin()
        self.until_probe(PROGRAM, 0, "registered")
        self.start_plugin()
        self.until_probe(PROGRAM, 1, "another rdma-device-plugin serves")
        process.send_signal(signal.SIGTERM)
        self.until_probe(PROGRAM, 0, "registered")

    def test_writes_state_only_at_change(self):
        self.begin()
        self.until_probe(PROGRAM, 0, "registered")
        (name,) = os.listdir(self.ledger_directory + "/state")
        before = os.stat(f"{self.ledger_directory}/state/{name}")
        time.sleep(2.5)  # the plugin reads the node each second (poll_seconds)
        after = os.stat(f"{self.ledger_directory}/state/{name}")
        self.assertEqual((after.st_ino, after.st_mtime_ns), (before.st_ino, before.st_mtime_ns))


class Cost(DevicePluginCase):
    def test_many_calls_use_constant_memory(self):
        self.configure(SHARED)
        _, process, endpoint, _ = self.begin()
        times = []
        for number in range(1000):
            begun = time.perf_counter()
            self.assertEqual(endpoint.allocate([f"mlx5_{number % 4}#1"])[0][0][0], node(number % 4))
            times.append((time.perf_counter() - begun) * 1e6)
        times.sort()
        print(f"Allocate: p50 {times[500]:.0f} us, p99 {times[990]:.0f} us")
        with concurrent.futures.ThreadPoolExecutor(64) as pool:
            answers = list(pool.map(lambda number: endpoint.allocate([f"mlx5_{number % 4}#2"], timeout=60), range(64)))
        self.assertEqual([answer[0][0][0] for answer in answers], [node(number % 4) for number in range(64)])
        resident = int(status_of(process.pid)["VmHWM"].split()[0])
        print(f"resident: {resident} KiB")
        self.assertLessEqual(resident, MOST_RESIDENT_KB)


if __name__ == "__main__":
    harness.main(PROGRAM, HOOK, MAKE_TREE)
