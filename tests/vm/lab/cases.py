"""Reads cases. A case is one bash file, whose header comments name the shown behaviour and the kernels on which it runs."""

import re
from dataclasses import dataclass
from pathlib import Path

VM_DIR = Path(__file__).resolve().parent.parent
KERNELS = ("6.12", "7.2")  # the last is the default of a case
# The kinds of boots, by field of a case's header. The first value of each is the default.
# init: the guest's first program: the lab's own small program, or systemd, which takes longer and does more by itself.
# rdma: whether network namespaces share the RDMA devices. It is a parameter of ib_core, which loads before there are other namespaces.
# nics: two emulated NICs with SR-IOV on one wire.
# boot: a separate boot for cases that take long, parallel to the usual boot, and for cgroup v1, which stays until the guest ends.
VARIANTS = {"init": ("lab", "systemd"), "rdma": ("shared", "exclusive"), "nics": ("none", "igb"), "boot": ("usual", "engines", "cgroup-v1")}
PASS, FAIL, NOT_POSSIBLE = 0, 1, 77

_HEADER = re.compile(r"^# (shows|kernel|init|rdma|nics|boot|long|timeout): *(.+?) *$", re.MULTILINE)


class CaseError(Exception):
    pass


@dataclass(frozen=True)
class Machine:
    """The properties of a boot besides its kernel."""

    init: str = "lab"
    rdma: str = "shared"
    nics: str = "none"
    boot: str = "usual"

    def special(self):
        """Returns (field, value) of each field without its default."""
        return [(field, getattr(self, field)) for field, values in VARIANTS.items() if getattr(self, field) != values[0]]

    def suffix(self):
        """Returns the suffix of the name of a boot: `-systemd`, `-exclusive`, or nothing for the usual machine."""
        return "".join(f"-{value}" for _, value in self.special())

    def options(self):
        """Returns the options of `tests/vm/run` for this machine."""
        return " ".join(f"--{field} {value}" for field, value in self.special()) or "no option"


@dataclass(frozen=True)
class Case:
    name: str
    path: Path
    shows: str
    kernels: tuple
    machine: Machine
    timeout: int
    long: tuple  # the kernels on which it runs only with --long or by its name


def read_case(path):
    """Returns the case in `path`. Raises CaseError if its header is incomplete."""
    fields = dict(_HEADER.findall(path.read_text()))
    if "shows" not in fields:
        raise CaseError(f"{path}: no line `# shows: ...` in its header")
    kernels = tuple(fields.get("kernel", KERNELS[-1]).split())
    long = kernels if fields.get("long") == "yes" else tuple(fields.get("long", "").split())
    unknown = [kernel for kernel in kernels + long if kernel not in KERNELS]
    if unknown:
        raise CaseError(f"{path}: kernel {unknown[0]} is none of the lab's ({', '.join(KERNELS)})")
    chosen = {field: fields.get(field, values[0]) for field, values in VARIANTS.items()}
    for field, value in chosen.items():
        if value not in VARIANTS[field]:
            raise CaseError(f"{path}: {field} {value} is none of the lab's ({', '.join(VARIANTS[field])})")
    return Case(path.name, path, fields["shows"], kernels, Machine(**chosen), int(fields.get("timeout", "300")), long)


def all_cases(kernel, machine, long=False):
    """Returns the cases of tests/vm/cases for `kernel` and `machine`, sorted by name: the long ones or the others."""
    files = sorted(path for path in (VM_DIR / "cases").iterdir() if path.is_file())
    return [case for case in map(read_case, files) if kernel in case.kernels and case.machine == machine and (kernel in case.long) == long]


def find_case(word, kernel):
    """Returns a case. word: its name, or the path of its file."""
    for path in (VM_DIR / "cases" / word, Path(word)):
        if path.is_file():
            case = read_case(path)
            if kernel not in case.kernels:
                raise CaseError(f"case {case.name} runs on {' and '.join(case.kernels)}, not on {kernel}")
            return case
    raise CaseError(f"no case `{word}` in {VM_DIR / 'cases'}")
