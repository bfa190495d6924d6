"""A stand-in for the API server of Kubernetes, over TLS: nodes, ResourceSlices and ResourceClaims of resource.k8s.io/v1. It is stricter
than a real one: it refuses each object and request that a version from 1.34 to 1.37 would refuse or drop, and notes it in `faults`."""
import copy
import http.server
import json
import re
import socket
import ssl
import subprocess
import threading
import time
import urllib.parse

LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
SUBDOMAIN = re.compile(r"(?=.{1,253}$)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,31}$")
SEMVER = re.compile(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$")
LABEL_KEY = re.compile(r"([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
QUANTITY = re.compile(r"([0-9]+)(k?)$")  # the part of quantities that a count has
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
EVENTS = re.compile(r"/api/v1/namespaces/([^/]+)/events$")
CLAIM = re.compile(r"/apis/resource.k8s.io/v1/namespaces/([^/]+)/resourceclaims/([^/]+)$")


class Refused(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


def need(condition, message, code=422):
    if not condition:
        raise Refused(code, message)


def only(value, allowed, where):
    need(isinstance(value, dict), f"{where}: no object", 400)
    need(not set(value) - set(allowed), f"{where}: unknown fields {sorted(set(value) - set(allowed))}", 400)


def check_qualified(name, where):
    domain, _, identifier = name.rpartition("/")
    need(IDENTIFIER.match(identifier), f"{where}: {name!r} has no C identifier")
    need("/" not in name or (len(domain) <= 63 and SUBDOMAIN.match(domain)), f"{where}: {name!r} has no domain")


def check_attribute(name, value, where):
    check_qualified(name, where)
    only(value, ("int", "bool", "string", "version"), f"{where}.{name}")
    need(len(value) == 1, f"{where}.{name}: exactly one value")
    kind, content = next(iter(value.items()))
    need(isinstance(content, {"int": int, "bool": bool}.get(kind, str)) and (kind != "int" or not isinstance(content, bool)),
         f"{where}.{name}: {kind} is {content!r}", 400)
    if kind in ("string", "version"):
        need(len(content) <= 64, f"{where}.{name}: longer than 64")
    need(kind != "version" or SEMVER.match(content), f"{where}.{name}: {content!r} is no semantic version")


def canonical(quantity):
    """Returns a quantity as Kubernetes stores it: "1k" for "1000"."""
    number = int(quantity.replace("k", "000"))
    return f"{number // 1000}k" if number and number % 1000 == 0 else str(number)


def check_capacity(name, value, device, where):
    check_qualified(name, where)
    only(value, ("value", "requestPolicy"), f"{where}.{name}")
    need(QUANTITY.match(value.get("value", "")), f"{where}.{name}: no quantity")
    policy = value.get("requestPolicy")
    if policy is None:
        return
    need(device.get("allowMultipleAllocations"), f"{where}.{name}: requestPolicy without allowMultipleAllocations")
    only(policy, ("default", "validValues", "validRange"), f"{where}.{name}.requestPolicy")
    whole = int(value["value"].replace("k", "000"))
    need(not ("validValues" in policy and "validRange" in policy), f"{where}.{name}: two rules")
    if "validValues" in policy:
        values = [int(each) for each in policy["validValues"]]
        need(0 < len(values) <= 10 and values == sorted(set(values)), f"{where}.{name}: validValues")
        need(int(policy.get("default", -1)) in values and values[-1] <= whole, f"{where}.{name}: default")
    if "validRange" in policy:
        allowed = policy["validRange"]
        only(allowed, ("min", "max", "step"), f"{where}.{name}.validRange")
        least = int(allowed["min"])
        need(least <= int(policy.get("default", least)) <= whole, f"{where}.{name}: default")
        need("step" not in allowed or least + int(allowed["step"]) <= whole, f"{where}.{name}: step")


def check_device(device, where):
    only(device, ("name", "attributes", "capacity", "allowMultipleAllocations", "taints"), where)
    need(LABEL.match(device.get("name", "")), f"{where}: the name {device.get('name')!r} is no DNS label")
    attributes, capacity, taints = device.get("attributes", {}), device.get("capacity", {}), device.get("taints", [])
    need(len(attributes) + len(capacity) <= 32, f"{where}: more than 32 attributes and capacities")
    for name, value in attributes.items():
        check_attribute(name, value, where)
    for name, value in capacity.items():
        check_capacity(name, value, device, where)
    need(len(taints) <= 16, f"{where}: more than 16 taints")
    for taint in taints:
        only(taint, ("key", "value", "effect", "timeAdded"), where)
        need(LABEL_KEY.match(taint.get("key", "")), f"{where}: the key {taint.get('key')!r} of a taint")
        need(taint.get("effect") in ("None", "NoSchedule", "NoExecute"), f"{where}: effect of a taint")


def check_slice(slice_):
    only(slice_, ("apiVersion", "kind", "metadata", "spec"), "ResourceSlice")
    need((slice_.get("apiVersion"), slice_.get("kind")) == ("resource.k8s.io/v1", "ResourceSlice"), "kind", 400)
    only(slice_.get("metadata"), ("name", "ownerReferences", "resourceVersion", "generation", "uid", "creationTimestamp"), "metadata")
    need(SUBDOMAIN.match(slice_["metadata"].get("name", "")), "metadata.name")
    spec = slice_.get("spec")
    only(spec, ("driver", "pool", "nodeName", "devices"), "spec")
    need(SUBDOMAIN.match(spec.get("driver", "")) and len(spec["driver"]) <= 63, "spec.driver")
    only(spec.get("pool"), ("name", "generation", "resourceSliceCount"), "spec.pool")
    need(all(SUBDOMAIN.match(part) for part in spec["pool"].get("name", "").split("/")), "spec.pool.name")
    need(isinstance(spec["pool"].get("generation"), int) and spec["pool"]["generation"] >= 0, "spec.pool.generation")
    need(isinstance(spec["pool"].get("resourceSliceCount"), int) and spec["pool"]["resourceSliceCount"] >= 1, "resourceSliceCount")
    devices = spec.get("devices", [])
    heavy = any("taints" in device for device in devices)
    need(len(devices) <= (64 if heavy else 128), f"{len(devices)} devices")
    for at, device in enumerate(devices):
        check_device(device, f"spec.devices[{at}]")
    names = [device["name"] for device in devices]
    need(len(set(names)) == len(names), "two devices with one name")


def check_event(event, space):
    only(event, ("apiVersion", "kind", "metadata", "involvedObject", "type", "reason", "message", "source", "reportingComponent",
                 "reportingInstance", "firstTimestamp", "lastTimestamp", "count"), "Event")
    need((event.get("apiVersion"), event.get("kind")) == ("v1", "Event"), "kind", 400)
    only(event.get("metadata"), ("generateName", "namespace"), "metadata")
    need(SUBDOMAIN.match(event["metadata"].get("generateName", "") + "x7abc"), "metadata.generateName")
    about = event.get("involvedObject")
    only(about, ("apiVersion", "kind", "namespace", "name", "uid"), "involvedObject")
    need(about.get("namespace") == space == event["metadata"].get("namespace"), "involvedObject.namespace does not match")
    need(re.fullmatch(r"[A-Z][A-Za-z]{0,127}", event.get("reason", "")), "reason")
    need(0 < len(event.get("message", "").encode()) <= 1024, "message")
    need(event.get("type") in ("Normal", "Warning"), "type")
    for member in ("firstTimestamp", "lastTimestamp"):
        need(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event.get(member, "")), member, 400)


class ApiServer:
    """A server at 127.0.0.1 with its own CA. certified: the address in its certificate."""

    def __init__(self, directory, node="n1", minor="36", certified="127.0.0.1"):
        self.directory = directory
        self.minor = minor
        self.node = node
        self.token = "first-token"
        self.nodes = {node: {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "uid": "node-uid-1"}}}
        self.slices = {}
        self.claims = {}
        self.version = 100
        self.oldest = 0  # resourceVersions before this one are gone
        self.events = []  # (version, type, object)
        self.cluster_events = []  # objects of kind Event
        self.requests = []  # (time, method, path, status)
        self.faults = []  # what the program under test must not do
        # (predicate(method, path), status, headers[, message]): the next answers that do not come from the objects
        self.answers = []
        self.raw = []  # (predicate(method, path), function(handler)): answers that are no answers of an API server
        self.drops = set()  # members of devices that are dropped in silence
        self.delay = 0
        self.watches = 0
        self.cuts = 0  # number of the newest cut of all watches
        self.changed = threading.Condition()
        make_certificates(directory, certified)
        self.write_credential()
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                server.serve(self)
            do_POST = do_PUT = do_DELETE = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_):
                pass

            def finish_request(self, request, client_address):
                request.settimeout(60)
                with context.wrap_socket(request, server_side=True) as stream:
                    super().finish_request(stream, client_address)

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory + "/server.crt", directory + "/server.key")
        self.http = Server(("127.0.0.1", 0), Handler)
        self.port = self.http.server_address[1]
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def stop(self):
        self.http.shutdown()
        self.http.server_close()
        self.cut()

    def write_credential(self):
        """Replaces the token file as the kubelet does."""
        with open(self.directory + "/token.new", "w", encoding="utf-8") as file:
            file.write(self.token + "\n")
        subprocess.run(["mv", self.directory + "/token.new", self.directory + "/token"], check=True)

    def rotate(self):
        self.token = "token-after-" + self.token
        self.write_credential()

    def cut(self):
        """Ends all watches."""
        with self.changed:
            self.cuts += 1
            self.changed.notify_all()

    def forget(self):
        """Compacts the history, so that older watches get 410."""
        with self.changed:
            self.version += 10
            self.oldest = self.version
            self.events.clear()

    def delete_all(self):
        """Deletes the node's slices, as a kubelet that starts does."""
        with self.changed:
            for name in list(self.slices):
                self.note("DELETED", self.slices.pop(name))

    def put_slice(self, slice_):
        """Stores a slice as another writer does."""
        with self.changed:
            self.store(copy.deepcopy(slice_), slice_["metadata"]["name"] in self.slices)

    def devices(self):
        """Returns the devices of the pool as the scheduler sees them; None: the pool is incomplete."""
        with self.changed:
            slices = [self.slices[name]["spec"] for name in sorted(self.slices)]
        if not slices:
            return None
        newest = max(spec["pool"]["generation"] for spec in slices)
        slices = [spec for spec in slices if spec["pool"]["generation"] == newest]
        if len(slices) != slices[0]["pool"]["resourceSliceCount"]:
            return None
        devices = [device for spec in slices for device in spec.get("devices", [])]
        names = [device["name"] for device in devices]
        return devices if len(set(names)) == len(names) else None

    def writes(self):
        """Returns the requests that change slices."""
        return [request[1:] for request in self.requests if request[1] not in ("GET", "WATCH") and request[2].startswith(SLICES)]

    # --- requests

    def serve(self, handler):
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        url = urllib.parse.urlsplit(handler.path)
        query = dict(urllib.parse.parse_qsl(url.query))
        status, answer, headers, planned = 200, None, {}, None
        try:
            if self.delay:
                time.sleep(self.delay)
            need(handler.headers.get("Authorization") == "Bearer " + self.token, "Unauthorized", 401)
            if raw := next((each for each in self.raw if each[0](handler.command, handler.path)), None):
                return self.answer_raw(handler, raw[1])
            need(handler.headers.get("Host") == self.address, f"Host {handler.headers.get('Host')}", 400)
            planned = next((each for each in self.answers if each[0](handler.command, handler.path)), None)
            if planned:
                self.answers.remove(planned)
                headers = planned[2]
                raise Refused(planned[1], (*planned, "as the test wants")[3])
            if query.get("watch"):
                self.requests.append((time.monotonic(), "WATCH", handler.path, 200))
                return self.watch(handler, query)
            with self.changed:
                status, answer = self.handle(handler.command, url.path, query, body)
        except Refused as error:
            status = error.code
            if status in (400, 403, 422) and not planned:
                self.faults.append(f"{handler.command} {handler.path}: {error}")
            answer = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "message": str(error), "code": status}
        self.requests.append((time.monotonic(), handler.command, handler.path, status))
        text = json.dumps(answer).encode()
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        # A large answer comes in chunks, as from a real server.
        if len(text) > 200 and handler.command == "GET":
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            for at in range(0, len(text), 997):
                chunk = text[at:at + 997]
                handler.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            handler.wfile.write(b"0\r\n\r\n")
        else:
            handler.send_header("Content-Length", str(len(text)))
            handler.end_headers()
            handler.wfile.write(text)

    def answer_raw(self, handler, write):
        self.requests.append((time.monotonic(), handler.command, handler.path, 0))
        handler.close_connection = True
        try:
            write(handler.wfile.write)
        except OSError:
            pass

    def handle(self, method, path, query, body):
        if (method, path) == ("GET", "/version"):
            return 200, {"major": "1", "minor": self.minor, "gitVersion": "v1.%s.2" % self.minor.rstrip("+")}
        if method == "GET" and path.startswith("/api/v1/nodes/"):
            name = path.rpartition("/")[2]
            need(name == self.node, f"node {name} is not the driver's", 403)
            need(name in self.nodes, f'nodes "{name}" not found', 404)
            return 200, self.nodes[name]
        claim = CLAIM.match(path)
        if claim and method == "GET":
            found = self.claims.get(claim.groups())
            need(found, f'resourceclaims.resource.k8s.io "{claim.group(2)}" not found', 404)
            return 200, found
        events = EVENTS.match(path)
        if events and method == "POST":
            event = json.loads(body)
            check_event(event, events.group(1))
            self.cluster_events.append(event)
            return 201, event
        need(path == SLICES or path.startswith(SLICES + "/"), f"{path} is not allowed", 403)
        name = path[len(SLICES) + 1:]
        if method == "GET":
            need(not name, "get of one slice is not in the role", 403)
            self.check_selector(query)
            return 200, {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList",
                         "metadata": {"resourceVersion": str(self.version)},
                         "items": [self.slices[each] for each in sorted(self.slices)]}
        if method == "DELETE":
            return self.delete(name, json.loads(body) if body else {})
        need(query.get("fieldValidation") == "Strict", "fieldValidation=Strict", 400)
        return self.write(method, name, json.loads(body))

    def check_selector(self, query):
        need(query.get("fieldSelector") == f"spec.driver=rdma-init.io,spec.nodeName={self.node}",
             f"fieldSelector {query.get('fieldSelector')}", 403)

    def check_node(self, spec):
        need(spec.get("nodeName") == self.node, f"a slice of node {spec.get('nodeName')} from node {self.node}", 403)

    def delete(self, name, options):
        need(name in self.slices, f'resourceslices "{name}" not found', 404)
        self.check_node(self.slices[name]["spec"])
        wanted = options.get("preconditions", {}).get("resourceVersion")
        need(wanted is None or wanted == self.slices[name]["metadata"]["resourceVersion"], "the precondition", 409)
        self.note("DELETED", self.slices.pop(name))
        return 200, {"kind": "Status", "status": "Success"}

    def write(self, method, name, slice_):
        check_slice(slice_)
        self.check_node(slice_["spec"])
        mine = slice_["metadata"]["name"]
        owner = slice_["metadata"].get("ownerReferences", [{}])[0]
        need(owner.get("uid") == self.nodes[self.node]["metadata"]["uid"], f"the owner {owner}")
        if method == "POST":
            need(not name and "resourceVersion" not in slice_["metadata"], "resourceVersion", 400)
            need(mine not in self.slices, f'resourceslices "{mine}" already exists', 409)
            return 201, self.store(slice_, False)
        need(name == mine, "another name", 400)
        need(name in self.slices, f'resourceslices "{name}" not found', 404)
        old = self.slices[name]
        need(slice_["metadata"].get("resourceVersion") == old["metadata"]["resourceVersion"],
             "the object has been modified; please apply your changes to the latest version and try again", 409)
        for member in ("driver", "nodeName"):
            need(slice_["spec"][member] == old["spec"][member], f"{member} is immutable")
        need(slice_["spec"]["pool"]["name"] == old["spec"]["pool"]["name"], "pool.name is immutable")
        if json.dumps(slice_["spec"], sort_keys=True) == json.dumps(old["spec"], sort_keys=True):
            self.faults.append(f"PUT {name} without a change")
        return 200, self.store(slice_, True)

    def store(self, slice_, is_there):
        self.version += 1
        for device in slice_["spec"].get("devices", []):
            for member in self.drops:
                device.pop(member, None)
            if "allowMultipleAllocations" in self.drops:
                for capacity in device.get("capacity", {}).values():
                    capacity.pop("requestPolicy", None)
            for capacity in device.get("capacity", {}).values():
                capacity["value"] = canonical(capacity["value"])
            for taint in device.get("taints", []):
                taint.setdefault("timeAdded", f"2026-11-30T00:00:{self.version % 60:02}Z")
        slice_["metadata"]["resourceVersion"] = str(self.version)
        # A real server returns members in its own order.
        stored = json.loads(json.dumps(slice_, sort_keys=True))
        self.slices[slice_["metadata"]["name"]] = stored
        self.note("MODIFIED" if is_there else "ADDED", stored)
        return stored

    def note(self, kind, slice_):
        if kind == "DELETED":
            self.version += 1
            slice_ = copy.deepcopy(slice_)
            slice_["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, kind, slice_))
        self.changed.notify_all()

    # --- watches

    def watch(self, handler, query):
        self.check_selector(query)
        since = int(query.get("resourceVersion") or 0)
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        with self.changed:
            cuts = self.cuts
            self.watches += 1
            self.changed.notify_all()
        try:
            if since < self.oldest:
                self.send_event(handler, "ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})
                return
            self.send_event(handler, "BOOKMARK", {"metadata": {"resourceVersion": str(since)}})
            while True:
                with self.changed:
                    self.changed.wait_for(lambda: self.cuts != cuts or (self.events and self.events[-1][0] > since), 0.5)
                    events = [event for event in self.events if event[0] > since]
                    ends = self.cuts != cuts
                for since, kind, slice_ in events:
                    self.send_event(handler, kind, slice_)
                if ends:
                    handler.wfile.write(b"0\r\n\r\n")
                    return
        except OSError:
            pass
        finally:
            handler.close_connection = True
            with self.changed:
                self.watches -= 1
                self.changed.notify_all()

    @staticmethod
    def send_event(handler, kind, slice_):
        """Sends an event in two chunks, because a line may be in several."""
        line = json.dumps({"type": kind, "object": slice_}).encode() + b"\n"
        for part in (line[:len(line) // 2], line[len(line) // 2:]):
            handler.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        handler.wfile.flush()


def make_certificates(directory, address="127.0.0.1"):
    """Makes ca.crt, and a certificate of the server that names its IP address."""
    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], check=True, capture_output=True, cwd=directory)

    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "ca.key", "-out", "ca.crt",
            "-days", "2", "-subj", "/CN=test CA")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", "server.key", "-out", "server.csr",
            "-subj", "/CN=kubernetes")
    with open(directory + "/san", "w", encoding="utf-8") as file:
        file.write(f"subjectAltName=IP:{address},DNS:kubernetes.default.svc\n")
    openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.crt", "-days",
            "2", "-extfile", "san")


def black_hole():
    """Returns a listening socket that never answers, and its address."""
    listener = socket.create_server(("127.0.0.1", 0))
    return listener, f"127.0.0.1:{listener.getsockname()[1]}"
