"""A case is one file: bash, with header comments that say what it shows and on which kernels it runs."""

import re
from dataclasses import dataclass
from pathlib import Path

VM_DIR = Path(__file__).resolve().parent.parent
KERNELS = ("6.12", "7.2")
# What a boot can be, by the field of a case's header that asks for it; the first of each is the default.
# init: the guest's first program, the lab's own small one or systemd, which takes longer and does more by itself.
# rdma: whether network namespaces share the RDMA devices; ib_core is told when it is loaded, before any other namespace is there.
# nics: emulated NICs with SR-IOV, two on one wire.
# boot: a boot of their own for cases that take long, beside that of the others, and for cgroup v1, which stays until the guest ends.
VARIANTS = {"init": ("lab", "systemd"), "rdma": ("shared", "exclusive"), "nics": ("none", "igb"), "boot": ("usual", "engines", "cgroup-v1")}
PASS, FAIL, NOT_POSSIBLE = 0, 1, 77

_HEADER = re.compile(r"^# (shows|kernel|init|rdma|nics|boot|long|timeout): *(.+?) *$", re.MULTILINE)


class CaseError(Exception):
    pass


@dataclass(frozen=True)
class Machine:
    """What else than the kernel one boot has."""

    init: str = "lab"
    rdma: str = "shared"
    nics: str = "none"
    boot: str = "usual"

    def suffix(self):
        """Of the name of a boot: `-systemd`, `-exclusive`; nothing for the usual machine."""
        chosen = [(getattr(self, field), values[0]) for field, values in VARIANTS.items()]
        return "".join(f"-{value}" for value, usual in chosen if value != usual)

    def options(self):
        """Those of `tests/vm/run` that choose it."""
        chosen = [(field, getattr(self, field), values[0]) for field, values in VARIANTS.items()]
        return " ".join(f"--{field} {value}" for field, value, usual in chosen if value != usual) or "no option"


@dataclass(frozen=True)
class Case:
    name: str
    path: Path
    shows: str
    kernels: tuple
    machine: Machine
    timeout: int
    long: bool  # runs only when it is named


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
    chosen = {field: fields.get(field, values[0]) for field, values in VARIANTS.items()}
    for field, value in chosen.items():
        if value not in VARIANTS[field]:
            raise CaseError(f"{path}: {field} {value} is none of the lab's ({', '.join(VARIANTS[field])})")
    return Case(path.name, path, fields["shows"], kernels, Machine(**chosen), int(fields.get("timeout", "300")), "long" in fields)


def all_cases(kernel, machine):
    """Every case of tests/vm/cases that runs on `kernel` in `machine`, by name, but for those that have to be named."""
    files = sorted(path for path in (VM_DIR / "cases").iterdir() if path.is_file())
    return [case for case in map(read_case, files) if kernel in case.kernels and case.machine == machine and not case.long]


def find_case(word, kernel):
    """`word` is the name of a case, or the path of a file that is one."""
    for path in (VM_DIR / "cases" / word, Path(word)):
        if path.is_file():
            case = read_case(path)
            if kernel not in case.kernels:
                raise CaseError(f"case {case.name} runs on {' and '.join(case.kernels)}, not on {kernel}")
            return case
    raise CaseError(f"no case `{word}` in {VM_DIR / 'cases'}")
