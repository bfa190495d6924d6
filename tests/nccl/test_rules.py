#!/usr/bin/env python3
"""test_rules.py PROGRAMS PROJECT_RULES COUNT [SEED]: asks NCCL itself and the project the same random questions, COUNT
of each topic and version.

PROGRAMS is the directory that build-programs fills. Any difference fails. The seed is printed; the same seed asks the same
questions.
"""
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys

SHOWN = 5  # differences of one topic and version


def question(fields, variables):
    """Returns one line of questions.hpp: the fields of its kind, then variables."""
    fields = fields + [f"{name}={value}" for name, value in variables.items()]
    for plain, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
        fields = [field.replace(plain, escape) for field in fields]
    return "\t".join(fields)


# ---- The questions. None of them may end NCCL's process: NCCL_IB_ADDR_RANGE without "/" ends 2.22.3, a name of 64 bytes
# overflows a buffer before 2.30.7, and so do more than 128 queue pairs and more than 32 ports of which one device has several.

IPV4 = ["0a010001", "0a010032", "0a020001", "ac100501", "c0a80001", "7f000001", "00000000", "a9fe0101"]
IPV6 = ["fd000001000000000000000000000001", "20010db8000000000000000000000007", "fe800000000000000000000000000001",
        "fe800000000000010000000000000001", "fe800001000000000000000000000005", "fec00000000000000000000000000009",
        "00000000000000000000000000000001", "fd000001000000000000ffff0a010001", "0064ff9b00000000000000000a010001"]
RANGES = ["", "", "", "", "10.1.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "0.0.0.0/0", "10.1.0.50/32", "10.1.0.50/31", "fd00::/8",
          "2000::/3", "fe80::/10", "fd00:1::1/128", "fd00:1::/33", "fd00:1::/96", "::/0", "10.1.0.0/33", "10.1.0.0/-1",
          "10.1.0.0/x", "/16", "10.1/16", " 10.1.0.0/16", "10.1.0.0 /16", "10.1.0.0/ 16", "10.1.0.0/0x10",
          "10.1.0.0/16,10.2.0.0/16", "::ffff:10.1.0.0/112", "fd00::/129", "fd00::/-5", "10.1.0.0/16/3", "010.1.0.0/16",
          "10.1.0.0/+16", "fd00::%eth0/8", "10.1.0.0/4294967312", "10.1.0.0/99999999999999999999", "0x0a.1.0.0/16",
          "10.65536/16", "10.1.0.0//16", "10.1.0.0/1", "fe80::/64"]
DEVICES = ["mlx5_0", "mlx5_1", "mlx5_10", "rxe0", "a", "mlx5", "m", "mlx5_bond_0", "x" * 63]
TABLE = "0:fe800000000000000000000000000001:2,1:00000000000000000000ffff0a010001:2,2:fd000001000000000000000000000001:2"
NUMBERS = ["", "0", "1", "2", "3", "5", "7", "8", "13", "14", "20", "22", "31", "32", "52", "106", "136", "254", "255", "256", "-1", "-2",
           "x", "3x", " 3", "+5", "010", "0x1f", "0x", "auto", "4294967295", "99999999999999999999"]
NETDEVS = ["eth0", "eth1", "eth10", "net1", "ib0", "ibp1", "bond0", "e", "docker0", "virbr0", "lo"]


def ask_gid(choose, version):
    density, types, length = choose([1, 0.8, 0.5]), choose(["2", "12", "12", "1", "e2", "e12"]), choose([3, 6, 12, 32])
    slots = []
    for index in range(length):
        if choose(range(10)) < 10 * density:
            gid = "0" * 20 + "ffff" + choose(IPV4) if choose([True, False]) else choose(IPV6)
            slots.append(f"{index}:{gid}:{choose(types)}")
    ranges = [one for one in RANGES if "/" in one or one == "" or version != "2.22.3"]
    variables = {"NCCL_IB_ADDR_FAMILY": choose(["AF_INET", "AF_INET", "AF_INET6", "", "x", "AF_INET6 ", "af_inet6"]),
                 "NCCL_IB_ADDR_RANGE": choose(ranges),
                 "NCCL_IB_ROCE_VERSION_NUM": choose(["", "", "", "2", "1", "0x2", "3", "x", "-1"])}
    return question(["rxe0:1", ",".join(slots)], variables)


def entry(choose, names, ports):
    return choose(names) + "".join(":" + choose(ports) for _ in range(choose([0, 0, 0, 1, 1, 2, 3])))


def ask_hca(choose, _):
    names = list(DEVICES)
    devices = []
    for _ in range(choose([1, 2, 2, 3, 4])):
        name = choose(names)
        names.remove(name)
        devices.append(f"{name}:{choose([1, 1, 1, 2, 3])}")
    if choose(range(20)) == 0:
        devices = [f"mlx5_{number}:1" for number in range(choose([32, 33, 40]))]
    names = DEVICES + ["", " mlx5_0", "mlx5_0 ", "MLX5_0", "*", "mlx5_", "^mlx5_0", "=mlx5_0", "mlx5_0+mlx5_1", "none", '"mlx5_0"']
    ports = ["1", "0", "2", "", "x", "-1", "+1", " 1", "1x", "01", "0x1", "4294967297", "99999999999999999999", "1 "]
    count = choose([0, 1, 1, 2, 2, 3, 5, 31, 32, 33, 34, 40])
    listed = choose([",", ",", ",", ",,", ", ", ";"]).join(entry(choose, names, ports) for _ in range(count))
    begin = choose(["", "", "=", "=", "^", "^=", "=^", "^^", "==", " ", "=,", ",", ",^"])
    value = ",".join(part if len(part.split(":")[0]) < 64 else part[-20:] for part in (begin + listed).split(","))
    return question([",".join(devices), TABLE], {"NCCL_IB_HCA": value})


def conf_text(choose):
    lines = ""
    for _ in range(choose([0, 1, 2, 3, 5])):
        lines += choose(["", "", "", "", " ", "#", "# ", "export ", "\t", "set "])
        lines += choose(["NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA ", "nccl_ib_hca", ""])
        lines += choose(["=", "=", "=", "==", " = ", "", ":"])
        lines += choose(["3", "mlx5_0", '"3"', "'x'", " 3", "3 ", "3 # c", "", "a=b", "a" * 1022, "a" * 1023, "a" * 1024, "b" * 2000])
        lines += choose(["\n"] * 12 + ["\n\n", "\r\n"])
    return lines.removesuffix("\n") if choose(range(4)) == 0 else lines


def ask_conf(choose, _):
    # In the home of the user database, in $HOME, in /etc, and as NCCL_CONF_FILE.
    files = [conf_text(choose) if choose([True, True, False]) else "" for _ in range(4)]
    variables = {}
    if choose(range(3)) == 0:
        variables["NCCL_CONF_FILE"] = choose(["/opt/nccl.conf", "/opt/nccl.conf", "/opt/absent-nccl.conf", ""])
    for name in ("NCCL_IB_HCA", "NCCL_IB_TC"):
        if choose(range(4)) == 0:
            variables[name] = choose(["", "1", "mlx5_9"])
    return question(files, variables)


def ask_file(choose, version):
    """Returns a question of another topic, with its variables in /etc/nccl.conf, whose lines often end with CR LF."""
    asked = choose([ask_hca, ask_hca, ask_hca, ask_gid, ask_qp])(choose, version).split("\t")
    text = ""
    for line in asked[2:]:
        ends_nccl = line.endswith("x" * 63) or line == "NCCL_IB_ADDR_RANGE="  # with a CR behind it
        text += line + ("\n" if ends_nccl else choose(["\n", "\r\n", "\r\n"]))
    return question(asked[:2] + [text], {})


def addresses_of(choose, number, name, families, themes):
    if name == "lo":
        return choose([" 127.0.0.1/8 ::1/128", " 127.0.0.1/8", ""])
    label = choose(["", f"@{name}:5", "@x:5"]) if "label" in themes else ""
    ipv4 = choose([f" 10.{number}.0.1/24{label}", f" 10.{number}.0.1/16{label}"]) + choose([f" 10.{20 + number}.0.1/24", "", "", ""])
    ipv6 = choose([f" fe80::{number}/64"] * ("down" not in themes) + [f" fd00:{number}::1/64"])
    return {"4": ipv4, "6": ipv6, "46": ipv4 + ipv6}[choose(families)]


def interface_list(choose, names, themes):
    if choose(range(12)) == 0:
        return choose(["", "e", "^", "=", "^="])
    names = names * 2 + ["eth", "ib", "none", "x"]
    listed = [choose(names) for _ in range(choose([1, 1, 2, 3]))]
    if "many" in themes:
        listed = [choose(["none", "x", "y"]) for _ in range(choose([15, 16, 16]))] + listed
    if "port" in themes:
        listed = [name + choose([":1", ":1", ":", ""]) for name in listed]
    if "nameless" in themes:
        listed.insert(0, ":1")
    if "label" in themes:
        listed.append(choose([choose(names) + ":5", "x"]))
    return choose(["", "", "=", "=", "^", "^="]) + choose([""] * 12 + [",", " "]) + ",".join(listed)


def ask_bootstrap(choose, _):
    """Returns a question about one or two of the themes."""
    themes = {choose(["plain", "plain", "mixed", "family", "root", "root", "down", "label", "label", "many", "port", "nameless"])
              for _ in range(choose([1, 1, 2]))}
    left, netdevs, names = list(NETDEVS), [], []
    families = choose([["4", "46"], ["4", "46"], ["6"]]) if "mixed" not in themes else ["4", "6", "46"]
    states = ["up", "no-carrier", "down"] if "down" in themes else ["up"]
    for number in range(1, 1 + choose([1, 2, 2, 3, 4, 5])):
        names.append(choose(left))
        left.remove(names[-1])
        netdevs.append(f"{names[-1]} {choose(states)}{addresses_of(choose, number, names[-1], families, themes)}")
    variables = {}
    if themes & {"label", "many", "port", "nameless"} or choose(range(3)) == 0:
        variables["NCCL_SOCKET_IFNAME"] = interface_list(choose, names, themes)
    if "family" in themes:
        variables["NCCL_SOCKET_FAMILY"] = choose(["AF_INET", "AF_INET6", "af_inet6", "", "x"])
    if "root" in themes:
        number = choose(range(1, 1 + len(names)))
        variables["NCCL_COMM_ID"] = choose(["", f"10.{number}.0.7:5000", f"10.{number}.9.7:5000", "10.22.0.7:5000", "192.0.2.1:5000",
                                            f"[fd00:{number}::9]:5000", f"[fd00:{number}::9]:5000", "[2001:db8::1]:5000"])
    if "down" in themes and choose([True, True, False]):
        variables["NCCL_COMM_ID"] = f"[fd00:{choose(range(1, 1 + len(names)))}::9]:5000"
    return question([";".join(netdevs)], variables)


def ask_qp(choose, _):
    variables = {}
    for name in ("GID_INDEX", "TC", "SL", "PKEY", "TIMEOUT", "RETRY_CNT"):
        if choose(range(3)) == 0:
            variables["NCCL_IB_" + name] = choose(NUMBERS)
    if choose(range(6)) == 0:
        variables["NCCL_IB_QPS_PER_CONNECTION"] = choose(["", "1", "2", "4", "8", "128", "0", "x", "0x2", "99999999999999999999"])
    return question(["rxe0:1", TABLE], variables)


# ---- Asking.

TOPICS = {"gid": ("devices", ask_gid), "hca": ("devices", ask_hca), "file": ("file", ask_file), "conf": ("conf", ask_conf),
          "bootstrap": ("bootstrap", ask_bootstrap), "qp": ("devices", ask_qp)}


def versions_in(programs):
    """Returns the versions of NCCL that build-programs has linked, oldest first."""
    versions = [path.name.removeprefix("nccl_rules-") for path in programs.glob("nccl_rules-*")]
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def ask(command, questions):
    text = "".join(line + "\n" for line in questions)
    done = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=False)
    answers = done.stdout.splitlines()
    if done.returncode != 0 or len(answers) != len(questions):
        raise RuntimeError(f"{command}: exit code {done.returncode}, {len(answers)} answers to {len(questions)} questions")
    return answers


def parts_of(topic, answer):
    """Returns the parts of an answer that are compared, by name."""
    ports, _, numbers = answer.partition("\t")
    if answer.startswith("ended") or topic == "bootstrap":
        return {topic: answer}
    if topic == "hca":
        return {topic: ports}
    pairs = answer.split("\t") if topic == "conf" else numbers.split(" ")
    parts = dict(pair.partition("=")[::2] for pair in pairs)
    if topic == "conf":
        return {name: value for name, value in parts.items() if name.startswith("NCCL_") and name != "NCCL_CONF_FILE"}
    return {topic: parts.get("index", numbers)} if topic == "gid" else parts


def compare(topic, version, count, seed, programs, project):
    """Returns the lines to print and the number of differences."""
    mode, make = TOPICS[topic]
    choose = random.Random(f"{seed} {topic} {version}").choice
    questions = [make(choose, version) for _ in range(count)]
    real = ask([programs / f"nccl_rules-{version}", mode], questions)
    own = ask([project, version, mode], questions)
    different = [(len(line), line, one, other) for line, one, other in zip(questions, real, own)
                 if one.startswith("ended") or parts_of(topic, one) != parts_of(topic, other)]
    lines = [f"{topic} {version}: {count} questions, {len(set(real))} different answers of NCCL, {len(different)} differences"]
    for _, line, one, other in sorted(different)[:SHOWN]:
        lines += [f"  question {line[:400]!r}", f"    NCCL        {one[:200]!r}", f"    the project {other[:200]!r}"]
    return lines, len(different)


def main():
    programs, project, count = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])
    seed = int(sys.argv[4]) if len(sys.argv) > 4 else random.SystemRandom().randrange(2**32)
    if not (programs / "built").exists():
        print("not possible here: there is no program with NCCL; the test nccl.programs has the reason")
        return 77
    print(f"seed {seed}")
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compare, topic, version, count, seed, programs, project) for topic in TOPICS for version in versions_in(programs)]
        for job in jobs:
            lines, different = job.result()
            print("\n".join(lines), flush=True)
            failures += different
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
