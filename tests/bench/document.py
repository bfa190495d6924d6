"""The parts of docs/cost.md that the benchmarks write: tables between marks, and charts. docs: tests/bench/README.md"""
import pathlib
import re

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
DOCUMENT = DOCS / "cost.md"


def cells(value):
    """Returns the lines of a table in Markdown. value: rows of texts; the first row is the head."""
    head, *rows = value
    mark = ["---", *["--:" for _ in head[1:]]]
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, mark, *rows))


def part(name):
    return re.compile(f"(<!-- begin {name}: [^\n]* -->\n).*(<!-- end {name} -->\n)", re.DOTALL)


def check(names):
    """Exits with an error unless the document has these parts. Call it before a measurement of minutes."""
    document = DOCUMENT.read_text(encoding="utf-8")
    for name in names:
        if len(part(name).findall(document)) != 1:
            raise SystemExit(f"{DOCUMENT} has no part `{name}`; remedy: add `<!-- begin {name}: ... -->` and `<!-- end {name} -->`")


def replace(name, text):
    """Replaces the text between the marks of this name."""
    document = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(part(name).sub(lambda match: f"{match[1]}\n{text}\n{match[2]}", document), encoding="utf-8")


def write_picture(name, picture):
    (DOCS / "pictures" / f"cost-{name}.svg").write_text(picture, encoding="utf-8")
