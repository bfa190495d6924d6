"""Starts containers while another process renames their HCA again and again, with a pause between the calls by which the hook finds
the HCA and those by which it identifies it. No HCA is given to two containers, and each is booked by its device.
docs: tests/faults/README.md"""
import argparse
import os
import random
import sys
import threading
import time

import scenes

# Before each readlink(2), by which the hook identifies an HCA.
PAUSE = ["0:readlinkat:0", "wait=2"]


class Renamer:
    """Renames the HCA and restores its name, at random times, as the kernel does: in one step."""

    def __init__(self, names):
        self.names, self.stopped = names, threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopped.is_set():
            for source, target in (self.names, reversed(self.names)):
                os.rename(source, target)
                time.sleep(random.uniform(0, 0.004))

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()


def starts(make, rounds):
    """Starts a container in each round. Returns how many got the HCA."""
    scene = scenes.made(make, make is HELD, make.name)
    scene.enter()
    given = 0
    for _ in range(rounds):
        with Renamer(scene.names_of_hca):
            outcome = scene.disturb(PAUSE)
        scene.assertIsNone(outcome.signal, outcome.errors)
        scene.assert_booked_by_device()
        if outcome.code:
            scene.assertIn("error: ", outcome.errors)
            continue
        scene.assertFalse(scene.held, "two containers have the HCA exclusively")
        given += 1
        scene.give_back(scene.web)
        scene.enter()
    os.utime(scene.classes, ns=scene.times)
    scene.web.end()
    scene.assertEqual(scene.holders(), scene.expected)
    scene.end()
    return given


HELD, FREE = (type(name, (scenes.RenamedCreateRuntime,), {"name": name}) for name in ("held", "free"))


def main():
    parser = argparse.ArgumentParser(prog="tests/faults/renames.py", description=__doc__.split(" docs")[0])
    parser.add_argument("--rounds", type=int, default=1000, help="starts with an HCA that another container has; a tenth with a free one")
    rounds = parser.parse_args().rounds
    scenes.enter_own_machine()
    starts(HELD, rounds)
    given = starts(FREE, max(rounds // 10, 10))
    print(f"{rounds} starts with a held HCA: 0 doubles; {max(rounds // 10, 10)} starts with a free HCA: {given} got it")
    return 0 if given else "a rename refused each container"


if __name__ == "__main__":
    sys.exit(main())
