"""A case is one file: bash, with header comments that say what it shows and on which kernels it runs."""

import re
from dataclasses import dataclass
from pathlib import Path

VM_DIR = Path(__file__).resolve().parent.parent
KERNELS = ("6.12", "7.2")
# What the guest's first program is: the lab's own small one, or systemd, which takes longer and does more by itself.
INITS = ("lab", "systemd")
PASS, FAIL, NOT_POSSIBLE = 0, 1, 77

_HEADER = re.compile(r"^# (shows|kernel|init|timeout): *(.+?) *$", re.MULTILINE)


class CaseError(Exception):
    pass


@dataclass(frozen=True)
class Case:
    name: str
    path: Path
    shows: str
    kernels: tuple
    init: str
    timeout: int


def read_case(path):
    """The case in `path`; CaseError when its header is incomplete."""
    fields = dict(_HEADER.findall(path.read_text()))
    for needed in ("shows", "kernel"):
        if needed not in fields:
            raise CaseError(f"{path}: no line `# {needed}: ...` in its header")
    kernels = tuple(fields["kernel"].split())
    unknown = [kernel for kernel in kernels if kernel not in KERNELS]
    if unknown:
        raise CaseError(f"{path}: kernel {unknown[0]} is none of the lab's ({', '.join(KERNELS)})")
    init = fields.get("init", INITS[0])
    if init not in INITS:
        raise CaseError(f"{path}: init {init} is none of the lab's ({', '.join(INITS)})")
    return Case(path.name, path, fields["shows"], kernels, init, int(fields.get("timeout", "300")))


def all_cases(kernel, init):
    """Every case of tests/vm/cases that runs on `kernel` under `init`, by name."""
    files = sorted(path for path in (VM_DIR / "cases").iterdir() if path.is_file())
    return [case for case in map(read_case, files) if kernel in case.kernels and case.init == init]


def find_case(word, kernel, init):
    """`word` is the name of a case, or the path of a file that is one."""
    for path in (VM_DIR / "cases" / word, Path(word)):
        if path.is_file():
            case = read_case(path)
            if kernel not in case.kernels:
                raise CaseError(f"case {case.name} runs on {' and '.join(case.kernels)}, not on {kernel}")
            if case.init != init:
                raise CaseError(f"case {case.name} needs --init {case.init}")
            return case
    raise CaseError(f"no case `{word}` in {VM_DIR / 'cases'}")
