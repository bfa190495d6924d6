"""Contestants that take turns, and the measurement of a program. docs: tests/bench/README.md"""
import collections
import json
import os
import random
import statistics
import time

from scene import harness

LONGEST = 20  # seconds; a contestant that has used them has no further turn

Ran = collections.namedtuple("Ran", ("seconds", "cpu_ms", "out", "err"))


class Contestant:
    """run() takes one turn, and returns its seconds and other figures by name. at_most: number of turns. begin() is
    called after the warm-up; end(), after the last turn, returns more figures."""

    def __init__(self, name, run, at_most=None, begin=lambda: None, end=dict):
        self.name, self.run, self.at_most, self.begin, self.end = name, run, at_most, begin, end
        self.seconds, self.figures = [], collections.defaultdict(list)

    def take_turn(self):
        seconds, figures = self.run()
        self.seconds.append(seconds)
        for name, value in figures.items():
            self.figures[name].append(value)

    def line(self, scene):
        """Returns a line of JSON for report.py: milliseconds of every turn, medians of the other figures."""
        figures = {name: round(statistics.median(values), 4) for name, values in self.figures.items()}
        figures.update((name, round(value, 4)) for name, value in self.end().items())
        milliseconds = [round(seconds * 1e3, 4) for seconds in self.seconds]
        return json.dumps({"scene": scene, "contestant": self.name, "ms": milliseconds, "figures": figures})


def take_turns(contestants, turns, warm_up):
    """Spreads the turns of each contestant evenly over the whole contest, so that a slow moment of the machine affects all of them.
    Contestants without a limit first have warm-up turns."""
    for turn in range(warm_up):
        for contestant in in_order(contestants, turn):
            if not contestant.at_most:
                contestant.run()
    for contestant in contestants:
        contestant.begin()
    for turn in range(turns):
        for contestant in in_order(contestants, turn):
            due = min(contestant.at_most or turns, turns) * (turn + 1) // turns
            if len(contestant.seconds) < due and sum(contestant.seconds) < LONGEST:
                contestant.take_turn()


def in_order(contestants, turn):
    """Returns the order of a turn, another one each time: whoever always follows a plugin in Go waits for the end of its work."""
    return random.Random(turn).sample(contestants, len(contestants))


class Output:
    """A pipe for the output of programs, because rdma-hook does not write to files."""

    def __init__(self):
        self.reader, self.writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        os.set_blocking(self.writer, True)

    def text(self):
        text = b""
        try:
            while True:
                text += os.read(self.reader, 1 << 16)
        except BlockingIOError:
            return text.decode(errors="replace")


OUTPUTS = Output(), Output()


def timed(argv, environment, text=""):
    """Runs a program with this standard input, and measures from its spawn to its end."""
    with harness.memory_file() as file:
        file.write(text.encode())
        file.seek(0)
        streams = (file.fileno(), *(output.writer for output in OUTPUTS))
        actions = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(streams)]
        begin = time.perf_counter()
        pid = os.posix_spawn(argv[0], argv, environment, file_actions=actions)
        _, status, usage = os.wait4(pid, 0)
        seconds = time.perf_counter() - begin
    out, err = (output.text() for output in OUTPUTS)
    if status != 0:
        raise RuntimeError(f"{argv}: wait status {status}: {err}{out}")
    return Ran(seconds, (usage.ru_utime + usage.ru_stime) * 1e3, out, err)
