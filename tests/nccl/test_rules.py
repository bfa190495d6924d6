#!/usr/bin/env python3
"""test_rules.py PROGRAMS PROJECT_RULES [SEED]: asks NCCL itself and the project the same random questions.

PROGRAMS is the directory that build-programs fills. Any difference that is not in KNOWN fails, and so does a row of KNOWN
without a difference. The seed is printed; the same seed asks the same questions.
"""
import collections
import concurrent.futures
import os
import pathlib
import random
import subprocess
import sys

COUNT = 2000
SHOWN = 5  # differences of one topic and version


class Question:
    """One line of questions.hpp: the fields of its kind, then variables."""

    def __init__(self, fields, variables):
        self.fields = fields
        self.variables = variables

    def line(self):
        fields = self.fields + [f"{name}={value}" for name, value in self.variables.items()]
        for plain, escape in (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r")):
            fields = [field.replace(plain, escape) for field in fields]
        return "\t".join(fields)

    def value(self, name):
        return self.variables.get(name, "")

    def number(self, name, default):
        """Returns the number that NCCL reads: strtoll() with base 0."""
        text = self.value(name).lstrip()
        sign, digits = (-1 if text[:1] == "-" else 1), text[text[:1] in ("+", "-"):]
        base = 16 if digits[:2].lower() == "0x" else 8 if digits[:1] == "0" else 10
        digits = digits[2 if base == 16 else 0:]
        length = 0
        while length < len(digits) and digits[length].lower() in "0123456789abcdef"[:base]:
            length += 1
        number = sign * int(digits[:length] or "0", base)
        return default if self.value(name) == "" or not -2**63 <= number < 2**63 else number

    def entries(self, name):
        """Returns the entries of a list such as NCCL_IB_HCA."""
        return [entry for entry in self.value(name).removeprefix("^").removeprefix("=").split(",") if entry]


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
    return Question(["rxe0:1", ",".join(slots)], variables)


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
    return Question([",".join(devices), TABLE], {"NCCL_IB_HCA": value})


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
    return Question(files, variables)


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
    """Returns a question that shows few of the differences, so that its answer still shows others."""
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
    return Question([";".join(netdevs)], variables)


def ask_qp(choose, _):
    variables = {}
    for name in ("GID_INDEX", "TC", "SL", "PKEY", "TIMEOUT", "RETRY_CNT"):
        if choose(range(3)) == 0:
            variables["NCCL_IB_" + name] = choose(NUMBERS)
    if choose(range(6)) == 0:
        variables["NCCL_IB_QPS_PER_CONNECTION"] = choose(["", "1", "2", "4", "8", "128", "0", "x", "0x2", "99999999999999999999"])
    return Question(["rxe0:1", TABLE], variables)


# ---- Differences that are known and not yet mended. A row goes with its mend. Its members: the topics, the versions, the part of
# the answer or None for any, the difference, and whether a question shows it.

BOTH = ("2.22.3", "2.29.7")
OLD = ("2.22.3",)


def is_nameless(question, _):
    return any(one.startswith(":") for one in question.entries("NCCL_IB_HCA"))


def is_port_long(question, _):
    return any(len(port) > 9 for one in question.entries("NCCL_IB_HCA") for port in one.split(":")[1:2])


def has_crlf(question, variable):
    lines = "\n".join(question.fields).split("\n")
    return any(line.startswith(variable + "=") and line.endswith("\r") for line in lines)


def is_mixed(question, _):
    """Returns true if a netdev has no IPv4 address, and another one has."""
    with_ipv4 = [any("." in address for address in netdev.split()[2:]) for netdev in question.fields[0].split(";")]
    return any(with_ipv4) and not all(with_ipv4)


def has_port(question, _):
    return any(":" in one[1:] for one in question.entries("NCCL_SOCKET_IFNAME"))


def is_any_down(question):
    return " down" in question.fields[0] or " no-carrier" in question.fields[0]


KNOWN = [
    (("gid",), ("2.29.7",), None, "NCCL_IB_ROCE_VERSION_NUM=-1 is the version of a GID with an unreadable type",
     lambda question, _: question.number("NCCL_IB_ROCE_VERSION_NUM", 2) == -1 and ":e" in question.fields[1]),
    (("hca",), BOTH, None, "an entry without a name, such as `:1`, is no entry", is_nameless),
    (("hca",), BOTH, None, "a port is an int, so that 4294967297 is port 1", is_port_long),
    (("conf",), BOTH, None, "a CR before the end of a line is part of the value", has_crlf),
    (("conf",), OLD, None, "2.22.3 does not read NCCL_CONF_FILE", lambda question, _: question.value("NCCL_CONF_FILE") != ""),
    (("bootstrap",), BOTH, None, "any IPv4 address precedes all IPv6 addresses", is_mixed),
    (("bootstrap",), BOTH, None, "NCCL_SOCKET_FAMILY", lambda question, _: question.value("NCCL_SOCKET_FAMILY") in ("AF_INET", "AF_INET6")),
    (("bootstrap",), ("2.29.7",), None, "with an IPv4 NCCL_COMM_ID, 2.29.2 to 2.29.7 take a netdev outside of its subnet",
     lambda question, _: question.value("NCCL_COMM_ID").startswith("1")),
    (("bootstrap",), BOTH, None, "NCCL_SOCKET_IFNAME: `eth0:1` is eth0", has_port),
    (("bootstrap",), BOTH, None, "NCCL_SOCKET_IFNAME: NCCL ignores the 17th entry", lambda question, _: len(question.entries("NCCL_SOCKET_IFNAME")) > 16),
    (("bootstrap",), BOTH, None, "NCCL_SOCKET_IFNAME is compared with the label of an IPv4 address", lambda question, _: "@" in question.fields[0]),
    (("bootstrap",), OLD, None, "2.22.3 takes netdevs that are down or have no carrier",
     lambda question, _: is_any_down(question)),
    (("bootstrap",), OLD, None, "2.22.3 does not take virbr last", lambda question, _: "virbr0 " in question.fields[0]),
    (("bootstrap",), ("2.29.7",), None, "in the subnet of NCCL_COMM_ID, 2.29.7 takes netdevs that are down or have no carrier",
     lambda question, _: question.value("NCCL_COMM_ID").startswith("[") and is_any_down(question)),
    (("qp",), BOTH, "timeout", "NCCL_IB_TIMEOUT above 31", lambda question, _: question.number("NCCL_IB_TIMEOUT", 20) & 255 > 31),
    (("qp",), BOTH, "retry", "NCCL_IB_RETRY_CNT above 7", lambda question, _: question.number("NCCL_IB_RETRY_CNT", 7) & 255 > 7),
    (("qp",), BOTH, "connects", "NCCL_IB_QPS_PER_CONNECTION=0", lambda question, _: question.number("NCCL_IB_QPS_PER_CONNECTION", 1) == 0),
    (("qp",), OLD, "tc", "2.22.3: NCCL_IB_TC=-1 is 255", lambda question, _: question.number("NCCL_IB_TC", 0) == -1),
    (("qp",), OLD, "sl", "2.22.3: NCCL_IB_SL=-1 is 255", lambda question, _: question.number("NCCL_IB_SL", 0) == -1),
    (("qp",), OLD, "timeout", "2.22.3: the default of NCCL_IB_TIMEOUT is 18",
     lambda question, _: question.number("NCCL_IB_TIMEOUT", None) is None),
]

# ---- Asking.

TOPICS = {"gid": ("devices", ask_gid), "hca": ("devices", ask_hca), "conf": ("conf", ask_conf), "bootstrap": ("bootstrap", ask_bootstrap),
          "qp": ("devices", ask_qp)}


def ask(command, questions):
    text = "".join(question.line() + "\n" for question in questions)
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
        return {name: value for name, value in parts.items() if name.startswith("NCCL_")}
    return {topic: parts.get("index", numbers)} if topic == "gid" else parts


def differing_parts(topic, one, other):
    one, other = parts_of(topic, one), parts_of(topic, other)
    if ("fails" in one) != ("fails" in other):
        return ["connects"]
    return [name for name in sorted({*one, *other}) if one.get(name) != other.get(name)]


def compare(topic, version, seed, programs, project):
    """Returns the lines to print, the number of new differences, and how often one row of KNOWN alone explains a difference."""
    mode, make = TOPICS[topic]
    choose = random.Random(f"{seed} {topic} {version}").choice
    questions = [make(choose, version) for _ in range(COUNT)]
    real = ask([programs / f"nccl_rules-{version}", mode], questions)
    own = ask([project, version, mode], questions)
    known, new = collections.Counter(), []
    for question, one, other in zip(questions, real, own):
        for part in differing_parts(topic, one, other):
            rows = [row for row in KNOWN if topic in row[0] and version in row[1] and row[2] in (None, part) and row[4](question, part)]
            if len(rows) == 1:
                known[rows[0][3], version] += 1
            if not rows or one.startswith("ended"):
                new.append((len(question.line()), question.line(), one, other))
    lines = [f"{topic} {version}: {COUNT} questions, {len(set(real))} different answers of NCCL, {len(new)} new differences"]
    lines += [f"  {number} known differences: {name}" for (name, _), number in sorted(known.items())]
    for _, question, one, other in sorted(new)[:SHOWN]:
        lines += [f"  question {question[:400]!r}", f"    NCCL        {one[:200]!r}", f"    the project {other[:200]!r}"]
    return lines, len(new), known


def main():
    programs, project = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(2**32)
    if not (programs / "built").exists():
        print("not possible here: there is no program with NCCL; the test nccl.programs has the reason")
        return 77
    print(f"seed {seed}")
    failures, known = 0, collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = [pool.submit(compare, topic, version, seed, programs, project) for topic in TOPICS for version in BOTH]
        for job in jobs:
            lines, new, shown = job.result()
            print("\n".join(lines), flush=True)
            failures += new
            known += shown
    mended = [f"{name} ({version})" for _, versions, _, name, _ in KNOWN for version in versions if not known[name, version]]
    for name in mended:
        print(f"no difference any more: {name}; remedy: remove it from KNOWN of {__file__}")
    return 1 if failures or mended else 0


if __name__ == "__main__":
    sys.exit(main())
