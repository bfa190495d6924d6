"""The kubelet's side of Dynamic Resource Allocation (Kubernetes 1.34 to 1.37), by the numbers of its messages, over grpcio: it finds
registration sockets as the plugin watcher does, registers the driver, and calls it as the DRA manager does."""
import os
import sys
import threading
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "vm", "guest"))
from protobuf_wire import every, first, number, text  # noqa: E402

AS_IT_IS = bytes
# Labels of a driver's list that a kubelet of a version knows.
KNOWN = {"1.34": ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"),
         "1.36": ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"),
         "1.37": ("v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth")}


def channel_to(path):
    """Connects as a kubelet does, which tries for 10 s: a socket exists before its program listens there."""
    channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1),
                                                             ("grpc.initial_reconnect_backoff_ms", 100)])
    grpc.channel_ready_future(channel).result(10)
    return channel


class DraKubelet:
    """directory: stands for /var/lib/kubelet."""

    def __init__(self, directory, version="1.36"):
        self.directory = directory
        self.version = version
        self.registry = directory + "/plugins_registry"
        os.makedirs(self.registry, exist_ok=True)
        self.channels = []
        self.info = None

    def sockets(self):
        """Returns the sockets that the plugin watcher takes: it ignores names that begin with a dot."""
        return sorted(f"{self.registry}/{name}" for name in os.listdir(self.registry) if not name.startswith("."))

    def register(self, seconds=30):
        """Waits for a registration socket and registers its driver. Returns (type, name, endpoint, versions)."""
        end = time.monotonic() + seconds
        while not self.sockets():
            if time.monotonic() > end:
                raise TimeoutError("no registration socket")
            time.sleep(0.01)
        channel = channel_to(self.sockets()[-1])
        self.channels.append(channel)
        answer = self.call(channel, "/pluginregistration.Registration/GetInfo", b"", timeout=1)
        self.info = (first(answer, 1).decode(), first(answer, 2).decode(), first(answer, 3).decode(),
                     [label.decode() for label in every(answer, 4)])
        kind, name, endpoint, labels = self.info
        assert kind == "DRAPlugin" and name == "rdma-init.io", self.info
        assert os.path.isabs(endpoint) and len(endpoint) <= 107, endpoint
        known = [label for label in labels if label in KNOWN[self.version]]
        assert [label for label in known if label.endswith("DRAPlugin")][0] == "v1.DRAPlugin", labels
        self.service = channel_to(endpoint)
        self.channels.append(self.service)
        health = [label for label in known if label.endswith("DRAResourceHealth")]
        self.health_path = "/" + (health[0] if health else "none") + "/NodeWatchResources"
        self.notify(number(1, 1))
        return self.info

    def notify(self, status):
        assert self.call(self.channels[0], "/pluginregistration.Registration/NotifyRegistrationStatus", status, timeout=5) == b""

    @staticmethod
    def call(channel, method, request, timeout=45):
        return channel.unary_unary(method, request_serializer=AS_IT_IS, response_deserializer=AS_IT_IS)(request, timeout=timeout)

    def claims_call(self, method, claims, timeout=45):
        request = b"".join(text(1, text(1, space) + text(2, uid) + text(3, name)) for space, name, uid in claims)
        answer = self.call(self.service, f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}", request, timeout)
        entries = {first(entry, 1).decode(): first(entry, 2) for entry in every(answer, 1)}
        assert set(entries) == {uid for _, _, uid in claims}, f"the kubelet demands each UID: {sorted(entries)}"
        return entries

    def prepare(self, *claims, timeout=45):
        """Returns for each UID the error as text, or the devices: (request names, pool, device, CDI names, share)."""
        def devices_of(entry):
            if error := first(entry, 2):
                return error.decode()
            return [([each.decode() for each in every(device, 1)], first(device, 2).decode(), first(device, 3).decode(),
                     [each.decode() for each in every(device, 4)], first(device, 5).decode()) for device in every(entry, 1)]

        return {uid: devices_of(entry) for uid, entry in self.claims_call("NodePrepareResources", claims, timeout).items()}

    def unprepare(self, *claims, timeout=45):
        """Returns the error of each UID, empty for success."""
        return {uid: first(entry, 1).decode() for uid, entry in self.claims_call("NodeUnprepareResources", claims, timeout).items()}

    def watch_health(self):
        return Health(self.service, self.health_path)

    def stop(self):
        for channel in self.channels:
            channel.close()
        self.channels.clear()


class Health:
    """A stream of health lists: {device: (health, message)}. A list that is older than 30 s counts as unknown."""

    def __init__(self, channel, path):
        self.lists = []
        self.changed = threading.Condition()
        self.call = channel.unary_stream(path, request_serializer=AS_IT_IS, response_deserializer=AS_IT_IS)(b"")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for answer in self.call:
                devices = {}
                for device in every(answer, 1):
                    assert first(first(device, 1), 1), "a pool"
                    assert abs(first(device, 3, 0) - time.time()) < 60, "the time of the list"
                    devices[first(first(device, 1), 2).decode()] = (first(device, 2, 0), first(device, 5).decode())
                with self.changed:
                    self.lists.append(devices)
                    self.changed.notify_all()
        except grpc.RpcError:
            pass

    def wait_for(self, wanted, seconds=30):
        with self.changed:
            if not self.changed.wait_for(lambda: self.lists and wanted(self.lists[-1]), seconds):
                raise TimeoutError(f"the last of {len(self.lists)} lists: {self.lists[-1:]}")
            return self.lists[-1]
