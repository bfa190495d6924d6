"""The calls of `cri`, whose docstring describes them."""

import json
import os
import socketserver
import sys

import grpc
from protobuf_wire import every, first, number, text, texts

SOCKET = os.environ.get("CRI_SOCKET", "/run/containerd/containerd.sock")
PODS = "/run/lab/cri"
IMAGE = "lab.local/workload:1"
REFUSED = 3
NODE_NAMESPACE = 2
STATES = {0: "created", 1: "running", 2: "exited", 3: "unknown"}


class Refused(Exception):
    pass


def call(path, service, method, request):
    options = [("grpc.default_authority", "localhost"), ("grpc.max_receive_message_length", 16 << 20)]
    with grpc.insecure_channel("unix://" + path, options=options) as channel:
        ask = channel.unary_unary(f"/{service}/{method}", request_serializer=None, response_deserializer=None)
        try:
            return ask(request, timeout=240)
        except grpc.RpcError as error:
            raise Refused(f"cri: {method}: {error.code().name}: {error.details()}") from error


def runtime(method, request):
    return call(SOCKET, "runtime.v1.RuntimeService", method, request)


def namespaces(pod):
    mode = NODE_NAMESPACE if pod.get("host_network") else 0
    return (number(1, mode) if mode else b"") + number(2, 1)  # each container has its own PID namespace


def pod_config(pod):
    metadata = text(1, pod["name"]) + text(2, "uid-" + pod["name"]) + text(3, pod["namespace"])
    linux = text(1, "/lab/pods") + text(2, text(1, namespaces(pod)))
    hostname = b"" if pod.get("host_network") else text(2, pod["name"])  # with the host's network it is the node's name
    return (text(1, metadata) + hostname + text(3, f"/var/log/pods/{pod['name']}") + texts(7, pod.get("annotations", {})) + text(8, linux))


def container_config(container, pod):
    config = text(1, text(1, container["name"])) + text(2, text(1, IMAGE))
    config += b"".join(text(3, word) for word in container["command"])
    config += texts(6, container.get("env", {}))
    for path in container.get("mounts", []):
        target, _, source = path.partition("=")  # PATH, or PATH=PATH_ON_THE_NODE
        config += text(7, text(1, target) + text(2, source or target) + number(3, 1))
    for path in container.get("devices", []):
        config += text(8, text(1, path) + text(2, path) + text(3, "rwm"))
    config += texts(10, container.get("annotations", {})) + text(11, container["name"] + ".log")
    security = text(3, namespaces(pod)) + text(5, number(1, container.get("user", 0)))
    added = container.get("capabilities", [])
    if added:
        security += text(1, b"".join(text(1, name) for name in added))
    config += text(15, text(2, security))
    return config + b"".join(text(17, text(1, name)) for name in container.get("cdi", []))


def version():
    return " ".join(value.decode() for value in every(runtime("Version", b""), 3))


def run_pod(description, handler=""):
    pod = json.loads(description)
    answer = runtime("RunPodSandbox", text(1, pod_config(pod)) + (text(2, handler) if handler else b""))
    id = first(answer, 1).decode()
    os.makedirs(PODS, exist_ok=True)
    with open(f"{PODS}/{id}.json", "w", encoding="utf-8") as file:
        json.dump(pod, file)
    return id


def create(pod_id, description):
    with open(f"{PODS}/{pod_id}.json", encoding="utf-8") as file:
        pod = json.load(file)
    request = text(1, pod_id) + text(2, container_config(json.loads(description), pod)) + text(3, pod_config(pod))
    return first(runtime("CreateContainer", request), 1).decode()


def execute(id, *command):
    answer = runtime("ExecSync", text(1, id) + b"".join(text(2, word) for word in command) + number(3, 120))
    return first(answer, 1).decode(errors="replace"), first(answer, 2).decode(errors="replace"), first(answer, 3, 0)


def status(id):
    answer = first(runtime("ContainerStatus", text(1, id)), 1)
    state = STATES[first(answer, 3, 0)]
    return f"{state} {first(answer, 7, 0)}" if state == "exited" else state


def ip(pod_id):
    return first(first(first(runtime("PodSandboxStatus", text(1, pod_id)), 1), 5), 1).decode()


def netns(pod_id):
    answer = runtime("PodSandboxStatus", text(1, pod_id) + number(2, 1))
    info = {first(entry, 1): first(entry, 2) for entry in every(answer, 2)}
    spaces = json.loads(info[b"info"])["runtimeSpec"]["linux"]["namespaces"]
    return os.path.basename(next(space["path"] for space in spaces if space["type"] == "network"))


def list_all():
    kinds = (("pod", "ListPodSandbox"), ("container", "ListContainers"))
    return "\n".join(f"{kind} {first(item, 1).decode()}" for kind, method in kinds for item in every(runtime(method, b""), 1))


def allocate(path, *ids):
    answer = call(path, "v1beta1.DevicePlugin", "Allocate", text(1, b"".join(text(1, id) for id in ids)))
    return "\n".join(first(node, 2).decode() for node in every(first(answer, 1), 3))


def with_id(method, more=b""):
    def by_id(id):
        runtime(method, text(1, id) + more)

    return by_id


COMMANDS = {
    "version": version,
    "allocate": allocate,
    "run-pod": run_pod,
    "create": create,
    "start": with_id("StartContainer"),
    "stop": with_id("StopContainer", number(2, 1)),
    "remove": with_id("RemoveContainer"),
    "exec": execute,
    "status": status,
    "ip": ip,
    "netns": netns,
    "stop-pod": with_id("StopPodSandbox"),
    "remove-pod": with_id("RemovePodSandbox"),
    "list": list_all,
}


def run(words):
    """Returns (output, error, exit code) of a command."""
    if words[0] not in COMMANDS:
        return "", f"cri: no command {words[0]}\n", 2
    try:
        done = COMMANDS[words[0]](*words[1:])
    except Refused as refusal:
        return "", f"{refusal}\n", REFUSED
    except (KeyError, TypeError, StopIteration, OSError, ValueError) as error:
        return "", f"cri: {words[0]}: {error!r}\n", 1
    return done if isinstance(done, tuple) else (f"{done}\n" if done else "", "", 0)


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        output, error, code = run(json.loads(self.rfile.read()))
        self.wfile.write(json.dumps({"output": output, "error": error, "code": code}).encode())


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


def main():
    if sys.argv[1] == "serve":
        Server(sys.argv[2], Handler).serve_forever()
    output, error, code = run(sys.argv[1:])
    sys.stdout.write(output)
    sys.stderr.write(error)
    sys.exit(code)


main()
