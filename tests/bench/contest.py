"""Measures one section in its own namespaces, and prints a line of JSON for each contestant of a scene.
docs: tests/bench/README.md"""
import argparse
import collections
import os
import resource
import shutil
import subprocess

from scene import enter_own_machine, harness
import section_network
import section_nri
import sections
from turns import take_turns

# scenes(quick) yields names and contestants. The first `warm_up` turns do not count.
Section = collections.namedtuple("Section", ("scenes", "turns", "quick_turns", "warm_up", "requirement"))


def init_requirement():
    """Needs no control groups, and no root if an unprivileged user can make a user namespace."""
    own_user = ["--user", "--map-root-user"] if os.geteuid() != 0 else []
    script = "mount -t tmpfs tmpfs /run; ip netns add pod; ip link add v0 type veth peer name v1 netns pod"
    probe = subprocess.run(["unshare", *own_user, "--net", "--mount", "sh", "-ec", script], capture_output=True, check=False)
    return probe.stderr.decode().strip() if probe.returncode else None


def container_requirement():
    return harness.requirement(device_groups=False)


def hook_requirement():
    return container_requirement() or (None if shutil.which("runc") else "no runc (Debian package runc)")


SECTIONS = {
    "init": Section(sections.init, 200, 2, 1, init_requirement),
    "hook": Section(sections.hook, 60, 2, 1, hook_requirement),
    "shim": Section(sections.shim, 60, 1, 1, container_requirement),
    "nri": Section(section_nri.nri_section, 2000, 20, 20, container_requirement),
    "network": Section(section_network.network, 30, 1, 1, section_network.requirement),
}


def limit_locked_memory():
    """Sets a limit below the limit of rdma-hook's configuration, so that rdma-hook must raise it."""
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (harness.MEMLOCK // 2, hard))


def main():
    parser = argparse.ArgumentParser(prog="contest.py")
    parser.add_argument("section", choices=SECTIONS)
    parser.add_argument("--runs", type=int, metavar="N", help="turns of each contestant")
    parser.add_argument("--quick", action="store_true", help="a few turns in the first scenes")
    options = parser.parse_args()
    section = SECTIONS[options.section]
    if not harness.GROUP:
        enter_own_machine(section.requirement(), "nothing measured")
    harness.first_process()
    if options.section == "init":
        harness.must(["mount", "-t", "tmpfs", "tmpfs", "/run"])
    else:
        harness.hide_the_machine()
    limit_locked_memory()
    turns = options.runs or (section.quick_turns if options.quick else section.turns)
    for scene, contestants in section.scenes(options.quick):
        take_turns(contestants, turns, 0 if options.quick else section.warm_up)
        for contestant in contestants:
            print(contestant.line(scene), flush=True)


if __name__ == "__main__":
    main()
