"""The runtime's side of NRI, by the numbers of its protocol (containerd/nri 0.6.1 to 0.12.2): multiplexer and ttrpc. It calls the
plugin under test on machines without containerd."""
import os
import socket
import struct
import sys
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "vm", "guest"))
from protobuf_wire import every, first, number, text, texts  # noqa: E402

PLUGIN, RUNTIME = 1, 2  # logical connections
REQUEST, RESPONSE = 1, 2
EVENTS = {"RunPodSandbox": 1, "StopPodSandbox": 2, "RemovePodSandbox": 3, "CreateContainer": 4, "StopContainer": 10,
          "RemoveContainer": 11}


def decoded(data):
    return data.decode()


def pod(id, annotations=None, netns=None, namespace="team-a", name="train"):
    linux = text(5, text(1, "network") + text(2, netns)) if netns else b""
    return (text(1, id) + text(2, name) + text(3, "uid-" + id) + text(4, namespace) + texts(6, annotations or {}) +
            text(7, "runc") + text(8, linux) + number(9, 1))


def container(id, pod_id, name=None, annotations=None, devices=(), env=(), sysfs=True, state=1, rlimits=(),
              network=True):
    linux = text(1, text(1, "network") + text(2, "/proc/1/ns/net")) if network else b""
    for path, major, minor in devices:
        linux += text(2, text(1, path) + text(2, "c") + number(3, major) + number(4, minor))
    mounts = text(9, text(1, "/sys") + text(2, "sysfs") + text(3, "sysfs") + text(4, "ro")) if sysfs else b""
    limits = b"".join(text(13, text(1, type) + number(2, hard) + number(3, soft)) for type, hard, soft in rlimits)
    return (text(1, id) + text(2, pod_id) + text(3, name or id) + number(4, state) + texts(6, annotations or {}) +
            b"".join(text(8, entry) for entry in env) + mounts + text(11, linux) + limits)


def adjustment(data):
    """Returns a ContainerAdjustment as a dictionary."""
    strings = lambda items: {decoded(first(item, 1)): decoded(first(item, 2)) for item in items}
    result = {"annotations": strings(every(data, 2)), "env": strings(every(data, 4)), "devices": {}, "rlimits": {},
              "mounts": {}}
    for mount in every(data, 3):
        result["mounts"][decoded(first(mount, 1))] = decoded(first(mount, 3))
    for device in every(first(data, 6), 1):
        result["devices"][decoded(first(device, 1))] = (first(device, 3, 0), first(device, 4, 0))
    for limit in every(data, 7):
        result["rlimits"][decoded(first(limit, 1))] = (first(limit, 2, 0), first(limit, 3, 0))
    return result


class StatusError(Exception):
    """The plugin answered with an error: creation fails."""


class Connection:
    """The connection of one plugin. Sends one request of the runtime at a time; a thread answers requests of the plugin."""

    def __init__(self, connected):
        self.socket = connected
        self.stream = 1
        self.streams = {PLUGIN: b"", RUNTIME: b""}  # received part of the next message of each
        self.answers = {}
        self.registered = None
        self.evicted = []
        self.ended = False
        self.changed = threading.Condition()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def receive(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def send(self, connection, stream, type, data):
        header = struct.pack(">IIBB", len(data), stream, type, 0)
        # As Go: bytes beyond the reader's 4096 follow in a second frame.
        message = header + data
        for piece in filter(None, (message[:4096], message[4096:])):
            self.socket.sendall(struct.pack(">II", connection, len(piece)) + piece)

    def read(self):
        try:
            while True:
                self.read_frame()
        except (EOFError, OSError):
            with self.changed:
                self.ended = True
                self.changed.notify_all()

    def read_frame(self):
        connection, size = struct.unpack(">II", self.receive(8))
        assert size > 0, "empty frame"
        data = self.streams[connection] + self.receive(size)
        while len(data) >= 10:
            length, stream, type, _ = struct.unpack(">IIBB", data[:10])
            if len(data) < 10 + length:
                break
            self.take(connection, stream, type, data[10:10 + length])
            data = data[10 + length:]
        self.streams[connection] = data

    def take(self, connection, stream, type, data):
        with self.changed:
            if connection == PLUGIN and type == RESPONSE:
                self.answers[stream] = data
            elif connection == RUNTIME and type == REQUEST:
                method, payload = decoded(first(data, 2)), first(data, 3)
                if method == "RegisterPlugin":
                    self.registered = (decoded(first(payload, 2)), decoded(first(payload, 1)))
                elif method == "UpdateContainers":
                    self.evicted += [decoded(first(item, 1)) for item in every(payload, 2)]
                self.send(RUNTIME, stream, RESPONSE, b"")
            self.changed.notify_all()

    def wait(self, condition, seconds=30):
        with self.changed:
            if not self.changed.wait_for(lambda: condition() or self.ended, seconds):
                raise TimeoutError
            if not condition():
                raise EOFError

    def request(self, method, payload, seconds=30):
        stream = self.stream
        self.stream += 2
        request = text(1, "nri.pkg.api.v1alpha1.Plugin") + text(2, method) + text(3, payload) + number(4, 1999000000)
        self.send(PLUGIN, stream, REQUEST, request)
        self.wait(lambda: stream in self.answers, seconds)
        answer = self.answers.pop(stream)
        status = first(answer, 1)
        if first(status, 1, 0):
            raise StatusError(decoded(first(status, 2)))
        return first(answer, 2)

    def introduce(self, pods=(), containers=(), name="containerd", timeout_ms=0, parts=1, nri_version=""):
        """Runs all steps before the first request. Returns the event mask of the plugin."""
        self.wait(lambda: self.registered)
        config = text(2, name) + text(3, "v2.1.9") + (number(5, timeout_ms) if timeout_ms else b"") + text(6, nri_version)
        mask = first(self.request("Configure", config), 2, 0)
        self.synchronize(pods, containers, parts)
        return mask

    def synchronize(self, pods=(), containers=(), parts=1):
        for part in range(parts):
            more = part + 1 < parts
            payload = b"".join(text(1, each) for each in pods[part::parts])
            payload += b"".join(text(2, each) for each in containers[part::parts])
            answer = self.request("Synchronize", payload + (number(3, 1) if more else b""))
            assert bool(first(answer, 2, 0)) == more

    def event(self, method, pod_data, container_data=b"", dedicated=True):
        payload = text(1, pod_data) + (text(2, container_data) if container_data else b"")
        if dedicated or method in ("StopContainer",):
            return self.request(method, payload)
        payload = number(1, EVENTS[method]) + text(2, pod_data)
        return self.request("StateChange", payload + (text(3, container_data) if container_data else b""))

    def create(self, pod_data, container_data, seconds=30):
        return adjustment(first(self.request("CreateContainer", text(1, pod_data) + text(2, container_data), seconds), 1))

    def validate(self, container_data, devices=(), owners=None):
        """Sends the adjustments of all plugins (paths with "-" are removed) and their owners. Returns the reason of a refusal, or None."""
        adjust = text(6, b"".join(text(1, text(1, path) + text(2, "c") + number(3, major) + number(4, minor))
                                  for path, (major, minor) in devices))
        by_path = b"".join(text(1, text(1, path) + text(2, plugin)) for path, plugin in (owners or {}).items())
        of_container = text(1, decoded(first(container_data, 1))) + text(2, text(2, number(1, 4) + text(2, by_path)))
        answer = self.request("ValidateContainerAdjustment", text(1, pod("pod1")) + text(2, container_data) + text(3, adjust) +
                          text(5, text(1, of_container)))
        return decoded(first(answer, 2)) if first(answer, 1, 0) else None

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.socket.close()


class Runtime:
    """Listens as containerd does: each start creates the socket again."""

    def __init__(self, path):
        self.path = path
        self.listening = None
        self.start()

    def start(self):
        if os.path.exists(self.path):
            os.unlink(self.path)
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listening.bind(self.path)
        self.listening.listen()
        self.listening.settimeout(30)

    def accept(self):
        return Connection(self.listening.accept()[0])

    def stop(self):
        self.listening.close()
