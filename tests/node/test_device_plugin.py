"""rdma-device-plugin before a kubelet of ours: what it announces and gives, and that nothing is lost, whatever the kubelet, the disk,
the configuration or a second instance does. The node is a file tree."""
import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import wrapper  # noqa: E402

try:
    import grpc
    import kubelet as kubelets
except ImportError:
    print("python3-grpcio is not installed: nothing checked")
    sys.exit(wrapper.SKIP)

PROGRAM = os.environ.get("TESTED_DEVICE_PLUGIN", "")
HOOK = os.environ.get("TESTED_HOOK", "")
MAKE_TREE = os.environ.get("MAKE_TREE", "")
RAILS = "rdma-init.io/rails"
SOCKET = "rdma-init-rdma-init.io_rails.sock"
EXCLUSIVE = {"pools": [{"name": "rails", "modes": ["exclusive"], "resource": RAILS}], "device_plugin": {"poll_seconds": 1}}
SHARED = {"pools": [{"name": "rails", "modes": ["hca"], "limits": {"hca": 3}, "resource": RAILS}],
          "device_plugin": {"poll_seconds": 1}}
# Bytes that may be resident, and of the program: what its issue allows.
MOST_RESIDENT_KB = 10 * 1024


def node(number):
    path = f"/dev/infiniband/uverbs{number}"
    return (path, path, "rw")


RDMA_CM = ("/dev/infiniband/rdma_cm", "/dev/infiniband/rdma_cm", "rw")


class DevicePluginCase(wrapper.Case):
    def setUp(self):
        super().setUp()
        if os.getuid() != 0:
            self.skipTest("needs root, as the plugin does")
        self.directory = self.work + "/plugins"
        os.mkdir(self.directory)
        self.tree = self.work + "/node"
        subprocess.run([MAKE_TREE, "--synthetic", "4", "16", self.tree], check=True)
        wrapper.write(self.tree + "/sys/class/misc/rdma_cm/dev", "10:58\n")
        self.configure(EXCLUSIVE)
        self.log = self.work + "/log"
        self.plugins = []
        self.addCleanup(self.end_plugins)

    def configure(self, config):
        os.makedirs(self.work + "/etc", mode=0o755, exist_ok=True)
        path = wrapper.write(self.work + "/etc/new.json", config)
        os.rename(path, self.work + "/etc/config.json")

    def start(self, *before):
        with open(self.log, "ab") as log:
            plugin = subprocess.Popen([*before, PROGRAM, "--plugins", self.directory, "--config", self.work + "/etc/config.json",
                                       "--root", self.tree, "--ledger", self.work + "/ledger"], stderr=log,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        self.plugins.append(plugin)
        return plugin

    def end_plugins(self):
        for plugin in self.plugins:
            plugin.kill()
            plugin.wait()

    def kubelet(self, **more):
        kubelet = kubelets.Kubelet(self.directory, **more)
        self.addCleanup(kubelet.stop)
        return kubelet

    def endpoint(self, name=SOCKET):
        plugin = kubelets.Plugin(f"{self.directory}/{name}")
        self.addCleanup(plugin.close)
        return plugin

    def begin(self):
        """(kubelet, process, endpoint, watch) of a plugin that is registered and watched."""
        kubelet = self.kubelet()
        process = self.start()
        kubelet.wait()
        endpoint = self.endpoint()
        watch = endpoint.watch()
        watch.wait_for(lambda devices: True)
        return kubelet, process, endpoint, watch

    def until(self, holds, seconds=30):
        end = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), end, wrapper.read(self.log))
            time.sleep(0.01)

    def said(self, words, times=1, seconds=30):
        self.until(lambda: wrapper.read(self.log).count(words) >= times, seconds)

    def port(self, number, state):
        wrapper.write(f"{self.tree}/sys/class/infiniband/mlx5_{number}/ports/1/state", state + "\n")

    def refused(self, ids, code=grpc.StatusCode.FAILED_PRECONDITION):
        with self.assertRaises(grpc.RpcError) as caught:
            self.endpoint().allocate(ids)
        self.assertEqual(caught.exception.code(), code)
        return caught.exception.details()


class WhatItAnnounces(DevicePluginCase):
    def test_registration_and_list(self):
        kubelet = self.kubelet()
        self.start()
        self.assertEqual(kubelet.wait()[:4], ("v1beta1", SOCKET, RAILS, 1))
        self.assertEqual(self.endpoint().call("GetDevicePluginOptions"), b"\x10\x01")
        devices = self.endpoint().watch().wait_for(lambda devices: True)
        self.assertEqual(devices, {f"mlx5_{i}": (True, 0) for i in range(4)})

    def test_nodes(self):
        _, _, endpoint, _ = self.begin()
        self.assertEqual(endpoint.allocate(["mlx5_2", "mlx5_0"], ["mlx5_3"], []),
                         [([node(0), RDMA_CM, node(2)], []), ([node(3), RDMA_CM], []), ([], [])])
        self.said(f"allocated resource={RAILS} hcas=mlx5_0,mlx5_2")
        self.assertEqual(self.refused(["mlx5_0", "mlx5_\x1b9"]), f"{RAILS} has no device `mlx5_?9`")
        self.said(f"refused resource={RAILS}")

    def test_several_ids_of_one_hca_are_one_node(self):
        self.configure(SHARED)
        _, _, endpoint, watch = self.begin()
        self.assertEqual(sorted(watch.lists[-1]), [f"mlx5_{i}#{n}" for i in range(4) for n in (1, 2, 3)])
        self.assertEqual(endpoint.allocate(["mlx5_1#1", "mlx5_1#3"]), [([node(1), RDMA_CM], [])])
        self.assertEqual(endpoint.preferred(["mlx5_0#1", "mlx5_0#2", "mlx5_1#3"], [], 2), ["mlx5_0#1", "mlx5_1#3"])
        with self.assertRaises(grpc.RpcError) as caught:
            endpoint.preferred(["mlx5_0#1"], [], 2)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_cdi(self):
        self.configure({**EXCLUSIVE, "device_plugin": {"cdi": True, "poll_seconds": 1}})
        kubelet, _, endpoint, _ = self.begin()
        def generate(file):
            subprocess.run([HOOK, "cdi", "generate", "--root", self.tree, "--config", self.work + "/etc/config.json",
                            "--out", file], check=True)

        nodes = [([node(1), RDMA_CM], [])]
        self.assertEqual(endpoint.allocate(["mlx5_1"]), nodes, "nobody has written the file")
        self.said("no file in /etc/cdi or /var/run/cdi describes `rdma-init.io/hca=mlx5_1`")
        for place in ("var/run/cdi", "etc/cdi"):
            file = f"{self.tree}/{place}/rdma-init.json"
            os.makedirs(os.path.dirname(file))
            for text in ("{", "[]", '{"kind": "rdma-init.io/hca", "devices": [{"name": "mlx5_0"}, {}, 3]}',
                         '{"kind": "example.com/hca", "devices": [{"name": "mlx5_1"}]}'):
                wrapper.write(file, text)
                self.assertEqual(endpoint.allocate(["mlx5_1"]), nodes, text)
            generate(file)
            self.assertEqual(endpoint.allocate(["mlx5_1"]), [([], ["rdma-init.io/hca=mlx5_1"])])
            os.unlink(file)
        generate(file)
        self.assertEqual(endpoint.allocate(["mlx5_1"]), [([], ["rdma-init.io/hca=mlx5_1"])])
        self.configure(EXCLUSIVE)
        kubelet.wait(2)
        self.assertEqual(self.endpoint().allocate(["mlx5_1"]), [([node(1), RDMA_CM], [])])

    def test_pools_come_and_go(self):
        kubelet, _, _, watch = self.begin()
        two = [{"name": "a", "selectors": {"ifNames": ["rail0"]}, "modes": ["exclusive"], "resource": "a.io/b"},
               {"name": "rails", "modes": ["exclusive"], "resource": RAILS}]
        self.configure({**EXCLUSIVE, "pools": two})
        self.assertEqual(kubelet.wait(2)[1:3], ("rdma-init-a.io_b.sock", "a.io/b"))
        self.assertEqual(len(watch.wait_for(lambda devices: len(devices) == 3)), 3)
        self.assertEqual(list(self.endpoint("rdma-init-a.io_b.sock").watch().wait_for(bool)), ["mlx5_0"])
        self.configure({**EXCLUSIVE, "pools": two[1:]})
        watch.wait_for(lambda devices: len(devices) == 4)
        self.until(lambda: sorted(os.listdir(self.directory)) == ["kubelet.sock", SOCKET])

    def test_a_port_that_goes_down_and_up(self):
        _, _, _, watch = self.begin()
        self.port(2, "1: DOWN")
        self.assertEqual(watch.wait_for(lambda devices: not devices["mlx5_2"][0])["mlx5_1"], (True, 0))
        self.said(f"{RAILS} mlx5_2 is not healthy: mlx5_2 has no active port: port 1 is DOWN")
        self.assertEqual(self.refused(["mlx5_2"]), "mlx5_2 has no active port: port 1 is DOWN")
        self.port(2, "4: ACTIVE")
        watch.wait_for(lambda devices: devices["mlx5_2"][0])
        self.said(f"{RAILS} mlx5_2 is healthy again")

    def take_away(self):
        for place in ("infiniband/mlx5_3", "infiniband_verbs/uverbs3"):
            os.rename(f"{self.tree}/sys/class/{place}", self.work + "/" + os.path.basename(place))

    def bring_home(self):
        for place in ("infiniband/mlx5_3", "infiniband_verbs/uverbs3"):
            os.rename(self.work + "/" + os.path.basename(place), f"{self.tree}/sys/class/{place}")

    def test_an_hca_that_goes_away(self):
        _, _, _, watch = self.begin()
        self.take_away()
        watch.wait_for(lambda devices: not devices["mlx5_3"][0])
        self.assertEqual(self.refused(["mlx5_3"]), "mlx5_3 is not on the node any more")
        self.bring_home()
        watch.wait_for(lambda devices: devices["mlx5_3"][0])

    def test_an_hca_on_its_way_home_is_waited_for(self):
        """The scheduler may give it away once the pod has ended, before the pod's sandbox is taken down."""
        self.configure({**EXCLUSIVE, "device_plugin": {"cdi": True, "poll_seconds": 2}})
        _, _, endpoint, _ = self.begin()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            self.take_away()
            asked = pool.submit(endpoint.allocate, ["mlx5_3"])
            time.sleep(0.5)
            self.assertEqual(endpoint.allocate(["mlx5_2"]), [([node(2), RDMA_CM], [])], "others do not wait")
            self.assertFalse(asked.done())
            self.bring_home()
            self.assertEqual(asked.result(timeout=30), [([node(3), RDMA_CM], [])])
        for hca in ("mlx5_2", "mlx5_3"):  # a CDI file is looked for when the wait is over, not at each try
            self.assertEqual(wrapper.read(self.log).count(f"describes `rdma-init.io/hca={hca}`"), 1)

    def test_an_hca_that_does_not_come_home_is_refused(self):
        _, process, _, watch = self.begin()
        self.take_away()
        began = time.monotonic()
        self.assertRegex(self.refused(["mlx5_3"]), "mlx5_3 is not (at its node|on the node) any more")
        self.assertGreater(time.monotonic() - began, 9)
        self.bring_home()
        watch.wait_for(lambda devices: devices["mlx5_3"][0])
        self.take_away()
        with concurrent.futures.ThreadPoolExecutor() as pool:
            asked = pool.submit(self.refused, ["mlx5_3"])
            time.sleep(0.5)
            process.terminate()
            self.assertRegex(asked.result(timeout=30), "any more")
        self.assertEqual(process.wait(timeout=30), 0)


class WhatMayHappen(DevicePluginCase):
    def test_kubelet_starts_anew(self):
        kubelet, _, _, watch = self.begin()
        for round in range(3):
            kubelet.stop()
            kubelet = self.kubelet()
            self.assertLess(kubelet.wait()[4] - kubelet.started, 2)
            self.assertTrue(watch.wait_for_end())
            watch = self.endpoint().watch()
            watch.wait_for(lambda devices: len(devices) == 4)
        self.assertEqual(len(kubelet.registered), 1)
        self.said("is registered with the kubelet\n", 4)
        self.assertEqual(len([line for line in wrapper.read(self.log).splitlines() if "kubelet" in line]), 4)

    def test_the_plugin_comes_first(self):
        self.start()
        time.sleep(1)
        self.assertEqual(os.listdir(self.directory), [SOCKET])
        kubelet = self.kubelet()
        self.assertLess(kubelet.wait()[4] - kubelet.started, 2)

    def test_its_socket_is_removed(self):
        kubelet, _, _, _ = self.begin()
        os.unlink(f"{self.directory}/{SOCKET}")
        kubelet.wait(2)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)

    def test_the_directory_is_made_anew(self):
        kubelet, _, _, _ = self.begin()
        kubelet.stop()
        shutil.rmtree(self.directory)
        self.said("cannot open")
        os.mkdir(self.directory)
        self.kubelet().wait()

    def test_a_kubelet_that_refuses_and_one_that_does_not_answer(self):
        def refuse(context):
            if len(calls) < 2:
                calls.append(1)
                context.abort(grpc.StatusCode.UNAVAILABLE, "not \x1b[2J yet")

        calls = []
        kubelet = self.kubelet(answer=refuse)
        self.start()
        kubelet.wait()
        self.said("cannot register rdma-init.io/rails: not ?[2J yet; trying again")
        kubelet.stop()
        silent = self.kubelet(answer=lambda context: time.sleep(3))
        time.sleep(1)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)  # meanwhile it answers
        silent.wait()

    def test_a_kubelet_that_forgets(self):
        kubelet, _, _, watch = self.begin()
        watch.call.cancel()
        kubelet.wait(2)
        self.said("is registered with the kubelet", 2)

    def test_a_kubelet_that_stays_away(self):
        kubelet, _, _, _ = self.begin()
        kubelet.stop()
        left = socket.socket(socket.AF_UNIX)  # as of a kubelet that was killed
        left.bind(self.directory + "/kubelet.sock")
        left.close()
        self.said("cannot register rdma-init.io/rails")

    def test_a_socket_without_a_kubelet(self):
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(self.directory + "/kubelet.sock")
        dead.close()
        self.start()
        self.said("cannot register")
        kubelet = self.kubelet()
        self.assertLess(kubelet.wait()[4] - kubelet.started, 2)

    def test_order_and_half_frames(self):
        kubelet = self.kubelet()
        self.start()
        kubelet.wait()
        endpoint = self.endpoint()
        self.assertEqual(endpoint.allocate(["mlx5_0"]), [([node(0), RDMA_CM], [])])  # before ListAndWatch
        self.assertEqual(endpoint.call("PreStartContainer", b"\x0a\x06mlx5_0"), b"")
        watches = [endpoint.watch() for _ in range(3)]
        for watch in watches:
            self.assertEqual(len(watch.wait_for(bool)), 4)
        watches[0].call.cancel()
        for method, request, code in (("Stop", b"", grpc.StatusCode.UNIMPLEMENTED),
                                      ("Allocate", b"\x0a\xff", grpc.StatusCode.UNIMPLEMENTED),  # gRPC's word for no message
                                      ("GetPreferredAllocation", b"\x0a\x03\x18\xff", grpc.StatusCode.UNIMPLEMENTED),
                                      ("GetPreferredAllocation", b"\x0a\x0b\x18" + b"\xff" * 9 + b"\x01",
                                       grpc.StatusCode.INVALID_ARGUMENT)):
            with self.assertRaises(grpc.RpcError) as caught:
                endpoint.call(method, request)
            self.assertEqual(caught.exception.code(), code, method)
        # Frames of HTTP/2 that are cut short, are none, or never come, beside calls.
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

    def test_a_second_instance_waits(self):
        kubelet, process, _, _ = self.begin()
        self.start()
        self.said("another rdma-device-plugin serves")
        self.assertEqual(len(kubelet.registered), 1)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(20), 0)
        kubelet.wait(2)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)

    def test_without_a_capability(self):
        kubelet = self.kubelet()
        plugin = self.start("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all", "--no-new-privs")
        kubelet.wait()
        self.assertIn("CapEff:\t0000000000000000\n", wrapper.read(f"/proc/{plugin.pid}/status"))
        watch = self.endpoint().watch()
        watch.wait_for(lambda devices: len(devices) == 4)
        self.port(1, "1: DOWN")
        watch.wait_for(lambda devices: not devices["mlx5_1"][0])

    def test_a_full_disk(self):
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=2", "none", self.directory],
                                 capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("needs to mount a tmpfs")
        self.addCleanup(subprocess.run, ["umount", "-l", self.directory], check=True)
        blocking = wrapper.write(self.directory + "/full", "")
        self.start()
        self.said("No space left on device; trying again")
        os.unlink(blocking)
        self.until(self.listens)
        self.endpoint().watch().wait_for(lambda devices: len(devices) == 4)

    def listens(self):
        # A look at why nobody can listen leaves a socket there, for a moment.
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(f"{self.directory}/{SOCKET}") == 0

    def test_a_configuration_that_is_wrong(self):
        self.configure("{")
        kubelet = self.kubelet()
        self.start()
        self.said("no JSON that can be read")
        self.assertEqual(kubelet.registered, [])
        self.configure(EXCLUSIVE)
        kubelet.wait()
        watch = self.endpoint().watch()
        watch.wait_for(lambda devices: len(devices) == 4)
        self.configure({"pools": 1})
        self.said("the configuration before it stays")
        self.port(1, "1: DOWN")
        watch.wait_for(lambda devices: not devices["mlx5_1"][0])

    def test_usage(self):
        for arguments, code, words in ((["--help"], 0, "--plugins DIR"), (["--version"], 0, "rdma-device-plugin "),
                                       (["--what=1"], 2, "unknown option"), (["--plugins", "a"], 2, "absolute path"),
                                       (["--plugins=/" + "a" * 100], 2, "absolute path"), (["x"], 2, "unexpected")):
            done = subprocess.run([PROGRAM, *arguments], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, words in done.stdout + done.stderr), (code, True), done)


class WhatItCosts(DevicePluginCase):
    def resident(self, process):
        return int(wrapper.read(f"/proc/{process.pid}/status").split("VmHWM:")[1].split()[0])

    def test_many_calls(self):
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
        print(f"resident: {self.resident(process)} KiB")
        self.assertLessEqual(self.resident(process), MOST_RESIDENT_KB)


if __name__ == "__main__":
    unittest.main(verbosity=2)
