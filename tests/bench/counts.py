"""Prints the system calls and instructions of each start and of its floor, and compares them with the committed table. Prints the system
calls of daemons at rest, and compares them with limits. docs: tests/bench/README.md"""
import argparse
import os
import re
import shutil
import subprocess
import sys

import chart
import document
from scene import MOST, detach_other_mounts, enter_own_machine, harness
import counts_scene
from counts_trace import OF_THE_LIBRARY

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "counts.md")
ALLOWED = 1.05  # times the figure of the table
HEAD = """# What each start costs

`tests/bench/counts --write` writes this file. `ctest -R bench.counts` fails if a figure rises by more than 5 %. README.md
describes the counters, and why rdma-nri has no instructions. Instructions are counted by {valgrind}.

"""
REST = """
## Daemons at rest

System calls of all threads without a request; a call that waits counts. The test compares them with the limit.

"""
COLUMNS = ("start", "HCAs", "system calls", "floor", "ratio", "instructions", "floor", "ratio", "system calls by phase")
NAMES = ("rdma-init", *counts_scene.STAGES, "rdma-hook verify", *counts_scene.READERS, *counts_scene.COMMANDS, *counts_scene.REQUESTS,
         *counts_scene.CLAIMS)
SHOWN = (*counts_scene.STAGES, counts_scene.COMMANDS[0], *counts_scene.REQUESTS)  # in the chart of docs/cost.md
MARKS = ("---", "--:", "--:", "--:", "--:", "--:", "--:", "--:", "---")


class Line:
    """A line of the table. instructions: None if they cannot be counted."""

    def __init__(self, name, hcas, phases, floor, instructions=None, least=None):
        self.name, self.hcas, self.phases, self.floor = name, hcas, phases, floor
        self.instructions, self.least = instructions, least

    @property
    def key(self):
        return self.name, self.hcas

    @property
    def calls(self):
        return sum(self.phases.values())

    def cells(self):
        number = lambda value: "-" if value is None else f"{value:,}"  # noqa: E731
        ratio = lambda ours, floor: f"{ours / floor:.2f}" if ours and floor else "-"  # noqa: E731
        return (self.name, str(self.hcas), number(self.calls), number(self.floor), ratio(self.calls, self.floor),
                number(self.instructions), number(self.least), ratio(self.instructions, self.least),
                ", ".join(f"{phase} {count}" for phase, count in sorted(self.phases.items()) if count))

    @staticmethod
    def parse(text):
        cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
        if len(cells) != len(COLUMNS) or not cells[1].isdigit():
            return None
        number = lambda cell: None if cell == "-" else int(cell.replace(",", ""))  # noqa: E731
        phases = {phase: int(count) for phase, count in re.findall(r"(\w+) (\d+)", cells[-1])}
        return Line(cells[0], int(cells[1]), phases, number(cells[3]), number(cells[5]), number(cells[6]))


def rows_of(lines):
    yield COLUMNS
    yield MARKS
    yield from (line.cells() for line in sorted(lines, key=lambda line: (*order(line), line.hcas)))


def order(line):
    """Returns the place of a line: a suffix follows the line's name after a colon."""
    name, _, suffix = line.name.partition(":")
    return NAMES.index(name), bool(suffix)


def markdown(lines, rested):
    rows = ["| " + " | ".join(cells) + " |\n" for cells in rows_of(lines)]
    return HEAD.format(valgrind=valgrind_version()) + "".join(rows) + REST + document.cells(rest_table(rested))


class Bar:
    """A bar of chart.Counts."""

    def __init__(self, contestant, value):
        self.contestant, self.median = contestant, value
        self.p10 = self.p90 = value

    def text(self):
        return f"{self.median:,}"


def picture(lines):
    """Returns a chart of the starts with MOST HCAs."""
    scenes = {line.name: [Bar("ours", line.calls), Bar("floor", line.floor)] for line in sorted(lines, key=order)
              if line.hcas == MOST and line.name in SHOWN}
    return chart.chart("System calls of a start", f"A container that requests {MOST} HCAs by name, on a node with {MOST} HCAs.", scenes,
                       "ours".__eq__, chart.Counts)


def short_table(lines):
    """Yields rows of docs/cost.md: system calls and, in parentheses, those of the floor."""
    columns = [(hcas, "") for hcas in counts_scene.HCAS]
    lines = [line for line in lines if line.floor is not None]
    columns += sorted({(line.hcas, line.name.partition(":")[2]) for line in lines if ":" in line.name}, reverse=True)
    yield ["system calls (floor)", *(f"{hcas} HCA{'' if hcas == 1 else 's'}{',' + suffix if suffix else ''}" for hcas, suffix in columns)]
    found = {line.key: f"{line.calls:,} ({line.floor:,})" for line in lines}
    for name in dict.fromkeys(line.name.partition(":")[0] for line in sorted(lines, key=order)):
        yield [name, *(found.get((f"{name}:{suffix}" if suffix else name, hcas), "") for hcas, suffix in columns)]


def rest_table(rested):
    yield ["daemon, system calls in a minute", "HCAs", "calls", "limit"]
    for name, hcas, calls, most in rested:
        yield [name.removeprefix(counts_scene.AT_REST), str(hcas), f"{calls:,}", f"{most:,}"]


def write_all(lines, rested):
    """Writes counts.md, and tables and chart of docs/cost.md."""
    with open(TABLE, "w", encoding="utf-8") as file:
        file.write(markdown(lines, rested))
    document.write_picture("counts", picture(lines))
    document.replace("counts", document.cells(short_table(lines)))
    document.replace("rest", document.cells(rest_table(rested)))


def read_table():
    lines = [Line.parse(text) for text in harness.read(TABLE).splitlines() if text.startswith("|")]
    return {line.key: line for line in lines if line}


def show(lines, phases):
    rows = [cells if phases else cells[:-1] for cells in rows_of(lines) if cells is not MARKS]
    widths = [max(len(cells[i]) for cells in rows) for i in range(len(rows[0]))]
    for cells in rows:
        aligned = [cell.ljust(width) if i in (0, 8) else cell.rjust(width) for i, (cell, width) in enumerate(zip(cells, widths))]
        print("  ".join(aligned).rstrip())


def rose(now, before):
    return now > before * ALLOWED


def differences(now, before):
    """Yields a sentence for each figure that is worse than in the table."""
    phases = {phase: (before.phases.get(phase, 0), now.phases.get(phase, 0)) for phase in {**now.phases, **before.phases}}
    grown = {phase: pair for phase, pair in phases.items() if pair[1] > pair[0]}
    told = ", ".join(f"{phase} {old} -> {new}" for phase, (old, new) in sorted(grown.items()))
    if rose(now.calls, before.calls):
        yield f"{before.calls} -> {now.calls} system calls: {told}"
    else:
        worse = [phase for phase, (old, new) in sorted(grown.items()) if phase not in OF_THE_LIBRARY and rose(new, old)]
        for phase in worse:
            yield f"{phase}: {phases[phase][0]} -> {phases[phase][1]} system calls"
    if now.instructions and before.instructions and rose(now.instructions, before.instructions):
        yield f"{before.instructions:,} -> {now.instructions:,} instructions" + (f" (system calls: {told})" if told else "")


def check(lines, only, skipped):
    """Returns True if no figure is worse than in the table. Prints the figures that are."""
    table = read_table()
    worse = []
    for line in lines:
        before = table.pop(line.key, None)
        what = f"{line.name}, {line.hcas} HCA{'' if line.hcas == 1 else 's'}"
        worse += [f"{what}: {text}" for text in (differences(line, before) if before else ("is not in the table",))]
        if before and line.calls < before.calls:
            print(f"{what}: {before.calls} -> {line.calls} system calls; remedy: tests/bench/counts --write, in its own commit")
    worse += [f"{name}, {hcas} HCAs: was not counted" for name, hcas in table if name.startswith(only) and name.split()[0] not in skipped]
    for text in worse:
        print(f"counts: {text}", file=sys.stderr)
    if worse:
        print("counts: more than 5 % over tests/bench/counts.md; remedy: see `tests/bench/counts --phases`; if the rise is worth its "
              "cost, run tests/bench/counts --write and commit the reason", file=sys.stderr)
    return not worse


def check_rest(rested):
    """Returns True if no daemon exceeds its limit. Prints those that do."""
    busy = [one for one in rested if one[2] > one[3]]
    for name, hcas, calls, most in busy:
        print(f"counts: {name}, {hcas} HCAs: {calls} system calls in {counts_scene.REST} s, at most {most} are allowed",
              file=sys.stderr)
    return not busy


def valgrind_version():
    return subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()


def why_no_instructions(checking):
    """Returns the reason if instructions cannot be counted or compared here, otherwise an empty text."""
    if not shutil.which("valgrind"):
        return "no valgrind (Debian package valgrind)"
    if checking and f"by {valgrind_version()}." not in harness.read(TABLE):
        return f"tests/bench/counts.md was not counted with {valgrind_version()}"
    build = os.environ.get("BUILD_TYPE", "")
    return "" if build == "Release" else f"the build type is `{build}`, and the table is of Release"


def options():
    parser = argparse.ArgumentParser(prog="tests/bench/counts", description="System calls and instructions of each start, "
                                     "beside the floor: a static C program that does the same work of the kernel.")
    parser.add_argument("--phases", action="store_true", help="also print the system calls of each phase")
    parser.add_argument("--only", metavar="NAME", default="", help="only lines whose name begins with NAME, such as rdma-nri")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="fail if a figure is more than 5 %% over tests/bench/counts.md")
    what.add_argument("--write", action="store_true", help="write tests/bench/counts.md, and its parts of docs/cost.md")
    parsed = parser.parse_args()
    if parsed.write and parsed.only:
        parser.error("--write writes every line; remedy: leave out --only")
    if parsed.write:
        document.check(["counts", "rest"])
    return parsed


def main():
    parsed = options()
    if parsed.check and not os.path.exists(TABLE):
        sys.exit(f"counts: no `{TABLE}`; remedy: tests/bench/counts --write")
    if not harness.GROUP:
        enter_own_machine(counts_scene.requirement(), "nothing counted")
    harness.first_process()
    detach_other_mounts()
    harness.hide_the_machine()
    skipped, missing = {}, why_no_instructions(parsed.check)
    if parsed.write and missing:
        sys.exit(f"counts: --write needs instructions: {missing}")
    counts_scene.prepare()
    daemons = counts_scene.start_daemons(parsed.only, skipped)
    lines = [Line(*measured) for measured in counts_scene.measure(parsed.only, not missing, skipped)]
    rested = [(daemon.name, daemon.hcas, daemon.result(), daemon.most)
              for daemon in sorted(daemons, key=lambda daemon: (daemon.name, daemon.hcas))]
    if missing:
        print(f"instructions are not counted: {missing}")
    if not lines and not rested and not skipped:
        sys.exit(f"counts: no line begins with `{parsed.only}`; remedy: rdma-init, rdma-hook, rdma-runtime, rdma-nri, rdma-dra or "
                 "`at rest`")
    for kind, reason in skipped.items():
        print(f"{kind} is not counted: {reason}")
    if not parsed.check:
        if lines:
            show(lines, parsed.phases)
        for name, hcas, calls, most in rested:
            print(f"{name}, {hcas} HCAs: {calls:,} system calls in {counts_scene.REST} s, at most {most:,}")
    if parsed.write and skipped:
        sys.exit("counts: --write needs every line")
    if parsed.write:
        write_all(lines, rested)
    good = check(lines, parsed.only, skipped) & check_rest(rested) if parsed.check else True
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
