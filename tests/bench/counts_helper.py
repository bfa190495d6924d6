"""Makes system calls for programs under valgrind, which does not support them (calls_by_helper.c). docs: tests/bench/README.md"""
import ctypes
import os
import socket
import struct
import threading

from scene import libc

ADDRESS = "\0rdma-bench-calls"
REQUEST = struct.Struct("iiII4Q1024s")  # struct request of calls_by_helper.c
OPEN_TREE, MOVE_MOUNT, PIDFD_OPEN, OPENAT2, MOUNT_SETATTR = 428, 429, 434, 437, 442
CLONE_NEWNS = 0x20000


class Helper:
    """Answers requests until the end of the program. It is in the network namespace of its start: start it in that of the programs."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(ADDRESS)
        self.socket.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def serve(self):
        while True:
            try:
                connection = self.socket.accept()[0]
            except OSError:
                return
            with connection:
                data, descriptors, _, _ = socket.recv_fds(connection, REQUEST.size, 2)
                code, opened = answer(data, descriptors)
                if opened is None:
                    connection.send(struct.pack("i", code))
                else:
                    socket.send_fds(connection, [struct.pack("i", code)], [opened])
                    os.close(opened)
                for descriptor in descriptors:
                    os.close(descriptor)


def answer(data, descriptors):
    """Makes the call. Returns its error code, and the descriptor that it opened, or None."""
    call, pid, flags, size, *words, path = REQUEST.unpack(data)
    path = path.rstrip(b"\0")
    structure = (ctypes.c_uint64 * 4)(*words)
    if call == MOVE_MOUNT:
        return move_mount(pid, descriptors, path, flags), None
    if call == MOUNT_SETATTR:
        return error_of(libc.syscall(call, descriptors[0], path, flags, structure, size)), None
    if call == OPEN_TREE:
        opened = libc.syscall(call, descriptors[0], path, flags)
    elif call == OPENAT2:
        opened = libc.syscall(call, descriptors[0], path, structure, size)
    else:
        opened = libc.syscall(call, flags, 0)
    return error_of(opened), None if opened < 0 else opened


def error_of(result):
    return ctypes.get_errno() if result < 0 else 0


def move_mount(pid, descriptors, path, flags):
    """Calls move_mount(2) in the mount namespace of the process, because the kernel refuses another one."""
    child = os.fork()
    if child == 0:
        namespace = os.open(f"/proc/{pid}/ns/mnt", os.O_RDONLY)
        code = error_of(libc.setns(namespace, CLONE_NEWNS)) or error_of(libc.syscall(MOVE_MOUNT, descriptors[0], b"", descriptors[1], path,
                                                                                     flags))
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
