"""One QEMU guest: its image and its command line."""

import ctypes
import signal
import subprocess
from pathlib import Path

from .cases import NOT_POSSIBLE, VM_DIR, Machine


class LabUnavailable(Exception):
    """The lab cannot run on this machine. The text has the reason and a remedy."""


def image_and_qemu():
    """Returns the directory with disk and kernels, and the path of QEMU. Builds or fetches them if the cache lacks them."""
    image = _made_by("build-image", "the guest's image could not be built")
    return image, str(_made_by("fetch-qemu", "QEMU could not be fetched") / "run-qemu")


def _made_by(program, failure):
    built = subprocess.run([VM_DIR / program], stdout=subprocess.PIPE, text=True, check=False)
    answer = built.stdout.strip()
    if built.returncode == NOT_POSSIBLE:
        raise LabUnavailable(answer)
    if built.returncode != 0:
        raise RuntimeError(f"{failure}; tests/vm/{program} has printed the reason")
    return Path(answer)


_KERNEL_WORDS = {
    ("init", "systemd"): "init=/lib/systemd/systemd systemd.unit=lab.service systemd.show_status=0"
    " systemd.default_timeout_start_sec=300",
    ("rdma", "exclusive"): "ib_core.netns_mode=0",
}


def _kernel_words(machine):
    return " ".join(words for (field, value), words in _KERNEL_WORDS.items() if getattr(machine, field) == value)


def _nics(machine):
    """Returns the options for two NICs on one wire, below separate root ports, which SR-IOV requires."""
    line = []
    for number in range(2 if machine.nics == "igb" else 0):
        line += [
            "-netdev", f"hubport,id=wire{number},hubid=0",
            "-device", f"pcie-root-port,id=root{number},chassis={number + 1},slot={number + 1}",
            "-device", f"igb,bus=root{number},netdev=wire{number},mac=52:54:00:12:34:{number:02x},romfile=",
        ]
    return line


# Without features that are slow in an emulated CPU and that no case needs: string instructions byte by byte, a fifth level of page
# tables, a change of translation at each access to user memory, pages zeroed twice.
CPU = "max,-erms,-fsrm,-la57,-smap,-smep,-pku,-umip"
CHEAP = "mitigations=off nokaslr init_on_alloc=0 clearcpuid=rep_good"


def command(image, qemu, kernel, shares, serial, append="", machine=Machine()):
    """Returns the QEMU command line. shares: list of (tag, directory, writable). serial: a -serial argument."""
    append = f"{_kernel_words(machine)} {append}"
    line = [
        qemu,
        "-machine", "q35",
        # One emulated CPU on one thread: with more CPUs, QEMU 7.2 sometimes panicked the guest while the kernel patched its text.
        "-accel", "tcg,thread=single", "-smp", "1", "-cpu", CPU, "-m", "3072",
        "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
        "-kernel", str(image / f"vmlinuz-{kernel}"), "-initrd", str(image / f"initrd-{kernel}"),
        "-append", f"console=ttyS0 quiet oops=panic panic=-1 {CHEAP} random.trust_cpu=on {append}".strip(),
        "-drive", f"file={image / 'disk.img'},if=virtio,format=raw,snapshot=on",
        "-device", "virtio-rng-pci",
        "-serial", serial,
    ]
    for tag, directory, writable in shares:
        # A comma in a path would end the value; QEMU reads two commas as one.
        path = str(directory).replace(",", ",,")
        line += ["-virtfs", f"local,path={path},mount_tag={tag},security_model=none" + ("" if writable else ",readonly=on")]
    return line + _nics(machine)


def die_with_parent():
    """Called in the child: the guest ends if its runner is killed."""
    pr_set_pdeathsig = 1
    ctypes.CDLL(None, use_errno=True).prctl(pr_set_pdeathsig, signal.SIGKILL)
