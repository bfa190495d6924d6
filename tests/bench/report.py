"""Runs the benchmarks' programs and makes of what they measured a table in Markdown and a chart for each section.
docs: tests/bench/README.md"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import chart

SKIP = 77
FEW = 500  # runs, below which a p99 says nothing


class Bar:
    """What one contestant took in one scene, in milliseconds."""

    def __init__(self, line):
        self.scene, self.contestant, self.ms = line["scene"], line["contestant"], sorted(line["ms"])
        self.more = {name: statistics.median(values) for name, values in line.get("more", {}).items() if values}
        if len(self.ms) >= FEW:
            self.more = {"p99": self.within(0.99), **self.more}
        self.detail = line.get("detail", False)  # a part of another: in the table, not in the chart
        self.median, self.p10, self.p90 = statistics.median(self.ms), self.within(0.1), self.within(0.9)

    def within(self, share):
        return self.ms[min(int(share * len(self.ms)), len(self.ms) - 1)]

    def text(self):
        return f"{chart.number(self.median)} ({chart.number(self.p10)}–{chart.number(self.p90)})"


class Section:
    """compared: (left, operator, right, the same in words); right may be several contestants, which are added.
    minutes: what that many runs took on two cores."""

    def __init__(self, title, what, aims, ours, compared, program, quick, runs, minutes, wide=False):
        self.title, self.what, self.aims, self.ours, self.compared = title, what, aims, ours, compared
        self.program, self.quick, self.runs, self.minutes, self.wide = program, quick, runs, minutes, wide

    def duration(self, runs):
        return f"{runs} runs, about {max(1, round(self.minutes * runs / self.runs))} min"

    def is_ours(self, contestant):
        return contestant.startswith(self.ours)


ASKED = ("nothing is asked", "1 HCA", "8 HCAs")
IDLE_HOOKS = ("createRuntime hook that does nothing", "poststop hook only")
NETWORK_ADD = "CNI ADD, macvlan + tuning + sbr"
NETWORK_DEL = "CNI DEL, sbr + tuning + macvlan"
SECTIONS = {
    "init": Section(
        "A start through rdma-init", "From the spawn of the program to the end of `true`.",
        "nccl_env.sh at least 1,000 x at 8 HCAs; reading every slot above 1 x; rdma-init at most 1.2 x tini-static without RDMA",
        "rdma-init",
        [("rdma-init -- true", "/", "tini-static -- true", "rdma-init / tini"),
         ("rdma-init --reap -- true", "/", "tini-static -- true", "rdma-init --reap / tini"),
         ("read every slot, in C", "/", "rdma-init -- true", "reader / rdma-init"),
         ("nccl_env.sh", "/", "rdma-init -- true", "script / rdma-init")],
        ["tests/bench/bench_init", "init/rdma-init", "tests/bench/read_gid_slots"],
        ["--runs", "2", "--script-runs", "0", "--hcas", "0,2,40"], 200, 5, wide=True),
    "hook": Section(
        "rdma-hook in `runc run` of `true`",
        "Hooks at createRuntime and poststop; HCAs asked for, size of config.json, VFs of the node, grants of others.",
        "rdma-hook at most 2 ms over the C hook, whatever VFs and grants there are",
        "rdma-hook",
        [("C hook that drains stdin", "-", "no hook", "C hook - no hook"),
         ("rdma-hook", "-", "C hook that drains stdin", "rdma-hook - C hook"),
         ("rdma-hook", "/", "no hook", "rdma-hook / no hook")],
        ["tests/bench/bench_hook", "hook/rdma-hook", "tests/bench/drain_stdin"], ["--runs", "2", "--scenes", "2"], 60, 2,
        wide=True),
    "shim": Section(
        "rdma-runtime in `create`",
        "Size of config.json; alone: in front of a program that ends at once.",
        "at most 2 ms over the exec-only wrapper; `create` at most 1.06 x as long as directly",
        "rdma-runtime",
        [(f"directly, {hook}", "-", "directly", "over directly") for hook in IDLE_HOOKS] +
        [(f"rdma-runtime, {asked}", *against) for asked in ASKED
         for against in (("-", "exec-only wrapper", "over exec-only"), ("/", "directly", "directly"))],
        ["tests/bench/bench_shim", "tests/shim/runtime-with-settings", "hook/rdma-hook", "tests/bench/shim_exec_only",
         "tests/bench/drain_stdin", "tests/bench/shim_peak"], ["--runs", "1"], 60, 3),
    "nri": Section(
        "rdma-nri's answer to a container's creation",
        "CreateContainer; in a pod with a network of its own RunPodSandbox and CreateContainer, added. Grants of others.",
        "below the plugin that does nothing in p50 and p99, asked or not; at most 4 MiB, the same before and after",
        "rdma-nri",
        [(f"rdma-nri, {asked}", "/", "does nothing, on Go's stub", "does nothing")
         for asked in ASKED],
        ["tests/bench/bench_nri", "shim/nri/rdma-nri", "--idle-plugin", "tests/shim/adaptation/idle-0.8.0"],
        ["--runs", "20", "--scenes", "3"], 2000, 2),
    "network": Section(
        "Rails by rdma-hook and by a chain of CNI plugins",
        "From the spawn to the end of the programs that give rails or take them back.",
        "with 8 rails, CNI ADD at least 8 x createRuntime; poststop at most 1.1 x the bare deletion, one by one",
        ("createRuntime", "poststop"),
        [("createRuntime, rails into a pod", "-", "createRuntime, device nodes only", "over device nodes only"),
         (NETWORK_ADD, "/", "createRuntime, rails into a pod", "createRuntime, pod"),
         (NETWORK_ADD, "/", "createRuntime, rails into its own namespace", "createRuntime, own"),
         ("poststop, rails, namespace lives", "/", "bare: a message for each netdev", "bare"),
         ("poststop, rails, namespace lives", "/", ("bare: a message for each netdev", "spawn of true"),
          "(bare + spawn)"),
         (NETWORK_DEL, "/", "poststop, rails, namespace lives", "poststop")],
        [sys.executable, os.path.dirname(os.path.abspath(__file__)) + "/network.py"], ["--runs", "1", "--rails", "1,8"], 30, 2),
}


def compare(scene, left, operator, right):
    """scene: bars by contestant. Empty: one of them has not run."""
    names = (right,) if isinstance(right, str) else right
    if left not in scene or any(name not in scene for name in names):
        return ""
    mine, other = scene[left].median, sum(scene[name].median for name in names)
    return f"{mine - other:+.2f} ms" if operator == "-" else f"{chart.number(mine / other)} x"


def by_scene(bars):
    scenes = {}
    for bar in bars:
        scenes.setdefault(bar.scene, {})[bar.contestant] = bar
    return scenes


def wide_table(section, bars):
    """A line for each scene."""
    contestants = list(dict.fromkeys(bar.contestant for bar in bars))
    yield ["", *contestants, *(words for *_, words in section.compared)]
    for name, scene in by_scene(bars).items():
        yield [name, *(scene[who].text() if who in scene else "" for who in contestants),
               *(compare(scene, *terms) for *terms, _ in section.compared)]


def long_table(section, bars):
    """A line for each contestant of each scene."""
    more = list(dict.fromkeys(name for bar in bars for name in bar.more))
    yield ["", "", "median (p10–p90)", "least", *more, "compared"]
    for name, scene in by_scene(bars).items():
        for who, bar in scene.items():
            compared = [f"{compare(scene, *terms)} {words}" for *terms, words in section.compared
                        if terms[0] == who and compare(scene, *terms)]
            yield [name, who, bar.text(), chart.number(bar.ms[0]),
                   *(chart.number(bar.more[key]) if key in bar.more else "" for key in more), "; ".join(compared)]
            name = ""


def markdown(rows):
    rows = list(rows)
    widths = [max(3, *(len(row[column]) for row in rows)) for column in range(len(rows[0]))]
    rows.insert(1, ["-" * width for width in widths])
    return "".join("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |\n" for row in rows)


def section_text(section, bars, result, picture):
    text = f"## {section.title}\n\n{section.what}"
    if result["code"] not in (0, SKIP):
        text += f"\n\n**Not complete: the program failed with exit code {result['code']}.**"
    notes = "".join(f"\n\n{note}" for note in result["notes"])
    if not bars:
        return f"{text}\n\nNothing was measured.{notes}\n"
    runs = sorted({len(bar.ms) for bar in bars})
    runs = f"{runs[0]} to {runs[-1]}" if runs[1:] else runs[0]
    text += f" Milliseconds, median (p10–p90) of {runs} runs in turns.\n\n"
    text += f"{notes.strip()}\n\n" if notes else ""
    text += f"![{section.title}]({picture})\n\n" if picture else ""
    return text + markdown((wide_table if section.wide else long_table)(section, bars)) + f"\nAims: {section.aims}.\n"


def machine():
    """One line about where this was measured."""
    models = [line.split(":")[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8") if "model name" in line]
    model = f"{len(models)} x {models[0]}" if models else f"{os.cpu_count()} CPUs"
    return f"{model}, Linux {os.uname().release}, load {os.getloadavg()[0]:.1f} before the first run"


def measure(section, build, options):
    """The lines that the section's program printed as JSON, what else it said, its exit code."""
    program = [word if word.startswith(("-", "/")) else f"{build}/{word}" for word in section.program]
    arguments = section.quick if options.quick else ["--runs", str(options.runs or section.runs)]
    environment = {**os.environ, "TESTED_HOOK": f"{build}/hook/rdma-hook", "MAKE_TREE": f"{build}/tests/support/make-tree",
                   "PYTHONDONTWRITEBYTECODE": "1"}
    lines, notes, shown = [], [], ""
    with subprocess.Popen([*program, *arguments, *options.more], stdout=subprocess.PIPE, text=True,
                          env=environment) as process:
        for text in process.stdout:
            if not text.startswith('{"'):
                if text.strip() not in notes:
                    print(text, end="", flush=True)
                    notes += [text.strip()] if text.strip() else []
                continue
            lines.append(json.loads(text))
            if lines[-1]["scene"] != shown:
                shown = lines[-1]["scene"]
                print("   ", shown, file=sys.stderr, flush=True)
    return {"lines": lines, "notes": notes, "code": process.returncode}


def write_report(results, out, where):
    """A file for the tables, and one for each chart. Returns the text."""
    out.mkdir(parents=True, exist_ok=True)
    text = f"# What it costs\n\n{where}.\n"
    for name, result in results.items():
        section, bars = SECTIONS[name], [Bar(line) for line in result["lines"]]
        if bars:
            groups = [(scene, [bar for bar in by_name.values() if not bar.detail])
                      for scene, by_name in by_scene(bars).items()]
            picture = chart.chart(section.title.replace("`", ""), section.what.replace("`", ""), groups, section.is_ours)
            (out / f"{name}.svg").write_text(picture, encoding="utf-8")
        text += "\n" + section_text(section, bars, result, f"{name}.svg" if bars else "")
    (out / "bench.md").write_text(text, encoding="utf-8")
    return text


def parse():
    parser = argparse.ArgumentParser(prog="tests/bench/all", epilog="Other options go to the programs (README.md).")
    parser.add_argument("build", help=argparse.SUPPRESS)
    parser.add_argument("sections", help=argparse.SUPPRESS, type=lambda text: text.split(","))
    parser.add_argument("--out", type=pathlib.Path, metavar="DIR", help="where bench.md, charts and results.json go")
    parser.add_argument("--runs", type=int, metavar="N", help="of each section")
    parser.add_argument("--quick", action="store_true", help="a few runs, which say nothing but that all works")
    parser.add_argument("--redraw", action="store_true", help="measures nothing: from DIR's results.json")
    options, options.more = parser.parse_known_args()
    options.out = options.out or pathlib.Path(options.build, "bench")
    return options


def main():
    options = parse()
    kept = options.out / "results.json"
    if options.redraw:
        read = json.loads(kept.read_text(encoding="utf-8"))
        where, results = read["where"], read["results"]
    else:
        where, results = machine(), {}
        for place, name in enumerate(options.sections, 1):
            wait = "a few runs" if options.quick else SECTIONS[name].duration(options.runs or SECTIONS[name].runs)
            print(f"{name} ({place} of {len(options.sections)}): {wait}", file=sys.stderr, flush=True)
            results[name] = measure(SECTIONS[name], options.build, options)
    codes = [result["code"] for result in results.values()]
    if any(result["lines"] for result in results.values()):
        text = write_report(results, options.out, where)
        kept.write_text(json.dumps({"where": where, "results": results}), encoding="utf-8")
        print(f"{text}\n{options.out}/bench.md and its charts are written", flush=True)
    return next((code for code in codes if code not in (0, SKIP)), SKIP if SKIP in codes else 0)


if __name__ == "__main__":
    sys.exit(main())
