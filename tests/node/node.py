"""The node: HCAs as a file tree, and snapshots of file trees with their differences."""
import hashlib
import os
import stat


class Node:
    """A node with four HCAs as a file tree. mlx5_0 can be opened: it has the device number of /dev/null, which every
    container may open. mlx5_1 to mlx5_3 have the numbers of uverbs1 to uverbs3, for which a machine without RDMA has no
    driver: open() fails with ENXIO if the device cgroup allows it, otherwise with EPERM. rdma_cm has a number that can be
    opened only if the device cgroup allows it, if this machine has such a device."""
    HCAS = 4

    def __init__(self, directory):
        self.tree = directory
        self.numbers = {f"uverbs{i}": (231, 192 + i) for i in range(self.HCAS)}
        self.numbers["uverbs0"] = (1, 3)
        self.numbers["rdma_cm"] = self.guarded_device()
        self.write_attribute("sys/class/infiniband_verbs/uverbs0/dev", "1:3")
        self.write_attribute("sys/class/misc/rdma_cm/dev", "{}:{}".format(*self.numbers["rdma_cm"]))
        # Each real node has umad; a container gets it only if config.json enables it.
        self.write_attribute("sys/class/infiniband_mad/abi_version", "5")
        self.write_attribute("sys/class/infiniband_mad/umad0/dev", "231:0")
        os.makedirs(directory + "/sys/fs/cgroup")  # podman mounts another file system here
        os.makedirs("/dev/infiniband", exist_ok=True)
        for name, number in self.numbers.items():
            # In the private /dev as well: with a user namespace runc mounts the node of the same path. uverbs3 stays absent
            # there, for the test of a missing node.
            elsewhere = [] if name == "uverbs3" else [f"/dev/infiniband/{name}"]
            for path in (f"{directory}/dev/infiniband/{name}", *elsewhere):
                if os.path.lexists(path):
                    os.unlink(path)
                os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(*number))
                os.chmod(path, 0o666)

    def write_attribute(self, path, text):
        path = os.path.realpath(f"{self.tree}/{path}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.exists(path):
            os.unlink(path)  # the file may be read-only or a hard link
        with open(path, "w", encoding="ascii") as file:
            file.write(text + "\n")

    @staticmethod
    def guarded_device():
        """Returns the number of loop-control: it has a driver, and no container may open it."""
        try:
            number = os.stat("/dev/loop-control").st_rdev
            os.close(os.open("/dev/loop-control", os.O_RDWR))
            return os.major(number), os.minor(number)
        except OSError:
            return 10, 63

    def opens(self, name):
        """Returns the result of open() without a device cgroup: `ok` or the error's text."""
        try:
            os.close(os.open(f"{self.tree}/dev/infiniband/{name}", os.O_RDWR))
            return "ok"
        except OSError as error:
            return os.strerror(error.errno)

    def expected(self, *names):
        """Returns Report.nodes of a container with these nodes and rdma_cm."""
        return {f"/dev/infiniband/{name}": ("c", *self.numbers[name], "666", "0:0", self.opens(name))
                for name in (*names, "rdma_cm")}


def walk(directory, without=()):
    """Returns a map from each path below the directory to its type, mode, owner, device number, time and content. without: names of
    directories in it that are not read."""
    found = {}
    for parent, directories, files in os.walk(directory):
        if parent == directory:
            directories[:] = [name for name in directories if name not in without]
        for name in directories + files:
            path = os.path.join(parent, name)
            status = os.lstat(path)
            kind = stat.S_IFMT(status.st_mode)
            content = ""
            if kind == stat.S_IFREG:
                with open(path, "rb") as file:
                    content = hashlib.sha256(file.read()).hexdigest()
            elif kind == stat.S_IFLNK:
                content = os.readlink(path)
            found[os.path.relpath(path, directory)] = (kind, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid,
                                                       status.st_rdev, status.st_mtime_ns, content)
    return found


def differences(before, after):
    """Returns a line for each path that differs, with both states."""
    return [f"{path}: {before.get(path)} became {after.get(path)}"
            for path in sorted(before.keys() | after.keys()) if before.get(path) != after.get(path)]
