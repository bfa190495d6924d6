"""The kubelet's side of the device plugin API, by the numbers of its messages (v1beta1, Kubernetes 1.10 to 1.34), over grpcio: the
plugin under test registers with it and serves its calls."""
import concurrent.futures
import os
import sys
import threading
import time

import grpc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "vm", "guest"))
from protobuf_wire import every, first, number, text  # noqa: E402

REGISTER = "/v1beta1.Registration/Register"
AS_IT_IS = bytes


class Kubelet:
    """Listens at DIRECTORY/kubelet.sock. As the real kubelet, it removes all sockets of the directory at its start."""

    def __init__(self, directory, answer=None):
        self.directory = directory
        self.registered = []  # (version, endpoint, resource, preferred, time)
        self.changed = threading.Condition()
        self.answer = answer or (lambda context: None)
        for name in os.listdir(directory):
            if name.endswith(".sock"):
                os.unlink(f"{directory}/{name}")
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(8))
        self.server.add_generic_rpc_handlers((self,))
        self.started = time.monotonic()
        if not self.server.add_insecure_port(f"unix:{directory}/kubelet.sock"):
            raise OSError(f"cannot listen in {directory}")
        self.server.start()

    def service(self, call):
        """Implements grpc.GenericRpcHandler."""
        if call.method != REGISTER:
            return None
        return grpc.unary_unary_rpc_method_handler(self.register, request_deserializer=AS_IT_IS,
                                                   response_serializer=AS_IT_IS)

    def register(self, request, context):
        self.answer(context)
        with self.changed:
            self.registered.append((first(request, 1).decode(), first(request, 2).decode(), first(request, 3).decode(),
                                    first(first(request, 4), 2, 0), time.monotonic()))
            self.changed.notify_all()
        return b""

    def wait(self, count=1, seconds=30):
        with self.changed:
            if not self.changed.wait_for(lambda: len(self.registered) >= count, seconds):
                raise TimeoutError(f"{len(self.registered)} registrations, not {count}")
            return self.registered[count - 1]

    def stop(self):
        self.server.stop(None).wait()


class Plugin:
    """The calls of the kubelet to an endpoint."""

    def __init__(self, path):
        self.channel = grpc.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])

    def call(self, method, request=b"", timeout=20):
        return self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}", request_serializer=AS_IT_IS,
                                        response_deserializer=AS_IT_IS)(request, timeout=timeout)

    def allocate(self, *containers, timeout=20):
        """Returns for each container the pairs of device paths and permissions, and the names of CDI devices."""
        request = b"".join(text(1, b"".join(text(1, id) for id in ids)) for ids in containers)
        answers = every(self.call("Allocate", request, timeout), 1)
        for answer in answers:
            assert not every(answer, 1) + every(answer, 2) + every(answer, 4), "only nodes and CDI names"
        return [([(first(node, 1).decode(), first(node, 2).decode(), first(node, 3).decode())
                  for node in every(answer, 3)], [first(name, 1).decode() for name in every(answer, 5)])
                for answer in answers]

    def preferred(self, available, must, size):
        request = b"".join(text(1, id) for id in available) + b"".join(text(2, id) for id in must) + number(3, size)
        answer = self.call("GetPreferredAllocation", text(1, request))
        return [id.decode() for id in every(first(answer, 1), 1)]

    def watch(self):
        return Watch(self)

    def close(self):
        self.channel.close()


class Watch:
    """A call of ListAndWatch with its newest list: {ID: (healthy, NUMA node)}."""

    def __init__(self, plugin):
        self.lists = []
        self.ended = False
        self.changed = threading.Condition()
        self.call = plugin.channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch", request_serializer=AS_IT_IS,
                                                response_deserializer=AS_IT_IS)(b"")
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        try:
            for answer in self.call:
                devices = {}
                for device in every(answer, 1):
                    topology = every(device, 3)
                    node = first(first(topology[0], 1), 1, 0) if topology else None
                    devices[first(device, 1).decode()] = (first(device, 2) == b"Healthy", node)
                with self.changed:
                    self.lists.append(devices)
                    self.changed.notify_all()
        except grpc.RpcError:
            pass
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def wait_for(self, wanted, seconds=30):
        """Returns the first list for which wanted(list) is true, starting with the newest."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.lists and wanted(self.lists[-1]), seconds):
                raise TimeoutError(f"the last of {len(self.lists)} lists: {self.lists[-1:]}")
            return self.lists[-1]

    def wait_for_end(self, seconds=30):
        with self.changed:
            return self.changed.wait_for(lambda: self.ended, seconds)
