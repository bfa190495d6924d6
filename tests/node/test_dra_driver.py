"""The driver rdma-dra between a stand-in for the kubelet and one for the API server. The node is a file tree."""
import concurrent.futures
import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import sys
import time

import harness
from harness import children_of, read, status_of, wait_for, write

try:
    import grpc
    import apiserver
    import dra_kubelet
except ImportError:
    print("python3-grpcio is not installed: nothing checked")
    sys.exit(harness.SKIP)

PROGRAM = os.environ.get("TESTED_DRA", "")
MOST_RESIDENT_KB = 16 * 1024  # both processes, without pages that they share
SHARED = {"pools": [{"name": "rails", "modes": ["hca"], "limits": {"hca": 3}}], "device_plugin": {"poll_seconds": 1}}
EXCLUSIVE = {"pools": [{"name": "rails", "modes": ["exclusive"]}], "device_plugin": {"poll_seconds": 1}}
F_OFD_SETLK = 37  # fcntl(2)
UID = "7b1c6f0e-0000-4000-8000-000000000001"
NAMES = [f"mlx5_{at}" for at in range(4)]


def claim(devices, uid=UID, name="train", pods=("pod-1",), driver="rdma-init.io", **more):
    results = [{"request": "hca", "driver": driver, "pool": "n1", "device": device} for device in devices]
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"namespace": "team-a", "name": name, "uid": uid},
            "status": {"allocation": {"devices": {"results": results, **more}},
                       "reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]}}


class DriverCase(harness.TreeCase):
    def setUp(self):
        super().setUp()
        self.configure(EXCLUSIVE)
        self.kubelet_directory = self.work + "/kubelet"
        self.api_directory = self.work + "/api"
        os.mkdir(self.api_directory)

    def configure(self, members):
        """Replaces the file at once, because the driver reads it at any time."""
        os.rename(write(self.work + "/new.json", members), self.config)

    def server(self, **settings):
        self.api = apiserver.ApiServer(self.api_directory, **settings)
        self.addCleanup(self.api.stop)
        self.addCleanup(lambda: self.assertEqual(self.api.faults, []))
        return self.api

    def kubelet(self, version="1.36"):
        kubelet = dra_kubelet.DraKubelet(self.kubelet_directory, version)
        self.addCleanup(kubelet.stop)
        return kubelet

    def start_driver(self, *options, api=None, **settings):
        return self.start_logged([PROGRAM, "--node", "n1", "--kubelet", self.kubelet_directory, "--api", api or self.api.address,
                                  "--credential", self.api_directory, *self.places(), *options],
                                 **{"env": {"PATH": harness.PATH}, **settings})

    def begin(self, minor="36", version="1.36", config=None):
        """Returns (API server, kubelet, process) of a driver that is registered and whose slices are published."""
        if config:
            self.configure(config)
        api, kubelet = self.server(minor=minor), self.kubelet(version)
        process = self.start_driver()
        kubelet.register()
        self.until(api.devices, "slices")
        self.until(lambda: api.watches == 1, "a watch")
        return api, kubelet, process

    def until(self, condition, what="the condition"):
        return wait_for(condition, lambda: f"{what}; the log: {read(self.log)[-4000:]}; requests: {self.api.requests[-8:]}; "
                                           f"faults: {self.api.faults}")

    def port(self, number, state):
        write(f"{self.tree}/sys/class/infiniband/mlx5_{number}/ports/1/state", state + "\n")

    def metrics(self):
        return harness.must([harness.HOOK, "metrics", "--ledger", self.ledger_directory, "--root", self.tree], env={})

    def doctor(self):
        """Returns the findings of the check "ledger"."""
        done = harness.run([harness.HOOK, "doctor", "--json", *self.places()], env={})
        check, = (one for one in json.loads(done.stdout)["checks"] if one["name"] == "ledger")
        return check["findings"]

    def names(self):
        return [device["name"] for device in self.api.devices()]

    def taints(self):
        return [[taint["key"] for taint in device.get("taints", [])] for device in self.api.devices() or []]

    def claims_asked(self):
        return len([request for request in self.api.requests if "/resourceclaims/" in request[2]])

    def add_claim(self, devices, **settings):
        made = claim(devices, **settings)
        key = (made["metadata"]["namespace"], made["metadata"]["name"])
        self.api.claims[key] = made
        return (*key, made["metadata"]["uid"])


class Slices(DriverCase):
    def test_publishes_slices_and_reports_that_it_is_ready(self):
        api, _, _ = self.begin()
        self.assertEqual([device["attributes"]["rdmaDevice"]["string"] for device in api.devices()], NAMES)
        self.assertEqual([write[:1] for write in api.writes()], [("POST",)])
        self.until_probe(PROGRAM, 0, "registered with the kubelet, 4 devices in slices of node n1")
        time.sleep(1.5)
        self.assertEqual(len(api.writes()), 1, "a driver at rest writes nothing")

    def test_makes_slices_again_that_the_kubelet_deleted(self):
        api, _, _ = self.begin()
        for _ in range(3):
            api.delete_all()
            self.until(api.devices, "the slices again")
        self.assertEqual({request[0] for request in api.writes()}, {"POST"})

    def test_follows_the_ports_of_the_node(self):
        api, _, _ = self.begin()
        self.port(2, "1: DOWN")
        self.until(lambda: self.taints() == [[], [], ["rdma-init.io/link-down"], []], "a taint")
        self.port(2, "4: ACTIVE")
        self.until(lambda: self.taints() == [[], [], [], []], "no taint")
        self.assertEqual([request[0] for request in api.writes()], ["POST", "PUT", "PUT"])

    def test_leaves_hca_out_where_taints_do_not_exist(self):
        api, _, _ = self.begin(minor="35+")
        api.drops.update(("taints", "allowMultipleAllocations"))
        self.port(2, "1: DOWN")
        self.until(lambda: len(api.devices() or []) == 3, "three devices")
        for number in range(4):
            self.port(number, "1: DOWN")
        self.until(lambda: api.devices() == [], "no devices")
        self.until_probe(PROGRAM, 0, "0 devices in slices of node n1; 4 HCAs are left out: see the log")

    def test_notices_features_that_the_api_server_drops(self):
        self.configure(SHARED)
        api = self.server()
        api.drops.update(("taints", "allowMultipleAllocations"))
        self.start_driver()
        self.wait_for_log("has dropped ")
        self.wait_for_log("and then restart rdma-dra")
        self.until(lambda: api.devices() == [], "an empty slice")
        writes = len(api.writes())
        time.sleep(1.5)
        self.assertEqual(len(api.writes()), writes, "no loop of writes")

    def test_publishes_shared_hcas(self):
        api, _, _ = self.begin(config=SHARED)
        shares = api.devices()[0]["capacity"]["shares"]
        self.assertEqual(shares, {"value": "3", "requestPolicy": {"default": "1", "validValues": ["1"]}})

    def test_publishes_a_number_as_the_api_server_stores_it(self):
        api, _, _ = self.begin(config={**SHARED, "pools": [{"name": "rails", "modes": ["hca"], "limits": {"hca": 2000}}]})
        time.sleep(1.5)
        self.assertEqual({device["capacity"]["shares"]["value"] for device in api.devices()}, {"2k"})
        self.assertEqual([request[:1] for request in api.writes()], [("POST",)])

    def test_works_beside_other_writers(self):
        api, _, _ = self.begin()
        mine = next(iter(api.slices.values()))
        other = {**mine, "metadata": {**mine["metadata"], "name": "other"},
                 "spec": {**mine["spec"], "pool": {**mine["spec"]["pool"], "generation": 9}}}
        api.put_slice(other)
        self.until(lambda: "other" not in api.slices and api.devices(), "the other slice is gone")
        self.until(lambda: [each["spec"]["pool"]["generation"] for each in api.slices.values()] == [10], "a newer generation")
        foreign = {**other, "metadata": {"name": "foreign"}, "spec": {**other["spec"], "nodeName": "n2"}}
        api.put_slice(foreign)
        api.cut()
        self.until(lambda: api.watches == 1 and api.requests[-1][1] == "WATCH", "a new watch")
        self.assertIn("foreign", api.slices, "a slice of another node")
        del api.slices["foreign"]

    def test_gives_way_to_a_writer_that_insists(self):
        """As another version of the driver that publishes other attributes, during a rolling update."""
        api, _, _ = self.begin()
        end = time.monotonic() + 6
        while time.monotonic() < end:
            mine, = api.slices.values()
            first = mine["spec"]["devices"][0]["attributes"]
            if "other" not in first:
                first = {**first, "other": {"bool": True}}
                api.put_slice({**mine, "spec": {**mine["spec"], "devices": [{**mine["spec"]["devices"][0], "attributes": first},
                                                                          *mine["spec"]["devices"][1:]]}})
            time.sleep(0.01)
        self.assertLess(len(api.writes()), 8, "a pause that grows")
        self.until(lambda: "other" not in api.devices()[0]["attributes"], "the driver's own slice in the end")

    def test_tries_again_after_conflict(self):
        api, _, _ = self.begin()
        api.answers.append((lambda method, _: method == "PUT", 409, {}))
        self.port(1, "1: DOWN")
        self.until(lambda: self.taints() == [[], ["rdma-init.io/link-down"], [], []], "a taint")

    def test_waits_as_long_as_the_api_server_demands(self):
        api = self.server()
        api.answers.append((lambda method, _: method == "POST", 429, {"Retry-After": "2"}))
        self.start_driver()
        self.until(api.devices, "slices")
        posts = [request[0] for request in api.requests if request[1] == "POST"]
        self.assertGreaterEqual(posts[1] - posts[0], 2)

    def test_names_answer_and_remedy_of_refused_slices(self):
        api = self.server()
        api.answers.append((lambda _, path: "/nodes/" in path, 403, {}, 'nodes "n1" is forbidden'))
        kubelet = self.kubelet()
        self.start_driver()
        kubelet.register()
        self.wait_for_log('the slices are not published: node n1: the API server answers 403: nodes "n1" is forbidden; remedy: apply '
                          "the component `dra` of config/kubernetes, or set the chart's value `dra`")
        self.until_probe(PROGRAM, 1, 'nodes "n1" is forbidden; remedy: apply the component `dra`')

    def test_names_the_remedy_where_the_node_does_not_exist(self):
        api = self.server()
        del api.nodes["n1"]
        self.start_driver()
        self.wait_for_log('nodes "n1" not found; remedy: pass --node or NODE_NAME as `kubectl get nodes` prints it')

    def test_names_the_remedy_where_the_group_is_off(self):
        api = self.server()
        api.answers.append((lambda _, path: path.startswith(apiserver.SLICES), 404, {}, "404 page not found"))
        self.start_driver()
        self.wait_for_log("404 page not found; remedy: turn on resource.k8s.io/v1")

    def test_names_the_remedy_where_the_policy_refuses(self):
        policy = read(harness.SOURCE + "/config/kubernetes/components/dra/policy.yaml")
        messages = re.findall(r"^ +message: (.*)$", policy, re.M)
        self.assertEqual([message.startswith("rdma-dra writes only") for message in messages], [True, True])
        api = self.server()
        api.answers.append((lambda method, _: method == "POST", 422, {}, "denied request: " + messages[0]))
        self.start_driver()
        self.wait_for_log(messages[0] + "; remedy: the token must be bound to a pod of this node")

    def test_lists_again_when_history_is_gone_and_after_a_cut(self):
        api, _, _ = self.begin()
        for _ in range(2):
            api.forget()
            api.cut()
            self.until(lambda: api.watches == 1, "a new watch")
            api.delete_all()
            self.until(api.devices, "the slices again")

    def test_reads_the_token_again(self):
        api, _, _ = self.begin()
        api.rotate()
        self.port(0, "1: DOWN")
        self.until(lambda: self.taints() == [["rdma-init.io/link-down"], [], [], []], "a taint")
        self.assertIn(401, [request[3] for request in api.requests])

    def test_makes_slices_of_node_that_was_made_again(self):
        api, _, _ = self.begin()
        api.nodes["n1"]["metadata"]["uid"] = "node-uid-2"
        api.delete_all()
        self.until(api.devices, "slices of the new node")
        self.assertEqual(next(iter(api.slices.values()))["metadata"]["ownerReferences"][0]["uid"], "node-uid-2")

    def test_refuses_server_with_another_ca(self):
        api = self.server()
        other = self.work + "/other"
        os.mkdir(other)
        apiserver.make_certificates(other)
        os.rename(other + "/ca.crt", self.api_directory + "/ca.crt")
        self.kubelet()
        self.start_driver()
        self.wait_for_log("certificate is refused")
        self.assertEqual(api.requests, [], "no token was sent")
        self.until_probe(PROGRAM, 1, "")

    def test_refuses_certificate_of_another_address(self):
        api = self.server(certified="127.0.0.9")
        self.kubelet()
        self.start_driver()
        self.wait_for_log("certificate is refused: IP address mismatch")
        self.assertEqual(api.requests, [])


class Claims(DriverCase):
    def test_prepares_and_unprepares(self):
        _, kubelet, _ = self.begin()
        names = self.names()
        key = self.add_claim([names[1], names[3]])
        first = kubelet.prepare(key)
        self.assertEqual([(device[0], device[1], device[2]) for device in first[UID]],
                         [(["hca"], "n1", names[1]), (["hca"], "n1", names[3])])
        for device in first[UID]:
            self.assertTrue(all(name.startswith("rdma-init.io/claim=") for name in device[3]) and device[3], device)
        self.assertEqual(kubelet.prepare(key), first, "a repeated call has the same answer")
        files = os.listdir(self.tree + "/var/run/cdi")
        self.assertEqual(len(files), 1)
        os.unlink(f"{self.tree}/var/run/cdi/{files[0]}")
        self.assertEqual(kubelet.prepare(key), first)
        self.assertEqual(os.listdir(self.tree + "/var/run/cdi"), files, "the file is written at each call")
        self.wait_for_log(f"prepared claim=team-a/train uid={UID}")
        metrics = self.metrics()
        self.assertIn("rdma_hook_claims 1\n", metrics)
        self.assertIn('rdma_hook_stage_duration_microseconds_count{result="done",stage="prepare"} 3\n', metrics)
        self.assertEqual(kubelet.unprepare(key), {UID: ""})
        self.assertEqual(os.listdir(self.tree + "/var/run/cdi"), [])
        self.assertNotIn("rdma_hook_claims", self.metrics())
        self.assertEqual(kubelet.unprepare(key, ("team-a", "never", "unknown-uid")), {UID: "", "unknown-uid": ""})

    def test_answers_each_claim_of_a_call(self):
        _, kubelet, _ = self.begin()
        names = self.names()
        good = self.add_claim([names[0]])
        gpu = self.add_claim(["gpu-0"], uid="u-gpu", name="gpu", driver="gpu.nvidia.com")
        wrong = self.add_claim(["pci-0000-ff-00-0"], uid="u-wrong", name="wrong")
        other = ("team-a", "train", "u-other")
        answers = kubelet.prepare(good, gpu, wrong, other, ("team-a", "missing", "u-missing"), ("../x", "y", "z"))
        self.assertEqual(len(answers[UID]), 1)
        self.assertEqual(answers["u-gpu"], [])
        self.assertIn("no device pci-0000-ff-00-0", answers["u-wrong"])
        self.assertIn("UID", answers["u-other"])
        self.assertIn("not found", answers["u-missing"])
        self.assertIn("is not the name of a claim", answers["z"])
        self.until(lambda: len(self.api.cluster_events) == 3, "an event for each claim with a name")
        self.assertEqual({event["involvedObject"]["name"] for event in self.api.cluster_events}, {"wrong", "train", "missing"})

    def test_waits_for_an_api_server_that_fails(self):
        api, kubelet, _ = self.begin()
        key = self.add_claim([self.names()[0]])
        for status in (500, 503, 429):
            api.answers.append((lambda method, path: "resourceclaims" in path, status, {}))
        self.assertEqual(len(kubelet.prepare(key)[UID]), 1)

    def test_names_answer_and_remedy_of_a_refused_claim(self):
        api, kubelet, _ = self.begin()
        key = self.add_claim([self.names()[0]])
        api.answers.append((lambda _, path: "resourceclaims" in path, 403, {}, 'claims "x" is forbidden;\x1b[31m `rm`'))
        answer = kubelet.prepare(key)[UID]
        self.assertIn("""403: claims "x" is forbidden,?[31m 'rm'; remedy: apply the component `dra` of config/kubernetes""", answer)
        self.wait_for_log('403: claims \\"x\\" is forbidden')

    def test_refuses_wrong_parameters_of_a_claim(self):
        api, kubelet, _ = self.begin()
        parameters = {"apiVersion": "rdma-init.io/v1alpha1", "kind": "HcaParameters", "mode": "exclusiv"}
        key = self.add_claim([self.names()[0]], config=[{"source": "FromClaim", "requests": ["hca"],
                                                         "opaque": {"driver": "rdma-init.io", "parameters": parameters}}])
        answer = kubelet.prepare(key)[UID]
        self.assertRegex(answer, "claim team-a/train: .*`exclusiv`.*; remedy: correct the ResourceClaimTemplate or its DeviceClass")
        self.until(lambda: api.cluster_events, "an event")
        self.assertEqual(api.cluster_events[0]["reason"], "Refused")

    def test_prepares_claims_of_many_pods_at_once(self):
        _, kubelet, _ = self.begin()
        names = self.names()
        keys = [self.add_claim([names[at % 4]], uid=f"u-{at}", name=f"claim-{at}") for at in range(4)]
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            for key, answer in zip(keys, pool.map(kubelet.prepare, keys)):
                self.assertEqual(len(answer[key[2]]), 1, answer)
            for answer in pool.map(kubelet.unprepare, keys):
                self.assertEqual(list(answer.values()), [""])

    def test_prepares_claims_again_after_a_boot(self):
        """A boot empties the ledger and /var/run/cdi. The kubelet keeps its claims, prepares those of pods that start again, and ends all."""
        _, kubelet, process = self.begin()
        keys = [self.add_claim([name], uid=f"u-{name}", name=name) for name in self.names()[:2]]
        before = kubelet.prepare(*keys)
        process.kill()
        process.wait(30)
        kubelet.stop()
        for directory in (self.ledger_directory, self.tree + "/var/run/cdi"):
            shutil.rmtree(directory)
        self.start_driver()
        self.wait_for_log("no process listens there", 2)
        kubelet.register()
        self.assertEqual(kubelet.prepare(keys[0]), {keys[0][2]: before[keys[0][2]]})
        self.assertEqual(len(os.listdir(self.tree + "/var/run/cdi")), 1)
        self.assertEqual(kubelet.unprepare(*keys), {key[2]: "" for key in keys})
        self.assertEqual(os.listdir(self.tree + "/var/run/cdi"), [])

    def test_refuses_a_claim_of_any_size(self):
        api, kubelet, process = self.begin()
        key = self.add_claim([self.names()[0]])
        long = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (5 << 20) + b" " * (5 << 20)
        api.raw.append((lambda _, path: "resourceclaims" in path, lambda send: send(long)))
        self.assertIn("the claim has more than 2 MiB: the API server stores at most 1.5 MiB", kubelet.prepare(key)[UID])
        api.raw.clear()
        self.assertEqual(len(kubelet.prepare(key)[UID]), 1)

    def test_ends_answers_that_do_not_end(self):
        api, kubelet, process = self.begin()
        key = self.add_claim([self.names()[0]])
        for first, part in ((b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
                            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"A: b\r\n")):
            def send(write, first=first, part=part):
                write(first)
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    write(part * 500)
            api.raw.append((lambda _, path: "resourceclaims" in path, send))
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                waits = pool.submit(kubelet.prepare, key)
                self.until(lambda: api.requests[-1][3] == 0, "the endless answer")
                api.raw.clear()
                self.assertEqual(len(waits.result()[UID]), 1)
            kubelet.unprepare(key)

    def test_makes_no_request_for_calls_that_have_ended(self):
        api, kubelet, _ = self.begin()
        name = self.names()[0]
        keys = [self.add_claim([name], uid=f"u-{at}", name=f"c-{at}") for at in range(6)]
        api.raw.append((lambda _, path: "resourceclaims" in path, lambda send: time.sleep(60)))
        self.assertFalse(any(isinstance(answer, list) for answer in kubelet.prepare(*keys).values()), "no claim can be read")
        api.raw.clear()
        asked = self.claims_asked()
        self.assertEqual(len(kubelet.prepare(self.add_claim([name], uid="u-new", name="new"))["u-new"]), 1)
        self.assertEqual(self.claims_asked() - asked, 1)

    def test_waits_for_a_slow_api_server(self):
        api, kubelet, _ = self.begin()
        health = kubelet.watch_health()
        names = self.names()
        keys = [self.add_claim([name], uid=f"u-{name}", name=name) for name in names[:3]]
        api.delay = 1
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            waits = pool.submit(kubelet.prepare, *keys)
            self.port(3, "1: DOWN")
            health.wait_for(lambda devices: devices[names[3]][0] == 2)
            self.assertEqual({len(devices) for devices in waits.result().values()}, {1})
        self.until(lambda: self.taints()[3] == ["rdma-init.io/link-down"], "a taint")

    def begin_with_lock_files(self):
        """Returns the kubelet, the names of the devices, the list of healthy devices, and a claim for the first device, of whose locks the
        ledger has the files."""
        _, kubelet, _ = self.begin()
        names = self.names()
        health = kubelet.watch_health()
        claim = self.add_claim([names[0]], uid="u-held", name="held")
        kubelet.prepare(claim)
        kubelet.unprepare(claim)
        return kubelet, names, health, claim

    def test_goes_on_while_a_claim_waits_for_a_lock(self):
        """Another process has the lock of an HCA. Other claims and the list of healthy devices do not wait for it."""
        kubelet, names, health, held = self.begin_with_lock_files()
        directory, = os.listdir(self.ledger_directory + "/hca")
        times = []
        with concurrent.futures.ThreadPoolExecutor(1) as pool, open(f"{self.ledger_directory}/hca/{directory}/lock", "rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            waits = pool.submit(kubelet.prepare, held)
            self.port(3, "1: DOWN")
            for at in range(20):
                begin = time.monotonic()
                key = self.add_claim([names[1 + at % 2]], uid=f"u-{at}", name=f"claim-{at}")
                self.assertEqual(len(kubelet.prepare(key)[key[2]]), 1)
                self.assertEqual(kubelet.unprepare(key), {key[2]: ""})
                times.append(time.monotonic() - begin)
            health.wait_for(lambda devices: devices[names[3]][0] == 2)
            self.assertFalse(waits.done(), "the claim got an HCA whose lock another process has")
            fcntl.flock(lock, fcntl.LOCK_UN)
            self.assertEqual(len(waits.result()["u-held"]), 1)
        print(f"Prepare and Unprepare beside a waiting claim: {max(times) * 1000:.0f} ms at most", file=sys.stderr)

    def test_goes_on_while_a_claim_waits_for_the_lock_of_a_grant(self):
        """As while the release of a pod's grant waits for its IPAM plugin."""
        kubelet, names, health, held = self.begin_with_lock_files()
        with concurrent.futures.ThreadPoolExecutor(1) as pool, open(f"{self.ledger_directory}/lock", "r+b") as lock:
            fcntl.fcntl(lock, F_OFD_SETLK, struct.pack("hhqqi", fcntl.F_WRLCK, 0, 0, 0, 0))
            waits = pool.submit(kubelet.prepare, held)
            for state, number in (("1: DOWN", 2), ("4: ACTIVE", 1), ("1: DOWN", 2)):
                begin = time.monotonic()
                self.port(3, state)
                health.wait_for(lambda devices, number=number: devices[names[3]][0] == number)
                self.assertLess(time.monotonic() - begin, 5)
            self.assertFalse(waits.done(), "the claim was booked without the lock")
        self.assertEqual(len(waits.result()["u-held"]), 1)

    def test_doctor_finds_claims_without_driver_and_without_file(self):
        _, kubelet, process = self.begin()
        kubelet.prepare(self.add_claim([self.names()[0]]))
        self.until_probe(PROGRAM, 0, "")
        self.assertEqual(self.doctor(), [])
        name, = os.listdir(self.tree + "/var/run/cdi")
        os.unlink(f"{self.tree}/var/run/cdi/{name}")
        process.terminate()
        process.wait(30)
        self.wait_for_log("claims stay prepared: team-a/train; their pods")
        messages = [finding["message"] for finding in self.doctor()]
        self.assertTrue(any(f"{name}` is missing" in message for message in messages), messages)
        self.assertTrue(any("rdma-dra is not ready" in message for message in messages), messages)


class Kubelets(DriverCase):
    def test_registers_with_each_version(self):
        api, kubelet, process = self.begin()
        self.assertEqual(kubelet.info[3], ["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"])
        for version in ("1.34", "1.37"):
            again = self.kubelet(version)
            again.register()
            health = again.watch_health()
            self.assertEqual(set(health.wait_for(lambda devices: devices)), set(self.names()))

    def test_reports_health(self):
        _, kubelet, _ = self.begin()
        health = kubelet.watch_health()
        names = self.names()
        self.assertEqual(health.wait_for(lambda devices: devices), {name: (1, "") for name in names})
        self.port(3, "1: DOWN")
        health.wait_for(lambda devices: devices[names[3]][0] == 2 and "mlx5_3" in devices[names[3]][1])

    def test_makes_its_sockets_again(self):
        _, kubelet, _ = self.begin()
        sockets = kubelet.sockets()
        for socket in (*sockets, kubelet.info[2]):
            with contextlib.suppress(FileNotFoundError):  # the driver removes the second one itself if it sees the first removal
                os.unlink(socket)
        wait_for(lambda: kubelet.sockets() == sockets and os.path.exists(kubelet.info[2]), "the sockets again")
        kubelet.stop()
        kubelet.register()

    def test_removes_its_sockets_and_keeps_its_slices_at_its_end(self):
        api, kubelet, process = self.begin()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(30), 0)
        self.assertEqual((kubelet.sockets(), os.path.exists(kubelet.info[2])), ([], False))
        self.assertEqual(len(api.devices()), 4)
        self.start_driver()
        kubelet.stop()
        kubelet.register()
        self.until(lambda: api.watches == 1, "a watch")
        self.assertEqual(len(api.writes()), 1, "a driver that starts again changes nothing")

    def test_runs_beside_another_version(self):
        _, kubelet, _ = self.begin()
        self.start_driver(env={"PATH": harness.PATH, "POD_UID": "1111-2222"})
        wait_for(lambda: len(kubelet.sockets()) == 2, "a second socket")
        second = self.kubelet()
        names = [os.path.basename(socket) for socket in kubelet.sockets()]
        self.assertEqual(names, ["rdma-init.io-1111-2222-reg.sock", "rdma-init.io-reg.sock"])
        kubelet.prepare(self.add_claim([self.names()[0]]))
        second.register()
        self.assertEqual(second.unprepare(("team-a", "train", UID)), {UID: ""})

    def test_removes_the_sockets_of_killed_drivers(self):
        _, kubelet, _ = self.begin()
        killed = self.start_driver(env={"PATH": harness.PATH, "POD_UID": "1111-2222"})
        wait_for(lambda: len(kubelet.sockets()) == 2, "a second socket")
        plugins = self.kubelet_directory + "/plugins/rdma-init.io"
        wait_for(lambda: sorted(os.listdir(plugins)) == ["dra-1111-2222.sock", "dra.sock"], "both sockets for claims")
        killed.kill()
        killed.wait()
        self.start_driver(env={"PATH": harness.PATH, "POD_UID": "3333"})
        names = ["rdma-init.io-3333-reg.sock", "rdma-init.io-reg.sock"]
        wait_for(lambda: [os.path.basename(socket) for socket in kubelet.sockets()] == names, lambda: kubelet.sockets())
        self.assertEqual(sorted(name for name in os.listdir(plugins) if name.endswith(".sock")), ["dra-3333.sock", "dra.sock"])
        kubelet.prepare(self.add_claim([self.names()[0]]))

    def test_stays_while_the_node_changes_and_the_api_server_is_slow(self):
        """Each change of a port gives other slices, which are more than a socket holds after a few changes."""
        self.make_tree(64)
        api, _, process = self.begin()
        api.delay = 7
        for at in range(40):
            self.port(0, "1: DOWN" if at % 2 == 0 else "4: ACTIVE")
            time.sleep(0.7)
            self.assertIsNone(process.poll(), read(self.log)[-400:])
        api.delay = 0
        self.port(0, "1: DOWN")
        self.until(lambda: self.taints()[0] == ["rdma-init.io/link-down"], "a taint")

    def test_waits_for_another_driver_with_its_sockets(self):
        _, kubelet, first = self.begin()
        second = self.start_driver()
        self.wait_for_log("another process listens at")
        self.assertIsNone(second.poll())
        kubelet.prepare(self.add_claim([self.names()[0]]))
        first.terminate()
        self.assertEqual(first.wait(30), 0)
        wait_for(kubelet.sockets, "the socket of the second driver")
        kubelet.stop()
        kubelet.register()
        self.assertEqual(kubelet.unprepare(("team-a", "train", UID)), {UID: ""})

    def test_waits_for_the_kubelet_and_the_api_server(self):
        listener, address = apiserver.black_hole()
        self.addCleanup(listener.close)
        self.server()
        process = self.start_driver(api=address)
        self.wait_for_log("the kubelet has no directory")
        self.wait_for_log("the slices are not published")
        self.kubelet().register()
        self.until_probe(PROGRAM, 1, "API server")
        self.assertIsNone(process.poll())


class Processes(DriverCase):
    def test_takes_bounded_memory_for_a_hostile_list(self):
        """The component dra limits the memory of both processes to 96 MiB."""
        api, _, process = self.begin()
        child, = children_of(process.pid)
        slice_ = {**next(iter(api.slices.values())), "junk": [{"a": 0}] * 250000}
        body = json.dumps({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "metadata": {"resourceVersion": "5"},
                           "items": [slice_]}).encode().ljust(16 << 20)
        answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        api.raw.append((lambda method, path: "watch" not in path and "resourceslices" in path, lambda send: send(answer)))
        api.cut()
        self.wait_for_log("the slices are not published")
        self.assertLess(int(status_of(child)["VmHWM"].split()[0]), 64 << 10)

    def test_process_for_the_api_server_has_no_rights(self):
        _, _, process = self.begin()
        child, = children_of(process.pid)
        status = status_of(child)
        self.assertEqual(status["Seccomp"], "2")
        self.assertEqual(status["CapEff"].strip("0"), "")
        self.assertEqual(status["CapPrm"].strip("0"), "")
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(status["Uid"].split()[0], "65526")
        self.assertEqual(status_of(process.pid)["Uid"].split()[0], "0")
        os.kill(child, signal.SIGKILL)
        self.assertEqual(process.wait(30), 1)
        self.wait_for_log("the process that talks to the API server has ended")

    def test_takes_little_memory(self):
        self.make_tree(8)
        _, kubelet, process = self.begin()
        kubelet.watch_health().wait_for(lambda devices: devices)
        total = 0
        for pid in (process.pid, *children_of(process.pid)):
            sums = {line.split(":")[0]: int(line.split()[1]) for line in read(f"/proc/{pid}/smaps_rollup").splitlines()[1:]}
            print(f"{pid}: Rss {status_of(pid)['VmRSS'].strip()}, Pss {sums['Pss']} kB", file=sys.stderr)
            total += sums["Pss"]
        self.assertLess(total, MOST_RESIDENT_KB)


if __name__ == "__main__":
    harness.main(PROGRAM, harness.MAKE_TREE)
