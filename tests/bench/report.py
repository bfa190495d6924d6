"""Runs contest.py for each section, and writes its results as a table in Markdown and a chart. docs: tests/bench/README.md"""
import argparse
import collections
import datetime
import json
import os
import pathlib
import statistics
import subprocess
import sys

import chart
import document
from scene import BEFORE

SKIP = 77
FEW = 500  # turns, below which a p99 has no meaning

# ours: the beginning of the names of our contestants. kind: the chart's. compared: (left, operator, right, name of the result).
# figures: those of the tables in docs/cost.md, which compare each contestant with `beside`, by `/` or `-`.
Section = collections.namedtuple("Section", ("title", "what", "aims", "ours", "kind", "figures", "beside", "compared"))
TIME = "milliseconds"

ASKED = ("no request", "1 HCA", "8 HCAs")
SECTIONS = {
    "init": Section(
        "A start by rdma-init", "From the spawn of the program to the end of `true`.",
        "nccl_env.sh at least 1,000 x at 8 HCAs; reading every slot above 1 x; "
        "rdma-init at most 1.2 x tini-static without RDMA",
        "rdma-init", chart.Points, (TIME,), ("/", "tini-static -- true"),
        [("rdma-init -- true", "/", "tini-static -- true", "tini"),
         ("rdma-init --reap -- true", "/", "tini-static -- true", "tini"),
         ("read every slot, in C", "/", "rdma-init -- true", "rdma-init"),
         ("nccl_env.sh", "/", "rdma-init -- true", "rdma-init")]),
    "hook": Section(
        "rdma-hook in `runc run` of `true`",
        "Hooks at createRuntime and poststop; requested HCAs, size of config.json, VFs of the node, grants of other containers.",
        "rdma-hook at most 2 ms over the C hook, for any number of VFs and grants",
        "rdma-hook", chart.Bars, (TIME, "CPU, ms"), ("-", "C hook that drains stdin"),
        [("C hook that drains stdin", "-", "no hook", "over no hook"),
         ("rdma-hook", "-", "C hook that drains stdin", "over the C hook"),
         ("rdma-hook", "/", "no hook", "no hook")]),
    "shim": Section(
        "rdma-runtime in `create`", "Size of config.json; alone: with a program that ends at once as the runtime.",
        "at most 2 ms over the exec-only wrapper; `create` at most 1.06 x as long as directly",
        "rdma-runtime", chart.Bars, (TIME, "CPU, ms"), ("/", "exec-only wrapper"),
        [("directly, createRuntime hook that does nothing", "/", "directly", "directly"),
         *((f"rdma-runtime, {asked}", *against) for asked in ASKED
           for against in (("-", "exec-only wrapper", "over exec-only"), ("/", "directly", "directly")))]),
    "nri": Section(
        "rdma-nri's answer to a container's creation",
        "CreateContainer; in a pod with its own network the sum of RunPodSandbox and CreateContainer. Grants of other containers.",
        "below the plugin that does nothing in p50 and p99, with and without a request; at most 4 MiB, the same before and after",
        "rdma-nri", chart.Points, (TIME, "MiB after"), ("/", "does nothing, on Go's stub"),
        [(f"rdma-nri, {asked}", "/", "does nothing, on Go's stub", "does nothing") for asked in ASKED]),
    "network": Section(
        "Rails by rdma-hook and by a chain of CNI plugins",
        "createRuntime or ADD, from the spawn to the end of the programs that add rails; undo: poststop or DEL.",
        "with 8 rails the CNI plugins take at least 8 x as long",
        "rdma-hook", chart.Points, (TIME, "undo, ms"), ("/", "rdma-hook, rails"),
        [("rdma-hook, rails", "-", "rdma-hook, device nodes only", "over device nodes only"),
         ("CNI, macvlan + tuning + sbr", "/", "rdma-hook, rails", "rdma-hook")]),
}


class Bar:
    """The times of one contestant in one scene, in milliseconds."""

    def __init__(self, line):
        self.contestant, self.ms, self.figures = line["contestant"], sorted(line["ms"]), line["figures"]
        if len(self.ms) >= FEW:
            self.figures = {"p99": self.within(0.99), **self.figures}
        self.median, self.p10, self.p90 = statistics.median(self.ms), self.within(0.1), self.within(0.9)

    def figure(self, name):
        return self.median if name == TIME else self.figures.get(name)

    def within(self, share):
        return self.ms[min(int(share * len(self.ms)), len(self.ms) - 1)]

    def text(self):
        return f"{chart.number(self.median)} ({chart.number(self.p10)}–{chart.number(self.p90)})"


def by_scene(lines):
    scenes = {}
    for line in lines:
        scenes.setdefault(line["scene"], []).append(Bar(line))
    return scenes


def comparisons(section, contestant, medians):
    """Yields the comparisons of a contestant with other contestants of its scene."""
    if contestant + BEFORE in medians:
        yield f"{chart.number(medians[contestant] / medians[contestant + BEFORE])} x before"
    for left, operator, right, words in section.compared:
        if left == contestant and right in medians:
            mine, other = medians[left], medians[right]
            yield f"{mine - other:+.2f} ms {words}" if operator == "-" else f"{chart.number(mine / other)} x {words}"


def table(section, scenes):
    figures = list(dict.fromkeys(name for bars in scenes.values() for bar in bars for name in bar.figures))
    yield ["", "", "median (p10–p90)", "least", *figures, "compared"]
    for name, bars in scenes.items():
        medians = {bar.contestant: bar.median for bar in bars}
        for bar in bars:
            yield [name, bar.contestant, bar.text(), chart.number(bar.ms[0]),
                   *(chart.number(bar.figures[key]) if key in bar.figures else "" for key in figures),
                   "; ".join(comparisons(section, bar.contestant, medians))]
            name = ""


def short_table(section, scenes, figure):
    """Yields a row for each scene, with the figure of each contestant."""
    contestants = list(dict.fromkeys(bar.contestant for bars in scenes.values() for bar in bars if bar.figure(figure) is not None))
    yield [figure, *contestants]
    operator, reference = section.beside
    for name, bars in scenes.items():
        values = {bar.contestant: bar.figure(figure) for bar in bars if bar.figure(figure) is not None}
        other = values.get(reference)

        def cell(contestant):
            if contestant not in values:
                return ""
            if not other or contestant == reference:
                return chart.number(values[contestant])
            value = values[contestant]
            beside = f"{value - other:+.1f}" if operator == "-" else f"{chart.number(value / other)} x"
            return f"{chart.number(value)} ({beside})"

        yield [name, *map(cell, contestants)]


def write_documents(results):
    """Writes tables and charts of the measured sections to docs."""
    for name, lines in results.items():
        if lines:
            section, scenes = SECTIONS[name], by_scene(lines)
            document.write_picture(name, picture_of(section, scenes))
            document.replace(name, "\n".join(document.cells(short_table(section, scenes, figure)) for figure in section.figures))
    document.replace("machine", f"{datetime.date.today()}: {machine()}.\n")


def picture_of(section, scenes):
    return chart.chart(section.title.replace("`", ""), section.what.replace("`", ""), scenes,
                       lambda contestant: contestant.startswith(section.ours), section.kind)


def markdown(rows):
    rows = list(rows)
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return "".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |\n" for row in rows)


def section_text(name, scenes, notes, code):
    section = SECTIONS[name]
    text = f"## {section.title}\n\n{section.what}"
    if code not in (0, SKIP):
        text += f"\n\n**Not complete: the program failed with exit code {code}.**"
    notes = "".join(f"\n\n{note}" for note in notes)
    if not scenes:
        return f"{text}\n\nNothing was measured.{notes}\n"
    runs = sorted({len(bar.ms) for bars in scenes.values() for bar in bars})
    runs = f"{runs[0]} to {runs[-1]}" if runs[1:] else runs[0]
    text += f" Milliseconds, median (p10–p90) of {runs} runs in turns.{notes}\n\n![{section.title}]({name}.svg)\n\n"
    return text + markdown(table(section, scenes)) + f"\nAims: {section.aims}.\n"


def measure(name, options):
    """Returns the JSON lines of contest.py, its other output, and its exit code."""
    program = [sys.executable, os.path.dirname(os.path.abspath(__file__)) + "/contest.py", name,
               *(["--quick"] if options.quick else []), *(["--runs", str(options.runs)] if options.runs else [])]
    lines, notes, shown = [], [], ""
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        for text in process.stdout:
            if not text.startswith('{"'):
                notes.append(text.strip())
                print(text, end="", flush=True)
                continue
            lines.append(json.loads(text))
            if lines[-1]["scene"] != shown:
                shown = lines[-1]["scene"]
                print("   ", shown, file=sys.stderr, flush=True)
    return lines, notes, process.returncode


def machine():
    """Returns a line about the machine."""
    models = [line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if "model name" in line]
    model = f"{len(models)} x {models[0]}" if models else f"{os.cpu_count()} CPUs"
    return f"{model}, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before the first run"


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/run")
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"{', '.join(SECTIONS)}; all of them by default")
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="directory of bench.md, charts and results.json")
    parser.add_argument("--runs", type=int, metavar="N", help="turns of each contestant")
    parser.add_argument("--docs", action="store_true", help="also write docs/cost.md and its charts")
    parser.add_argument("--against", metavar="DIR", help="also measure the programs of another worktree in turns with these")
    parser.add_argument("--quick", action="store_true", help="a few runs, which only test that all sections work")
    options = parser.parse_args()
    options.sections = options.sections or list(SECTIONS)
    if not set(options.sections) <= set(SECTIONS):
        parser.error(f"sections are {', '.join(SECTIONS)}")
    if options.docs and options.against:
        parser.error("--docs writes the figures of one build; remedy: leave out --against")
    if options.docs:
        document.check([*options.sections, "machine"])
    options.out = options.out or pathlib.Path(os.environ["BENCH_PROGRAMS"], "report")
    return options


def main():
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    text, codes, results = f"# Cost\n\n{machine()}.\n", [], {}
    for name in options.sections:
        print(f"{name}:", file=sys.stderr, flush=True)
        results[name], notes, code = measure(name, options)
        codes.append(code)
        scenes = by_scene(results[name])
        text += "\n" + section_text(name, scenes, notes, code)
        if scenes:
            (options.out / f"{name}.svg").write_text(picture_of(SECTIONS[name], scenes), encoding="utf-8")
    (options.out / "bench.md").write_text(text, encoding="utf-8")
    (options.out / "results.json").write_text(json.dumps(results), encoding="utf-8")
    if options.docs:
        write_documents(results)
    print(f"{text}\n{options.out}/bench.md and its charts are written", flush=True)
    return next((code for code in codes if code not in (0, SKIP)), SKIP if SKIP in codes else 0)


if __name__ == "__main__":
    sys.exit(main())
