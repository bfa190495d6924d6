"""Starts containers while another process renames their HCA again and again, or moves it away and back as a pod with its own RDMA
devices does, with a pause between the calls by which the hook finds the HCA and those by which it identifies it. No HCA is given to
two containers, and each is booked by its device.
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


# Longest time that the HCA has another name or is away.
AWAY_SECONDS = 0.004


class Renamer:
    """Renames or moves the HCA and restores its name, at random times, as the kernel does: in one step."""

    def __init__(self, names, at_home):
        self.names, self.pauses, self.stopped = names, (AWAY_SECONDS, at_home), threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.stopped.is_set():
            for (source, target), most in zip((self.names, reversed(self.names)), self.pauses):
                os.rename(source, target)
                time.sleep(random.uniform(0, most))

    def __enter__(self):
        self.thread.start()

    def __exit__(self, *_):
        self.stopped.set()
        self.thread.join()


def starts(make, held, rounds):
    """Starts a container in each round. Returns how many got the HCA."""
    scene = scenes.made(make, held, make.name)
    scene.enter()
    given = 0
    for _ in range(rounds):
        with Renamer(scene.names_of_hca, scene.at_home):
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


class RacingRename(scenes.RenamedCreateRuntime):
    at_home = AWAY_SECONDS


class RacingMove(scenes.RenamedCreateRuntime):
    """Most starts are refused that find the HCA away at any of their looks, so it stays away for a small part of the time."""
    name = "createRuntime, HCA moved"
    other_name = "../../../away"  # outside of the node's sysfs: no command sees the HCA
    at_home = 0.1


def main():
    parser = argparse.ArgumentParser(prog="tests/faults/renames.py", description=__doc__.split(" docs")[0])
    parser.add_argument("--rounds", type=int, default=1000, help="starts with an HCA that another container has; a tenth with a free one")
    parser.add_argument("--move", action="store_true", help="move the HCA away and back, instead of renaming it")
    parsed = parser.parse_args()
    rounds, make = parsed.rounds, RacingMove if parsed.move else RacingRename
    scenes.enter_own_machine()
    starts(make, True, rounds)
    # On a busy machine many starts find the HCA away at each of their looks, so that a few starts prove nothing.
    free, given = 0, 0
    while not given and free < 20 * rounds:
        free += max(rounds // 10, 10)
        given = starts(make, False, max(rounds // 10, 10))
    print(f"{rounds} starts with a held HCA: 0 doubles; {free} starts with a free HCA: {given} got it")
    return 0 if given else "each container was refused"


if __name__ == "__main__":
    sys.exit(main())
