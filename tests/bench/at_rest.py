"""Counts the system calls of a daemon at rest: at_rest.py SECONDS TRACE DIRECTORY PROGRAM [ARGUMENT...]

DIRECTORY: of the kubelet's socket, for rdma-device-plugin; this program is its kubelet. dra:DIRECTORY: for rdma-dra, whose kubelet and API
server this program is. Empty for other daemons, which log "serving at".
Prints a line at its start. After SECONDS of rest it prints the number of calls of all threads and processes, waiting calls included.
docs: tests/bench/README.md"""
import os
import re
import subprocess
import sys
import threading
import time

import scene  # adds the folder of the tests' modules

SETTLE = 8  # seconds after the start: rdma-device-plugin reads the node again `poll_seconds` (5) after an event
STARTED_AT = re.compile(r"\d+ +(\d+\.\d+) \w+\(")


def registered(directory):
    """Waits for the registration of the plugin, and calls ListAndWatch. Returns objects that must stay alive."""
    import kubelet  # with python3-grpcio, which only this daemon needs
    kubelet_side = kubelet.Kubelet(directory)

    def wait(_):
        endpoint = kubelet_side.wait()[1]
        plugin = kubelet.Plugin(f"{directory}/{endpoint}")
        watch = plugin.watch()
        watch.wait_for(lambda devices: all(healthy for healthy, _ in devices.values()))
        return kubelet_side, plugin, watch
    return wait


def published(directory):
    """Returns the arguments of rdma-dra, and a function that waits until its slices are published and its health is watched."""
    import apiserver  # with python3-grpcio
    import dra_kubelet
    os.makedirs(directory + "/api")
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)  # the benchmark has its own network namespace
    api = apiserver.ApiServer(directory + "/api")
    kubelet_side = dra_kubelet.DraKubelet(directory)

    def wait(_):
        kubelet_side.register()
        health = kubelet_side.watch_health()
        health.wait_for(lambda devices: devices)
        while api.watches != 1 or not api.devices():
            time.sleep(0.05)
        return api, kubelet_side, health
    return ["--kubelet", directory, "--api", api.address, "--credential", directory + "/api", "--node", "n1"], wait


def serving(process):
    for line in process.stderr:
        if "serving at" in line:
            return
    raise RuntimeError("the daemon ended")


def main():
    print("the caller may change its mounts", flush=True)
    seconds, trace, directory, *argv = sys.argv[1:]
    if directory.startswith("dra:"):
        more, wait = published(directory.removeprefix("dra:"))
        argv += more
    else:
        wait = registered(directory) if directory else serving
    process = subprocess.Popen(["strace", "-f", "-qq", "-ttt", "-e", "signal=none", "-o", trace, *argv], stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    alive = wait(process)
    threading.Thread(target=process.stderr.read, daemon=True).start()
    time.sleep(SETTLE)
    begin = time.time()
    end = begin + float(seconds)
    time.sleep(end - time.time())
    if process.poll() is not None:
        sys.exit("the daemon ended")
    for pid in scene.children_of(process.pid):
        subprocess.run(["kill", str(pid)], check=True)
    process.wait()
    with open(trace, encoding="ascii", errors="replace") as file:
        starts = [float(match[1]) for match in map(STARTED_AT.match, file) if match]
    print(sum(begin <= start < end for start in starts), flush=True)
    del alive


if __name__ == "__main__":
    main()
